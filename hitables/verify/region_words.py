"""Packets of a class as the prover takes them: all of a set, or one, drawn at random.

Idea: a run on one packet reads few rules, however many the set of a rule meets.  Where it shows a difference
the set has one; where it does not, nothing is known of the set.

Users: lint.py.
"""

from __future__ import annotations

from array import array
from random import Random

from hitables.core.prover import NONE
from hitables.ir.fields import Field

from .encoding import Encoding
from .match_box import PacketSet


class RegionWords:
    """The packets of *inside*, in the coordinates of *encoding*."""

    def __init__(self, encoding: Encoding, inside: PacketSet) -> None:
        self._encoding, self._inside = encoding, inside
        self._ends = encoding.ends_inside(inside.box)

    def all(self) -> array[int]:
        """dim, count, low, high, ... of each dimension that is restricted."""
        words = array("I")
        for field, ends in self._ends.items():
            words.extend((field, len(ends) // 2, *ends))
        for key, truth in self._inside.facts:
            words.extend((self._encoding.fact_dim(key), 1, truth, truth))
        return words

    def one(self, random: Random) -> array[int] | None:
        """dim, 1, low, low of fields and facts (NONE: all facts): one packet; None: the box has none.

        Of the facts, those alone hold that the rule wants to hold.
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
        for key, truth in self._inside.expected:
            words.extend((self._encoding.fact_dim(key), 1, truth, truth))
        return words
