"""Packets of a capture as rules read them: every field, or the packet is counted and left out."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.capture_bytes import (
    FILES,
    ICMP,
    TCP,
    UDP,
    Record,
    block,
    enhanced,
    ethernet,
    extension,
    fragment6,
    interface,
    ipv4,
    ipv6,
    l4,
    pcap,
    pcapng,
    records,
    section,
)
from support.packet_rows import FRAMES, HEADERS
from support.rule_texts import make_text
from support.scale import examples

import hitables
from hitables.errors import ParseError
from hitables.generate.traffic import to_pcap, traffic
from hitables.ir.fields import STATES, Family, Field
from hitables.ir.packet import Packet
from hitables.kernel.craft import craft
from hitables.parse.captured_packets import Capture, count_packets
from hitables.parse.packet_stream import FoundPackets, open_capture
from hitables.simulate.batch import PacketBatch
from hitables.simulate.boundary_packets import draw_packets

pytestmark = pytest.mark.engine

ETHERNET = {Family.IPV4: b"\2" * 12 + b"\x08\x00", Family.IPV6: b"\2" * 12 + b"\x86\xdd"}
EXTENSION_HEADERS = (0, 43, 44, 51, 60, 135)
OUTSIDE = (Field.IIF, Field.OIF, Field.MAC, Field.STATE)  # what a frame does not tell


def read(data: bytes, family: Family = Family.IPV4) -> Capture:
    stream = io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]
    return count_packets(FoundPackets(stream, "x", incomplete=True), family)


def skipped(capture: Capture) -> dict[str, int]:
    return {name: count for name, count in capture.skipped.items() if count}


def five_fields(capture: Capture) -> list[tuple[int, ...]]:
    fields = (Field.SRC, Field.DST, Field.SPORT, Field.DPORT, Field.PROTO)
    return [tuple(packet.values.get(field, 0) for field in fields) for packet in capture.packets]


def header(packet: Packet) -> tuple[object, ...]:
    values = {field: value for field, value in packet.values.items() if field not in OUTSIDE}
    raw = tuple(sorted(packet.raw.items())) if packet.family is Family.IPV4 else ()
    classes = packet.bad_offset, packet.offset_one, packet.cut_short
    return (*sorted(values.items()), raw, packet.l4_bytes, *classes)


@pytest.mark.parametrize("write", [pcap, pcapng])
@pytest.mark.parametrize("family", Family)
def test_a_capture_reads_back_as_the_packets_that_were_sent(family: Family, write: type) -> None:
    program = hitables.read(make_text(random.Random(family), family), family=family)
    drawn = draw_packets(program, "filter", "FORWARD", 2000, 1)
    # A protocol that is an extension header of IPv6 is one on the wire.
    packets = [
        packet
        for packet in drawn
        if family is Family.IPV4 or packet.values.get(Field.PROTO) not in EXTENSION_HEADERS
    ]
    assert len(packets) > 1000
    sent = [craft(packet, 0, packet.values[Field.SRC], packet.values[Field.DST]) for packet in packets]
    found = read(write(records([ETHERNET[family] + packet for packet in sent], step=1000)), family)
    assert (skipped(found), sum(found.counts)) == ({}, len(packets))
    assert {header(packet) for packet in found.packets} == {header(packet) for packet in packets}


@pytest.mark.parametrize("name", FILES)
def test_every_format_of_captures_is_read(name: str) -> None:
    found = read(FILES[name](records(FRAMES)))
    assert (five_fields(found), skipped(found)) == (HEADERS, {})


def test_interfaces_sections_and_simple_blocks_of_pcapng_are_read() -> None:
    raw, framed = records([FRAMES[0][14:], FRAMES[0]])
    data = section("<") + interface("<", 101) + interface("<", 1)
    data += enhanced("<", 1, raw, 0) + enhanced("<", 2, framed, 1)
    data += section(">") + interface(">", 1) + enhanced(">", 1, framed, 0)
    data += block(">", 3, len(framed.frame).to_bytes(4, "big") + framed.frame)
    assert read(data).counts == (4,)


def test_no_packet_of_our_own_captures_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(b"".join(map(bytes, to_pcap(traffic("uplink", 3000)))))
    found = count_packets(open_capture(str(path)), Family.IPV4)
    assert (sum(found.counts), skipped(found)) == (3000, {})
    protocols = {packet.values[Field.PROTO] for packet in found.packets}
    assert {TCP, UDP} <= protocols


def snapped(packet: bytes, size: int) -> bytes:
    """A capture of the first *size* bytes behind the link layer."""
    frame = ethernet(packet)
    return pcap([Record(10**18, frame[: 14 + size], len(frame))])


@pytest.mark.parametrize(
    ("packet", "needed"),
    [
        (ipv4(l4(), UDP), 24),
        (ipv4(l4(), 136), 24),
        (ipv4(l4(), TCP), 34),  # with its flags
        (ipv4(l4(), ICMP), 22),
        (ipv4(l4(), 47), 20),
        (ipv4(l4(), UDP, options=bytes(8)), 32),
        (ipv4(l4(), UDP, fragment=5), 34),  # native expressions read a later fragment as tcp
        (ipv6(l4()), 44),
        (ipv6(bytes(8), 58), 42),
        (ipv6(extension(UDP) + l4(), 0), 52),
        (ipv6(fragment6(UDP, 3, 1) + l4(), 44), 48),
        (ipv6(fragment6(60, 3, 1) + l4(), 44), 48),
    ],
)
def test_a_packet_is_read_as_soon_as_the_capture_has_the_fields_that_rules_read(
    packet: bytes, needed: int
) -> None:
    """`tcpdump -s 42` keeps 28 bytes of a packet: udp with its ports, tcp without its flags."""
    family = Family(packet[0] >> 4)
    whole = [header(each) for each in read(snapped(packet, len(packet)), family).packets]
    assert len(whole) == 1
    for size in range(len(packet)):
        found = read(snapped(packet, size), family)
        assert [header(each) for each in found.packets] == (whole if size >= needed else [])
        assert skipped(found) == ({} if size >= needed else {"fields_cut": 1})


@pytest.mark.parametrize(
    "packet",
    [
        b"\x44" + ipv4(l4())[1:],
        b"\x65" + ipv4(l4())[1:],
        ipv4(l4(), options=bytes(20), size=30),
        ipv4(b"\1\2", size=40),
        ipv4(l4())[:15],
    ],
    ids=["short header", "version 6", "header longer than packet", "frame without ports", "no header"],
)
def test_packets_that_no_hook_sees_are_counted(packet: bytes) -> None:
    found = read(pcap(records([ethernet(packet, 0x0800)])))
    assert (found.packets, skipped(found)) == ((), {"malformed": 1})


def test_losses_are_named() -> None:
    arp = b"\2" * 12 + b"\x08\x06" + bytes(28)
    udp = ethernet(ipv4(l4()))
    data = pcap(records([arp, udp, udp[:14] + b"\x44" + udp[15:], ethernet(ipv6(l4())), udp]))
    assert read(data).losses() == "1 not IP, 1 of the other family, 1 malformed"
    assert read(data[:-3]).losses().endswith("1 malformed, a record in which the file ends")
    assert read(pcap(records([udp]))).losses() == ""


def test_a_damaged_or_alien_capture_is_refused(tmp_path: Path) -> None:
    (item,) = records([FRAMES[0]])
    with pytest.raises(ParseError, match=r"record 2, byte .*: the record claims 4294967295 bytes"):
        read(pcap([item]) + b"\xff" * 16)
    with pytest.raises(ParseError, match="link type 105"):
        read(pcap([item], link=105))
    path = tmp_path / "x.pcap"
    path.write_text("1 2 3 4 5\n")
    with pytest.raises(ParseError, match=r"x\.pcap: not a readable capture: it is text; --trace"):
        open_capture(str(path))


@given(data=st.data())
@settings(max_examples=examples(150))
def test_no_damage_crashes_the_reader_or_hides_a_packet(data: st.DataObject) -> None:
    frames = [
        *FRAMES,
        ethernet(ipv6(fragment6(UDP, 0, 1) + l4(), 44)),
        ethernet(ipv6(extension(UDP) + l4(), 0)),
    ]
    whole = bytearray(data.draw(st.sampled_from(sorted(FILES.items())))[1](records(frames)))
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.sampled_from([0, 1, 127, 128, 255]) | st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    family = data.draw(st.sampled_from(list(Family)))
    packets = FoundPackets(io.BufferedReader(io.BytesIO(cut)), "x", incomplete=True)  # type: ignore[arg-type]
    try:
        found = count_packets(packets, family)
    except ParseError:
        return
    assert sum(found.counts) + sum(found.skipped.values()) == packets.counts.records
    assert len(PacketBatch.of(family, found.packets)) == len(found.packets)


def test_a_jumbogram_has_the_length_of_its_frame() -> None:
    (packet,) = read(pcap(records([ethernet(ipv6(extension(UDP) + l4(), 0, size=0))])), Family.IPV6).packets
    assert packet.l4_bytes == 24 and packet.values[Field.DPORT] == 53
    (large,) = read(
        pcap([Record(10**18, ethernet(ipv4(l4(), size=0)), 70_000)])
    ).packets  # as segmented by the card
    assert large.l4_bytes == 65535


def test_a_flow_is_established_once_it_was_answered() -> None:
    one = ipv4(l4(7, 8), src=5, dst=6)
    two = ipv4(l4(8, 7), src=6, dst=5)
    found = read(pcap(records([one, one, two, one, ipv4(l4(7, 9), src=5, dst=6)]), link=101))
    states = [STATES[packet.values[Field.STATE]] for packet in found.packets]
    expected = [("NEW", 2), ("ESTABLISHED", 1), ("ESTABLISHED", 1), ("NEW", 1)]
    assert list(zip(states, found.counts, strict=True)) == expected
