"""Hot rules: copies of the rules that decide most packets, in front of a tree (Storm, section 3.2).

Idea: the boxes of analyse/hot_boxes.py, printed as plain rules, which a packet reads before the tree.  Each
hot rule is a copy of one rule of the list, cut to the packets that this rule decides, so its counter belongs
to that rule's line.  Comments are left out of the copy: the kernel would evaluate them.

Which are worth it is a question of cost: a hot rule saves its packets the way through the tree, and costs all
others a test that fails.  The packets are those of a trace, or points drawn by the counters; the figures are
those of costs/.  Candidates are taken greedily, while they pay in both halves of the packets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..analyse.boxes import Boxes, Prices, Reorder, Words
from ..analyse.hot_boxes import HotBox, HotBoxes
from ..analyse.weights import Packets
from ..build.expected_cost import draw_counted, spent_at
from ..build.tree import Tree, unsplit
from ..costs.tree_prices import Priced
from ..emit.jumps import Segment
from ..emit.tree_tests import joined, test_words
from ..emit.tree_tests import matches as test_matches
from ..ir.choices import Malformed
from ..ir.fields import Family, Field
from ..ir.packet import Backend
from ..ir.rule import Kind, Match, Rule
from ..parse.part_meaning import header_place
from .hot_costs import HotCosts, batch_of
from .options import Options

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# Rules to their prices, in nanoseconds, in each backend.
PricesOf = Callable[[Priced], Sequence[Prices]]

# Packets that the boxes evolve from, and that candidates are weighed by: more change the choice little.
SAMPLES, WEIGHED = 8192, 16_384
# Candidates for each hot rule that is asked for.
CANDIDATES = 4
# A hot rule must save this share of what all packets spend, and all of them together that one: less is within
# the error of the model, and of the packets that they are chosen by.  Rules of fw1_10K that should have saved
# more than 5 % on `edge` cost the packets that followed 5 % in either kernel.
LEAST_SAVED, LEAST_SAVED_BY_ALL = 0.005, 0.1


@dataclass(frozen=True, slots=True)
class HotRules:
    """Hot rules in their order, and what they change.

    rules   to stand in front of the tree
    ordered  whether some of them are right only behind others
    decided, taken  by point: the rule of the list that decides it (-1: none); whether a hot rule does first
    before, after  nanoseconds of a packet in each backend, without and with them
    read_before, read_after  rules that a packet reads
    """

    rules: tuple[Rule, ...]
    ordered: bool
    decided: npt.NDArray[np.intp]
    taken: Bools
    before: Floats
    after: Floats
    read_before: float
    read_after: float

    @property
    def change(self) -> Floats:
        """Rules read, then nanoseconds in each backend: those with hot rules as a share of those without."""
        return np.array([self.read_after / self.read_before, *(self.after / self.before)])

    def left_of(self, counts: Sequence[float], fixed: int) -> list[float]:
        """The *counts* of the rules of the chain, without the packets that hot rules decide.

        *fixed*: rules of the chain before the list.
        """
        decided = self.decided >= 0
        every = np.bincount(self.decided[decided] + fixed, minlength=len(counts))
        taken = np.bincount(self.decided[decided & self.taken] + fixed, minlength=len(counts))
        left: list[float] = (np.asarray(counts, float) * (1 - taken / np.maximum(every, 1))).tolist()
        return left


def may_lead(boxes: Boxes) -> Bools:
    """By rule: whether it may be read before all others: it decides its box, whatever was read before."""
    lead: Bools = boxes.final.astype(bool) & ((boxes.reorder & int(Reorder.DEFERRABLE)) != 0)
    return lead


def classes(rules: Sequence[Rule], by_verdict: bool) -> npt.NDArray[np.int64]:
    """By rule: rules of one class may stand for each other.

    Each is a class of its own, so that the counters stay right; *by_verdict*: all of one verdict are one.
    """
    if not by_verdict:
        return np.arange(len(rules))
    first: dict[str, int] = {}
    return np.array([
        first.setdefault(rule.target.key, at)
        if rule.target is not None and rule.target.kind is Kind.VERDICT
        else at
        for at, rule in enumerate(rules)
    ], np.int64)  # fmt: skip


def hot_boxes(
    rules: Sequence[Rule], boxes: Boxes, options: Options, backends: Sequence[Backend], family: Family
) -> HotBoxes:
    """The boxes of *rules*, to be searched for hot ones."""
    return HotBoxes(
        boxes,
        rules,
        may_lead(boxes),
        classes(rules, options.equivalence == "verdict"),
        backends,
        hides_protocol=family is Family.IPV6,
        exact=options.malformed is Malformed.EXACT,
    )


class HotSearch:
    """The search for hot rules of one list; its candidates are found once, and weighed before several trees.

    packets  of the chain; None: they are drawn by *counts*, the packets of each rule
    prices   nanoseconds of rules in cache
    """

    def __init__(
        self, packets: Packets | None, counts: Sequence[float], options: Options, prices: PricesOf
    ) -> None:
        self.packets, self.counts, self.options, self.prices = packets, counts, options, prices
        self._found: _Found | None = None

    def best(self, segments: Sequence[Segment], costs: HotCosts) -> HotRules | None:
        """The hot rules that pay in front of the first tree of *segments*; None if none does."""
        fixed = costs.fixed
        at = 1 if fixed else 0
        tree = segments[at].tree if at < len(segments) else None
        if tree is None or not any(self.counts) or not tree.boxes.axes:
            return None
        rules = segments[at].rules
        if self._found is None:
            self._found = self._find(rules, tree, self.counts[fixed : fixed + len(rules)], costs)
        if not self._found.candidates:
            return None
        return _Choice(self._found, rules, tree, self.options.hot, self.prices, costs).run()

    def best_before(self, rules: Sequence[Rule], boxes: Boxes, costs: HotCosts) -> HotRules | None:
        """The hot rules that pay in front of the chain of *costs*, which does what the list *rules* does.

        Nothing is known of its tree, so all packets are taken to cost the same there.
        """
        tree = unsplit(boxes)
        if not any(self.counts) or not boxes.axes:
            return None
        found = self._find(rules, tree, self.counts, costs)
        if not found.candidates:
            return None
        return _Choice(found, rules, tree, self.options.hot, self.prices, costs, even=True).run()

    def _printed(self, rules: Sequence[Rule], box: HotBox, boxes: HotBoxes, family: Family) -> Rule | None:
        if self.options.as_written:
            return hot_copy(rules[box.rule], as_written=True)
        return hot_rule(rules[box.rule], box, boxes, family)

    def _find(self, rules: Sequence[Rule], tree: Tree, counts: Sequence[float], costs: HotCosts) -> _Found:
        boxes, options, family = tree.boxes, self.options, costs.family
        if self.packets is None:
            points = draw_counted(boxes, tree, counts, WEIGHED)
        else:
            points = self.packets.points(boxes.axes)
        found = hot_boxes(rules, boxes, options, costs.backends, family)
        found.free = [] if options.as_written else found.free
        samples = points[:: max(1, -(-len(points) // SAMPLES))]
        candidates = [
            _Candidate(box, printed)
            for box in found.candidates(samples, SAMPLES, CANDIDATES * options.hot)
            if (printed := self._printed(rules, box, found, family)) is not None
        ]
        leading = {each for candidate in candidates for each in candidate.box.before}
        whole = {
            each: _Candidate(box, hot_copy(rules[each], as_written=options.as_written))
            for each in leading
            if (box := found.whole(each)) is not None
        }
        candidates = [each for each in candidates if set(each.box.before) <= set(whole)]
        points = points[:: max(1, -(-len(points) // WEIGHED))]
        ranks = found.ranks(points) if candidates else np.zeros((0, 0), np.int64)
        return _Found(candidates, whole, points, ranks)


# ---- rules ----


def hot_copy(rule: Rule, *, as_written: bool = False) -> Rule:
    """A copy of *rule* that counts for it, its counter at 0; without comments, unless *as_written*."""
    matches = tuple(match for match in rule.matches if as_written or match.name != "comment")
    return Rule(matches, rule.target, rule.line, None if rule.counters is None else (0, 0))


def hot_rule(rule: Rule, box: HotBox, boxes: HotBoxes, family: Family) -> Rule | None:
    """The copy of *rule* for the packets of *box*; None if its tests and the others cannot stand together."""
    copy = hot_copy(rule)
    headers = [match for match in copy.matches if not match.name]
    others = [match for match in copy.matches if match.name]
    protocol = boxes.protocol(box.low, box.high)
    for field, (low, high) in box.narrowed:
        kept: list[Match] = []
        needed = True
        for match in headers:
            tests = [test for test in match.tests if test.field is field]
            if not tests:
                kept.append(match)
                continue
            pairs = tests[0].values.pairs
            if any(first <= low and high <= last for first, last in pairs):
                continue  # the narrower test decides it
            if len(pairs) != 1 or not (low <= pairs[0][0] and pairs[0][1] <= high):
                return None
            kept.append(match)
            needed = False
        headers = kept
        if not needed:
            continue
        for match in test_matches(test_words(field, low, high, False, protocol, family), family):
            if match.is_protocol and field is not Field.PROTO and any(each.is_protocol for each in headers):
                continue
            names = [each.name for each in others]
            if match.name in names:
                at = names.index(match.name)
                others[at] = joined(others[at], match, family)
            else:
                (others if match.name else headers).append(match)
    headers.sort(key=header_place)  # as the rule is read from its text, which the source map is of
    return copy._replace(matches=(*headers, *others))


# ---- which pay ----


@dataclass(slots=True)
class _Candidate:
    """A box, and the rule that it is printed as."""

    box: HotBox
    rule: Rule


@dataclass(frozen=True, slots=True)
class _Found:
    """Candidates, and the packets that weigh them.

    whole   by rule of the list: the rules that must stand before some candidate
    points  [packets, axes, 2]; ranks [packets, axes] of the same
    """

    candidates: list[_Candidate]
    whole: dict[int, _Candidate]
    points: Words
    ranks: npt.NDArray[np.int64]


_Group = list[tuple[_Candidate, Bools, Floats]]


class _Choice:
    """Candidates weighed by points.

    tree   nanoseconds of each point in the tree, [backends, points]: those of rules in cache, times what
           the whole model says of all points; *even*: the mean of these for each
    """

    def __init__(
        self,
        found: _Found,
        rules: Sequence[Rule],
        tree: Tree,
        most: int,
        prices: PricesOf,
        costs: HotCosts,
        *,
        even: bool = False,
    ) -> None:
        self.found, self.axes, self.most, self.prices, self.costs = (
            found, tree.boxes.axes, most, prices, costs,
        )  # fmt: skip
        spent = [spent_at(tree, one, found.points) for one in prices(self._priced(rules))]
        self.decided, self.reads = spent[0][0], spent[0][1].astype(float)
        self.batch = batch_of(found.points, self.axes, costs.family)
        cached = np.stack([np.ones(len(cost)) if even else cost for _, _, cost in spent])
        (whole,) = costs.of([()], self.batch)
        self.tree = cached * (whole / np.maximum(cached.mean(1), 1e-9))[:, None]

    def _priced(self, rules: Sequence[Rule]) -> Priced:
        return Priced(rules, self.axes, self.costs.family)

    def run(self) -> HotRules | None:
        """The hot rules that are worth it."""
        chosen = self._greedy()
        if not chosen:
            return None
        sizes = range(len(chosen) + 1)
        spent = self.costs.of([[each.rule for each in chosen[:size]] for size in sizes], self.batch)
        share = (spent / spent[0]).mean(1)
        best = int(np.argmin(share))
        if share[best] > 1 - LEAST_SAVED_BY_ALL:
            return None
        return self._result(chosen[:best], spent[0], spent[best])

    def _cost_of(self, candidate: _Candidate) -> tuple[Bools, Floats]:
        """By point: whether the rule takes it; and, by backend, what reading it costs."""
        low, high = np.array(candidate.box.low), np.array(candidate.box.high)
        ranks = self.found.ranks
        holds: Bools = (ranks >= low) & (ranks <= high)
        taken: Bools = np.all(holds, axis=1)
        rows = []
        for price in self.prices(self._priced((candidate.rule,))):
            cost = np.zeros(len(taken))
            reading: Bools = np.ones(len(taken), np.bool_)
            for axis in price.order.tolist():
                if price.missed[0, axis] <= 0:
                    continue
                cost[reading & ~holds[:, axis]] += price.missed[0, axis]
                reading &= holds[:, axis]
                cost[reading] += price.holds[0, axis]
            cost[taken] += price.taken[0]
            rows.append(cost)
        return taken, np.stack(rows)

    def _greedy(self) -> list[_Candidate]:
        """The candidates, in the order in which each saves most of what those before it leave."""
        weighed = [(each, *self._cost_of(each)) for each in self.found.candidates]
        leading = {each: (one, *self._cost_of(one)) for each, one in self.found.whole.items()}
        rest = np.ones(len(self.reads), bool)
        late = np.arange(len(rest)) >= len(rest) // 2
        chosen: list[_Candidate] = []
        placed: set[int] = set()
        least = LEAST_SAVED * float(self.tree.sum())
        while weighed:
            best: tuple[float, int, _Group] | None = None
            for at, one in enumerate(weighed):
                group = [leading[each] for each in one[0].box.before if each not in placed] + [one]
                if len(chosen) + len(group) > self.most:
                    continue
                saved = self._saved(group, rest)
                halves = float(saved[~late].sum()), float(saved[late].sum())
                if min(halves) > 0 and sum(halves) > least and (best is None or sum(halves) > best[0]):
                    best = sum(halves), at, group
            if best is None:
                break
            for candidate, taken, _ in best[2]:
                rest &= ~taken
                chosen.append(candidate)
                if not candidate.box.narrowed:
                    placed.add(candidate.box.rule)
            weighed.pop(best[1])
        return chosen

    def _saved(self, group: _Group, rest: Bools) -> Floats:
        """By point: the nanoseconds that the rules of *group* save, summed over the backends."""
        saved = np.zeros(len(rest))
        reading = rest.copy()
        for _, taken, cost in group:
            saved[reading] -= cost[:, reading].sum(0)
            hit = reading & taken
            saved[hit] += self.tree[:, hit].sum(0)
            reading &= ~taken
        return saved

    def _result(self, chosen: Sequence[_Candidate], before: Floats, after: Floats) -> HotRules:
        reads, rest = np.zeros(len(self.reads)), np.ones(len(self.reads), bool)
        for candidate in chosen:
            reads[rest] += 1
            rest &= ~self._cost_of(candidate)[0]
        reads[rest] += self.reads[rest]
        rules = tuple(each.rule for each in chosen)
        ordered = any(each.box.before for each in chosen)
        return HotRules(
            rules, ordered, self.decided, ~rest, before, after, float(self.reads.mean()), float(reads.mean())
        )
