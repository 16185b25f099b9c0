"""The rows of the rules of a table's chains, so that a proof selects thousands of chains without a step of
Python for each.

Invariant: after `follow(table)`, `of` gives the rows of the rules that each chain of *table* has.  Chains
that a table has no more keep their rows, which no rule leads to.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress, count, zip_longest
from operator import is_not
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hitables.ir.program import Table
from hitables.ir.rule import Rule

Ints = npt.NDArray[np.int64]

# With more items, most are of chains as they were.
MOST_ITEMS = 2_000_000


class NearChains(NamedTuple):
    """Chains, and those of their rules that some packets may match.

    numbers  of the chains' names (RuleRows.chain)
    rows     of the rules of all chains, one chain after the other
    sizes    by chain: how many of its rules there are
    """

    numbers: Ints
    rows: Ints
    sizes: Ints

    @classmethod
    def one(cls, number: int, rows: Ints) -> NearChains:
        """One chain."""
        return cls(np.array([number], np.int64), rows, np.array([len(rows)], np.int64))

    @classmethod
    def joined(cls, *parts: NearChains) -> NearChains:
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def renamed(self, first: int) -> NearChains:
        """The same chains; the first has the name of number *first*."""
        return self._replace(numbers=np.concatenate((np.array([first], np.int64), self.numbers[1:])))


def rows_after(
    old: tuple[Rule, ...], rows: Ints, rules: tuple[Rule, ...], rows_of: Callable[[tuple[Rule, ...]], Ints]
) -> Ints:
    """The rows of *rules*; *old*, whose rows are known, are the same objects but for a part in between."""
    shorter = min(len(old), len(rules))
    first = next(compress(count(), map(is_not, old, rules)), shorter)
    last = next(compress(count(), map(is_not, reversed(old), reversed(rules))), shorter)
    last = min(last, shorter - first)
    inserted = rows_of(rules[first : len(rules) - last])
    return np.concatenate((rows[:first], inserted, rows[len(old) - last :]))


class ChainRows:
    """The rows of the rules of one table's chains, kept from update to update.

    rows_of  the rows of some rules
    number   the number of a chain's name
    """

    def __init__(self, rows_of: Callable[[tuple[Rule, ...]], Ints], number: Callable[[str], int]) -> None:
        self._rows_of, self._number = rows_of, number
        self._clear()

    def _clear(self) -> None:
        self._known: dict[str, tuple[Rule, ...]] = {}
        self._table: Table | None = None
        self._items = np.empty(1024, np.int64)
        self._start, self._size = np.zeros(1024, np.int64), np.zeros(1024, np.int64)
        self._end = 0

    def follow(self, table: Table) -> None:
        """Take note of what has changed in *table*."""
        if table is self._table:
            return
        if self._end > MOST_ITEMS:
            self._clear()
        known = self._known
        before = self._table.chains if self._table is not None else ()
        # Chains that an edit has not changed are the same objects, and mostly at the same place.
        pairs = zip_longest(table.chains, before[: len(table.chains)])
        for chain in [chain for chain, old in pairs if chain is not old]:
            old = known.get(chain.name)
            if old is not chain.rules:
                known[chain.name], number = chain.rules, self._number(chain.name)
                if old is None:
                    self._set(number, self._rows_of(chain.rules))
                else:
                    start = self._start[number]
                    rows = self._items[start : start + self._size[number]]
                    self._set(number, rows_after(old, rows, chain.rules, self._rows_of))
        self._table = table

    def _set(self, number: int, rows: Ints) -> None:
        end = self._end + len(rows)
        if end > len(self._items):
            self._items = np.concatenate((self._items, np.empty(end, np.int64)))
        if number >= len(self._start):
            more = np.zeros(number + 1, np.int64)
            self._start, self._size = (np.concatenate((old, more)) for old in (self._start, self._size))
        self._items[self._end : end] = rows
        self._start[number], self._size[number] = self._end, len(rows)
        self._end = end

    def of(self, numbers: Ints) -> tuple[Ints, Ints]:
        """The rows of the rules of these chains, one chain after the other, and their number by chain."""
        starts, sizes = self._start[numbers], self._size[numbers]
        ends = np.cumsum(sizes)
        at = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)
        return self._items[at], sizes
