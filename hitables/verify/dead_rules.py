"""Rules of a list that no packet meets, as earlier rules together decide all their packets.

Idea: a compiled program has no copy of such a rule.  The rules that cover it may be of several groups; then
no group alone shows that it is dead, and comparing the group that it is put in has to search all groups.  So
such a rule is left out of the third program, with a proof of its own.

Law: a rule d of the list is dead if each packet on which d acts (that it matches, or drops as malformed)
meets before d a rule that decides it.  `covering` guesses such rules c1, c2, ...: earlier deciders that test
nothing that the list may write.  Then two chains are compared by the prover, in each class of packets:

    c1's matches, d's matches  verdict A        c1's matches, d's matches  verdict A
    c2's matches, d's matches  verdict A        c2's matches, d's matches  verdict A
    d's matches                verdict B

where d's matches are those before the first that asks a memory or chance: d acts as soon as it asks.  If
they are equal, d is dead: let d act on a packet, as the packet is when it meets d.  The second chain does not
end with B, nor drop the packet as d does, unless one of the c acts on it; and this c acted on the packet when
the list read it, as what c tests has not been written since.

A rule that drops malformed packets may be dead for all others alone, though leaving it out changes nothing,
as those packets are dropped later.  Then the lists are compared once more with all rules (merged_classes.py):
a rule without a copy is in the group of a rule that covers it.

Cost: `covering` cuts the box of d into at most MOST_PIECES pieces, all calls together MOST_PIECES_IN_ALL.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hitables.ir.fields import Field

from .group_reader import Bools, Copies, Ints, ListRules, ranges

# More list rules without a copy than this are not searched for earlier rules that cover them.
MOST_UNCOPIED = 4_000
MOST_PIECES, MOST_PIECES_IN_ALL = 5_000, 200_000
# The widest rules alone are tried.
MOST_CANDIDATES = 2_000


@dataclass(frozen=True)
class ListBoxes:
    """The rules of a list as boxes.

    lows, highs  by dimension and list rule: the bounds of its box, as coordinates
    deciding     by list rule: it decides all packets of its box, whenever it is read
    """

    lows: Ints
    highs: Ints
    deciding: Bools

    def first_covering(self, rule: int, among: Bools) -> int | None:
        """The first earlier rule of *among* that covers *rule* alone; None: there is none."""
        covers = self.deciding[:rule] & among[:rule]
        covers &= (self.lows[:, :rule] <= self.lows[:, rule : rule + 1]).all(axis=0)
        covers &= (self.highs[:, :rule] >= self.highs[:, rule : rule + 1]).all(axis=0)
        found = np.flatnonzero(covers)
        return int(found[0]) if len(found) else None


def boxes_of(rules: ListRules) -> ListBoxes:
    encoding, count = rules.tables.encoding, rules.count
    matches, tests = encoding.matches, encoding.matches.tests
    start = rules.tables.rule_start[rules.offset : rules.offset + count + 1]
    of_list = encoding.rule_match[start[0] : start[-1]].astype(np.int64)
    rule = np.repeat(np.arange(count), np.diff(start))
    sizes = np.diff(matches.test_start)[of_list]
    of_rule, test = np.repeat(rule, sizes), matches.test_list[ranges(matches.test_start[of_list], sizes)]
    ends = np.array(tests.ends, np.int64)
    test_start, test_dim = np.array(tests.starts, np.int64), np.array(tests.dims, np.int64)
    exact = np.ones(count, np.bool_)
    exact[rule[matches.inexact[of_list]]] = False
    intervals = np.diff(test_start)[test]
    exact[of_rule[intervals != 1]] = False
    never = intervals == 0  # tests that no value passes, as `! -o +`
    dims = np.unique(test_dim[test])
    lows, highs = np.zeros((2, len(dims), count), np.int64)
    for at, dim in enumerate(dims.tolist()):
        highs[at] = tests.coordinates[Field(dim)].size - 1 if dim < len(Field) else 1
        here = (test_dim[test] == dim) & ~never
        np.maximum.at(lows[at], of_rule[here], ends[2 * test_start[test[here]]])
        np.minimum.at(highs[at], of_rule[here], ends[2 * test_start[test[here] + 1] - 1])
    highs[:, of_rule[never]] = -1
    return ListBoxes(lows, highs, exact & rules.final & ~rules.changing & (lows <= highs).all(axis=0))


class CoverSearch:
    """Searches earlier rules that together cover a rule, within one budget for all rules."""

    def __init__(self, of: ListBoxes) -> None:
        self._boxes = of
        self._pieces_left = MOST_PIECES_IN_ALL

    def covering(self, rule: int) -> list[int]:
        """Earlier deciding rules whose boxes together contain that of *rule*; [] if none are found."""
        of = self._boxes
        low, high = of.lows[:, rule], of.highs[:, rule]
        if (low > high).any():
            return []
        meets = of.deciding[:rule] & (of.lows[:, :rule] <= high[:, None]).all(axis=0)
        meets &= (of.highs[:, :rule] >= low[:, None]).all(axis=0)
        candidates = np.flatnonzero(meets)
        lows = np.maximum(of.lows[:, candidates], low[:, None])
        highs = np.minimum(of.highs[:, candidates], high[:, None])
        volume = np.log2(highs - lows + 1.0).sum(axis=0)
        widest = np.argsort(-volume, kind="stable")[:MOST_CANDIDATES]
        used = self._cover(low, high, lows[:, widest], highs[:, widest])
        rules: list[int] = candidates[widest[used]].tolist()
        return rules

    def _cover(self, low: Ints, high: Ints, lows: Ints, highs: Ints) -> list[int]:
        """Which boxes cover the box from *low* to *high*; [] if that is not found."""
        used: set[int] = set()
        waiting = [(low.copy(), high.copy())]
        for _ in range(min(MOST_PIECES, self._pieces_left)):
            if not waiting:
                return sorted(used)
            self._pieces_left -= 1
            low, high = waiting.pop()
            meets = np.flatnonzero(((lows <= high[:, None]) & (highs >= low[:, None])).all(axis=0))
            if not len(meets):
                return []
            first = int(meets[0])
            used.add(first)
            for dim in range(len(low)):
                if lows[dim, first] > low[dim]:
                    outside = high.copy()
                    outside[dim] = lows[dim, first] - 1
                    waiting.append((low.copy(), outside))
                    low[dim] = lows[dim, first]
                if highs[dim, first] < high[dim]:
                    outside = low.copy()
                    outside[dim] = highs[dim, first] + 1
                    waiting.append((outside, high.copy()))
                    high[dim] = highs[dim, first]
        return []


def without_dead(rules: ListRules, copies: Copies) -> tuple[ListRules, dict[int, list[int]]]:
    """The list without rules that have no copy and seem dead; and by such rule, those that cover it."""
    copied = np.zeros(rules.count, np.bool_)
    copied[copies.of[copies.of >= 0]] = True
    for listed in copies.listed_before.values():
        copied[listed] = True
    for equal in copies.equal.values():
        copied[equal] |= copied[equal[0]]
    uncopied = np.flatnonzero(rules.live & ~copied)
    if not len(uncopied) or len(uncopied) > MOST_UNCOPIED:
        return rules, {}
    search = CoverSearch(boxes_of(rules))
    dead: dict[int, list[int]] = {}
    for rule in uncopied.tolist():
        if covering := search.covering(rule):
            dead[rule] = covering
    live = rules.live.copy()
    live[list(dead)] = False
    return replace(rules, live=live), dead
