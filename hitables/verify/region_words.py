"""Packets of a class as the prover takes them: all of a set, or one, drawn at random.

Idea: a run on one packet reads few rules, however many the set of a rule meets.  Where it shows a difference
the set has one; where it does not, nothing is known of the set.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from random import Random

from hitables.core.prover import NONE
from hitables.ir.fields import Field

from .encoding import Encoding
from .match_box import PacketSet

# A packet: its coordinate by dimension; of attributes that it lacks no fact holds.
Point = dict[int, int]


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

    def one(self, random: Random) -> Point | None:
        """One packet, drawn at random; None: the box has none.

        Of the facts of matches that compare no number, those alone hold that the rule wants to hold.
        """
        return self.near({}, random)

    def near(self, other: Point, random: Random) -> Point | None:
        """One packet, as much like *other* as the box allows; fields that *other* lacks are drawn at random.

        Facts that *other* lacks are as in `one`.  None: the box has none.
        """
        coordinates = self._encoding.matches.tests.coordinates
        point = dict(other)
        for field in Field:
            ends = self._ends.get(field)
            if ends is None:
                if field not in other:
                    point[field] = int(random.random() * coordinates[field].size)
            elif not ends:
                return None
            elif not _contain(ends, other.get(field)):
                at = 2 * int(random.random() * (len(ends) // 2))
                point[field] = ends[at] + int(random.random() * (ends[at + 1] - ends[at] + 1))
        for dim, cells in self._encoding.cells_of(self.inside.expected).items():
            if not cells:
                return None
            if not _contain(cells, other.get(dim)):
                point[dim] = cells[0]
        return point

    def one_in(self, sets: Mapping[int, Sequence[int]]) -> Point | None:
        """`one`, which lies in these sets, too: by dimension low, high, low, high, ... as coordinates."""
        point: Point = {}
        own: dict[int, Sequence[int]] = dict(self._cells)
        for field, ends in self._ends.items():
            own[field] = ends
        for dim in own.keys() | sets.keys():
            chosen = _first_common(own.get(dim, sets.get(dim, ())), sets.get(dim, own.get(dim, ())))
            if chosen is None:
                return None
            point[dim] = chosen
        return point


def words_of(point: Point) -> array[int]:
    """dim, 1, low, low of each dimension, NONE for all attributes that *point* lacks: these are 0."""
    words = array("I", (NONE, 1, 0, 0))
    for dim, chosen in point.items():
        words.extend((dim, 1, chosen, chosen))
    return words


def _contain(ends: Sequence[int], number: int | None) -> bool:
    """Whether *number* lies in low, high, low, high, ..."""
    if number is None:
        return False
    at = bisect_left(ends, number)
    return at < len(ends) and (at % 2 == 1 or ends[at] == number)


def _first_common(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The lowest number that lies in both lists low, high, low, high, ...; None: there is none."""
    at = 0
    for low, high in zip(one[::2], one[1::2], strict=True):
        while at < len(other) and other[at + 1] < low:
            at += 2
        if at < len(other) and other[at] <= high:
            return max(low, other[at])
    return None
