"""Rules read by the packets of a chain, and their cost: of its list, of a tree over it.

A rule is weighed by packets that come as far as it: points of its boxes that no rule before
it takes.  (Points at the corners of boxes alone are judged badly: the lowest value of every
field is caught by the `--state INVALID` or `! -p tcp` that real chains begin with.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..analyse.boxes import Boxes, Prices, Reorder, Words
from ..ir.fields import ICMP, ICMPV6, TCP, UDP, Field
from .tree import Tree, unsplit

# Points tried for a box; a rule that none of them comes to weighs nothing.
TRIES = 8
# Boxes that are drawn from, at most; more give the same means in the third digit.
BOXES = 20_000
# Likewise, for what they cost; and rules of a list that are read for all of them together, about.
COSTED, READ_AT_ONCE = 500, 2_000_000

_USUAL = (TCP, TCP, UDP, UDP, ICMP, ICMPV6)


def points_in(boxes: Boxes, which: npt.NDArray[np.intp], rng: np.random.Generator) -> Words:
    """One point in each of the boxes *which*: as other boxes begin, or anywhere, or at an end."""
    low, high = boxes.low[which], boxes.high[which]
    own = low.copy()
    for at, axis in enumerate(boxes.axes):
        if axis.optional:  # most packets have what a rule may ask for
            bare = (low[:, at, 0] == 0) & (low[:, at, 1] == 0) & (high[:, at] > 0).any(axis=1)
            own[bare, at, 1] = 1
        points = own[:, at].copy()
        anywhere = _anywhere(own[:, at], high[:, at], rng)
        choice = rng.integers(4, size=len(which))
        points[choice == 1] = high[choice == 1, at]
        points[choice >= 2] = anywhere[choice >= 2]
        other = boxes.low[rng.integers(len(boxes.rule), size=len(which)), at]
        if axis.field is Field.PROTO:
            usual = rng.choice(np.array(_USUAL, np.uint64), size=len(which)) + np.uint64(axis.optional)
            other = np.stack([np.zeros_like(usual), usual], axis=1)
        wanted = (choice == 2) | (axis.field is Field.PROTO)
        fits = wanted & ~_below(other, own[:, at]) & ~_below(high[:, at], other)
        points[fits] = other[fits]
        own[:, at] = points
    return own


def _below(one: Words, two: Words) -> npt.NDArray[np.bool_]:
    above, equal, below = one[:, 0] < two[:, 0], one[:, 0] == two[:, 0], one[:, 1] < two[:, 1]
    found: npt.NDArray[np.bool_] = above | (equal & below)
    return found


def _anywhere(low: Words, high: Words, rng: np.random.Generator) -> Words:
    """A value from *low* to *high*, both included."""
    drawn = low.copy()
    upper = high[:, 0] > low[:, 0]
    drawn[:, 0] = rng.integers(low[:, 0], high[:, 0], endpoint=True, dtype=np.uint64)
    # In the first and in the last block of 2**64 values not all are inside.
    start = np.where(drawn[:, 0] == low[:, 0], low[:, 1], np.uint64(0))
    end = np.where(drawn[:, 0] == high[:, 0], high[:, 1], np.uint64(2**64 - 1))
    assert (upper | (start <= end)).all()
    drawn[:, 1] = rng.integers(start, end, endpoint=True, dtype=np.uint64)
    return drawn


@dataclass(frozen=True, slots=True)
class Drawn:
    """Points that come as far as the rules for which they were drawn.

    decided  which rule ends each one's way; as many as there are rules: none
    share    of the traffic
    """

    points: Words
    decided: npt.NDArray[np.intp]
    reads: npt.NDArray[np.uint32]
    share: npt.NDArray[np.float64]


def draw(boxes: Boxes, tree: Tree, most: int = BOXES, seed: int = 0) -> Drawn:
    """A point for each of *most* boxes, or of all, and what the tree reads for it.

    A rule that may not end the packet's way (it logs, jumps, has a match that no axis says)
    ends no search, so what stands behind it counts.
    """
    rng = np.random.default_rng(seed)
    total = len(boxes.final)
    waiting = np.arange(len(boxes.rule))
    if len(waiting) > most:
        waiting = np.sort(rng.choice(waiting, most, replace=False))
    ending = _ending(tree, boxes)
    kept: list[tuple[Words, npt.NDArray[np.intp], npt.NDArray[np.uint32], npt.NDArray[np.float64]]] = []
    for _ in range(TRIES):
        if not len(waiting):
            break
        points = points_in(boxes, waiting, rng)
        found, reads = ending.search(points)
        decided = np.where(found < 0, total, found)
        reached = decided >= boxes.rule[waiting]
        shares = boxes.weight[boxes.rule[waiting[reached]]]
        kept.append((points[reached], decided[reached], reads[reached], shares))
        waiting = waiting[~reached]
    if not kept:
        none = np.empty(0, np.intp)
        points = np.empty((0, len(boxes.axes), 2), np.uint64)
        return Drawn(points, none, none.astype(np.uint32), none.astype(np.float64))
    return Drawn(*(np.concatenate(each) for each in zip(*kept, strict=True)))


def _ending(tree: Tree, boxes: Boxes) -> Tree:
    """*tree*, whose searches end at final rules alone."""
    free = np.where(boxes.final, boxes.reorder, boxes.reorder | Reorder.PASSED)
    return replace(tree, boxes=boxes.priced(boxes.prices, free))


def rules_read(boxes: Boxes, tree: Tree, seed: int = 0) -> tuple[float, float]:
    """Mean rules read of the list and of the tree, each rule's packets weighing as the rule does."""
    drawn = draw(boxes, tree, seed=seed)
    if not drawn.share.sum():
        return 0.0, 0.0
    listed = np.minimum(drawn.decided + 1, len(boxes.final))
    return _mean(listed, drawn), _mean(drawn.reads, drawn)


def _mean(values: npt.ArrayLike, drawn: Drawn) -> float:
    return float(np.average(np.asarray(values, float), weights=drawn.share))


def spent(boxes: Boxes, tree: Tree, prices: Sequence[Prices]) -> list[tuple[float, float]]:
    """By each of *prices*, the mean cost of the list and of the tree, for fewer points than `rules_read`."""
    most = max(20, min(COSTED, READ_AT_ONCE // max(1, len(boxes.final))))
    drawn = draw(boxes, tree, most)
    if not drawn.share.sum():
        return [(0.0, 0.0)] * len(prices)
    found = []
    for each in prices:
        priced = boxes.priced(each)
        listed = _ending(unsplit(priced), priced).spend(drawn.points)[2]
        treed = _ending(tree, priced).spend(drawn.points)[2]
        found.append((_mean(listed, drawn), _mean(treed, drawn)))
    return found


def read_in_turn(prices: Prices, weight: npt.NDArray[np.float64]) -> float:
    """What a list costs the packets of its rules, about: every rule before fails at its first test."""
    if not len(prices.taken):
        return 0.0
    taken = prices.holds.sum(axis=1) + prices.taken
    missed = taken.copy()
    for axis in prices.order[::-1]:
        tested = prices.missed[:, axis] > 0
        missed[tested] = prices.missed[tested, axis]
    return float(np.average(np.cumsum(missed) - missed + taken, weights=weight))
