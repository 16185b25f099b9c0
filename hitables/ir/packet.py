"""Packets, as the rules see them.

`values` holds the header fields that the packet has.  Where a match reads
something that is no header field (a set, the time, a mark) the packet answers
through *fact*; where a match has memory or chance it answers through *outcome*.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .fields import Family, Field, Fragment
from .rule import Match


class Backend(enum.StrEnum):
    """Which iptables reads a rule: the kernel's own (legacy) or nf_tables."""

    LEGACY = "legacy"
    NFT = "nft"


class Outcome(enum.IntEnum):
    """What one evaluation of a match gives.  DROPPED: the match itself drops the packet."""

    NO = 0
    YES = 1
    DROPPED = 2


def _unknown(match: Match, epoch: int) -> bool | None:
    return None


def _never(match: Match, ordinal: int) -> Outcome:
    return Outcome.NO


def _kept(field: Field, epoch: int) -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet at one hook.

    values      header fields that it has; interfaces "" are the value 0
    raw         SPORT, DPORT, FLAGS as native nft expressions read them out of the
                payload of a later fragment; fields that the payload is too short for
                are left out
    l4_bytes    bytes behind the IP headers
    bad_offset  the tcp data offset is below 5 or points beyond the packet
    offset_one  a later fragment at offset 1 (8 bytes)
    cut_short   IPv6: the chain of extension headers cannot be walked to its end
    fact        truth of a CONSTANT match once its tests hold; None: not known.  The
                second argument counts the writes so far to what the match reads
    outcome     answer to an evaluation of a NAMED or ONCE match; the second argument
                counts such evaluations, from 0
    rewritten   value of a field after so many writes to it; None: as before
    """

    family: Family
    values: Mapping[Field, int]
    raw: Mapping[Field, int] = field(default_factory=dict)
    l4_bytes: int = 64
    bad_offset: bool = False
    offset_one: bool = False
    cut_short: bool = False
    fact: Callable[[Match, int], bool | None] = _unknown
    outcome: Callable[[Match, int], Outcome] = _never
    rewritten: Callable[[Field, int], int | None] = _kept

    @property
    def is_later_fragment(self) -> bool:
        return self.values.get(Field.FRAG, Fragment.WHOLE) == Fragment.LATER
