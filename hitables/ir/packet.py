"""Packets, as the rules see them.

`values` has the header fields of the packet.  The truth of a match that reads anything else (a set, the time,
a mark) is given by *fact*, as an uninterpreted predicate; the result of a match with memory or chance by
*outcome*.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .fields import Family, Field, Fragment
from .rule import Match


class Backend(enum.StrEnum):
    """The kernel subsystem that runs the rules: ip_tables (legacy) or nf_tables."""

    LEGACY = "legacy"
    NFT = "nft"


class Outcome(enum.IntEnum):
    """The result of one evaluation of a match.  DROPPED: the match itself drops the packet."""

    NO = 0
    YES = 1
    DROPPED = 2


def _unknown(match: Match, epoch: int) -> bool | None:
    return None


def _no_number(attribute: str, epoch: int) -> int | None:
    return None


def _never(match: Match, ordinal: int) -> Outcome:
    return Outcome.NO


def _kept(field: Field, epoch: int) -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet at one hook.  Packets are equal whose headers are; functions are not compared.

    values      header fields that it has; the interface "" is the value 0
    raw         SPORT, DPORT, FLAGS as native nft expressions read them from the payload of a later fragment,
                without fields that the payload is too short for
    l4_bytes    bytes after the IP headers
    bad_offset  the tcp data offset is below 5 or points beyond the packet
    offset_one  a later fragment at offset 1 (8 bytes)
    cut_short   IPv6: the chain of extension headers ends early
    fact        truth of a CONSTANT match whose tests hold; None: unknown.  The second argument is the number
                of writes so far to the state that the match reads
    number      value of an attribute (fact.py) after this many writes to it; None: unknown
    outcome     result of an evaluation of a NAMED or ONCE match; the second argument is its number among
                such evaluations, from 0
    rewritten   value of a field after this many writes to it; None: the value before
    """

    family: Family
    values: Mapping[Field, int]
    raw: Mapping[Field, int] = field(default_factory=dict)
    l4_bytes: int = 64
    bad_offset: bool = False
    offset_one: bool = False
    cut_short: bool = False
    fact: Callable[[Match, int], bool | None] = field(default=_unknown, compare=False)
    number: Callable[[str, int], int | None] = field(default=_no_number, compare=False)
    outcome: Callable[[Match, int], Outcome] = field(default=_never, compare=False)
    rewritten: Callable[[Field, int], int | None] = field(default=_kept, compare=False)

    @property
    def is_later_fragment(self) -> bool:
        return self.values.get(Field.FRAG, Fragment.WHOLE) == Fragment.LATER
