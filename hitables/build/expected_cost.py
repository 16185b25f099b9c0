"""The expected cost of a chain's packets, and the rules that they read: in its list, and in a tree over it.

The packets of a rule are points of its boxes that no earlier rule decides.  (Corners of boxes alone would be
bad samples: the `--state INVALID` or `! -p tcp` that real chains begin with matches the lowest value of every
field.) Equal seeds give equal points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..analyse.boxes import Boxes, Prices, Reorder, Words, to_words
from ..ir.fields import ICMP, ICMPV6, TCP, UDP, Field
from .tree import Tree, unsplit

# Points drawn for a box; a rule that none of them reaches has no weight.
TRIES = 8
# Most boxes to draw points for; more change the means only in the third digit.
BOXES = 20_000
# For costs: most points, and about how many rules of a list are read for all of them.
COSTED, READ_AT_ONCE = 500, 2_000_000
# Points drawn for packets that no rule of a list decides.
PASSING = 200

_COMMON = (TCP, TCP, UDP, UDP, ICMP, ICMPV6)


def points_in(
    boxes: Boxes, which: npt.NDArray[np.intp], rng: np.random.Generator, *, even: bool = False
) -> Words:
    """One point in each of the boxes *which*: at the low end of another box, anywhere, or at an end.

    *even*: anywhere, each value alike; of protocols, a common one.
    """
    low, high = boxes.low[which], boxes.high[which]
    own = low.copy()
    for at, axis in enumerate(boxes.axes):
        if axis.optional:  # most packets have the fields that rules test
            bare = (low[:, at, 0] == 0) & (low[:, at, 1] == 0) & (high[:, at] > 0).any(axis=1)
            own[bare, at, 1] = 1
        points = own[:, at].copy()
        anywhere = _anywhere(own[:, at], high[:, at], rng)
        choice = np.full(len(which), 3) if even else rng.integers(4, size=len(which))
        points[choice == 1] = high[choice == 1, at]
        points[choice >= 2] = anywhere[choice >= 2]
        other = boxes.low[rng.integers(len(boxes.rule), size=len(which)), at]
        if axis.field is Field.PROTO:
            common = rng.choice(np.array(_COMMON, np.uint64), size=len(which)) + np.uint64(axis.optional)
            other = np.stack([np.zeros_like(common), common], axis=1)
        wanted = (choice == 2) | (axis.field is Field.PROTO)
        fits = wanted & ~_below(other, own[:, at]) & ~_below(high[:, at], other)
        points[fits] = other[fits]
        own[:, at] = points
    return own


def _below(one: Words, two: Words) -> npt.NDArray[np.bool_]:
    is_below: npt.NDArray[np.bool_] = (one[:, 0] < two[:, 0]) | (
        (one[:, 0] == two[:, 0]) & (one[:, 1] < two[:, 1])
    )
    return is_below


def _anywhere(low: Words, high: Words, rng: np.random.Generator) -> Words:
    """A value from *low* to *high*, both included."""
    drawn = low.copy()
    upper = high[:, 0] > low[:, 0]
    if upper.any():
        drawn[:, 0] = rng.integers(low[:, 0], high[:, 0], endpoint=True, dtype=np.uint64)
    # Only part of the first and of the last block of 2**64 values is inside.
    start = np.where(drawn[:, 0] == low[:, 0], low[:, 1], np.uint64(0))
    end = np.where(drawn[:, 0] == high[:, 0], high[:, 1], np.uint64(2**64 - 1))
    assert (upper | (start <= end)).all()
    drawn[:, 1] = rng.integers(start, end, endpoint=True, dtype=np.uint64)
    return drawn


@dataclass(frozen=True, slots=True)
class Sample:
    """Points that reach the rules for which they were drawn.

    decided  by point: the rule that decides it; the number of rules: none does
    reads    by point: rules that the tree reads for it
    share    by point: its share of the traffic
    """

    points: Words
    decided: npt.NDArray[np.intp]
    reads: npt.NDArray[np.uint32]
    share: npt.NDArray[np.float64]


def draw(boxes: Boxes, tree: Tree, most: int = BOXES, seed: int = 0) -> Sample:
    """A point for each of *most* boxes, or of all, and the rules that the tree reads for it.

    A rule that may not decide the packet (it logs, jumps, has a match that no axis describes) ends no search,
    so the rules after it count.
    """
    rng = np.random.default_rng(seed)
    total = len(boxes.final)
    waiting = np.arange(len(boxes.rule))
    if len(waiting) > most:
        waiting = np.sort(rng.choice(waiting, most, replace=False))
    ending = replace(tree, boxes=_ending(boxes))
    parts: list[tuple[Words, npt.NDArray[np.intp], npt.NDArray[np.uint32], npt.NDArray[np.float64]]] = []
    for _ in range(TRIES):
        if not len(waiting):
            break
        points = points_in(boxes, waiting, rng)
        rule, reads = ending.search(points)
        decided = np.where(rule < 0, total, rule)
        reached = decided >= boxes.rule[waiting]
        shares = boxes.weight[boxes.rule[waiting[reached]]]
        parts.append((points[reached], decided[reached], reads[reached], shares))
        waiting = waiting[~reached]
    if not parts:
        none = np.empty(0, np.intp)
        points = np.empty((0, len(boxes.axes), 2), np.uint64)
        return Sample(points, none, none.astype(np.uint32), none.astype(np.float64))
    return Sample(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _ending(boxes: Boxes) -> Boxes:
    """*boxes*; searches of trees over them end only at final rules."""
    reorder = np.where(boxes.final, boxes.reorder, boxes.reorder | Reorder.PASSED)
    return boxes.priced(boxes.prices, reorder)


def means(boxes: Boxes, trees: Sequence[Tree], prices: Sequence[Prices]) -> npt.NDArray[np.float64]:
    """Mean rules read, and mean cost at each of *prices*, in the list and in the tree: [tree, 1 + prices, 2].

    Packets have the weight of their rule.  Costs are of fewer points than rules read.
    """
    sample = draw(boxes, trees[0])
    most = max(20, min(COSTED, READ_AT_ONCE // max(1, len(boxes.final))))
    costed = sample if len(boxes.rule) <= most else draw(boxes, trees[0], most)
    found = np.zeros((len(trees), 1 + len(prices), 2))
    if sample.share.sum():
        found[:, 0, 0] = _mean(np.minimum(sample.decided + 1, len(boxes.final)), sample)
        found[0, 0, 1] = _mean(sample.reads, sample)
        ending = _ending(boxes)
        for at, tree in enumerate(trees[1:], 1):  # all trees over the boxes decide a point alike
            found[at, 0, 1] = _mean(replace(tree, boxes=ending).search(sample.points)[1], sample)
    if costed.share.sum():
        for number, each in enumerate(prices, 1):
            ending = _ending(boxes.priced(each))
            found[:, number, 0] = _mean(unsplit(ending).spend(costed.points)[2], costed)
            for at, tree in enumerate(trees):
                found[at, number, 1] = _mean(replace(tree, boxes=ending).spend(costed.points)[2], costed)
    return found


def passing(boxes: Boxes, tree: Tree, prices: Sequence[Prices]) -> npt.NDArray[np.float64] | None:
    """As `means` for one tree, of packets that no rule decides; None: no such packet is found.

    They are drawn from all of the space, near the boxes.  If there are some that no rule matches, these stand
    for all: few packets are logged, and that costs more than all else.
    """
    tops = np.array([[to_words(axis.top) for axis in boxes.axes]], np.uint64)
    wide = Boxes(
        boxes.axes,
        np.concatenate([boxes.low, np.zeros_like(tops)]),
        np.concatenate([boxes.high, tops]),
        np.append(boxes.rule, len(boxes.final)),
        np.append(boxes.final, True),
    )
    points = points_in(wide, np.full(PASSING, len(boxes.rule)), np.random.default_rng(0))
    unmatched = unsplit(boxes.priced(None, np.zeros(len(boxes.final)))).search(points)[0] < 0
    if not unmatched.any():
        unmatched = replace(tree, boxes=_ending(boxes)).search(points)[0] < 0
    points = points[unmatched]
    if not len(points):
        return None
    found = np.empty((1 + len(prices), 2))
    found[0] = len(boxes.final), replace(tree, boxes=_ending(boxes)).search(points)[1].mean()
    for number, each in enumerate(prices, 1):
        ending = _ending(boxes.priced(each))
        for side, one in enumerate((unsplit(ending), replace(tree, boxes=ending))):
            found[number, side] = one.spend(points)[2].mean()
    return found


def rules_read(boxes: Boxes, tree: Tree) -> tuple[float, float]:
    """Mean rules read in the list and in the tree; packets have the weight of their rule."""
    in_list, in_tree = means(boxes, [tree], ())[0, 0].tolist()
    return in_list, in_tree


def _mean(values: npt.ArrayLike, sample: Sample) -> float:
    return float(np.average(np.asarray(values, float), weights=sample.share))


def spent_at(
    tree: Tree, prices: Prices, points: Words
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint32], npt.NDArray[np.float64]]:
    """For each of *points*: the rule that decides it (-1: none), rules read, and their cost in the tree."""
    rule, reads, cost = replace(tree, boxes=_ending(tree.boxes.priced(prices))).spend(points)
    return rule.astype(np.intp), reads, cost


def draw_counted(boxes: Boxes, tree: Tree, counts: Sequence[float], most: int, seed: int = 0) -> Words:
    """About *most* points that reach their rules, as many of each rule as its share of *counts*.

    Counts tell nothing of the packets within a rule, so its values are drawn alike: the ends of boxes would
    seem to be what most packets have.  Ends are drawn, too, for a rule that is rarely reached so, because
    earlier ones nearly hide it.
    """
    rng = np.random.default_rng(seed)
    share = np.asarray(counts, float)[boxes.rule] / np.bincount(boxes.rule, minlength=len(counts))[boxes.rule]
    if not share.sum():
        return np.empty((0, len(boxes.axes), 2), np.uint64)
    waiting = rng.choice(len(boxes.rule), most, p=share / share.sum())
    ending = replace(tree, boxes=_ending(boxes))
    parts = []
    for attempt in range(TRIES):
        points = points_in(boxes, waiting, rng, even=attempt < TRIES - 1)
        reached = ending.search(points)[0] == boxes.rule[waiting]
        parts.append(points[reached])
        waiting = waiting[~reached]
        if not len(waiting):
            break
    points = np.concatenate(parts)
    return points[rng.permutation(len(points))]


def read_in_turn(prices: Prices, weight: npt.NDArray[np.float64]) -> float:
    """Estimate the mean cost of a list for packets of its rules: earlier rules fail at their first test."""
    if not len(prices.taken):
        return 0.0
    taken = prices.holds.sum(axis=1) + prices.taken
    missed = taken.copy()
    for axis in prices.order[::-1]:
        tested = prices.missed[:, axis] > 0
        missed[tested] = prices.missed[tested, axis]
    return float(np.average(np.cumsum(missed) - missed + taken, weights=weight))
