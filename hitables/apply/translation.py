"""Where the kernel's connection table and rules of table nat send a connection to this host."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from ..errors import LiveError
from ..ir.fields import TCP, Family
from ..ir.nat_targets import TO_DESTINATION, TO_PORTS
from ..ir.rule import Target
from ..kernel.conntrack import Tuple, first_direction
from ..kernel.netlink import Netfilter


class ConnectionEnds(NamedTuple):
    """The two ends of a TCP connection."""

    client: str
    client_port: int
    server: str
    server_port: int

    @property
    def family(self) -> Family:
        return Family.IPV6 if ":" in self.client else Family.IPV4


def as_sent(ends: ConnectionEnds) -> ConnectionEnds | None:
    """The connection as its client has sent it, before nat; None: the connection table does not tell.

    *ends*: as the socket of this host has it.
    """
    client, server = (int(ipaddress.ip_address(each)) for each in (ends.client, ends.server))
    answer = Tuple(server, client, TCP, ends.server_port, ends.client_port)
    try:
        netfilter = Netfilter()
    except LiveError:
        return None
    try:
        first = first_direction(netfilter, ends.family, answer)
    finally:
        netfilter.close()
    if first is None:
        return None
    address = ipaddress.IPv4Address if ends.family is Family.IPV4 else ipaddress.IPv6Address
    return ConnectionEnds(str(address(first.source)), first.sport, str(address(first.target)), first.dport)


def may_lead_to(target: Target, sent: ConnectionEnds, arrived: ConnectionEnds) -> bool:
    """Whether *target* may translate a connection that was *sent* to the server at which it has *arrived*.

    Of ranges, and of targets other than DNAT and REDIRECT, any choice is taken as possible.
    """
    if target.name == "REDIRECT":
        found = TO_PORTS.search(target.key)
        return _has_port(found, 1, sent, arrived)
    found = TO_DESTINATION.search(target.key)
    if target.name != "DNAT" or found is None:
        return target.name not in ("ACCEPT", "DROP")
    address = found[1] or sent.server
    return ("-" in address or address == arrived.server) and _has_port(found, 2, sent, arrived)


def _has_port(found: re.Match[str] | None, at: int, sent: ConnectionEnds, arrived: ConnectionEnds) -> bool:
    """Whether the ports from group *at* on have that of the server; none: it stays as it was sent."""
    if found is None or found[at] is None:
        return sent.server_port == arrived.server_port
    return int(found[at]) <= arrived.server_port <= int(found[at + 1] or found[at])
