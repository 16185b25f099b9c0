"""How the rules of one chain differ from those that were recorded, in words.

The number of a rule is that of `iptables -L --line-numbers`.  A few places where rules differ are told one by
one, as other programs put some of their rules in front and others at the end; many are told as one.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from .texts import Chains, TextChain, TextRule

# Places of a chain that are told one by one, so that ten lines show more than one chain.
_PLACES = 4
# Changed rules then times changed rules now, up to which they are compared: 10 ms for the worst texts.
_COMPARED = 40_000
_WITHOUT_MATCHES = ("-j ", "-g ")


class Place(NamedTuple):
    """The rules from *start* to *end* were those from *old_start* to *old_end*."""

    old_start: int
    old_end: int
    start: int
    end: int


class ChainWords:
    """What a chain *name* of *present* has in place of *recorded*, of rules that are ours.

    numbers_now, numbers_then  of the rules of either
    trees                      the chains of trees
    """

    def __init__(
        self,
        present: Chains,
        name: str,
        recorded: TextChain,
        numbers_now: Sequence[int],
        numbers_then: Sequence[int],
        trees: Collection[str],
    ) -> None:
        self._chains, self._trees = present, trees
        self._now, self._was = present[name], recorded
        self._numbers_now, self._numbers_then = numbers_now, numbers_then
        self._coming_back: dict[str, bool] = {}

    def told(self) -> Iterator[str]:
        """How the chain differs: its policy, and the places where its rules do."""
        if self._now.policy != self._was.policy:
            yield f"policy {self._now.policy}, was {self._was.policy}"
        for place in places(self._was.bodies, self._now.bodies):
            yield self._of_place(place)

    def _of_place(self, place: Place) -> str:
        added = self._now.bodies[place.start : place.end]
        gone = self._was.bodies[place.old_start : place.old_end]
        numbers = self._numbers_now[place.start : place.end]
        if not added:
            return f"{_rules(self._numbers_then[place.old_start : place.old_end])} gone: '{gone[0]}'"
        behind = self._behind(place.start, len(added))
        if not gone:
            return f"{_rules(numbers)} new: '{added[0]}'{behind}"
        more = " and more" if max(len(added), len(gone)) > 1 else ""
        more += f" up to rule {numbers[-1]}" if len(added) > 1 else ""
        return f"rule {numbers[0]} is now '{added[0]}', was '{gone[0]}'{more}{behind}"

    def _behind(self, start: int, count: int) -> str:
        """Why not all packets, or none, come to *count* new rules from *start* on; "" if nothing is known."""
        before = self._now.rules[:start]
        all_taken = next((at for at, rule in enumerate(before) if self._takes_all(rule)), None)
        trees = [at for at, rule in enumerate(before[:all_taken]) if self._leaves_by_tree(rule)]
        if all_taken is not None:
            rule = before[all_taken]
            why = f", where no packet comes: rule {self._numbers_now[all_taken]} takes all ({rule.body})"
            if not trees and not self._leaves_by_tree(rule):
                return why
        elif trees:
            first, last = (self._numbers_now[at] for at in (trees[0], trees[-1]))
            which = f"rules {first} to {last}" if last - first == len(trees) - 1 else ""
            which = which or f"{len(trees)} of rules {first} to {last}"
            named = f"trees ({which})" if len(trees) > 1 else f"a tree (rule {first})"
            why = f", behind {named} from which packets do not come back"
        else:
            return ""
        them = "it" if count == 1 else "them"
        return f"{why}: insert {them} in front (-I), or have {them} in the file"

    def _leaves_by_tree(self, rule: TextRule) -> bool:
        """Whether packets that the rule matches go to a tree for good."""
        return rule.enters in self._trees and (rule.goes or not self._comes_back(rule.enters))

    def _takes_all(self, rule: TextRule) -> bool:
        """Whether no packet passes the rule: it has no matches, and a verdict, -g, or a tree of verdicts."""
        if not rule.body.startswith(_WITHOUT_MATCHES):
            return False
        if rule.enters in ("ACCEPT", "DROP", "RETURN") or rule.body.startswith("-j REJECT"):
            return True
        return rule.goes or self._leaves_by_tree(rule)

    def _comes_back(self, name: str) -> bool:
        """Whether a packet may come back that enters the chain by -j, as far as the rules of trees tell."""
        if name not in self._trees or name not in self._chains:
            return True
        if name not in self._coming_back:
            self._coming_back[name] = True
            self._coming_back[name] = self._may_come_back(name)
        return self._coming_back[name]

    def _may_come_back(self, name: str) -> bool:
        for rule in self._chains[name].rules:
            if rule.enters == "RETURN" or (rule.goes and self._comes_back(rule.enters)):
                return True
            if self._takes_all(rule):
                return False
        return True


def places(was: Sequence[str], now: Sequence[str]) -> list[Place]:
    """Where rules differ: each place, or from the first to the last if there are many."""
    start = _common_length(was, now)
    end = _common_length(was[start:][::-1], now[start:][::-1])
    old, new = was[start : len(was) - end], now[start : len(now) - end]
    pairs = _pairs(old, new)
    found = [
        Place(start + i + 1, start + old_end, start + j + 1, start + new_end)
        for (i, j), (old_end, new_end) in itertools.pairwise([(-1, -1), *pairs, (len(old), len(new))])
        if (i + 1, j + 1) != (old_end, new_end)
    ]
    if len(found) > _PLACES:
        return [Place(start, len(was) - end, start, len(now) - end)]
    return found


def _pairs(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """The places of equal rules in *old* and *new*, in order; none if both are long and have other rules."""
    within = _within(old, new)
    if within is not None:
        return list(enumerate(within))
    within = _within(new, old)
    if within is not None:
        return [(at, number) for number, at in enumerate(within)]
    if len(old) * len(new) > _COMPARED:
        return []
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return [(block.a + at, block.b + at) for block in blocks for at in range(block.size)]


def _within(some: Sequence[str], every: Sequence[str]) -> list[int] | None:
    """Places of *some* in *every*, in this order; None if not all are there."""
    found: list[int] = []
    for at, body in enumerate(every):
        if len(found) < len(some) and body == some[len(found)]:
            found.append(at)
    return found if len(found) == len(some) else None


def _common_length(one: Sequence[str], other: Sequence[str]) -> int:
    """How many of the first members are alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (each, its) in pairs if each != its), min(len(one), len(other)))


def _rules(numbers: Sequence[int]) -> str:
    """Rules with these *numbers*, with the verb."""
    return f"rule {numbers[0]} is" if len(numbers) == 1 else f"rules {numbers[0]} to {numbers[-1]} are"
