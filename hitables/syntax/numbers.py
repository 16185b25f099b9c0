"""Options that compare a number of the packet, or make one: which number, and which of its values.

They read their value in canonical words (`canonical.py`), by the kernel's source: which bits are compared or
written, and what a packet without the number (no conntrack entry, no socket) matches.  The rows of
`extensions/` name them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..ir.fact import Assignment, Fact
from ..ir.fields import Family
from ..ir.intervals import Values

Compared = tuple[Values, int]  # values, and the bits that are compared


class Missing(enum.Enum):
    """What an option answers of a packet that lacks the number."""

    NEVER = "every packet has it"
    FAILS = "it fails, with and without a !"
    NEGATED = "it fails, and with a ! it holds"


@dataclass(frozen=True, slots=True)
class Number:
    """An option that compares the *bits* bits of an attribute (ir/fact.py).

    compared  what its canonical words compare
    family    the only family in which it does

    A packet that lacks the number has the bit above: 1 << bits.
    """

    attribute: str
    bits: int
    compared: Callable[[str], Compared]
    missing: Missing = Missing.NEVER
    family: Family | None = None

    def fact(self, words: str, inverted: bool, beside: Sequence[str]) -> Fact:
        """What the option asks; *beside*: options that make another number of it."""
        values, mask = self.compared(words)
        with_missing = mask if self.missing is Missing.NEVER else mask | 1 << self.bits
        if inverted:
            values = values.complement(with_missing if self.missing is Missing.NEGATED else mask)
        return Fact(" ".join([self.attribute, *sorted(beside)]), values, with_missing)


Numbers = Mapping[str, Number]


@dataclass(frozen=True, slots=True)
class Makes:
    """An option of a target that makes a number of an attribute; *makes*: of its canonical words."""

    attribute: str
    makes: Callable[[str], tuple[int, int]]

    def assignment(self, words: str) -> Assignment:
        return Assignment(self.attribute, *self.makes(words))


def flipped(attribute: str) -> Makes:
    """VALUE/MASK: number & ~MASK ^ VALUE."""

    def makes(words: str) -> tuple[int, int]:
        value, _, mask = words.partition("/")
        return ~int(mask, 0), int(value, 0)

    return Makes(attribute, makes)


def replaced(attribute: str, bits: int, shift: int = 0) -> Makes:
    """VALUE, in place of the bits above the lowest *shift*."""
    return Makes(attribute, lambda words: (~((1 << bits) - (1 << shift)), int(words, 0) << shift))


def masked(attribute: str, bits: int = 32, missing: Missing = Missing.NEVER) -> Number:
    """VALUE or VALUE/MASK: number & MASK == VALUE, where VALUE may have other bits than MASK."""

    def compared(words: str) -> Compared:
        value, _, mask = words.partition("/")
        return Values.only(int(value, 0)), int(mask, 0) if mask else (1 << bits) - 1

    return Number(attribute, bits, compared, missing)


def span(attribute: str, bits: int) -> Number:
    """VALUE or LOW:HIGH."""

    def compared(words: str) -> Compared:
        low, _, high = words.partition(":")
        return Values.of((int(low), int(high or low))), (1 << bits) - 1

    return Number(attribute, bits, compared)


def single(attribute: str, bits: int, missing: Missing = Missing.NEVER) -> Number:
    """VALUE; a range compares no number here."""
    return Number(attribute, bits, lambda words: (Values.only(int(words)), (1 << bits) - 1), missing)


def below(attribute: str, bits: int) -> Number:
    """Values that are smaller than VALUE."""
    return Number(attribute, bits, lambda words: (Values.of((0, int(words) - 1)), (1 << bits) - 1))


def above(attribute: str, bits: int) -> Number:
    """Values that are larger than VALUE."""
    top = (1 << bits) - 1
    return Number(attribute, bits, lambda words: (Values.of((int(words) + 1, top)), top))


def shifted(attribute: str, bits: int, shift: int) -> Number:
    """VALUE, of the bits above the lowest *shift*."""
    mask = (1 << bits) - (1 << shift)
    return Number(attribute, bits, lambda words: (Values.only(int(words, 0) << shift), mask))


def names(attribute: str, order: Sequence[str], family: Family | None = None) -> Number:
    """NAME,NAME…: their places in *order*."""
    bits = len(order).bit_length()  # so there are values that no name has
    place = {name: at for at, name in enumerate(order)}

    def compared(words: str) -> Compared:
        return Values.only(*(place[name] for name in words.split(","))), (1 << bits) - 1

    return Number(attribute, bits, compared, family=family)
