"""How deep the tree of each chain may nest: its room.

The kernel's limit of nesting is one for a whole path of chains, so the trees of chains that enter one another
share it.  Something is kept for each of them, and a tree that is grown may take what is left.  So the chains
that are compiled first take most.  Where another tree reads many rules for want of room, `Rooms.shared_anew`
keeps for each chain a part by what it wants.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ..analyse.levels import Levels, levels, shares


def nesting_kept(rules: int) -> int:
    """How many chains may nest at least in a tree over so many *rules*, whatever others on its path take."""
    return max(1, math.ceil(math.log2(max(1, rules) / 8) / 3))


class Rooms:
    """The rooms of the chains of one table.

    callees  by chain, the chains that its rules enter
    limit    how many chains may nest on a path
    most     how many may nest in one tree; None: any number
    kept     by chain: how many are kept for its tree, or a part where those of a path are more than the limit
    bounds   by chain: its room at most
    """

    def __init__(
        self,
        callees: Mapping[str, Iterable[str]],
        limit: int,
        most: int | None,
        kept: Mapping[str, int],
        bounds: Mapping[str, int] | None = None,
    ) -> None:
        self._callees, self._limit, self._most = callees, limit, most
        self._bounds = bounds or {}
        self._levels = Levels(callees, limit + 1, shares(callees, kept, limit))
        self._given: dict[str, int] = {}

    def of(self, chain: str, *, memory: bool, jumps: bool) -> int:
        """How many chains may nest in the tree of *chain*.

        memory  whether rules of it have a memory, so that each has a chain of its own
        jumps   whether such a rule enters a user chain
        """
        down = max(self._levels.below[chain] + jumps, int(memory))
        room = self._limit - self._levels.above[chain] - down
        if self._most is not None:
            room = min(room, self._most - memory)
        self._given[chain] = min(room, self._bounds.get(chain, room))
        return self._given[chain]

    def take(self, chain: str, nesting: int) -> None:
        """The tree of *chain* nests so deep; 0: it has none."""
        self._levels.nest(chain, nesting)

    def taken(self, chain: str) -> int:
        return self._levels.nesting[chain]

    def shared_anew(self, reading_many: Iterable[str]) -> Rooms | None:
        """Other rooms, in which the chains *reading_many* may have more at the cost of others on their paths.

        None if none of them had less room than it would have alone, and used half of it at least.
        """
        above, below = levels(self._callees, {})
        wanted = {}
        for name in reading_many:
            alone = self._limit - above[name] - below[name]
            alone = alone if self._most is None else min(alone, self._most)
            if self._given[name] < alone and 2 * self.taken(name) >= self._given[name]:
                wanted[name] = alone
        if not wanted:
            return None
        kept = {name: taken for name, taken in self._levels.nesting.items() if taken}
        bounds = {name: room for name, room in self._given.items() if name not in wanted}
        return Rooms(self._callees, self._limit, self._most, kept | wanted, bounds)
