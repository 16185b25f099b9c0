"""Decision trees in the C engine: growing one over boxes, and searching it (include/tree.h).

A `TreeInput` is the list of boxes as the engine reads it.  A tree that was grown is copied into arrays that
belong to Python before the engine's own is freed, so no handle outlives a call.  The module checks no values:
the engine does, and `status.TREE` maps each of its statuses to an exception.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import status
from ._engine import ffi, lib
from .arrays import Array, copied, pointer
from .threads import stoppable

# Building a tree over fewer boxes takes too little time to be interrupted.
SHORT = 500

# Prefixes of 0 to 128 bits have costs of their own; of other tests, those of one value and of several.
LENGTHS: int = lib.TREE_LENGTHS

# Laid out as struct tree_node and struct tree_edge.
NODE = np.dtype(
    [(name, "u4") for name in ("entry", "entries", "edge", "edges")]
    + [(name, "u1") for name in ("kind", "axis", "negated", "unused")],
    align=True,
)
EDGE = np.dtype([("low", "u8", 2), ("high", "u8", 2), ("to", "u4"), ("unused", "u4")], align=True)


class Cut(enum.IntEnum):
    """Which intervals of an axis may be tested."""

    NONE = lib.TREE_CUT_NONE  # none: the axis only shows which rules can match together
    PREFIX = lib.TREE_CUT_PREFIX  # aligned powers of two; not on optional axes
    RANGE = lib.TREE_CUT_RANGE  # all
    POINT = lib.TREE_CUT_POINT  # single values but 0, which -p takes for any
    SPELT = lib.TREE_CUT_SPELT  # what a box spells
    NAME = lib.TREE_CUT_NAME  # one name, or all names that begin alike; not on optional axes
    SPELT_NAME = lib.TREE_CUT_SPELT_NAME  # of these, what a box spells


class Reorder(enum.IntFlag):
    """What a tree may do with a rule: in groups (core/c/tree/shape_groups.c), and in a search."""

    DEFERRABLE = lib.TREE_MOVABLE  # it may be evaluated late, and more than once
    SPLITTABLE = lib.TREE_SENDABLE  # its matches may be in one chain and its action in another
    PASSED = lib.TREE_PASSED  # a search does not end at it
    DROPS = lib.TREE_DROPS  # it drops packets that lack an optional field, even one that its boxes require
    KEPT = lib.TREE_KEPT  # no rule hides it that lets by packets which it drops outside of its boxes
    LATE = lib.TREE_LATE  # it may be in the last group of a tree, where a packet meets it once


class EntryKind(enum.IntEnum):
    """What an entry of a node does with its rule (enum tree_step); all but RULE and ACT lead to a node."""

    RULE = lib.TREE_RULE  # the rule
    SEND = lib.TREE_SEND  # packets that the rule matches go to the node
    ASK = lib.TREE_ASK  # packets that the rule may match go to the node, and return
    CALL = lib.TREE_CALL  # every packet goes to the node, and returns
    GO = lib.TREE_GO  # every packet goes to the node
    ACT = lib.TREE_ACT  # the rule's action, for every packet
    MEET = lib.TREE_MEET  # packets that the rule matches go to the node, where the rule is read again


class NodeKind(enum.IntEnum):
    """How a node continues after its entries."""

    LEAF = lib.TREE_LEAF
    TEST = lib.TREE_TEST
    CUTS = lib.TREE_CUTS
    LOOKUPS = lib.TREE_LOOKUPS
    LONE_LOOKUPS = lib.TREE_LONE_LOOKUPS


def _builders() -> Iterator[tuple[str, bool]]:
    for number in itertools.count():
        name = lib.tree_algorithm(number)
        if not name:
            return
        yield ffi.string(name).decode(), bool(lib.tree_is_bounded(number))


# Every builder by name, and whether it keeps all constraints, so that its trees can be printed.
BUILDERS = dict(_builders())


class AxisInput(NamedTuple):
    """An axis.  *needs*: index of the axis that must be known to be one of *needed* (coordinates); or -1."""

    bits: int
    optional: bool
    cut: int
    needs: int = -1
    needed: Sequence[int] = ()
    negatable: bool = True


class TreeArrays(NamedTuple):
    """A tree: arrays of NODE and EDGE; of each entry its rule, its `EntryKind` and the node that it leads to.

    peak  bytes that building it took, scratch aside
    """

    node: Array
    edge: Array
    entry: npt.NDArray[np.int32]
    step: npt.NDArray[np.uint8]
    link: npt.NDArray[np.uint32]
    root: int
    peak: int = 0


_BOX_ARRAYS = {
    "low": "uint64_t", "high": "uint64_t", "rule": "int32_t", "final": "uint8_t", "weight": "double",
}  # fmt: skip
_COST_ARRAYS = {
    "test": "struct tree_cost", "order": "uint32_t", "missed": "float", "holds": "float", "taken": "float",
}  # fmt: skip
_COST_NUMBERS = ("jump", "go", "act")


class TreeInput:
    """Boxes, and what reading costs, as the engine reads them; shapes and units: struct tree_boxes.

    *boxes* has the arrays of _BOX_ARRAYS and `reorder` for attributes, *costs* those of _COST_ARRAYS and the
    numbers of _COST_NUMBERS.  When *costs* is None, every rule read costs 1.
    """

    def __init__(self, axes: Sequence[AxisInput], boxes: object, costs: object | None) -> None:
        c_axes = ffi.new("struct tree_axis[]", len(axes))
        self._alive: list[Any] = [c_axes]
        for c_axis, axis in zip(c_axes, axes, strict=True):
            c_axis.bits, c_axis.optional, c_axis.cut = axis.bits, axis.optional, axis.cut
            c_axis.needs = axis.needs
            c_axis.unnegatable = not axis.negatable
            if axis.needs >= 0:
                needed = ffi.new("uint64_t[]", list(axis.needed))
                self._alive.append(needed)
                c_axis.needed, c_axis.needed_count = needed, len(axis.needed)
        self.c_boxes = ffi.new("struct tree_boxes *")
        _point(self.c_boxes, boxes, _BOX_ARRAYS)
        self.c_boxes.free = pointer("uint8_t", boxes.reorder)  # type: ignore[attr-defined]
        self.boxes = len(boxes.rule)  # type: ignore[attr-defined]
        self.c_boxes.boxes, self.c_boxes.axes, self.c_boxes.axis = self.boxes, len(axes), c_axes
        self.c_boxes.rules = len(boxes.final)  # type: ignore[attr-defined]
        if costs is not None:
            c_costs = ffi.new("struct tree_costs *")
            _point(c_costs, costs, _COST_ARRAYS)
            for name in _COST_NUMBERS:
                setattr(c_costs, name, getattr(costs, name))
            self._alive.append(c_costs)
            self.c_boxes.costs = c_costs


def _point(struct: Any, arrays: object, types: Mapping[str, str]) -> None:
    for name, ctype in types.items():
        setattr(struct, name, pointer(ctype, getattr(arrays, name)))


def grow(algorithm: str, tree_input: TreeInput, **options: float) -> TreeArrays:
    """Build a tree with the builder *algorithm*; *options*: the fields of struct tree_options.

    An interrupt of the main thread ends the building.
    """
    c_options = ffi.new("struct tree_options *", options)
    code = ffi.new("enum tree_status *")

    def build() -> Any:
        return lib.tree_grow(algorithm.encode(), tree_input.c_boxes, c_options, code)

    try:
        tree = stoppable(build, lambda: stop(True), short=tree_input.boxes < SHORT)
    except BaseException:
        stop(False)
        raise
    status.check(status.TREE, code[0])
    try:
        return TreeArrays(
            copied(tree.node, tree.nodes, NODE),
            copied(tree.edge, tree.edges, EDGE),
            copied(tree.entry, tree.entries, np.int32),
            copied(tree.step, tree.entries, np.uint8),
            copied(tree.link, tree.entries, np.uint32),
            tree.root,
            tree.bytes,
        )
    finally:
        lib.tree_free(tree)


def stop(now: bool) -> None:
    """Make all building of trees end soon with KeyboardInterrupt, or (*now* False) let later builds run."""
    lib.tree_stop(int(now))


def search(
    tree: TreeArrays, tree_input: TreeInput, points: npt.NDArray[np.uint64], *, costs: bool = False
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32], npt.NDArray[np.float64] | None]:
    """For each of *points* [n, axes, 2]: its first rule (-1: none), the rules read, and their cost if asked
    for.
    """
    c_tree = _c_tree(tree)
    rule, reads = np.empty(len(points), np.int32), np.empty(len(points), np.uint32)
    spent = np.empty(len(points)) if costs else None
    code = lib.tree_search(
        c_tree, tree_input.c_boxes, pointer("uint64_t", points), len(points),
        pointer("int32_t", rule), pointer("uint32_t", reads), pointer("double", spent),
    )  # fmt: skip
    status.check(status.TREE, code)
    return rule, reads, spent


def depths(tree: TreeArrays) -> tuple[int, int]:
    """How many chains nest at most, and an upper bound of the rules that a packet reads."""
    c_tree = _c_tree(tree)
    nesting, longest = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    status.check(status.TREE, lib.tree_depths(c_tree, nesting, longest))
    return nesting[0], longest[0]


def _c_tree(tree: TreeArrays) -> Any:
    """The tree as the engine reads it, for as long as *tree* lives."""
    c_tree = ffi.new(
        "struct tree *",
        {"root": tree.root, "nodes": len(tree.node), "edges": len(tree.edge), "entries": len(tree.entry)},
    )
    c_tree.node, c_tree.edge = pointer("struct tree_node", tree.node), pointer("struct tree_edge", tree.edge)
    c_tree.entry, c_tree.step = pointer("int32_t", tree.entry), pointer("uint8_t", tree.step)
    c_tree.link = pointer("uint32_t", tree.link)
    return c_tree
