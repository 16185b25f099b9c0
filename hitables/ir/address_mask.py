"""Matches of an address under a mask with many gaps, such as `-s 0.0.0.2/0.0.0.3`.

Such a match is too many intervals for a tree or a proof, which treat it as a condition that may hold or not.
Where the address of the packet is known, it is computed here.

Users: the trace of a packet, the packets of a session in apply, `hitables reach` from or to one address.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from .fields import Field
from .rule import Match, Role

_FIELDS = {"-s": Field.SRC, "-d": Field.DST}


class AddressMask(NamedTuple):
    """The match holds for addresses that are *bits* under *mask*; *inverted*: for the others."""

    field: Field
    bits: int
    mask: int
    inverted: bool

    def holds(self, address: int) -> bool:
        return (address & self.mask == self.bits) != self.inverted


def address_mask(match: Match) -> AddressMask | None:
    """What *match* asks of an address; None for a match of another kind."""
    if match.role is not Role.CONSTANT or match.name:
        return None
    *inverted, option, value = match.key.split(" ")
    host, _, mask = value.partition("/")
    bits, look = (int(ipaddress.ip_address(word)) for word in (host, mask))
    return AddressMask(_FIELDS[option], bits, look, bool(inverted))
