"""Which packets can be: what fields a header of so many bytes has, and what is malformed."""

from __future__ import annotations

from .fields import DCCP, ICMP, ICMPV6, PORT_PROTOCOLS, SCTP, TCP, UDP, UDPLITE, Family, Field
from .packet import Packet

# Bytes of layer 4 from which on the packet has the field.
FIELD_BYTES = {Field.SPORT: 2, Field.DPORT: 4, Field.ICMP: 2, Field.FLAGS: 14}
TCP_OFFSET_BYTES = 13  # from here on a tcp header says how long it is
# Bytes of a whole header; a match on a shorter one drops the packet (DESIGN: malformed).
HEADER_BYTES = {TCP: 20, UDP: 8, UDPLITE: 8, SCTP: 16, DCCP: 12, ICMP: 8, ICMPV6: 8, 50: 8, 51: 12}


def is_malformed(packet: Packet) -> bool:
    """Whether the header is too short, or the packet has a bad tcp data offset, stands at
    fragment offset 1, or has a chain of IPv6 extension headers that ends early."""
    size = HEADER_BYTES.get(packet.values.get(Field.PROTO, -1), 0)
    short = packet.l4_bytes < size and not packet.is_later_fragment
    return short or packet.bad_offset or packet.offset_one or packet.cut_short


def inconsistency(packet: Packet) -> str | None:
    """Why no packet can be as *packet* says; None when one can."""
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
    for which, right in has.items():
        right = right and packet.l4_bytes >= FIELD_BYTES[which] and not packet.is_later_fragment
        if right != (which in values):
            return f"{which.name} {'is missing' if right else 'cannot be'}"
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
