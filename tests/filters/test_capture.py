"""Headers of packets as the capture reads them: those of the C reader of captures, and the TCP phase."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.capture_bytes import extension, fragment6, ipv4, ipv6, pcap, records

from hitables.core.captures import CaptureReader, Format, Words
from hitables.engine.filters import joined
from hitables.filters import Phase, Syntax
from hitables.filters.capture import header_of
from hitables.filters.phase import of_flags

RAW = 101  # the link type of packets without a link layer
FIN, SYN, RST, PSH, ACK, URG, ECE, CWR = (1 << bit for bit in range(8))


def read_by_c(packet: bytes, family: int) -> tuple[int, ...] | None:
    """The five fields, by the reader of captures."""
    reader = CaptureReader(Format.PCAP, Words.IPV4 if family == 4 else Words.IPV6, 4)
    data = np.frombuffer(pcap(records([packet]), link=RAW), np.uint8)
    _, _, count = reader.read(data, len(data))
    if not count or reader.counts.ports_cut:
        return None
    words = reader.headers[0].tolist()
    layout = Syntax(family).layout
    return joined([*words, 0], layout)[:5]


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """What is behind the IP header, and its protocol."""
    protocol = draw(st.sampled_from([1, 6, 17, 33, 47, 50, 132, 136, 200]))
    sport, dport = draw(st.integers(0, 65535)), draw(st.integers(0, 65535))
    flags = draw(st.integers(0, 255))
    return struct.pack(">HHIIBB", sport, dport, 1, 1, 0x50, flags) + bytes(16), protocol


@given(body=bodies(), options=st.integers(0, 10), fragment=st.sampled_from([0, 0, 0x4000, 0x2000, 5, 0x2005]))
def test_the_fields_of_an_ipv4_packet_are_those_of_the_reader_of_captures(
    body: tuple[bytes, int], options: int, fragment: int
) -> None:
    data, protocol = body
    packet = ipv4(data, protocol, fragment=fragment, options=bytes([1] * (4 * options)))
    header = header_of(packet, 4)
    assert header is not None and header[:5] == read_by_c(packet, 4)
    is_first = not fragment & 0x1FFF
    assert header[5] == (of_flags(data[13]) if protocol == 6 and is_first else 0)


@given(body=bodies(), kinds=st.lists(st.sampled_from([0, 43, 44, 60]), max_size=3), later=st.booleans())
def test_the_fields_of_an_ipv6_packet_are_those_of_the_reader_of_captures(
    body: tuple[bytes, int], kinds: list[int], later: bool
) -> None:
    data, protocol = body
    following = protocol
    for kind in reversed(kinds):
        head = fragment6(following, 8 if later else 0, 1) if kind == 44 else extension(following, 16)
        data, following = head + data, kind
    packet = ipv6(data, following)
    header = header_of(packet, 6)
    assert (header and header[:5]) == read_by_c(packet, 6)


@given(data=st.binary(max_size=120), family=st.sampled_from([4, 6]))
def test_any_bytes_are_a_header_or_malformed(data: bytes, family: int) -> None:
    header = header_of(data, family)
    if header is not None:
        Syntax(family).layout.headers([header])  # every field fits


@pytest.mark.parametrize(
    ("flags", "phase"),
    [
        (SYN, Phase.SYN), (SYN | ECE | CWR, Phase.SYN), (SYN | ACK, Phase.SYNACK), (SYN | ACK | ECE, Phase.SYNACK),
        (ACK, Phase.OTHER), (PSH | ACK, Phase.OTHER), (FIN | ACK, Phase.FIN), (FIN | PSH | ACK | URG, Phase.FIN),
        (RST, Phase.RST), (RST | ACK, Phase.RST), (RST | FIN, Phase.RST), (SYN | FIN, Phase.SYN), (0, Phase.OTHER),
    ],
)  # fmt: skip
def test_the_phase_follows_from_the_flags(flags: int, phase: Phase) -> None:
    assert of_flags(flags) is phase
