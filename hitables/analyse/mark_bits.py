"""The mark of a packet, or of its connection, or its class of service, as an axis of a tree.

`--mark VALUE/MASK` compares some bits, so a tree may decide a mark bit by bit, from the highest one on, as it
decides an address.  The bits that most rules of a list compare are the axis: a number of that many bits.
`--tos VALUE/MASK` and `--dscp VALUE` compare bits of the byte of service in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ..ir.fact import Fact
from ..ir.fields import Field
from ..ir.rule import Metadata, Rule
from ..ir.semantics import CUT_NUMBERS
from .written import states_written

WIDTH = 32
EVERY_BIT = (1 << WIDTH) - 1
# A list of fewer marks gains nothing by tests of them.
FEWEST = 8
# Most rules that stay in front of a tree because one of them changes the marks.
MOST_IN_FRONT = 8


class MarkBits(NamedTuple):
    """The bits *mask* of an attribute of CUT_NUMBERS.

    A packet without a connection has no connmark: a test of it fails, and so does its negation.
    """

    attribute: str
    mask: int

    @property
    def bits(self) -> int:
        """How many bits there are."""
        return self.mask.bit_count()

    @property
    def is_of_all(self) -> bool:
        """Whether every packet has it."""
        return self.attribute != "connmark"

    def spread(self, number: int) -> int:
        """The bits of *number* at their places in the mark."""
        mark = 0
        for place in range(WIDTH):
            if self.mask >> place & 1:
                mark |= (number & 1) << place
                number >>= 1
        return mark

    def interval(self, fact: Fact) -> tuple[int, int] | None:
        """The numbers that may be in a packet that *fact* holds for, if these are not all."""
        pair = _value(fact)
        if fact.attribute != self.attribute or pair is None:
            return None
        value, compared = pair
        low = known = 0
        for place in reversed(range(WIDTH)):
            if not self.mask >> place & 1:
                continue
            if not compared >> place & 1:
                break
            low, known = low << 1 | value >> place & 1, known + 1
        free = self.bits - known
        return (low << free, (low + 1 << free) - 1) if known else None

    def tells(self, fact: Fact) -> bool:
        """Whether *fact* holds for the packets of its interval, and for all of them."""
        pair = _value(fact)
        is_own = fact.attribute == self.attribute and self.is_of_all
        return is_own and pair is not None and pair[1] == self.mask


# What an axis of a tree is made of.
Dimension = Field | MarkBits


def _value(fact: Fact) -> tuple[int, int] | None:
    """The only value that a fact holds for, and the bits that it compares; None if it is not one value."""
    pairs, compared = fact.values.pairs, fact.mask & EVERY_BIT
    if len(pairs) != 1 or pairs[0][0] != pairs[0][1] or pairs[0][0] & ~compared:
        return None
    return pairs[0][0], compared


def told_apart(rules: Iterable[Rule]) -> tuple[MarkBits, ...]:
    """The bits that most of *rules* compare, of each attribute of which they compare FEWEST values."""
    values: dict[str, dict[int, Counter[int]]] = {}
    for rule in rules:
        for match in rule.matches:
            if match.number is None or match.number.attribute not in CUT_NUMBERS:
                continue
            pair = _value(match.number)
            if pair is not None and pair[1]:
                values.setdefault(match.number.attribute, {}).setdefault(pair[1], Counter())[pair[0]] += 1
    found = []
    for attribute, by_mask in values.items():
        mask = max(by_mask, key=lambda mask: by_mask[mask].total())
        if len(by_mask[mask]) >= FEWEST:
            found.append(MarkBits(attribute, mask))
    return tuple(found)


def head_that_writes(rules: Sequence[Rule], writes: Mapping[str, frozenset[Metadata]]) -> int:
    """How many rules in front end with one that changes marks which the rules tell apart; 0: none.

    A tree behind them tests the marks that they leave (`CONNMARK --restore-mark`).
    """
    told = told_apart(rules)
    head = 0
    for at, rule in enumerate(rules[:MOST_IN_FRONT] if told else (), 1):
        written = states_written(rule, writes)
        if any(is_changed(bits, written) for bits in told):
            head = at
    return head


def is_changed(bits: MarkBits, written: Collection[Metadata]) -> bool:
    """Whether the mark may be another one after *written*."""
    return not CUT_NUMBERS[bits.attribute].isdisjoint(written)
