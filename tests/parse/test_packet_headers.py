"""The headers in frames: every link layer, IPv6 extension headers, fragments, cut and malformed packets."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.capture_bytes import (
    DST,
    DST6,
    ICMP,
    SRC,
    SRC6,
    TCP,
    UDP,
    Record,
    dag,
    erf,
    ethernet,
    extension,
    fragment6,
    ipv4,
    ipv6,
    l4,
    pcap,
    records,
)
from support.packet_rows import FRAMES, counts, headers, rows, stream
from support.scale import examples

from hitables.ir.fields import Family, Field, Fragment
from hitables.parse.captured_packets import count_packets
from hitables.parse.packet_stream import FoundPackets

pytestmark = pytest.mark.engine

UDP4 = ipv4(l4())
LINKS: list[tuple[str, bytes]] = [
    ("ethernet", pcap(records([ethernet(UDP4)]))),
    ("vlan", pcap(records([ethernet(UDP4, tags=[0x8100])]))),
    ("qinq", pcap(records([ethernet(UDP4, tags=[0x88A8, 0x8100])]))),
    ("three tags", pcap(records([ethernet(UDP4, tags=[0x9100, 0x9200, 0x8100])]))),
    ("mpls", pcap(records([ethernet(b"\0\0\x10\xff" + b"\0\0\x21\xff" + UDP4, 0x8847)]))),
    ("pppoe", pcap(records([ethernet(b"\x11\0\0\1\0\x32\0\x21" + UDP4, 0x8864)]))),
    ("snap", pcap(records([ethernet(b"\xaa\xaa\3\0\0\0\x08\0" + UDP4, 60)]))),
    ("null", pcap(records([b"\2\0\0\0" + UDP4]), link=0)),
    ("loop", pcap(records([b"\0\0\0\2" + UDP4]), link=108)),
    *((f"raw {link}", pcap(records([UDP4]), link=link)) for link in (12, 14, 101, 228)),
    ("sll", pcap(records([bytes(14) + b"\x08\0" + UDP4]), link=113)),
    ("sll vlan", pcap(records([bytes(14) + b"\x81\0\0\5\x08\0" + UDP4]), link=113)),
    ("sll2", pcap(records([b"\x08\0" + bytes(18) + UDP4]), link=276)),
    ("ppp", pcap(records([b"\0\x21" + UDP4]), link=9)),
    ("ppp serial", pcap(records([b"\xff\3\0\x21" + UDP4]), link=50)),
    ("hdlc", pcap(records([b"\x0f\0\x08\0" + UDP4]), link=104)),
    ("checksum length", pcap(records([UDP4]), link=101 | 0x14000000)),
    ("erf ipv4", erf(records([UDP4]), kind=22)),
    ("erf hdlc", erf(records([b"\xff\3\0\x21" + UDP4]), kind=1)),
    ("dag atm", dag(records([b"\xaa\xaa\3\0\0\0\x08\0" + UDP4]), "atm")),
    ("dag pos", dag(records([b"\xff\3\0\x21" + UDP4]), "pos")),
]  # fmt: skip


@pytest.mark.parametrize("data", [each[1] for each in LINKS], ids=[each[0] for each in LINKS])
def test_every_link_layer_leads_to_the_ip_header(data: bytes) -> None:
    assert headers(data) == [(SRC, DST, 1025, 53, UDP)]


def words(address: bytes) -> tuple[int, ...]:
    return struct.unpack(">4I", address)


def header6(sport: int, dport: int, protocol: int) -> tuple[int, ...]:
    return (*words(SRC6), *words(DST6), sport, dport, protocol)


PORTS6 = header6(1025, 53, UDP)
PACKETS6: list[tuple[str, bytes, tuple[int, ...] | None]] = [
    ("plain", ipv6(l4()), PORTS6),
    ("hop by hop", ipv6(extension(UDP) + l4(), 0), PORTS6),
    ("three headers", ipv6(extension(43) + extension(60, 24) + extension(UDP) + l4(), 0), PORTS6),
    ("authentication", ipv6(bytes([UDP, 4]) + bytes(22) + l4(), 51), PORTS6),
    ("first fragment", ipv6(fragment6(UDP, 0, 1) + l4(), 44), PORTS6),
    ("later fragment", ipv6(fragment6(UDP, 3, 1) + l4(), 44), header6(0, 0, UDP)),
    ("later fragment of options", ipv6(fragment6(60, 3, 0) + l4(), 44), None),
    ("icmp", ipv6(bytes(8), 58), header6(0, 0, 58)),
    ("esp", ipv6(bytes(20), 50), header6(0, 0, 50)),
    ("no next header", ipv6(b"", 59), header6(0, 0, 59)),
    ("headers without end", ipv6(extension(0) * 3, 0), None),
    ("options longer than the packet", ipv6(extension(UDP, 8)[:1] + b"\x20" + bytes(6), 0), None),
    ("ports missing", ipv6(b"\1\2\3"), None),
    ("empty and padded", ipv6(bytes(20), size=0), None),
    ("jumbogram", ipv6(extension(UDP) + l4(), 0, size=0), PORTS6),
    ("version 4", ethernet(ipv4(l4()), 0x86DD), None),
]


@pytest.mark.parametrize(
    ("packet", "expected"), [each[1:] for each in PACKETS6], ids=[each[0] for each in PACKETS6]
)
def test_extension_headers_of_ipv6_are_walked(packet: bytes, expected: tuple[int, ...] | None) -> None:
    frame = packet if packet[:2] == b"\2\2" else ethernet(packet, 0x86DD)
    data = pcap(records([frame]))
    assert headers(data, Family.IPV6) == ([expected] if expected else [])
    assert counts(data, Family.IPV6) == ({} if expected else {"malformed": 1})


PACKETS4: list[tuple[str, bytes, tuple[int, ...] | None]] = [
    ("first fragment", ipv4(l4(), fragment=0x2000), (SRC, DST, 1025, 53, UDP)),
    ("later fragment", ipv4(l4(), fragment=0x2005), (SRC, DST, 0, 0, UDP)),
    ("length 0, as segmented by the card", ipv4(l4(), size=0), (SRC, DST, 1025, 53, UDP)),
    *((f"protocol {number}", ipv4(l4(), number), (SRC, DST, 1025, 53, number)) for number in (33, 132, 136)),
    ("gre", ipv4(l4(), 47), (SRC, DST, 0, 0, 47)),
    ("short header", b"\x44" + ipv4(l4())[1:], None),
    ("version 6", ethernet(ipv6(l4()), 0x0800), None),
    ("ends before its ports", ipv4(b"\1\2\3"), None),
    ("padding is no port", ipv4(b"\1\2") + bytes(24), None),
    ("longer header than packet", ipv4(l4(), options=bytes(20), size=30), None),
    ("ends in the header", ipv4(l4())[:15], None),
]


@pytest.mark.parametrize(
    ("packet", "expected"), [each[1:] for each in PACKETS4], ids=[each[0] for each in PACKETS4]
)
def test_malformed_packets_are_counted_and_fragments_have_ports_0(
    packet: bytes, expected: tuple[int, ...] | None
) -> None:
    frame = packet if packet[:2] == b"\2\2" else ethernet(packet, 0x0800)
    padded = pcap(records([frame]))
    packets = stream(padded)
    assert [row[:-2] for row in rows(packets)] == ([expected] if expected else [])
    assert counts(padded) == ({} if expected else {"malformed": 1})
    assert packets.counts.later_fragments == (expected == (SRC, DST, 0, 0, UDP))


@pytest.mark.parametrize(
    "frame",
    [
        *FRAMES,
        ethernet(ipv6(extension(44) + fragment6(UDP, 0, 1) + l4(), 0)),
        ethernet(b"\0\0\x10\xff" + b"\0\0\x21\xff" + UDP4, 0x8847),
        ethernet(b"\xaa\xaa\3\0\0\0\x08\0" + UDP4, 60),
    ],
    ids=range(7),
)
def test_a_snap_length_gives_the_whole_header_or_none(frame: bytes) -> None:
    whole = headers(pcap(records([frame])), None)
    assert len(whole) == 1
    got_it = False
    for size in range(len(frame)):
        data = pcap([Record(10**18, frame[:size], len(frame))])
        packets = stream(data, None)
        found = [row[:-2] for row in rows(packets)]
        assert packets.counts.shortened == 1
        assert found in ([], whole) and counts(data, None) == ({} if found else {"ports_cut": 1})
        assert found or not got_it  # more bytes never hide the header
        got_it = bool(found)
    assert got_it


def test_bytes_that_pad_a_record_are_no_ports() -> None:
    """An ERF record is a multiple of 8 bytes; the frame ends before, between its ports."""
    frame = ethernet(ipv4(l4()))[:36]
    assert len(erf(records([frame]))) == 16 + 2 + len(frame) + 2
    assert headers(erf(records([frame]))) == [] and counts(erf(records([frame]))) == {"malformed": 1}


def test_both_families_are_read_together_or_apart() -> None:
    data = pcap(records([ethernet(UDP4), ethernet(ipv6(l4())), b"\2" * 12 + b"\x08\x06" + bytes(28)]))
    mapped = (0, 0, 0xFFFF, SRC, 0, 0, 0xFFFF, DST, 1025, 53, UDP)
    assert headers(data, None) == [mapped, PORTS6]
    assert counts(data, None) == {"not_ip": 1}
    assert headers(data, Family.IPV6) == [PORTS6]
    assert counts(data, Family.IPV4) == counts(data, Family.IPV6) == {"not_ip": 1, "other_family": 1}


@given(st.data())
@settings(max_examples=examples(200))
def test_headers_are_those_that_the_rule_reader_finds(data: st.DataObject) -> None:
    """On whole and damaged packets, wherever that reader, which wants more bytes, reads one."""
    bodies = st.binary(min_size=0, max_size=40)
    heads = st.sampled_from(
        [b"", extension(43), extension(60, 16), fragment6(TCP, 0, 1), fragment6(UDP, 1, 0)]
    )
    protocol = data.draw(st.sampled_from([TCP, UDP, ICMP, 44, 43, 60, 58, 132]))
    body = data.draw(heads) + data.draw(bodies)
    family = data.draw(st.sampled_from(list(Family)))
    frame = bytearray(ethernet((ipv4 if family is Family.IPV4 else ipv6)(body, protocol)))
    for _ in range(data.draw(st.integers(0, 2))):
        frame[data.draw(st.integers(14, len(frame) - 1))] = data.draw(st.integers(0, 255))
    file = pcap(records([bytes(frame)]))
    packed = io.BufferedReader(io.BytesIO(file))  # type: ignore[arg-type]
    expected = count_packets(FoundPackets(packed, "x"), family)
    found = headers(file, family)
    if not expected.packets or expected.packets[0].cut_short:
        return
    packet = expected.packets[0]
    values = packet.values
    if packet.l4_bytes < 4 and values.get(Field.PROTO) in (TCP, UDP, 132) and not found:
        return  # too short for ports: malformed here
    claimed = int.from_bytes(frame[16:18] if family is Family.IPV4 else frame[18:20], "big")
    behind = claimed - packet.l4_bytes > len(frame) - 54  # the extension headers end behind what was captured
    if (packet.l4_bytes == 0 or behind) and family is Family.IPV6 and not found:
        return  # an extension header longer than the packet: malformed here
    if not claimed and family is Family.IPV6:
        return  # a jumbogram here
    addresses: tuple[int, ...] = (values[Field.SRC], values[Field.DST])
    if family is Family.IPV6:
        addresses = words(addresses[0].to_bytes(16, "big")) + words(addresses[1].to_bytes(16, "big"))
    later = values[Field.FRAG] == Fragment.LATER
    ports = (0, 0) if later else (values.get(Field.SPORT, 0), values.get(Field.DPORT, 0))
    if not found:
        # Another version than the frame says, or a header longer than the packet.
        assert counts(file, family) == {"malformed": 1}
        version = 4 if family is Family.IPV4 else 6
        assert frame[14] >> 4 != version or (version == 4 and claimed < (frame[14] & 15) * 4)
        return
    assert found == [(*addresses, *ports, values[Field.PROTO])]
