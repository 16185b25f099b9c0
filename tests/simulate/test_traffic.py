"""Weights of rules: counters, traces and captures give them, and what says nothing is refused."""

from __future__ import annotations

import io
import random
import sys
from pathlib import Path

import dpkt
import pytest
from support.rule_texts import make_text

import hitables
from hitables.analyse.weights import from_counters
from hitables.errors import HitablesError, ParseError
from hitables.ir.fields import STATES, Family, Field
from hitables.ir.packet import Backend, Packet
from hitables.kernel.craft import craft
from hitables.parse import pcap
from hitables.simulate.boundary_packets import draw_packets
from hitables.simulate.traffic import busiest_chain, from_packets, pcap_batch, trace_batch

ETHERNET = {Family.IPV4: b"\2" * 12 + b"\x08\x00", Family.IPV6: b"\2" * 12 + b"\x86\xdd"}
HEADERS = (0, 43, 44, 51, 60, 135)
OUTSIDE = (Field.IIF, Field.OIF, Field.MAC, Field.STATE)  # what a frame does not tell
RULES = """*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [7:700]
[30:300] -A FORWARD -s 10.0.0.1 -j ACCEPT
[0:0] -A FORWARD -s 10.0.0.2 -j ACCEPT
[10:100] -A FORWARD -s 10.0.0.3 -j ACCEPT
COMMIT
"""


def capture(frames: list[bytes], link: int = 1, ng: bool = False) -> bytes:
    file = io.BytesIO()
    writer = dpkt.pcapng.Writer(file, linktype=link) if ng else dpkt.pcap.Writer(file, linktype=link)
    for at, frame in enumerate(frames):
        writer.writepkt(frame, ts=at)
    return file.getvalue()


def sent(packet: Packet) -> bytes:
    return craft(packet, 0, packet.values[Field.SRC], packet.values[Field.DST])


def header(packet: Packet) -> tuple[object, ...]:
    values = {field: value for field, value in packet.values.items() if field not in OUTSIDE}
    raw = tuple(sorted(packet.raw.items())) if packet.family is Family.IPV4 else ()
    return (
        *sorted(values.items()),
        raw,
        packet.l4_bytes,
        packet.bad_offset,
        packet.offset_one,
        packet.cut_short,
    )


@pytest.mark.parametrize("ng", [False, True])
@pytest.mark.parametrize("family", Family)
def test_a_capture_reads_back_as_the_packets_that_were_sent(family: Family, ng: bool) -> None:
    program = hitables.read(make_text(random.Random(family), family), family=family)
    drawn = draw_packets(program, "filter", "FORWARD", 2000, 1)
    # A protocol that is an extension header of IPv6 is one on the wire.
    packets = [
        packet for packet in drawn if family is Family.IPV4 or packet.values.get(Field.PROTO) not in HEADERS
    ]
    assert len(packets) > 1000
    read = pcap.parse(capture([ETHERNET[family] + sent(packet) for packet in packets], ng=ng), family)
    assert (read.unread, read.others, sum(read.counts)) == (0, 0, len(packets))
    assert {header(packet) for packet in read.packets} == {header(packet) for packet in packets}


def udp(source: int, target: int, sport: int = 1, dport: int = 2) -> bytes:
    values = {Field.SRC: source, Field.DST: target, Field.PROTO: 17, Field.SPORT: sport, Field.DPORT: dport}
    return craft(Packet(Family.IPV4, values), 0, source, target)


@pytest.mark.parametrize(
    ("link", "before"),
    [
        (1, ETHERNET[Family.IPV4]), (1, b"\2" * 12 + b"\x81\x00\0\5\x08\x00"), (12, b""), (101, b""), (228, b""),
        (113, b"\0" * 14 + b"\x08\x00"), (276, b"\x08\x00" + b"\0" * 18), (0, b"\2\0\0\0"),
    ],
)  # fmt: skip
def test_every_kind_of_link_leads_to_the_ip_header(link: int, before: bytes) -> None:
    read = pcap.parse(capture([before + udp(0x0A000001, 0x0A000002)] * 3, link), Family.IPV4)
    assert read.counts == (3,) or sum(read.counts) == 3
    assert read.packets[0].values[Field.DST] == 0x0A000002 and read.packets[0].values[Field.DPORT] == 2


def test_a_flow_is_established_once_it_was_answered() -> None:
    one, two = udp(5, 6, 7, 8), udp(6, 5, 8, 7)
    read = pcap.parse(capture([one, one, two, one, udp(5, 6, 7, 9)], 101), Family.IPV4)
    states = [STATES[packet.values[Field.STATE]] for packet in read.packets]
    assert list(zip(states, read.counts, strict=True)) == [
        ("NEW", 2),
        ("ESTABLISHED", 1),
        ("ESTABLISHED", 1),
        ("NEW", 1),
    ]


def test_packets_cut_off_or_not_ip_are_counted_not_guessed() -> None:
    arp = b"\2" * 12 + b"\x08\x06" + b"\0" * 28
    whole = ETHERNET[Family.IPV4] + udp(1, 2)
    read = pcap.parse(
        capture([arp, whole, whole[:36], ETHERNET[Family.IPV6] + b"\x60" + b"\0" * 39]), Family.IPV4
    )
    assert (sum(read.counts), read.unread, read.others) == (1, 2, 1)


def test_a_file_that_is_not_a_capture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(b"*filter\nCOMMIT\n")
    with pytest.raises(ParseError, match=r"x\.pcap: not a readable capture"):
        pcap_batch(str(path), Family.IPV4)
    path.write_bytes(capture([b"\0" * 60], 105))
    with pytest.raises(ParseError, match="link type 105"):
        pcap_batch(str(path), Family.IPV4)


def test_without_dpkt_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dpkt", None)
    with pytest.raises(HitablesError, match=r"hitables\[pcap\]"):
        pcap.parse(capture([]), Family.IPV4)


def test_counters_give_weights() -> None:
    weights = from_counters(hitables.read(RULES))
    assert weights.of("filter", "FORWARD", even=0) == pytest.approx([2.25, 0, 0.75])
    assert weights.of("filter", "FORWARD") == pytest.approx([2.125, 0.1, 0.775])
    assert weights.of("filter", "INPUT") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            RULES.replace("[30:300] ", "").replace("[0:0] -A", "-A").replace("[10:100] ", ""),
            "no rule has counters",
        ),
        (RULES.replace("[30:300]", "[0:0]").replace("[10:100]", "[0:0]"), "all counters are 0"),
    ],
)
def test_counters_that_are_missing_or_0_are_refused(text: str, said: str) -> None:
    with pytest.raises(HitablesError, match=said):
        from_counters(hitables.read(text))


@pytest.mark.parametrize("backend", Backend)
def test_a_capture_gives_rules_the_weight_of_their_packets(backend: Backend, tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(capture([udp(0x0A000001, 9)] * 6 + [udp(0x0A000003, 9)] * 2 + [udp(0x0A000009, 9)], 101))
    program = hitables.read(RULES)
    batch = pcap_batch(str(path), program.family)
    weights = from_packets(program, "filter", "FORWARD", batch, backend, str(path))
    assert weights.counts["filter", "FORWARD"] == (6, 0, 2)
    assert weights.of("filter", "FORWARD", even=0) == pytest.approx([2.25, 0, 0.75])


def test_packets_of_the_wrong_family_or_place_are_refused(tmp_path: Path) -> None:
    path, trace = tmp_path / "x.pcap", tmp_path / "trace"
    program = hitables.read(RULES)
    path.write_bytes(capture([udp(0x0A000009, 9)], 101))
    with pytest.raises(HitablesError, match="none of 1 packets matches a rule of filter FORWARD"):
        from_packets(program, "filter", "FORWARD", pcap_batch(str(path), Family.IPV4), Backend.NFT, str(path))
    with pytest.raises(HitablesError, match="no IPv6 packet in the capture; 1 are of the other family"):
        pcap_batch(str(path), Family.IPV6)
    trace.write_text("1\t2\t3\t4\t17\n")
    with pytest.raises(HitablesError, match="the trace is IPv4, the rule set is not"):
        trace_batch(str(trace), Family.IPV6)
    six = hitables.read(
        "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s fe80::/10 -j DROP\nCOMMIT\n", family=Family.IPV6
    )
    with pytest.raises(HitablesError, match="the packets are IPv4, - is IPv6"):
        from_packets(six, "filter", "INPUT", trace_batch(str(trace), Family.IPV4), Backend.NFT, str(trace))


def test_the_chain_of_most_rules_is_chosen_and_unknown_ones_are_refused() -> None:
    program = hitables.read(RULES)
    assert busiest_chain(program) == "FORWARD"
    with pytest.raises(HitablesError, match="no built-in chain MINE"):
        busiest_chain(program, "MINE")
    with pytest.raises(HitablesError, match="no table nat"):
        busiest_chain(program, table="nat")
