"""Where targets of table nat lead a packet that comes in."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple

from .intervals import Values
from .rule import Target

# As the parser spells it: FIRST-LAST:PORTS, in IPv6 [FIRST-LAST]:PORTS; any part may be missing.
TO_DESTINATION = re.compile(r"--to-destination \[?([^\]\s]*?)\]?(?::(\d+)(?:-(\d+))?(?:/\d+)?)?(?: |$)")
TO_PORTS = re.compile(r"--to-ports (\d+)(?:-(\d+))?")


class Destination(NamedTuple):
    """Addresses and ports, of which the kernel chooses one; None: they stay.

    is_own  an address of this host that the rule does not name (REDIRECT)
    """

    addresses: Values | None
    ports: Values | None
    is_own: bool = False


def destination(target: Target) -> Destination | None:
    """Where DNAT or REDIRECT leads; None for other targets."""
    if target.name == "REDIRECT":
        found = TO_PORTS.search(target.key)
        return Destination(None, found and _ports(found[1], found[2]), is_own=True)
    found = TO_DESTINATION.search(target.key)
    if target.name != "DNAT" or found is None:
        return None
    first, _, last = found[1].partition("-")
    addresses = Values.interval(int(ip_address(first)), int(ip_address(last or first))) if first else None
    return Destination(addresses, _ports(found[2], found[3]) if found[2] else None)


def _ports(first: str, last: str | None) -> Values:
    return Values.interval(int(first), int(last or first))
