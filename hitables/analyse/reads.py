"""Rules read by the packets of a chain: of its list, of a tree over it.

A rule is weighed by packets that come as far as it: points of its boxes that no rule before
it takes.  (Points at the corners of boxes alone are judged badly: the lowest value of every
field is caught by the `--state INVALID` or `! -p tcp` that real chains begin with.)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..build.tree import Boxes, Free, Tree, Words
from ..ir.fields import ICMP, ICMPV6, TCP, UDP, Field

# Points tried for a box; a rule that none of them comes to weighs nothing.
TRIES = 8
# Boxes that are drawn from, at most; more give the same means in the third digit.
BOXES = 20_000

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


def rules_read(boxes: Boxes, tree: Tree, seed: int = 0) -> tuple[float, float]:
    """Mean rules read of the list and of the tree, each rule's packets weighing alike.

    A rule that may not end the packet's way (it logs, jumps, has a match that no axis says)
    ends no search, so what stands behind it counts.
    """
    if not len(boxes.rule):
        return 0.0, 0.0
    rng = np.random.default_rng(seed)
    free = np.where(boxes.final, boxes.free, boxes.free | Free.PASSED)
    passing = Boxes(boxes.axes, boxes.low, boxes.high, boxes.rule, boxes.final, boxes.weight, free)
    ending = replace(tree, boxes=passing)
    total = len(boxes.final)
    waiting = np.arange(len(boxes.rule))
    if len(waiting) > BOXES:
        waiting = np.sort(rng.choice(waiting, BOXES, replace=False))
    before = after = weight = 0.0
    for _ in range(TRIES):
        found, reads = ending.search(points_in(boxes, waiting, rng))
        decided = np.where(found < 0, total, found)
        reached = decided >= boxes.rule[waiting]
        shares = boxes.weight[boxes.rule[waiting[reached]]]
        before += float((shares * np.minimum(decided[reached] + 1, total)).sum())
        after += float((shares * reads[reached]).sum())
        weight += float(shares.sum())
        waiting = waiting[~reached]
        if not len(waiting):
            break
    return (before / weight, after / weight) if weight else (0.0, 0.0)
