"""Coordinates: the values of a field, numbered so that the prover compares small integers.

The values are cut wherever a test of either program begins or ends, and where classes of packets differ; a
coordinate is one piece.

Invariant: two values of a field have one coordinate only if no test of either program separates them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import chain as row

import numpy as np

from hitables.ir.fields import INTERFACES, PORT_PROTOCOLS, Family, Field, top
from hitables.ir.headers import HEADER_BYTES
from hitables.ir.intervals import Values

Pairs = tuple[tuple[int, int], ...]

# Values that packet classes separate, even if no rule tests them.
_FIXED = {
    Field.PROTO: sorted({p + step for p in {*PORT_PROTOCOLS, *HEADER_BYTES} for step in (0, 1)}),
    Field.FRAG: [1, 2],
    **{field: [1] for field in INTERFACES},
}


class Coordinates:
    """The pieces of one field, cut at the bounds of *tests*.  The last of MAC: none.

    starts         the first value of each
    ends_of_tests  of all *tests*, one after the other: low, high, low, high, ... as coordinates
    """

    def __init__(self, field: Field, family: Family, tests: Iterable[Pairs]) -> None:
        self.field, self.top = field, top(field, family)
        # Numbers of 128 bits are compared as objects.
        kind = np.uint64 if self.top < 1 << 63 else object
        cuts = np.array(list(row.from_iterable(row.from_iterable(tests))), kind)
        cuts[1::2] += 1
        starts = np.sort(np.concatenate((np.array([0, *_FIXED.get(field, ()), self.top + 1], kind), cuts)))
        starts = starts[np.append(True, starts[1:] != starts[:-1])][:-1]  # the last one is top + 1
        self.starts: list[int] = starts.tolist()
        self.ends_of_tests = np.searchsorted(starts, cuts).astype(np.uint32)
        self.ends_of_tests[1::2] -= 1
        self._values: dict[tuple[int, ...], tuple[Values, bool]] = {}
        self._counts: dict[tuple[int, ...], int] = {}

    @property
    def size(self) -> int:
        return len(self.starts) + (self.field is Field.MAC)

    def inside(self, values: Values) -> list[int]:
        """low, high, low, high, ... : the coordinates that lie in *values* wholly."""
        out: list[int] = []
        for low, high in values.pairs:
            first = bisect_right(self.starts, low) - 1
            first += self.starts[first] != low
            last = bisect_right(self.starts, high + 1) - 1 if high < self.top else len(self.starts)
            if first < last:
                out += (first, last - 1)
        return out

    def values(self, ends: tuple[int, ...]) -> tuple[Values, bool]:
        """The values of the coordinates low, high, low, high, ..., and whether "none" is among them.

        Kept, for many regions of a difference have the same sets, and each may have thousands of pieces.
        """
        known = self._values.get(ends)
        if known is None:
            known = self._values[ends] = self._values_of(ends)
        return known

    def count(self, ends: tuple[int, ...]) -> int:
        """How many values the coordinates have, without "none"."""
        known = self._counts.get(ends)
        if known is None:
            known = self._counts[ends] = self.values(ends)[0].count
        return known

    def _values_of(self, ends: tuple[int, ...]) -> tuple[Values, bool]:
        pairs = []
        for low, high in zip(ends[::2], ends[1::2], strict=True):
            last = min(high, len(self.starts) - 1)
            if low <= last:
                pairs.append((self.starts[low], self._last_value(last)))
        return Values.of(*pairs), len(self.starts) in ends[1::2]

    def _last_value(self, number: int) -> int:
        return self.starts[number + 1] - 1 if number + 1 < len(self.starts) else self.top
