"""The layout of fields in the words of the Virtual Filter Database.

A dimension has up to 32 bits.  A wider field takes several dimensions, most significant first.  A range of
such a field becomes one box if it is a prefix, and otherwise up to 2n - 1 boxes, where n is the number of
its words.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..errors import DatabaseError

Range = tuple[int, int]
WORD = 32


@dataclass(frozen=True)
class Layout:
    """The widths of the fields, 1 to 128 bits each."""

    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        try:
            widths = tuple(operator.index(width) for width in self.widths)
        except TypeError:
            raise DatabaseError(f"the widths of fields are whole numbers, not {self.widths!r}") from None
        object.__setattr__(self, "widths", widths)
        if not widths or not all(1 <= width <= 128 for width in widths):
            raise DatabaseError(f"fields of {widths} bits: each must have 1 to 128")
        if len(self.bits) > MAX_DIMENSIONS:
            raise DatabaseError(f"fields of {self.widths} bits take more than {MAX_DIMENSIONS} words")

    @cached_property
    def bits(self) -> tuple[int, ...]:
        """The width of each dimension."""
        return tuple(itertools.chain.from_iterable(_words(width) for width in self.widths))

    @property
    def dims(self) -> int:
        return len(self.bits)

    def boxes(self, ranges: Sequence[Range]) -> NDArray[np.uint32]:
        """[pieces][dims][2]: the boxes of a rule; DatabaseError for an empty range, or one wider than its
        field.
        """
        try:
            ranges = [(operator.index(low), operator.index(high)) for low, high in ranges]
        except (TypeError, ValueError):
            raise DatabaseError(
                f"the ranges of a rule are pairs of whole numbers, one of each field, not {ranges!r}"
            ) from None
        if len(ranges) != len(self.widths):
            raise DatabaseError(f"a rule of {len(ranges)} ranges; there are {len(self.widths)} fields")
        choices = []
        for number, ((low, high), width) in enumerate(zip(ranges, self.widths, strict=True)):
            if low > high:
                raise DatabaseError(f"field {number}: the range {low}..{high} is empty")
            if low < 0 or high >> width:
                raise DatabaseError(f"field {number}: {low}..{high} does not fit into {width} bits")
            choices.append(list(_pieces(low, high, _words(width))))
        pieces = [list(itertools.chain.from_iterable(choice)) for choice in itertools.product(*choices)]
        return np.array(pieces, np.uint32).reshape(-1, self.dims, 2)

    def headers(self, rows: Sequence[Sequence[int]]) -> NDArray[np.uint32]:
        """[rows][dims]: one row of values per packet, in words."""
        words = np.empty((len(rows), self.dims), np.uint32)
        for number, values in enumerate(rows):
            try:
                row = [operator.index(value) for value in values]
            except TypeError:
                raise DatabaseError(
                    f"header {number} has whole numbers, one of each field, not {values!r}"
                ) from None
            if len(row) != len(self.widths):
                fields = f"there are {len(self.widths)} fields"
                raise DatabaseError(f"header {number} has {len(row)} values; {fields}")
            row_words: list[int] = []
            for value, width in zip(row, self.widths, strict=True):
                if value < 0 or value >> width:
                    raise DatabaseError(f"header {number}: {value} does not fit into {width} bits")
                shift = width
                for bits in _words(width):
                    shift -= bits
                    row_words.append(value >> shift & (1 << bits) - 1)
            words[number] = row_words
        return words


MAX_DIMENSIONS = 20


def check_layout(layout: object) -> None:
    """DatabaseError for anything else than a layout."""
    if not isinstance(layout, Layout):
        raise DatabaseError(f"the layout must be a Layout, not {layout!r}")


def _words(width: int) -> tuple[int, ...]:
    first = width % WORD
    return ((first,) if first else ()) + (WORD,) * (width // WORD)


def _pieces(low: int, high: int, words: tuple[int, ...]) -> Iterator[list[Range]]:
    """The range as products of word ranges, none overlapping."""
    if not words:
        yield []
        return
    below = sum(words[1:])
    rest = (1 << below) - 1
    first, last = low >> below, high >> below
    if first == last:
        yield from ([(first, first), *piece] for piece in _pieces(low & rest, high & rest, words[1:]))
        return
    if low & rest:
        yield from ([(first, first), *piece] for piece in _pieces(low & rest, rest, words[1:]))
        first += 1
    ends = high & rest != rest
    if first <= last - ends:
        yield [(first, last - ends), *((0, (1 << bits) - 1) for bits in words[1:])]
    if ends:
        yield from ([(last, last), *piece] for piece in _pieces(0, high & rest, words[1:]))


# Source, destination, source port, destination port, protocol, as traces have them.
FIVE_TUPLE = Layout((32, 32, 16, 16, 8))
