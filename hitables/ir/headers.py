"""Which packets are possible: the fields of a header by its length, and which headers are malformed."""

from __future__ import annotations

from .fields import DCCP, ICMP, ICMPV6, PORT_PROTOCOLS, SCTP, TCP, UDP, UDPLITE, Family, Field
from .packet import Packet

# Bytes of layer 4 that a packet needs to have the field.
FIELD_BYTES = {Field.SPORT: 2, Field.DPORT: 4, Field.ICMP: 2, Field.FLAGS: 14}
TCP_OFFSET_BYTES = 13  # the least bytes of a tcp header that has its data offset
# Bytes of a whole header; a match on a shorter one drops the packet (docs/semantics.md).
HEADER_BYTES = {TCP: 20, UDP: 8, UDPLITE: 8, SCTP: 16, DCCP: 12, ICMP: 8, ICMPV6: 8, 50: 8, 51: 12}


def is_malformed(packet: Packet) -> bool:
    """Whether the header is malformed.

    It is too short, has a bad tcp data offset, or is at fragment offset 1, or a chain of IPv6 extension
    headers ends early.
    """
    size = HEADER_BYTES.get(packet.values.get(Field.PROTO, -1), 0)
    short = packet.l4_bytes < size and not packet.is_later_fragment
    return short or packet.bad_offset or packet.offset_one or packet.cut_short


def inconsistency(packet: Packet) -> str | None:
    """Why *packet* is impossible; None when it is possible."""
    values, proto = packet.values, packet.values.get(Field.PROTO)
    for needed in (Field.SRC, Field.DST, Field.FRAG, Field.IIF, Field.OIF, Field.STATE):
        if needed not in values:
            return f"no {needed.name}"
    for later_only in packet.raw:
        size = FIELD_BYTES[later_only]
        if not packet.is_later_fragment or packet.l4_bytes < size or packet.cut_short:
            return f"raw {later_only.name} without {size} bytes of a later fragment"
    has = {
        Field.SPORT: proto in PORT_PROTOCOLS,
        Field.DPORT: proto in PORT_PROTOCOLS,
        Field.ICMP: proto == (ICMP if packet.family is Family.IPV4 else ICMPV6),
        Field.FLAGS: proto == TCP,
    }
    for which, expected in has.items():
        expected = expected and packet.l4_bytes >= FIELD_BYTES[which] and not packet.is_later_fragment
        if expected != (which in values):
            return f"{which.name} {'is missing' if expected else 'cannot be'}"
    for which, size in FIELD_BYTES.items():
        readable = packet.is_later_fragment and not packet.cut_short and packet.l4_bytes >= size
        if which is not Field.ICMP and readable and which not in packet.raw:
            return f"raw {which.name} is missing"
    if packet.cut_short and packet.family is not Family.IPV6:
        return "cut short without extension headers"
    if packet.cut_short == (proto is not None):
        return "a protocol that cannot be found" if packet.cut_short else "no protocol"
    if packet.offset_one and not packet.is_later_fragment:
        return "offset 1 without being a later fragment"
    if packet.bad_offset and (proto != TCP or packet.is_later_fragment or packet.l4_bytes < TCP_OFFSET_BYTES):
        return "a bad data offset without a tcp header"
    return None
