"""Captured packets (pcap and pcapng): the headers that rules read, and how often each was seen.

The file's format is read by dpkt (`pip install "hitables[pcap]"`).  A capture contains neither the
hook nor the connection state; here a flow is NEW until it was seen in both directions, then ESTABLISHED.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import MissingLibrary, ParseError
from ..ir.fields import ICMP, ICMPV6, PORT_PROTOCOLS, STATES, TCP, Family, Field, Fragment
from ..ir.headers import FIELD_BYTES, TCP_OFFSET_BYTES
from ..ir.packet import Packet

_NEW, _ESTABLISHED = STATES.index("NEW"), STATES.index("ESTABLISHED")
_ETHERTYPES = {0x0800: Family.IPV4, 0x86DD: Family.IPV6}
_VLAN = (0x8100, 0x88A8, 0x9100)
# Link type -> bytes before the IP header, the last two an ethertype.
_TYPED = {1: 14, 113: 16}
_SLL2 = 276
# Link type -> bytes before the IP header.
_BARE = {0: 4, 108: 4, 12: 0, 14: 0, 101: 0, 228: 0, 229: 0}
_EXTENSIONS = (0, 43, 60, 135)  # headers with their length in the second byte
_FRAGMENT, _AH = 44, 51


@dataclass(frozen=True)
class Capture:
    """The distinct packets of one family, and how often each was seen.

    others  packets of the other family; unread: frames that are no IP or were cut off by the capture
    """

    family: Family
    packets: tuple[Packet, ...]
    counts: tuple[int, ...]
    others: int = 0
    unread: int = 0
    source: str = field(default="-", compare=False)


def parse(data: bytes, family: Family, source: str = "-") -> Capture:
    """Read a capture; ParseError if it is none, MissingLibrary without dpkt."""
    seen: Counter[tuple[Any, ...]] = Counter()
    flows: dict[tuple[Any, ...], bool] = {}  # whether both directions were seen
    others = unread = 0
    for link, frame in _frames(data, source):
        packet = _network(link, frame)
        if packet is None or (fields := _fields(*packet)) is None:
            unread += 1
        elif packet[0] is not family:
            others += 1
        else:
            seen[(*fields, _state(fields[0], flows))] += 1
    packets = tuple(_packet(family, *key) for key in seen)
    return Capture(family, packets, tuple(seen.values()), others, unread, source)


def _frames(data: bytes, source: str) -> Iterator[tuple[int, bytes]]:
    try:
        from dpkt import UnpackError
        from dpkt.pcap import UniversalReader
    except ImportError:
        raise MissingLibrary(f'{source}: reading captures needs dpkt; pip install "hitables[pcap]"') from None
    try:
        reader = UniversalReader(io.BytesIO(data))
        link = reader.datalink()
        if link not in _TYPED and link not in _BARE and link != _SLL2:
            hint = "capture on an Ethernet or IP interface"
            raise ParseError(f"frames of link type {link} are not read", source=source, hint=hint)
        for _, frame in reader:
            yield link, bytes(frame)
    except (ValueError, UnpackError, EOFError) as error:
        reason = f"not a readable capture: {str(error) or type(error).__name__}"
        raise ParseError(reason, source=source) from None


def _network(link: int, frame: bytes) -> tuple[Family, bytes] | None:
    """The IP packet in a frame."""
    if link in _BARE:
        packet = frame[_BARE[link] :]
        family = {4: Family.IPV4, 6: Family.IPV6}.get(packet[0] >> 4) if packet else None
        return (family, packet) if family else None
    if link == _SLL2:
        kind, packet = frame[:2], frame[20:]
    else:
        kind, packet = frame[_TYPED[link] - 2 : _TYPED[link]], frame[_TYPED[link] :]
    while int.from_bytes(kind, "big") in _VLAN:
        kind, packet = packet[2:4], packet[4:]
    family = _ETHERTYPES.get(int.from_bytes(kind, "big"))
    return (family, packet) if family else None


_Fields = tuple[tuple[tuple[Field, int], ...], tuple[tuple[Field, int], ...], int, bool, bool, bool]


def _fields(family: Family, packet: bytes) -> _Fields | None:
    """Values, raw values, bytes of layer 4, the three malformed classes; None if the capture lacks them."""
    v4 = family is Family.IPV4
    if len(packet) < (20 if v4 else 40):
        return None
    width = 4 if v4 else 16
    start = 12 if v4 else 8
    addresses = (int.from_bytes(packet[start + at * width :][:width], "big") for at in (0, 1))
    values = dict(zip((Field.SRC, Field.DST), addresses, strict=True))
    values |= {Field.IIF: 0, Field.OIF: 0}
    if v4:
        start_of_l4, whole = (packet[0] & 15) * 4, int.from_bytes(packet[2:4], "big")
        protocol: int | None = packet[9]
        word = int.from_bytes(packet[6:8], "big")
        offset, more = word & 0x1FFF, bool(word & 0x2000)
        if not whole:  # the network card fills it in
            whole = len(packet)
    else:
        whole = 40 + int.from_bytes(packet[4:6], "big")
        start_of_l4, protocol, offset, more = _walk(packet[:whole])
    size = max(0, whole - start_of_l4)
    body = packet[start_of_l4:whole]
    if len(body) < min(size, TCP_OFFSET_BYTES + 1) or start_of_l4 < (20 if v4 else 40):
        return None
    values[Field.FRAG] = int(Fragment.LATER if offset else Fragment.FIRST if more else Fragment.WHOLE)
    if protocol is not None:
        values[Field.PROTO] = protocol
    layer4 = {} if protocol is None else _read(body, size)
    if offset:
        # In IPv6 native expressions read a later fragment's ports from the IP header (docs/kernel.md).
        raw = layer4 if v4 else _read(packet, size)
        raw = {each: value for each, value in raw.items() if each is not Field.ICMP}
        return tuple(values.items()), tuple(raw.items()), size, False, offset == 1, protocol is None
    has = {
        Field.SPORT: protocol in PORT_PROTOCOLS,
        Field.DPORT: protocol in PORT_PROTOCOLS,
        Field.ICMP: protocol == (ICMP if v4 else ICMPV6),
        Field.FLAGS: protocol == TCP,
    }
    values |= {each: value for each, value in layer4.items() if has[each]}
    broken = False
    if protocol == TCP and size >= TCP_OFFSET_BYTES:
        length = (body[TCP_OFFSET_BYTES - 1] >> 4) * 4
        broken = length < 20 or length > size
    return tuple(values.items()), (), size, broken, False, protocol is None


def _read(body: bytes, size: int) -> dict[Field, int]:
    """The bytes at the positions of layer 4 fields, within *size* bytes."""
    values = {
        each: int.from_bytes(body[max(0, end - 2) : end], "big")
        for each, end in FIELD_BYTES.items()
        if size >= end
    }
    if Field.FLAGS in values:
        values[Field.FLAGS] &= 63
    return values


def _walk(packet: bytes) -> tuple[int, int | None, int, bool]:
    """Skip IPv6 extension headers: the start of layer 4, its protocol (None: cut short), offset, more."""
    protocol: int | None = packet[6]
    before = at = 40
    offset, more = 0, False
    while protocol in _EXTENSIONS or protocol in (_FRAGMENT, _AH):
        if len(packet) < at + 8:
            return at if at <= len(packet) else before, None, offset, more
        before, following, length = at, packet[at], packet[at + 1]
        if protocol == _FRAGMENT:
            word = int.from_bytes(packet[at + 2 : at + 4], "big")
            offset, more, length = word >> 3, bool(word & 1), 0
        size = (length + 2) * 4 if protocol == _AH else (length + 1) * 8
        protocol, at = following, at + size
        if offset:  # the kernel reads no further headers there, and an extension header as no protocol
            if protocol in (*_EXTENSIONS[:3], _FRAGMENT, _AH):
                protocol = None
            break
    return at, protocol, offset, more


def _state(values: tuple[tuple[Field, int], ...], flows: dict[tuple[Any, ...], bool]) -> int:
    """Whether the packet's flow was seen in both directions."""
    of = dict(values)
    ends = (of[Field.SRC], of.get(Field.SPORT)), (of[Field.DST], of.get(Field.DPORT))
    key, back = (of.get(Field.PROTO), *ends), (of.get(Field.PROTO), *reversed(ends))
    if back in flows and back != key:
        flows[back] = True
        return _ESTABLISHED
    return _ESTABLISHED if flows.setdefault(key, False) else _NEW


def _packet(
    family: Family,
    values: tuple[tuple[Field, int], ...],
    raw: tuple[tuple[Field, int], ...],
    size: int,
    bad_offset: bool,
    offset_one: bool,
    cut_short: bool,
    state: int,
) -> Packet:
    return Packet(
        family, {**dict(values), Field.STATE: state}, dict(raw), size, bad_offset, offset_one, cut_short
    )
