"""How many chains nest above and below each chain, counted once, or kept while chains get trees.

The kernel's limit of nesting is one for a whole path of chains, so that the trees of chains that enter one
another share it.  `shares` says how much of it is kept for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ..ir.program import Table


def levels(
    callees: Mapping[str, Iterable[str]], nesting: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """How many chains nest above each chain, and how many below its rules, at most.

    *callees*: by chain, the chains that its rules enter.  *nesting*: by chain, the nesting of its own tree; 0
    when left out.  Chains on or behind a circle of jumps count as if the circle ended before them.
    """
    above, below = dict.fromkeys(callees, 0), dict.fromkeys(callees, 0)
    calls = Counter(callee for name in callees for callee in callees[name])
    ready = [name for name in callees if not calls[name]]
    for name in ready:  # which grows: callers first
        for callee in callees[name]:
            above[callee] = max(above[callee], above[name] + nesting.get(name, 0) + 1)
            calls[callee] -= 1
            if not calls[callee]:
                ready.append(callee)
    for name in reversed(ready):
        below[name] = max((1 + nesting.get(each, 0) + below[each] for each in callees[name]), default=0)
    return above, below


class Levels:
    """The numbers of `levels`, up to *most* (what is above it counts as *most*), while *nesting* changes.

    Cost: a call of `nest` visits each jump at most *most* times in either direction, and only the jumps of
    chains whose level changes.

    visited  chains that were visited so far
    """

    def __init__(
        self, callees: Mapping[str, Iterable[str]], most: int, nesting: Mapping[str, int] | None = None
    ) -> None:
        self.nesting = dict(nesting or {})
        self.visited = 0
        entered = {name: tuple(dict.fromkeys(below)) for name, below in callees.items()}
        entering: dict[str, list[str]] = {name: [] for name in entered}
        for name, below in entered.items():
            for callee in below:
                entering[callee].append(name)
        above, below_each = levels(entered, self.nesting)
        self._down = _Direction(entered, above, self.nesting, most)
        self._up = _Direction(entering, below_each, self.nesting, most)

    @property
    def above(self) -> Mapping[str, int]:
        return self._down.level

    @property
    def below(self) -> Mapping[str, int]:
        return self._up.level

    def nest(self, chain: str, nesting: int) -> None:
        """From now on the tree of *chain* nests so deep."""
        self.nesting[chain] = nesting
        self.visited += self._down.pass_on(chain) + self._up.pass_on(chain)


class _Direction:
    """The level of each chain, from what the chains before it on its paths pass on to it.

    following  by chain, those that it passes its level and nesting on to
    received   by chain, how many chains pass on each level to it
    """

    def __init__(
        self,
        following: Mapping[str, Iterable[str]],
        level: Mapping[str, int],
        nesting: Mapping[str, int],
        most: int,
    ) -> None:
        self.level = {name: min(most, each) for name, each in level.items()}
        self._following, self._nesting, self._most = following, nesting, most
        self._passed = {name: self._passes(name) for name in following}
        self._received: dict[str, Counter[int]] = {name: Counter() for name in following}
        for name, others in following.items():
            for each in others:
                self._received[each][self._passed[name]] += 1

    def _passes(self, name: str) -> int:
        return min(self._most, self.level[name] + self._nesting.get(name, 0) + 1)

    def pass_on(self, start: str) -> int:
        """Pass on the new nesting of the chain *start*; the number of chains that were visited."""
        waiting, visited = [start], 0
        while waiting:
            name = waiting.pop()
            visited += 1
            before, now = self._passed[name], self._passes(name)
            if before == now:
                continue
            self._passed[name] = now
            for each in self._following[name]:
                received = self._received[each]
                received[now] += 1
                received[before] -= 1
                if not received[before]:
                    del received[before]
                level = max(received)
                if level != self.level[each]:
                    self.level[each] = level
                    waiting.append(each)
        return visited


def shares(callees: Mapping[str, Iterable[str]], wanted: Mapping[str, int], limit: int) -> dict[str, int]:
    """How deep the tree of each chain may nest so that those of all chains on a path keep within *limit*.

    A chain gets what is *wanted* for it, or, where a path through it wants more than *limit*, that part of it
    which all chains of the path can have.
    """
    above, below = levels(callees, {})
    above_all, below_all = levels(callees, wanted)
    given = {}
    for name, nesting in wanted.items():
        jumps = above[name] + below[name]
        all_wanted = above_all[name] + below_all[name] + nesting - jumps
        if jumps + all_wanted > limit:
            nesting = nesting * max(0, limit - jumps) // max(1, all_wanted)
        given[name] = nesting
    return given


def levels_above(table: Table) -> dict[str, int]:
    """How many chains nest above each chain of the table, at most."""
    callees = {
        chain.name: {name for rule in chain.rules if (name := rule.enters) is not None}
        for chain in table.chains
    }
    return levels(callees, {})[0]
