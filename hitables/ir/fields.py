"""The header fields of a packet, each as an integer.

The values of a field are 0..top.  A packet may lack a field (None); then neither a test of the field nor its
negation matches (docs/semantics.md).

An interface name is 16 bytes, padded with zeros and read as one big-endian integer, so a name is one value
and a wildcard `eth+` is one interval; 0 is no interface.
"""

from __future__ import annotations

import enum
import functools


class Family(enum.IntEnum):
    """The address family of a program; its value is the IP version."""

    IPV4 = 4
    IPV6 = 6

    @property
    def tool(self) -> str:
        """The command that manages the rules of the family; those of one backend are named after it."""
        return "iptables" if self is Family.IPV4 else "ip6tables"


class Field(enum.IntEnum):
    """A header field.  The C engine uses the same numbers."""

    SRC = 0
    DST = 1
    PROTO = 2
    FRAG = 3
    SPORT = 4
    DPORT = 5
    ICMP = 6
    FLAGS = 7
    IIF = 8
    OIF = 9
    MAC = 10
    STATE = 11
    PHYSIN = 12  # the port of a bridge that the packet came in by
    PHYSOUT = 13  # the port of a bridge that it leaves by


class Fragment(enum.IntEnum):
    """Values of Field.FRAG."""

    WHOLE = 0
    FIRST = 1
    LATER = 2


# Values of Field.STATE.  A packet without a connection is INVALID or UNTRACKED; the other states occur four
# times: plain, with SNAT, with DNAT, with both.
STATES = (
    "INVALID", "UNTRACKED",
    "NEW", "NEW+SNAT", "NEW+DNAT", "NEW+SNAT+DNAT",
    "ESTABLISHED", "ESTABLISHED+SNAT", "ESTABLISHED+DNAT", "ESTABLISHED+SNAT+DNAT",
    "RELATED", "RELATED+SNAT", "RELATED+DNAT", "RELATED+SNAT+DNAT",
)  # fmt: skip

_BITS = {
    Field.PROTO: 8, Field.SPORT: 16, Field.DPORT: 16, Field.ICMP: 16, Field.FLAGS: 6,
    Field.IIF: 128, Field.OIF: 128, Field.MAC: 48, Field.PHYSIN: 128, Field.PHYSOUT: 128,
}  # fmt: skip

# Fields whose values are interface names.
INTERFACES = (Field.IIF, Field.OIF, Field.PHYSIN, Field.PHYSOUT)
# The ports of a bridge: 0 of a packet that crosses none, also where its values do not have the field.
BRIDGE_PORTS = (Field.PHYSIN, Field.PHYSOUT)

# Fields that a packet may lack.  (PROTO only in IPv6, when the chain of extension headers ends early.)
OPTIONAL = frozenset({Field.PROTO, Field.SPORT, Field.DPORT, Field.ICMP, Field.FLAGS, Field.MAC})

TCP, UDP, UDPLITE, SCTP, DCCP, GRE, ICMP, ICMPV6 = 6, 17, 136, 132, 33, 47, 1, 58
PORT_PROTOCOLS = frozenset({TCP, UDP, UDPLITE, SCTP, DCCP})


@functools.cache
def top(field: Field, family: Family) -> int:
    """The highest value of *field*."""
    if field is Field.SRC or field is Field.DST:
        return (1 << (32 if family is Family.IPV4 else 128)) - 1
    if field is Field.FRAG:
        return int(Fragment.LATER)
    if field is Field.STATE:
        return len(STATES) - 1
    return (1 << _BITS[field]) - 1


def interface_number(name: str) -> int:
    """The integer of an interface name of at most 15 bytes."""
    return int.from_bytes(name.encode("utf-8", "surrogateescape").ljust(16, b"\0"), "big")


def interface_name(number: int) -> str:
    """The interface name of *number*."""
    return number.to_bytes(16, "big").rstrip(b"\0").decode("utf-8", "surrogateescape")
