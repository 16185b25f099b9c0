"""A tree over a run of rules: the cheapest of those that were grown, or none for a stated reason.

Trees of whole names, for other prices, and over kinds of rules that are told apart compete where the usual
one may be beaten; each is weighed by packets of the rules.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..analyse.boxes import Boxes, Cut, Prices
from ..build.apart import apart
from ..build.expected_cost import means, passing
from ..build.gate import gated
from ..build.grow import SIZE_PENALTY, grow
from ..build.tree import Tree, rejoined, unsplit
from ..costs.profile import Costs
from ..costs.tree_prices import EVEN_WHEN_CROWDED, EVEN_WHEN_MANY, Priced, nanoseconds, prices
from ..ir.crossing import Crossing
from ..ir.fields import Family
from ..ir.packet import Backend
from ..ir.rule import Match, Rule
from .options import Options

Floats = npt.NDArray[np.float64]
# In chains of more boxes, neither a tree of whole names nor one for other prices is tried besides: it would
# cost as much time again.
FEW_BOXES = 2000
# Shorter lists gain little by a tree for even prices.
MANY_RULES = 64
# Why a tree has one part, the whole list: it turns away packets of no rule.
GATED = "its packets read the list, others do not"
# The share by which packets of the rules may read more, if packets of no rule then read little.
GATE_SHARE = 0.05
# Why a list stays as it is though a tree might read fewer rules.
TOO_LARGE = "a tree over its rules takes more memory than there is, or than one may take"
# As `grouping` of a builder: no groups.
ONE_TREE = 2**31
# How often a tree over boxes is grown anew, as it prints more than it may.
BUDGETS_TRIED = 4
# The share of the budget beyond which a tree was cut short; then another is tried, however many boxes.
CROWDED = 0.9


def _with_whole_names(boxes: Boxes) -> list[Boxes]:
    """The boxes with interfaces cut by whole names, if they are cut by beginnings of names.

    Of few names a tree of whole names may be the cheaper one, which a search by single cuts does not see.
    """
    if all(axis.cut is not Cut.NAME for axis in boxes.axes) or len(boxes.rule) > FEW_BOXES:
        return []
    axes = [replace(axis, cut=Cut.SPELT_NAME) if axis.cut is Cut.NAME else axis for axis in boxes.axes]
    whole = Boxes(
        axes, boxes.low, boxes.high, boxes.rule, boxes.final, boxes.weight, boxes.reorder, boxes.prices
    )
    return [whole]


class RunTrees:
    """Grows the trees of a table, and weighs them.

    spent      seconds of growing so far
    too_large  whether a tree over the last run took more memory than there is, or than build.grow allows
    """

    # Packets that read no more for each doubling of the list's length are not told apart by kinds of rules.
    FEW_READ = 3.0

    def __init__(self, options: Options, family: Family, costs: Costs, backends: Sequence[Backend]) -> None:
        self.options, self.family, self.costs, self.backends = options, family, costs, backends
        self.spent = 0.0
        self.too_large = False
        self._priced: tuple[Sequence[Rule], Boxes, Priced, list[Prices]] | None = None  # of the last run

    def is_few(self, read: float, rules: Sequence[Rule]) -> bool:
        """Whether packets that read so many of *rules* cannot gain much."""
        return read <= self.FEW_READ * math.log2(len(rules))

    def cost_of_miss(self, match: Match) -> float:
        """The cost of the match for a packet that it does not match."""
        return sum(self.costs.match(match, backend, self.family).miss for backend in self.backends)

    def tree(
        self,
        run: Sequence[Rule],
        boxes: Boxes,
        nesting: int,
        budget: int,
        calls: int = 0,
        crossing: Callable[[], Crossing | None] = lambda: None,
    ) -> tuple[Tree | None, Floats, str]:
        """A tree over *run*, or None; what packets of its rules read; why there is no (better) tree, or "".

        What they read: before and after, by rules read and then nanoseconds in each backend.
        *calls*: rules that packets read before they are in the tree.
        *crossing*: tells the kinds of its rules.
        """
        self.too_large = False
        priced = self.priced(run, boxes)
        boxes.prices = prices(priced, self.costs, self.backends)
        backend_prices = self.in_each_backend(run, boxes)
        trees = [self.grow(variant, nesting, budget) for variant in (boxes, *_with_whole_names(boxes))]
        unsure = len(boxes.rule) <= FEW_BOXES or trees[0].printed_rules() > CROWDED * budget
        if Backend.NFT in self.backends and unsure:
            crowded = prices(priced, self.costs, self.backends, EVEN_WHEN_CROWDED)
            trees.append(self.grow(boxes.priced(crowded), nesting, budget))
        # [tree, (rules read, ns in each backend), (before, after)]
        tree_means = means(boxes, trees, backend_prices)
        best = int(tree_means[:, 1:, 1].sum(axis=1).argmin())
        if not self.is_few(tree_means[best, 0, 1], run):
            more = []
            if Backend.NFT in self.backends and unsure and len(run) >= MANY_RULES:
                even = prices(priced, self.costs, self.backends, EVEN_WHEN_MANY)
                more.append(self.grow(boxes.priced(even), nesting, budget))
            by_box = self.of_boxes(boxes, nesting, budget)
            if by_box and self.pays(boxes, trees[best], by_box[0], backend_prices):
                more += by_box
            kinds = crossing()
            more += self.told_apart(boxes, kinds, nesting, budget) if kinds else []
            if more:
                tree_means = np.concatenate([tree_means, means(boxes, [trees[0], *more], backend_prices)[1:]])
                tried = [best, *range(len(trees), len(trees) + len(more))]
                trees += more
                passing = [self.ns_passing(run, boxes, trees[at], calls) for at in tried]
                best = tried[int((tree_means[tried, 1:, 1].sum(axis=1) + passing).argmin())]
        read, *costs = tree_means[best]
        read[1] += calls
        no_gain = TOO_LARGE if self.too_large else "a tree would not read fewer rules"
        why = "" if read[1] < read[0] else no_gain
        for backend, (before, after) in zip(self.backends, costs, strict=True):
            if not why and after >= before:
                why = f"a tree would not cost less: {after:.0f} ns in {backend.value}, the list {before:.0f}"
        if not why:
            return trees[best], tree_means[best].T, ""
        return self.gated(run, boxes, nesting, calls) or (None, tree_means[best].T, why)

    def gated(
        self, run: Sequence[Rule], boxes: Boxes, nesting: int, calls: int
    ) -> tuple[Tree, Floats, str] | None:
        """As `tree`, but for as many packets of no rule as of its rules: tests that turn away the former.

        None if packets of its rules would read or cost more than GATE_SHARE more, or the others more than
        half as much as in the list.
        """
        tree = gated(boxes, nesting) if len(run) >= 1 / GATE_SHARE else None
        passing = None if tree is None else self.passing(run, boxes, tree, calls)
        if tree is None or passing is None:
            return None
        own = means(boxes, [tree], self.in_each_backend(run, boxes))[0].T
        own[1, 0] += calls
        if (own[1] > (1 + GATE_SHARE) * own[0]).any() or (passing[1] > passing[0] / 2).any():
            return None
        return tree, (own + passing) / 2, GATED

    def passing(self, run: Sequence[Rule], boxes: Boxes, tree: Tree | None, calls: int) -> Floats | None:
        """What packets that *run* does not decide read in it, before and after; None where that is not known.

        *calls*: as for `tree`.
        """
        if not boxes.axes:
            return None
        found = passing(boxes, tree or unsplit(boxes), self.in_each_backend(run, boxes))
        if found is None:
            return None
        found[0, 1] += calls if tree else 0
        return found.T

    def ns_passing(self, run: Sequence[Rule], boxes: Boxes, tree: Tree | None, calls: int) -> float:
        """Nanoseconds of a packet that *run* does not decide, in all backends; 0 where that is not known."""
        found = self.passing(run, boxes, tree, calls)
        return 0.0 if found is None else float(found[1, 1:].sum())

    def pays(self, boxes: Boxes, tree: Tree, other: Tree, each: Sequence[Prices]) -> bool:
        """Whether *other* saves a rule read for each packet of a rule so often that its printed rules pay."""
        read = means(boxes, [tree, other], each)[:, 0, 1]
        printed = other.printed_rules() - tree.printed_rules()
        return bool((read[0] - read[1]) * len(boxes.final) > SIZE_PENALTY * printed)

    def of_boxes(self, boxes: Boxes, nesting: int, budget: int) -> list[Tree]:
        """A tree in which each box was a rule of its own, where rules have several.

        A rule of a few ports far apart would be on both sides of each cut between them.
        """
        if len(boxes.rule) <= len(boxes.final):
            return []
        one_each, fitting = boxes.box_by_box(), None
        # A node prints a rule once, whose boxes count each for the builder.
        allowed = budget * len(boxes.rule) // len(boxes.final)
        # It is meant for one packet of each rule, and there is one for each box.
        penalty = SIZE_PENALTY * len(boxes.rule) / len(boxes.final)
        for attempt in range(BUDGETS_TRIED):
            grown = self.grow(one_each, nesting, allowed, grouping=ONE_TREE, size_penalty=penalty)
            tree = rejoined(grown, boxes)
            if tree is None:
                break
            spare = budget - tree.printed_rules()
            fitting = tree if spare >= 0 else fitting
            if spare >= 0 and (attempt == 0 or spare <= budget // 32):
                break
            allowed = grown.printed_rules() + spare
        return [] if fitting is None else [fitting]

    def told_apart(self, boxes: Boxes, kinds: Crossing, nesting: int, budget: int) -> list[Tree]:
        """The trees that tell the kinds of rules apart, of at most *budget* printed rules."""
        fitting: list[Tree] = []
        allowed = budget
        for _ in range(BUDGETS_TRIED):
            trees = apart(boxes, kinds.by_kind(), nesting, allowed, self.grow)
            sizes = [tree.printed_rules() for tree in trees]
            known = {tree.printed_rules() for tree in fitting}
            fitting += [
                tree for tree, size in zip(trees, sizes, strict=True) if size <= budget and size not in known
            ]
            # What joins the parts is printed, too; no budget counts it before they are grown.
            excess = max(sizes, default=budget) - budget
            if excess <= 0:
                break
            allowed -= excess
        return fitting

    def grow(self, boxes: Boxes, nesting: int, budget: int, **chosen: Any) -> Tree:
        """A tree over the boxes; the list where a tree takes more memory than there is."""
        options = self.options
        started = time.process_time()
        try:
            return grow(
                boxes,
                algorithm=options.algorithm,
                leaf_size=options.leaf_size,
                spfac=options.spfac,
                max_nesting=nesting,
                budget=budget,
                effort=options.effort,
                **chosen,
            )
        except MemoryError:
            self.too_large = True
            return unsplit(boxes)
        finally:
            self.spent += time.process_time() - started

    def priced(self, run: Sequence[Rule], boxes: Boxes) -> Priced:
        return self._known(run, boxes)[0]

    def in_each_backend(self, run: Sequence[Rule], boxes: Boxes) -> list[Prices]:
        """What the rules of *run* and tests of the axes of *boxes* cost, in nanoseconds."""
        return self._known(run, boxes)[1]

    def _known(self, run: Sequence[Rule], boxes: Boxes) -> tuple[Priced, list[Prices]]:
        if self._priced is None or self._priced[0] is not run or self._priced[1] is not boxes:
            priced = Priced(run, boxes.axes, self.family)
            self._priced = run, boxes, priced, self.each_backend(priced)
        return self._priced[2:]

    def each_backend(self, priced: Priced) -> list[Prices]:
        return [nanoseconds(priced, self.costs, each) for each in self.backends]
