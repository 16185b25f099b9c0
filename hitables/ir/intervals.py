"""Sets of integers, as sorted disjoint intervals.

Invariant: the pairs of a `Values` are sorted, do not overlap and do not touch,
so equal sets are equal objects and every operation is one pass over them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Values:
    """A set of integers: *pairs* of (lowest, highest), both included."""

    pairs: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        last = -2
        for low, high in self.pairs:
            if low > high:
                raise ValueError(f"empty interval {low}..{high}")
            if low <= last + 1:
                raise ValueError(f"intervals out of order at {low}..{high}")
            last = high

    @classmethod
    def interval(cls, low: int, high: int) -> Values:
        """All integers from *low* to *high*, unchecked: a fast constructor for many sets."""
        interval = object.__new__(cls)
        object.__setattr__(interval, "pairs", ((low, high),))
        return interval

    @classmethod
    def of(cls, *pairs: tuple[int, int]) -> Values:
        """The union of *pairs*, in any order; a pair whose low end is above its high end is empty."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted(pair for pair in pairs if pair[0] <= pair[1]):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        return cls(tuple(merged))

    @classmethod
    def only(cls, *members: int) -> Values:
        """Exactly *members*."""
        return cls.of(*((member, member) for member in members))

    def __contains__(self, value: int) -> bool:
        at = bisect_right(self.pairs, (value, value)) - 1
        if at >= 0 and value <= self.pairs[at][1]:
            return True
        return at + 1 < len(self.pairs) and self.pairs[at + 1][0] <= value

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def __len__(self) -> int:
        return self.count

    @property
    def count(self) -> int:
        """How many integers there are; `len` fails for 2**63 and more, as all addresses of IPv6 are."""
        return sum(high - low + 1 for low, high in self.pairs)

    def members(self) -> Iterator[int]:
        """All of them, in order."""
        return (value for low, high in self.pairs for value in range(low, high + 1))

    def complement(self, top: int) -> Values:
        """The integers of 0..*top* that are not in this set."""
        out = []
        next_free = 0
        for low, high in self.pairs:
            if next_free < low:
                out.append((next_free, low - 1))
            next_free = high + 1
        if next_free <= top:
            out.append((next_free, top))
        return Values(tuple(out))

    def union(self, other: Values) -> Values:
        return Values.of(*self.pairs, *other.pairs)

    def intersect(self, other: Values) -> Values:
        out = []
        mine, theirs = iter(self.pairs), iter(other.pairs)
        a, b = next(mine, None), next(theirs, None)
        while a and b:
            low, high = max(a[0], b[0]), min(a[1], b[1])
            if low <= high:
                out.append((low, high))
            if a[1] < b[1]:
                a = next(mine, None)
            else:
                b = next(theirs, None)
        return Values(tuple(out))

    def covers(self, other: Values) -> bool:
        """Whether every member of *other* is a member of this set."""
        return self.intersect(other) == other

    def hull(self) -> tuple[int, int]:
        """The smallest interval that contains the set, which must not be empty."""
        return self.pairs[0][0], self.pairs[-1][1]


def masked(value: int, mask: int, width: int, limit: int = 4096) -> Values:
    """All *width*-bit integers that agree with *value* where *mask* has a one.

    A mask with many zero bits to the left of ones gives many intervals; OverflowError for more than *limit*.
    """
    value &= mask
    low_free = (mask & -mask).bit_length() - 1 if mask else width
    free = [bit for bit in range(low_free, width) if not mask >> bit & 1]
    if 1 << len(free) > limit:
        raise OverflowError(f"a mask of {1 << len(free)} intervals")
    starts: Iterable[int] = (value,)
    for bit in free:
        starts = [start | one << bit for start in starts for one in (0, 1)]
    return Values.of(*((start, start + (1 << low_free) - 1) for start in starts))
