"""Facts: what a match of role CONSTANT asks of a packet.

A packet has numbers besides the fields of its header: its mark, its length, the user that sent it.  Such a
number is an attribute, and a fact says which values of it a match holds for.  So facts of one attribute are
related: no packet has two marks.  A match that compares no number has an attribute of its own, which is 1 for
the packets that it holds for and 0 for all others.
"""

from __future__ import annotations

from typing import NamedTuple

from .intervals import Values

_FALSE, _TRUE = Values.only(0), Values.only(1)

ADDRESS_TYPES = (
    "UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE",
    "PROHIBIT", "THROW", "NAT", "XRESOLVE",
)  # fmt: skip
PACKET_TYPES = ("unicast", "broadcast", "multicast", "otherhost")
# By attribute: the names of its numbers from 0 on.
NAMED_NUMBERS = {"src type": ADDRESS_TYPES, "dst type": ADDRESS_TYPES, "packet type": PACKET_TYPES}


class Fact(NamedTuple):
    """That the bits *mask* of an attribute, as a number, are one of *values*."""

    attribute: str
    values: Values
    mask: int

    @classmethod
    def of_key(cls, key: str, truth: bool) -> Fact:
        """That the match with this key, which compares no number, holds; or that it does not."""
        return cls(key, _TRUE if truth else _FALSE, 1)

    @property
    def negation(self) -> Fact:
        """That it does not hold."""
        return self._replace(values=self.values.complement(self.mask))

    def holds(self, number: int) -> bool:
        """Whether it holds for the packets whose attribute is *number*."""
        return number & self.mask in self.values

    def implies(self, other: Fact) -> bool:
        """Whether *other* surely holds where it holds; False: perhaps not."""
        same = self.attribute == other.attribute and self.mask == other.mask
        return same and other.values.covers(self.values)


class Assignment(NamedTuple):
    """What a target makes of an attribute: *number* & *keep* ^ *flip*."""

    attribute: str
    keep: int
    flip: int

    def of(self, number: int) -> int:
        return number & self.keep ^ self.flip


# By attribute: what it is of an ordinary packet; 0 of all others.
ORDINARY = {"length": 84, "ttl": 64, "hl": 64, "src type": 1, "dst type": 1}


def ordinary(attribute: str) -> int:
    return ORDINARY.get(attribute, 0)
