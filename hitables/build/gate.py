"""Tests in front of a list that turn away packets which none of its rules can match.

The rules of a list may have a test in common: `-p udp --dport 53`, before a string, an owner or an ipset.  No
tree tells their packets apart: these read the list, and a tree would be one rule more.  But all other packets
read the list, too, though a test or two would tell that no rule matches them.  Trees are grown for packets of
their rules, so that does not count there.
"""

from __future__ import annotations

import numpy as np

from ..analyse.boxes import Axis, Boxes, Cut, to_words
from ..analyse.mark_bits import Dimension
from ..core.trees import EDGE, NODE, NodeKind
from .tree import Tree

Interval = tuple[int, int]
_AS_SPELT = (Cut.SPELT, Cut.NAME, Cut.SPELT_NAME)


def gated(boxes: Boxes, max_nesting: int) -> Tree | None:
    """The list behind a test of each field that all its rules limit; None if there is none."""
    tests = _tests(boxes, max_nesting)
    if not tests:
        return None
    rules = len(boxes.final)
    node: list[tuple[int, ...]] = []
    edge = np.zeros(2 * len(tests), EDGE)
    # The nodes: the tests, then the list, then a leaf without rules for packets that are turned away.
    nothing = sum(1 if _negated(boxes.axes[at]) else 2 for at, _ in tests) + 1
    for number, (at, (low, high)) in enumerate(tests):
        axis, here = boxes.axes[at], len(node)
        negated = _negated(axis)
        node.append((0, 0, 2 * number, 2, int(NodeKind.TEST), at, int(negated), 0))
        if not negated:  # what continues a test stands behind it
            node.append((0, 0, 0, 0, int(NodeKind.LEAF), 0, 0, 0))
        taken, other = (nothing, here + 1) if negated else (here + 2, here + 1)
        edge["low"][2 * number], edge["high"][2 * number] = to_words(low), to_words(high)
        edge["high"][2 * number + 1] = to_words(axis.top)
        edge["to"][2 * number : 2 * number + 2] = taken, other
    node.append((0, rules, 0, 0, int(NodeKind.LEAF), 0, 0, 0))
    node.append((0, 0, 0, 0, int(NodeKind.LEAF), 0, 0, 0))
    entry = np.arange(rules, dtype=np.int32)
    return Tree(
        boxes, np.array(node, NODE), edge, entry, np.zeros(rules, np.uint8), np.zeros(rules, np.uint32)
    )


def _negated(axis: Axis) -> bool:
    """Whether the test is printed with a "!": then packets of the list do not nest."""
    return axis.negatable and not axis.optional


def _tests(boxes: Boxes, max_nesting: int) -> list[tuple[int, Interval]]:
    """Axes, and the coordinates that hold the boxes of all rules."""
    tests: list[tuple[int, Interval]] = []
    known: dict[Dimension, Interval] = {}  # by field
    nesting = 1  # the leaf without rules is a chain for packets that are turned away
    for at, axis in enumerate(boxes.axes):
        interval = _testable(axis, boxes, at)
        if interval is None:
            continue
        if axis.requires is not None:
            needed, values = axis.requires
            low, high = known.get(needed, (0, 1))
            offset = next(int(each.optional) for each in boxes.axes if each.field is needed)
            if low != high or low - offset not in values:
                continue
        nesting += not _negated(axis)
        if nesting > max_nesting:
            break
        tests.append((at, interval))
        known[axis.field] = interval
    return tests


def _testable(axis: Axis, boxes: Boxes, at: int) -> Interval | None:
    """The smallest interval of the axis that can be tested and holds all boxes; None: all of the axis."""
    low = min(map(_value, boxes.low[:, at].tolist()))
    high = max(map(_value, boxes.high[:, at].tolist()))
    if axis.cut is Cut.PREFIX:
        host = (low ^ high).bit_length()
        low, high = low >> host << host, high | (1 << host) - 1
    elif axis.cut is Cut.POINT and (low != high or low == axis.optional):
        return None  # -p takes 0 for any
    elif axis.cut is Cut.NONE or (axis.cut in _AS_SPELT and not _is_spelt(boxes, at, low, high)):
        return None
    return None if (low, high) == (0, axis.top) else (low, high)


def _is_spelt(boxes: Boxes, at: int, low: int, high: int) -> bool:
    """Whether some rule has a test of this interval."""
    is_low = (boxes.low[:, at] == to_words(low)).all(axis=1)
    return bool((is_low & (boxes.high[:, at] == to_words(high)).all(axis=1)).any())


def _value(words: list[int]) -> int:
    return words[0] << 64 | words[1]
