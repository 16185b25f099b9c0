"""Captured packets: the headers that rules read, and how often each was seen.

packet_stream.py finds the IP packets in a capture; this module reads their headers as rules do, also of
packets that end in mid-header.  A capture contains neither the hook nor the connection state; here a flow is
NEW until it was seen in both directions, then ESTABLISHED.  No field is made up: a packet is counted and left
out if the capture lacks a field of it that a rule may read.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..ir.fields import ICMP, ICMPV6, PORT_PROTOCOLS, STATES, TCP, Family, Field, Fragment
from ..ir.headers import FIELD_BYTES, TCP_OFFSET_BYTES
from ..ir.packet import Packet
from .packet_stream import REASONS, FoundPacket, FoundPackets

_NEW, _ESTABLISHED = STATES.index("NEW"), STATES.index("ESTABLISHED")
_EXTENSIONS = (0, 43, 60, 135)  # headers with their length in the second byte
_FRAGMENT, _AH = 44, 51
_LARGEST = 65535  # bytes of a packet, unless it is a jumbogram


@dataclass(frozen=True)
class Capture:
    """The distinct packets of one family, and how often each was seen.

    skipped     how many packets are left out, by the reasons of REASONS
    ends_early  the file ends before its last record does
    """

    family: Family
    packets: tuple[Packet, ...]
    counts: tuple[int, ...]
    skipped: Mapping[str, int]
    ends_early: bool = False
    source: str = field(default="-", compare=False)

    def losses(self) -> str:
        """What was left out, in words; "" for nothing."""
        lost = [f"{count:,} {REASONS[name]}" for name, count in self.skipped.items() if count]
        return ", ".join(lost + ["a record in which the file ends"] * self.ends_early)


class _Lost(enum.Enum):
    """Why a packet is left out: the capture lacks bytes that rules read, or no hook sees such a packet."""

    CUT = "fields_cut"
    MALFORMED = "malformed"


def count_packets(found: FoundPackets, family: Family) -> Capture:
    """The packets of *family* in a capture; ParseError if it cannot be read."""
    seen: Counter[tuple[Any, ...]] = Counter()
    flows: dict[tuple[Any, ...], bool] = {}  # whether both directions were seen
    lost: Counter[str] = Counter()
    for each in found:
        fields = _fields(each)
        if isinstance(fields, _Lost):
            lost[fields.value] += 1
        elif each.version != family:
            lost["other_family"] += 1
        else:
            seen[(*fields, _state(fields[0], flows))] += 1
    packets = tuple(_packet(family, *key) for key in seen)
    counts = found.counts
    skipped = {
        "not_ip": counts.not_ip,
        "other_family": lost["other_family"],
        "fields_cut": counts.ports_cut + lost["fields_cut"],
        "malformed": counts.malformed + lost["malformed"],
        "other_link": counts.other_link,
    }
    return Capture(family, packets, tuple(seen.values()), skipped, found.ends_early, found.source)


_Fields = tuple[tuple[tuple[Field, int], ...], tuple[tuple[Field, int], ...], int, bool, bool, bool]


def _fields(found: FoundPacket) -> _Fields | _Lost:
    """Values, raw values, bytes of layer 4, the three malformed classes."""
    v4, packet = found.version == Family.IPV4, found.data
    lacking = _Lost.CUT if len(packet) < found.size else _Lost.MALFORMED
    if packet and packet[0] >> 4 != found.version:
        return _Lost.MALFORMED
    if len(packet) < (20 if v4 else 40):
        return lacking
    width = 4 if v4 else 16
    start = 12 if v4 else 8
    addresses = (int.from_bytes(packet[start + at * width :][:width], "big") for at in (0, 1))
    values = dict(zip((Field.SRC, Field.DST), addresses, strict=True))
    values |= {Field.IIF: 0, Field.OIF: 0}
    if v4:
        # Without a length, the network card fills it in.
        start_of_l4, whole = (packet[0] & 15) * 4, int.from_bytes(packet[2:4], "big") or found.size
        protocol: int | None = packet[9]
        word = int.from_bytes(packet[6:8], "big")
        offset, more = word & 0x1FFF, bool(word & 0x2000)
        if not 20 <= start_of_l4 <= whole:
            return _Lost.MALFORMED
    else:
        whole = 40 + int.from_bytes(packet[4:6], "big")
        if whole == 40 and (packet[6] == 0 or found.size > _LARGEST):
            whole = found.size  # a jumbogram
        start_of_l4, protocol, offset, more = _walk(packet[:whole])
        if protocol is None and not offset and len(packet) < whole:
            return lacking  # in the extension headers
    size = min(max(0, whole - start_of_l4), _LARGEST)
    body = packet[start_of_l4:whole]
    if len(body) < min(size, _bytes_read(v4, protocol, offset)):
        return lacking
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


def _bytes_read(v4: bool, protocol: int | None, offset: int) -> int:
    """How many bytes of layer 4 rules read, at most."""
    if offset:
        return FIELD_BYTES[Field.FLAGS] if v4 else 0
    if protocol == TCP:
        return FIELD_BYTES[Field.FLAGS]
    if protocol in PORT_PROTOCOLS:
        return FIELD_BYTES[Field.DPORT]
    return FIELD_BYTES[Field.ICMP] if protocol == (ICMP if v4 else ICMPV6) else 0


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
