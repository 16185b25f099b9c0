"""A Packet as bytes.

`craft` writes an IP packet from which every header field of the Packet reads back: a later fragment has the
payload that native nft expressions misread as ports, a truncated header is truncated, and an extension
header that cannot be parsed is present.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ..ir.fields import DCCP, ICMP, ICMPV6, PORT_PROTOCOLS, SCTP, TCP, UDP, UDPLITE, Family, Field, Fragment
from ..ir.packet import Packet

_FRAGMENT_HEADER, _DESTINATION_OPTIONS = 44, 60
_TCP_FLAGS_AT, _TCP_OFFSET_AT = 13, 12
_LATER_OFFSET = 185  # of a later fragment, in units of 8 bytes, unless it must be 1
_ICMP_ERRORS = {Family.IPV4: (3, 4, 5, 11, 12), Family.IPV6: (1, 2, 3, 4)}


@dataclass(frozen=True, slots=True)
class Trim:
    """Header fields that a Packet does not name.

    inner   of an ICMP error: source and destination of the packet that it reports
    broken  whether layer 4 is INVALID for connection tracking: a wrong length or checksum
    chunk   the type of an sctp packet's chunk: 1 opens an association, 0 carries data
    """

    tos: int = 0
    ttl: int = 64
    inner: tuple[int, int] | None = None
    broken: bool = False
    chunk: int = 1


PLAIN = Trim()


def craft(packet: Packet, number: int, source: int, target: int, trim: Trim = PLAIN) -> bytes:
    """The bytes of the packet, with *source* and *target* as its addresses, and its *number*.

    The checksums match these addresses.
    """
    v4 = packet.family is Family.IPV4
    width = 4 if v4 else 16
    addresses = source.to_bytes(width, "big") + target.to_bytes(width, "big")
    body = bytearray(packet.l4_bytes)
    protocol = packet.values.get(Field.PROTO)
    fragment = packet.values.get(Field.FRAG, Fragment.WHOLE)
    if packet.cut_short:
        protocol = _DESTINATION_OPTIONS
        body[:2] = bytes((_DESTINATION_OPTIONS, 255))[: len(body)]
    elif fragment == Fragment.LATER:
        _later(packet, body)
    else:
        assert protocol is not None, "only a chain of headers that cannot be parsed has no protocol"
        _layer4(packet, protocol, body, addresses, trim)
    assert protocol is not None
    offset = 0
    if fragment == Fragment.LATER:
        offset = 1 if packet.offset_one else _LATER_OFFSET
    if v4:
        header = bytearray(
            struct.pack(
                ">BBHHHBBH",
                0x45,
                trim.tos,
                20 + len(body),
                number,
                offset | (0x2000 if fragment == Fragment.FIRST else 0),
                trim.ttl,
                protocol,
                0,
            )
            + addresses
        )
        header[10:12] = checksum(bytes(header))
        return bytes(header + body)
    extra = b""
    if fragment != Fragment.WHOLE:
        more = fragment == Fragment.FIRST
        extra = struct.pack(">BBHI", protocol, 0, offset << 3 | more, number)
        protocol = _FRAGMENT_HEADER
    first = 6 << 28 | trim.tos << 20 | number
    return struct.pack(">IHBB", first, len(extra) + len(body), protocol, trim.ttl) + addresses + extra + body


def checksum(data: bytes) -> bytes:
    """The internet checksum of *data*, as it is written into a header whose field was zero."""
    total = int.from_bytes(data + bytes(len(data) & 1), "big") % 0xFFFF
    # A multiple of 65535 adds up to 0xFFFF, unless all is zero.
    return (0xFFFF - (total or 0xFFFF * any(data))).to_bytes(2, "big")


def crc32c(data: bytes) -> int:
    """SCTP's checksum."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _CRC32C[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def is_error(family: Family, icmp: int) -> bool:
    """Whether an ICMP type and code reports another packet, which it contains."""
    return icmp >> 8 in _ICMP_ERRORS[family]


def _later(packet: Packet, body: bytearray) -> None:
    for field, at, size in ((Field.SPORT, 0, 2), (Field.DPORT, 2, 2), (Field.FLAGS, _TCP_FLAGS_AT, 1)):
        value = packet.raw.get(field)
        if value is not None and len(body) >= at + size:
            body[at : at + size] = value.to_bytes(size, "big")


def _layer4(packet: Packet, protocol: int, body: bytearray, addresses: bytes, trim: Trim) -> None:
    values, full = packet.values, len(body)
    if protocol in PORT_PROTOCOLS:
        ports = struct.pack(">HH", values.get(Field.SPORT, 0), values.get(Field.DPORT, 0))
        body[: min(4, full)] = ports[:full]
    if protocol == TCP:
        _put(body, 4, struct.pack(">II", 1, 1 if values.get(Field.FLAGS, 0) & 0x10 else 0))
        _put(body, _TCP_OFFSET_AT, bytes((0x40 if packet.bad_offset else 0x50, values.get(Field.FLAGS, 0))))
        _put(body, 14, struct.pack(">H", 65535))
        _sum(body, 16, protocol, addresses, trim.broken)
    elif protocol in (UDP, UDPLITE):
        _put(body, 4, struct.pack(">H", full + 1 if trim.broken else full))
        # Connection tracking checks udplite as if it were udp, and calls correct packets INVALID.
        _sum(body, 6, UDP, addresses, trim.broken)
    elif protocol == SCTP:
        _put(body, 12, struct.pack(">BBH", trim.chunk, 0, max(full - 12, 0)))
        if full >= 12:
            body[8:12] = struct.pack("<I", crc32c(bytes(body)) ^ trim.broken)
    elif protocol == DCCP:
        _put(body, 4, bytes((4,)))  # data offset, in words
    elif protocol in (ICMP, ICMPV6) and Field.ICMP in values:
        _put(body, 0, values[Field.ICMP].to_bytes(2, "big"))
        if trim.inner is not None and is_error(packet.family, values[Field.ICMP]):
            _put(body, 8, _inner(packet.family, *trim.inner))
        else:
            _put(body, 4, struct.pack(">H", 1))
        if protocol == ICMPV6:
            _sum(body, 2, protocol, addresses, trim.broken)
        elif full >= 4:
            body[2:4] = checksum(bytes(body))
            body[3] ^= trim.broken


def _inner(family: Family, source: int, target: int) -> bytes:
    """The start of the udp packet 1 -> 2 that an ICMP error is about."""
    width = 4 if family is Family.IPV4 else 16
    addresses = source.to_bytes(width, "big") + target.to_bytes(width, "big")
    udp = struct.pack(">HHHH", 1, 2, 8, 0)
    if family is Family.IPV6:
        return struct.pack(">IHBB", 6 << 28, len(udp), UDP, 64) + addresses + udp
    header = bytearray(struct.pack(">BBHHHBBH", 0x45, 0, 28, 1, 0, 64, UDP, 0) + addresses)
    header[10:12] = checksum(bytes(header))
    return bytes(header) + udp


def _put(body: bytearray, at: int, data: bytes) -> None:
    """Write *data*, up to the end of the packet."""
    room = max(len(body) - at, 0)
    body[at : at + min(room, len(data))] = data[:room]


def _sum(body: bytearray, at: int, protocol: int, addresses: bytes, broken: bool) -> None:
    if len(body) < at + 2:
        return
    pseudo = addresses + struct.pack(">II", len(body), protocol)
    body[at : at + 2] = checksum(pseudo + bytes(body))
    if broken:
        body[at + 1] ^= 1
    elif protocol in (UDP, UDPLITE) and not any(body[at : at + 2]):
        body[at : at + 2] = b"\xff\xff"


def _crc32c_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC32C = _crc32c_table()
