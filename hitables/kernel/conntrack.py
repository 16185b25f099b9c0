"""Flows: entries of the kernel's connection table, created and looked up by netlink.

A packet is ESTABLISHED, RELATED or NEW, with SNAT or DNAT, because the table has an entry for it; nothing
is faked between the packet and the rules.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import LiveError
from ..ir.fields import GRE, ICMP, ICMPV6, SCTP, TCP, UDP, UDPLITE, Family
from . import netlink
from .netlink import CTNETLINK, Netfilter, attribute, nested, number

_NEW, _GET, _DELETE = 0, 1, 2
_NF = {Family.IPV4: 2, Family.IPV6: 10}
_SEEN_REPLY, _ASSURED, _CONFIRMED = 2, 4, 8
_SECONDS = 600
_TCP_SYN_SENT, _TCP_ESTABLISHED, _SCTP_ESTABLISHED = 1, 3, 4
_ICMP_REPLY = {8: 0, 0: 8, 13: 14, 14: 13, 15: 16, 16: 15, 17: 18, 18: 17, 128: 129, 129: 128}


@dataclass(frozen=True, slots=True)
class Tuple:
    """One direction of a flow.  For ICMP *sport* is the id and *dport* type and code."""

    source: int
    target: int
    protocol: int
    sport: int = 0
    dport: int = 0

    def answer(self) -> Tuple:
        """The other direction."""
        if self.protocol in (ICMP, ICMPV6):
            kind = _ICMP_REPLY.get(self.dport >> 8, self.dport >> 8)
            return Tuple(self.target, self.source, self.protocol, self.sport, kind << 8 | self.dport & 0xFF)
        return Tuple(self.target, self.source, self.protocol, self.dport, self.sport)


@dataclass(frozen=True, slots=True)
class Flow:
    """An entry to create.

    first    the direction of the opening packet
    replied  whether both sides have sent (ESTABLISHED); otherwise NEW or, with a master, RELATED
    master   the flow that expected this one
    snat, dnat  the address that the source or target is translated to
    """

    first: Tuple
    replied: bool = False
    master: Tuple | None = None
    snat: int | None = None
    dnat: int | None = None
    syn: bool = False


def make_flows(netfilter: Netfilter, family: Family, flows: Iterable[Flow]) -> int:
    """Create *flows*; how many the kernel refused (for example, a flow that exists)."""
    return netfilter.each([_message(family, flow) for flow in flows])


def forget_flows(netfilter: Netfilter, family: Family) -> None:
    """Empty the connection table of this namespace."""
    if netfilter.each([netlink.message(CTNETLINK, _DELETE, 0, _NF[family], b"")]):
        raise LiveError("the connection table cannot be emptied")


def first_direction(netfilter: Netfilter, family: Family, answer: Tuple) -> Tuple | None:
    """The first direction of the TCP or UDP flow whose answers are *answer*, before nat.

    None: the connection table of this namespace has no such flow, or cannot be asked.
    """
    request = netlink.message(CTNETLINK, _GET, 0, _NF[family], _tuple(family, 2, answer))
    try:
        first = netlink.attributes(netlink.attributes(netfilter.ask(request))[1])
    except LiveError:
        return None
    addresses, ports = netlink.attributes(first[1]), netlink.attributes(first[2])
    source, target = (addresses[kind] for kind in ((1, 2) if family is Family.IPV4 else (3, 4)))
    sport, dport = (int.from_bytes(ports[kind], "big") for kind in (2, 3))
    return Tuple(int.from_bytes(source, "big"), int.from_bytes(target, "big"), ports[1][0], sport, dport)


def _message(family: Family, flow: Flow) -> bytes:
    # Linux takes the master of each GRE connection for one of PPTP.  Where it is none, Linux 6.1 reads a null
    # pointer when the connection is deleted (nf_ct_gre_keymap_destroy), and crashes.
    if flow.first.protocol == GRE and flow.master is not None:
        raise LiveError("a connection of GRE that another one expects would crash Linux 6.1")
    status = _CONFIRMED | (_SEEN_REPLY | _ASSURED if flow.replied else 0)
    parts = [
        _tuple(family, 1, flow.first),
        _tuple(family, 2, flow.first.answer()),
        number(3, status),
        number(7, _SECONDS),
    ]
    if flow.first.protocol == TCP:
        state = _TCP_SYN_SENT if flow.syn and not flow.replied else _TCP_ESTABLISHED
        parts.append(nested(4, nested(1, attribute(1, bytes((state,))))))
    elif flow.first.protocol == SCTP:
        state_only = attribute(1, bytes((_SCTP_ESTABLISHED,)))
        parts.append(nested(4, nested(3, state_only, number(2, 0), number(3, 0))))
    for kind, address in ((6, flow.snat), (13, flow.dnat)):
        if address is not None:
            v4 = family is Family.IPV4
            packed = address.to_bytes(4 if v4 else 16, "big")
            parts.append(nested(kind, attribute(1 if v4 else 4, packed), attribute(2 if v4 else 5, packed)))
    if flow.master is not None:
        parts.append(_tuple(family, 14, flow.master))
    flags = netlink.NLM_F_CREATE | netlink.NLM_F_EXCL
    return netlink.message(CTNETLINK, _NEW, flags, _NF[family], b"".join(parts))


def _tuple(family: Family, kind: int, flow: Tuple) -> bytes:
    v4 = family is Family.IPV4
    width = 4 if v4 else 16
    addresses = nested(
        1,
        attribute(1 if v4 else 3, flow.source.to_bytes(width, "big")),
        attribute(2 if v4 else 4, flow.target.to_bytes(width, "big")),
    )
    protocol = attribute(1, bytes((flow.protocol,)))
    if flow.protocol in (ICMP, ICMPV6):
        at = 4 if flow.protocol == ICMP else 7
        protocol += attribute(at, struct.pack(">H", flow.sport))
        protocol += attribute(at + 1, bytes((flow.dport >> 8,)))
        protocol += attribute(at + 2, bytes((flow.dport & 0xFF,)))
    elif flow.protocol in (TCP, UDP, UDPLITE, SCTP, GRE):
        protocol += attribute(2, struct.pack(">H", flow.sport)) + attribute(3, struct.pack(">H", flow.dport))
    return nested(kind, addresses, nested(2, protocol))
