"""Packets of a class as the prover takes them: all of a set, or one, drawn at random.

Idea: a run on one packet reads few rules, however many the set of a rule meets.  Where it shows a difference
the set has one; where it does not, nothing is known of the set.

Users: altered.py, lint.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from random import Random

from hitables.core.prover import NONE
from hitables.ir.fields import Field

from .encoding import Encoding
from .match_box import PacketSet


class RegionWords:
    """The packets *inside*, in the coordinates of *encoding*."""

    def __init__(self, encoding: Encoding, inside: PacketSet) -> None:
        self._encoding, self.inside = encoding, inside
        self._ends = encoding.ends_inside(inside.box)
        self._cells = encoding.cells_of(inside.facts)

    @property
    def is_empty(self) -> bool:
        """Whether its facts exclude each other."""
        return not all(self._cells.values())

    def all(self) -> array[int]:
        """dim, count, low, high, ... of each dimension that is restricted."""
        words = array("I")
        for field, ends in self._ends.items():
            words.extend((field, len(ends) // 2, *ends))
        for dim, cells in self._cells.items():
            words.extend((dim, len(cells) // 2, *cells))
        return words

    def one(self, random: Random) -> array[int] | None:
        """dim, 1, low, low of fields and attributes (NONE: all of these): one packet; None: the box has none.

        Of the facts of matches that compare no number, those alone hold that the rule wants to hold.
        """
        coordinates = self._encoding.matches.tests.coordinates
        words = array("I")
        for field in Field:
            ends = self._ends.get(field)
            if ends is None:
                chosen = random.randrange(coordinates[field].size)
            elif not ends:
                return None
            else:
                at = 2 * random.randrange(len(ends) // 2)
                chosen = random.randint(ends[at], ends[at + 1])
            words.extend((field, 1, chosen, chosen))
        words.extend((NONE, 1, 0, 0))
        for dim, cells in self._encoding.cells_of(self.inside.expected).items():
            if not cells:
                return None
            words.extend((dim, 1, cells[0], cells[0]))
        return words

    def one_in(self, sets: Mapping[int, Sequence[int]]) -> array[int] | None:
        """`one`, which lies in these sets, too: by dimension low, high, low, high, ... as coordinates."""
        words = array("I", (NONE, 1, 0, 0))
        own: dict[int, Sequence[int]] = dict(self._cells)
        for field, ends in self._ends.items():
            own[field] = ends
        for dim in own.keys() | sets.keys():
            chosen = _first_common(own.get(dim, sets.get(dim, ())), sets.get(dim, own.get(dim, ())))
            if chosen is None:
                return None
            words.extend((dim, 1, chosen, chosen))
        return words


def _first_common(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The lowest number that lies in both lists low, high, low, high, ...; None: there is none."""
    at = 0
    for low, high in zip(one[::2], one[1::2], strict=True):
        while at < len(other) and other[at + 1] < low:
            at += 2
        if at < len(other) and other[at] <= high:
            return max(low, other[at])
    return None
