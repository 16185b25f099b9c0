"""Decision trees over a rule list: nodes, what they print as, what a packet reads in them.

Invariant: the paths of a tree tile space, and the path of a packet lists, in list order, every rule whose box
contains the packet, up to a final rule that covers the rest.  Searching the tree therefore gives the answer
that reading the list from the top would give.

A packet may lack an *optional* field.  Coordinate 0 then means "none" and v+1 the value v, so a box that does
not constrain the field spans 0..top+1 and one that does lies within 1..top+1.  A packet that lacks the field
fails every test of it.  Boxes and points hold coordinates; the edges of a `Node` hold values.

The C engine grows (grow.py) and searches the arrays of a tree; reading them as `Node` objects takes
microseconds a node.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables.analyse.boxes import Axis, Boxes, Words
from hitables.core import trees
from hitables.core.trees import EDGE, NODE, EntryKind, NodeKind

__all__ = ["Edge", "EntryKind", "Node", "NodeKind", "Tree", "unsplit"]


@dataclass(frozen=True, slots=True)
class Edge:
    """The edge to node *to*, for the values *low*..*high*."""

    low: int
    high: int
    to: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node: the rules read first (*entries*, in list order), then a decision by one axis.

    LEAF     no decision
    TEST     its rule takes a packet to edges[0] if the field's value lies in the interval of that edge
             (when *negated*: if it does not).  Other packets continue in line, which is edges[1]; its
             interval is only the hull of their values.
    CUTS     the edges cover the part of the node's interval that rules meet, in ascending order.  A search
             halves them; values in none of them, and "none", go to the last one.
    LOOKUPS  as CUTS, but searched as in Figure 4 of "Trees in the List": a rule for the middle edge, one for
             the hull of the edges before it, one for the rest.  A side of one edge leads to its node.  Only
             the builder PAPER makes such nodes.
    LONE_LOOKUPS  as LOOKUPS, but as the paper's tool prints them: a side of one edge is a chain of one rule.
    """

    kind: NodeKind
    entries: tuple[int, ...]
    axis: Axis | None = None
    negated: bool = False
    edges: tuple[Edge, ...] = ()

    @property
    def taken(self) -> int:
        return self.edges[0].to

    @property
    def other(self) -> int:
        return self.edges[1].to


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree as flat arrays (core.trees.TreeArrays): nodes, their edges, their entries.

    entry       the rule of each entry; -1 where its step has none
    step, link  what each entry does (Step), and the node that it leads to; a tree of one group has RULE only
    peak        bytes that building it took, scratch aside
    longest     most rules that a packet reads, where that is known better than by adding up; 0: it is not
    """

    boxes: Boxes
    node: npt.NDArray[Any] = field(repr=False)
    edge: npt.NDArray[Any] = field(repr=False)
    entry: npt.NDArray[np.int32] = field(repr=False)
    step: npt.NDArray[np.uint8] = field(repr=False)
    link: npt.NDArray[np.uint32] = field(repr=False)
    root: int = 0
    peak: int = 0
    longest: int = 0

    def __len__(self) -> int:
        return len(self.node)

    def __getitem__(self, number: int) -> Node:
        node = self.node[number]
        kind = NodeKind(node["kind"])
        entries = tuple(self.entry[node["entry"] : node["entry"] + node["entries"]].tolist())
        if kind is NodeKind.LEAF:
            return Node(kind, entries)
        axis = self.boxes.axes[node["axis"]]
        edges = tuple(
            Edge(_value(edge["low"]) - axis.optional, _value(edge["high"]) - axis.optional, int(edge["to"]))
            for edge in self.edge[node["edge"] : node["edge"] + node["edges"]]
        )
        return Node(kind, entries, axis, bool(node["negated"]), edges)

    def nodes(self) -> Iterator[Node]:
        """All nodes by number: the root first, the node that continues a test right after the test."""
        return (self[number] for number in range(len(self)))

    def in_groups(self) -> bool:
        """Whether several trees, one per group, share the rules and call each other."""
        return bool(np.isin(self.step, (EntryKind.SEND, EntryKind.ASK, EntryKind.CALL, EntryKind.MEET)).any())

    def printed_rules(self) -> int:
        """Rules that the tree prints as: its entries, and one per decision (n - 1 for CUTS of n edges)."""
        is_lookup = np.isin(self.node["kind"], (NodeKind.LOOKUPS, NodeKind.LONE_LOOKUPS))
        decisions = np.maximum(self.node["edges"][~is_lookup], 1) - 1
        rows = self.node[is_lookup]
        lone = rows["kind"] == NodeKind.LONE_LOOKUPS
        lookups = sum(map(_lookup_rules, rows["edges"].tolist(), lone.tolist()))
        return len(self.entry) + int(np.sum(decisions, dtype=np.int64)) + lookups

    def nesting(self) -> int:
        """The greatest depth of nested chains: taken tests, and entries that lead to a node."""
        return self._depths[0]

    def longest_read(self) -> int:
        """An upper bound of the rules that a packet reads; the rules of all called trees are added up."""
        return self.longest or self._depths[1]

    @property
    def _depths(self) -> tuple[int, int]:
        return trees.depths(self._arrays)

    @property
    def _arrays(self) -> trees.TreeArrays:
        return trees.TreeArrays(self.node, self.edge, self.entry, self.step, self.link, self.root)

    def search(self, points: Words) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
        """Per point [n, axes, 2]: the first matching rule (-1: none), and the rules read."""
        rule, reads, _ = self._search(points, costs=False)
        return rule, reads

    def spend(
        self, points: Words
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32], npt.NDArray[np.float64]]:
        """As `search`, and the cost of the rules read."""
        rule, reads, spent = self._search(points, costs=True)
        assert spent is not None
        return rule, reads, spent

    def _search(
        self, points: Words, *, costs: bool
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32], npt.NDArray[np.float64] | None]:
        points = np.ascontiguousarray(points, np.uint64)
        if points.shape[1:] != (len(self.boxes.axes), 2):
            raise ValueError(f"points of shape {points.shape}: expected (n, {len(self.boxes.axes)}, 2)")
        return trees.search(self._arrays, self.boxes.tree_input(), points, costs=costs)

    def as_tests(self) -> Tree:
        """The same tree with every CUTS node replaced by the TEST nodes of its binary search.

        CUTS of one edge, which decide nothing, stay.
        """
        node = self.node.tolist()
        # By edge: those of this tree whose low and high end it has, and the node below.
        lows, highs, to = list(range(len(self.edge))), list(range(len(self.edge))), self.edge["to"].tolist()
        for number in range(len(node)):
            entry, entries, first, count, kind, axis, *_ = node[number]
            if kind != NodeKind.CUTS or count == 1:
                continue
            todo = [(number, first, count)]
            while todo:
                at, first, count = todo.pop()
                half = count // 2
                head = (entry, entries) if at == number else (0, 0)
                node[at] = (*head, len(to), 2, int(NodeKind.TEST), axis, 0, 0)
                for start, size in ((first, half), (first + half, count - half)):
                    lows.append(start)
                    highs.append(start + size - 1)
                    if size == 1:
                        to.append(to[start])
                        continue
                    node.append((0, 0, 0, 0, 0, 0, 0, 0))
                    todo.append((len(node) - 1, start, size))
                    to.append(len(node) - 1)
        nodes = np.array([tuple(row) for row in node], NODE)
        edges = np.zeros(len(to), EDGE)
        edges["low"], edges["high"], edges["to"] = self.edge["low"][lows], self.edge["high"][highs], to
        return replace(self, node=nodes, edge=edges)


def rejoined(tree: Tree, boxes: Boxes) -> Tree | None:
    """The tree over *boxes*, where *tree* is one over each of them as a rule of its own (Boxes.box_by_box).

    An entry of a box becomes one of its rule, which stands where the list has it; the same rule is read once
    in a node, and on a path if packets may pass it.  None for a tree in groups: there a rule asks those alone
    that meet its box.
    """
    if tree.step.any():
        return None
    entry = boxes.rule[tree.entry]
    first, count = tree.node["entry"].astype(np.int64), tree.node["entries"].astype(np.int64)
    keeps = np.ones(len(entry), np.bool_)
    keeps[1:] = entry[1:] != entry[:-1]
    keeps[first[count > 0]] = True
    passed = (np.bincount(boxes.rule, minlength=len(boxes.final)) > 1) & (boxes.final == 0)
    if passed.any():
        again = _read_again(tree, entry, passed)
        if again is None:
            return None
        keeps[again] = False
    kept = np.concatenate([[0], np.cumsum(keeps)])
    node = tree.node.copy()
    node["entry"], node["entries"] = kept[first], kept[first + count] - kept[first]
    return replace(
        tree, boxes=boxes, node=node, entry=entry[keeps], step=tree.step[keeps], link=tree.link[keeps]
    )


def _read_again(tree: Tree, entry: npt.NDArray[np.int32], passed: npt.NDArray[np.bool_]) -> list[int] | None:
    """The entries of *passed* rules that stand earlier on their path as well.

    None where a node is on several paths that differ in this, or nodes are on very many.
    """
    node, to = tree.node.tolist(), tree.edge["to"].tolist()
    rules, watched = entry.tolist(), passed[entry].tolist()
    found: dict[int, list[int]] = {}
    todo: list[tuple[int, frozenset[int]]] = [(tree.root, frozenset())]
    visits = 4 * len(node)
    while todo:
        at, read = todo.pop()
        first, entries, edge, edges, *_ = node[at]
        here = [each for each in range(first, first + entries) if watched[each]]
        met = [rules[each] for each in here]
        again = [each for place, each in enumerate(here) if met[place] in read or met[place] in met[:place]]
        if found.setdefault(at, again) != again or not visits:
            return None
        visits -= 1
        read = read.union(met) if met else read
        todo += [(below, read) for below in to[edge : edge + edges]]
    return [each for entries in found.values() for each in entries]


def unsplit(boxes: Boxes) -> Tree:
    """The list as a tree: one leaf of all rules."""
    count = len(boxes.final)
    node = np.array([(0, count, 0, 0, int(NodeKind.LEAF), 0, 0, 0)], NODE)
    entry = np.arange(count, dtype=np.int32)
    return Tree(boxes, node, np.empty(0, EDGE), entry, np.zeros(count, np.uint8), np.zeros(count, np.uint32))


@functools.cache
def _lookup_rules(edges: int, lone: bool) -> int:
    """Rules that a node of this many edges prints as; *lone*: LONE_LOOKUPS."""
    if edges == 1:
        return 1
    middle = (edges - 1) // 2
    sides = [middle, edges - middle - 1] if middle else [edges - 1]
    return 1 + sum(1 + (_lookup_rules(side, lone) if side > 1 or lone else 0) for side in sides)


def _value(words: Any) -> int:
    return int(words[0]) << 64 | int(words[1])
