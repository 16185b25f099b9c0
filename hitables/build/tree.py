"""Decision trees over a rule list: the face of the C builders (core/include/tree.h).

Invariant: the paths of a tree tile space, and a packet finds on its path, in list
order, every rule whose box holds it, up to a final one that covers what is left.
Searching the tree therefore gives the answer that reading the list from the top
would give.

A packet may lack an *optional* field.  Coordinate 0 then stands for "none" and v+1
for the value v, so a box that does not constrain the field spans 0..top+1 and one
that does lies within 1..top+1.  What fails a test (the other side) includes "none".
Boxes and points hold coordinates; all that is told about a tree is in values.
"""

from __future__ import annotations

import enum
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hitables.core._engine import ffi, lib
from hitables.interrupts import in_thread
from hitables.ir.fields import Field
from hitables.analyse.boxes import Axis, Boxes, Prices, Words

T = TypeVar("T")

NO_BUDGET = 2**63

# Cost (a rule read is 1), by one packet of each rule, that printing one more rule must save.  2.95 keeps acl1 at the
# growth and the reads of its goals (make bench-trees); 1 reads a fiftieth less and prints a tenth more.
THRIFT = 2.95

# How hard to try: groupings that are tried (struct tree_options), and how often a builder looks at each box,
# on the mean, until it splits no more.  So time is bounded by work that is counted, and trees are the same on
# every machine.  10 to 90 looks are usual: acl1_10K 13, ipc1_10K 16, fw1_10K 79, ipc1_100k 88.
EFFORTS = {"fast": (0, 24), "normal": (1, 500), "best": (2, 5000)}

# Building for so few boxes takes less than a blink: nobody interrupts that.
_BLINK = 500

_NODE = np.dtype(
    [(name, "u4") for name in ("entry", "entries", "edge", "edges")]
    + [(name, "u1") for name in ("kind", "axis", "negated", "unused")],
    align=True,
)
_EDGE = np.dtype([("low", "u8", 2), ("high", "u8", 2), ("to", "u4"), ("unused", "u4")], align=True)


def _algorithms() -> Iterator[tuple[str, bool]]:
    for number in itertools.count():
        name = lib.tree_algorithm(number)
        if not name:
            return
        yield ffi.string(name).decode(), bool(lib.tree_is_bounded(number))


# The trees of the CoNEXT 2014 paper: any interval for a cut, and neither budget nor nesting kept.
PAPER = "paper"

# Builders that keep all constraints; the engine's table has them.
ALGORITHMS = tuple(name for name, bounded in _algorithms() if bounded)


class Step(enum.IntEnum):
    """What an entry does with its rule; SEND, ASK, CALL and GO lead to a node."""

    RULE = lib.TREE_RULE  # the rule
    SEND = lib.TREE_SEND  # what the rule matches goes to the node
    ASK = lib.TREE_ASK  # what may match the rule goes to the node and comes back
    CALL = lib.TREE_CALL  # every packet goes to the node and comes back
    GO = lib.TREE_GO  # every packet goes to the node
    ACT = lib.TREE_ACT  # the rule's action, for every packet


class Kind(enum.IntEnum):
    """What stands at the end of a node's entries."""

    LEAF = lib.TREE_LEAF
    TEST = lib.TREE_TEST
    CUTS = lib.TREE_CUTS
    LOOKUPS = lib.TREE_LOOKUPS


@dataclass(frozen=True, slots=True)
class Edge:
    """To node *to*, for the values *low*..*high*."""

    low: int
    high: int
    to: int


@dataclass(frozen=True, slots=True)
class Node:
    """*entries*: the rules read first, in list order.

    TEST: its rule takes edges[0] if the field's value is in that edge's interval (when
    *negated*: if it is not); what is not taken stays in line and is edges[1], whose
    interval is only the hull of what can come there.
    CUTS: the edges cover what rules meet of the node's interval, in ascending order; a
    search halves them, and what lies in none of them, "none" too, comes to the last one.
    LOOKUPS (only of the builder PAPER): likewise, as Figure 4 of "Trees in the List" has
    it: a rule for the middle edge, one for the hull of those before it, one for the rest.
    """

    kind: Kind
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
    """Nodes as flat arrays, as the engine searches them.  *peak*: bytes while it was built.

    step, link  what each entry does (Step), and the node that it leads to; a tree of one
                group has RULE only
    """

    boxes: Boxes
    node: npt.NDArray[Any] = field(repr=False)
    edge: npt.NDArray[Any] = field(repr=False)
    entry: npt.NDArray[np.int32] = field(repr=False)
    step: npt.NDArray[np.uint8] = field(repr=False)
    link: npt.NDArray[np.uint32] = field(repr=False)
    root: int = 0
    peak: int = 0

    def __len__(self) -> int:
        return len(self.node)

    def __getitem__(self, number: int) -> Node:
        node = self.node[number]
        kind = Kind(node["kind"])
        entries = tuple(self.entry[node["entry"] : node["entry"] + node["entries"]].tolist())
        if kind is Kind.LEAF:
            return Node(kind, entries)
        axis = self.boxes.axes[node["axis"]]
        edges = tuple(
            Edge(_value(edge["low"]) - axis.optional, _value(edge["high"]) - axis.optional, int(edge["to"]))
            for edge in self.edge[node["edge"] : node["edge"] + node["edges"]]
        )
        return Node(kind, entries, axis, bool(node["negated"]), edges)

    def nodes(self) -> Iterator[Node]:
        """All nodes, by number: the root first, the side that stays right behind its test."""
        return (self[number] for number in range(len(self)))

    def in_groups(self) -> bool:
        """Whether several trees share the rules, and call each other."""
        return bool(np.isin(self.step, (Step.SEND, Step.ASK, Step.CALL)).any())

    def printed_rules(self) -> int:
        """Entries, and one rule per decision; CUTS of n edges print as n - 1 decisions."""
        looked_up = self.node["kind"] == Kind.LOOKUPS
        halved = np.maximum(self.node["edges"][~looked_up], 1) - 1
        lookups = sum(map(_lookup_rules, self.node["edges"][looked_up].tolist()))
        return len(self.entry) + int(np.sum(halved, dtype=np.int64)) + lookups

    def nesting(self) -> int:
        """The greatest number of chains that nest: taken tests, and entries that lead to a node."""
        return self._deepest(reads=False)

    def longest_read(self) -> int:
        """The greatest number of rules read by any packet, or more: what is called is added up."""
        return self._deepest(reads=True)

    def _deepest(self, reads: bool) -> int:
        """Over all ways from the root, the greatest number of rules read, or of chains nested."""
        rows, to = self.node.tolist(), self.edge["to"].tolist()
        step, link = self.step.tolist(), self.link.tolist()
        # The entries of each node that lead to another, next to each other.
        leading = np.flatnonzero(np.isin(self.step, _LEADING))
        starts = np.searchsorted(leading, self.node["entry"]).tolist()
        behind = np.searchsorted(leading, self.node["entry"] + self.node["entries"]).tolist()
        leading_list = leading.tolist()
        back = int(Step.ASK), int(Step.CALL)
        best: list[int | None] = [None] * len(rows)
        stack = [self.root]
        while stack:
            number = stack[-1]
            first_entry, entries, first, count, kind, *_ = rows[number]
            ends = to[first : first + count]
            leads = leading_list[starts[number] : behind[number]]
            if best[number] is None:
                waiting = [each for each in ends if best[each] is None]
                if leads:
                    waiting += [link[at] for at in leads if best[link[at]] is None]
                if waiting:
                    stack += waiting
                    continue
            stack.pop()
            if not count and not leads:
                best[number] = entries if reads else 0
                continue
            done = [best[each] or 0 for each in ends]
            taken, read = _steps(kind, count) if count else ((), ())
            if reads:
                # What is called is read, and then what stands behind; what is sent away is not.
                sent = called = 0
                for at in leads:
                    below = best[link[at]] or 0
                    if step[at] in back:
                        called += below
                    else:
                        sent = max(sent, at + 1 - first_entry + called + below)
                deep = max(map(int.__add__, done, read), default=0)
                best[number] = max(sent, entries + called + deep)
            else:
                below_links = max((1 + (best[link[at]] or 0) for at in leads), default=0)
                best[number] = max(below_links, *map(int.__add__, done, taken), 0)
        return best[self.root] or 0

    def search(self, points: Words) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
        """Per point [n, axes, 2]: the first matching rule (-1: none), and the rules read."""
        return self._search(points, None)

    def spend(
        self, points: Words
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32], npt.NDArray[np.float64]]:
        """As `search`, and what the rules read cost."""
        spent = np.empty(len(points))
        return *self._search(points, spent), spent

    def _search(
        self, points: Words, spent: npt.NDArray[np.float64] | None
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32]]:
        points = np.ascontiguousarray(points, np.uint64)
        if points.shape[1:] != (len(self.boxes.axes), 2):
            raise ValueError(f"points of shape {points.shape}: expected (n, {len(self.boxes.axes)}, 2)")
        rule = np.empty(len(points), np.int32)
        reads = np.empty(len(points), np.uint32)
        tree = ffi.new("struct tree *", {"root": self.root})
        tree.node = ffi.from_buffer("struct tree_node *", self.node)
        tree.edge = ffi.from_buffer("struct tree_edge *", self.edge)
        tree.entry = ffi.from_buffer("int32_t *", self.entry)
        tree.step = ffi.from_buffer("uint8_t *", self.step)
        tree.link = ffi.from_buffer("uint32_t *", self.link)
        given = _Given(self.boxes)
        status = lib.tree_search(
            tree, given.boxes, ffi.from_buffer("uint64_t *", points), len(points),
            ffi.from_buffer("int32_t *", rule), ffi.from_buffer("uint32_t *", reads),
            ffi.NULL if spent is None else ffi.from_buffer("double *", spent),
        )
        _check(status)
        return rule, reads

    def as_tests(self) -> Tree:
        """The same tree with every CUTS node as the TEST nodes by which a search halves it.

        CUTS of one edge, which decide nothing, stay.
        """
        node, edge = self.node.tolist(), self.edge.tolist()
        for number in range(len(node)):
            entry, entries, first, count, kind, axis, *_ = node[number]
            if kind != Kind.CUTS or count == 1:
                continue
            todo = [(number, first, count)]
            while todo:
                at, first, count = todo.pop()
                half = count // 2
                sides = []
                for start, size in ((first, half), (first + half, count - half)):
                    if size == 1:
                        sides.append(edge[start])
                        continue
                    node.append((0, 0, 0, 0, 0, 0, 0, 0))
                    todo.append((len(node) - 1, start, size))
                    sides.append((edge[start][0], edge[start + size - 1][1], len(node) - 1, 0))
                head = (entry, entries) if at == number else (0, 0)
                node[at] = (*head, len(edge), 2, int(Kind.TEST), axis, 0, 0)
                edge.extend(sides)
        nodes = np.array([tuple(row) for row in node], _NODE)
        edges = np.array([(tuple(low), tuple(high), to, 0) for low, high, to, _ in edge], _EDGE)
        return replace(self, node=nodes, edge=edges)


def grow(
    boxes: Boxes, *, algorithm: str = "bisect", leaf_size: int = 8, max_nesting: int = 12,
    budget: int = NO_BUDGET, copy_penalty: float = 0.3, thrift: float = THRIFT, grouping: int = 0,
    spfac: float = 4.0, unequal: bool = False, memory: int = 2**31, effort: str = "normal",
) -> Tree:
    """Build a tree with one of ALGORITHMS, or PAPER.

    leaf_size     a list of so many rules is not split (auto finds that by itself)
    max_nesting   taken tests on a path, at most
    budget        printed rules, at most (but no fewer than the list itself has)
    copy_penalty  bisect: entries that a copied rule counts for
    thrift        auto: cost, by one packet of each rule, that printing another rule must save
    grouping      auto: 0 the cheapest; n that one alone, of those that it would try
    spfac         hicuts, paper: rules that the parts of a node may hold, over those of the node;
                  hypercuts: parts of a node, over the root of its rules
    unequal       paper: cut between rules instead of in equal parts
    memory        bytes that building may take (0: any); MemoryError beyond
    effort        auto, bisect: one of EFFORTS

    A KeyboardInterrupt in the main thread ends the building, too.
    """
    if algorithm not in (*ALGORITHMS, PAPER):
        raise ValueError(f"no tree builder is called {algorithm!r}; there are {', '.join(ALGORITHMS)}")
    if effort not in EFFORTS:
        raise ValueError(f"there is no effort {effort!r}; there are {', '.join(EFFORTS)}")
    if min(leaf_size, max_nesting, budget, memory) < 0 or not copy_penalty >= 0 or not spfac >= 1:
        raise ValueError("a tree's option is out of range")
    given = _Given(boxes)
    options = ffi.new("struct tree_options *")
    options.leaf_size, options.max_nesting = min(leaf_size, 2**31), min(max_nesting, 2**31)
    options.budget, options.memory = min(budget, NO_BUDGET), memory
    options.copy_penalty, options.size_penalty = copy_penalty, thrift
    options.grouping, options.spfac, options.unequal = grouping, spfac, unequal
    options.grouping_effort, options.work_limit = EFFORTS[effort]
    status = ffi.new("enum tree_status *")
    grown = _interruptible(len(boxes.rule), lambda: lib.tree_grow(algorithm.encode(), given.boxes, options, status))
    _check(status[0])
    try:
        return Tree(
            boxes,
            _copied(grown.node, grown.nodes, _NODE),
            _copied(grown.edge, grown.edges, _EDGE),
            _copied(grown.entry, grown.entries, np.dtype("i4")),
            _copied(grown.step, grown.entries, np.dtype("u1")),
            _copied(grown.link, grown.entries, np.dtype("u4")),
            grown.root,
            grown.bytes,
        )
    finally:
        lib.tree_free(grown)


def unsplit(boxes: Boxes) -> Tree:
    """The list itself: one leaf of all rules."""
    count = len(boxes.final)
    node = np.array([(0, count, 0, 0, int(Kind.LEAF), 0, 0, 0)], _NODE)
    entry = np.arange(count, dtype=np.int32)
    return Tree(boxes, node, np.empty(0, _EDGE), entry, np.zeros(count, np.uint8), np.zeros(count, np.uint32))


# Steps that lead to a node.
_LEADING = (Step.SEND, Step.ASK, Step.CALL, Step.GO)


@functools.cache
def _steps(kind: int, edges: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Tests taken, and rules read, on the way from a node's entries to each of its edges."""
    way = _lookups if kind == Kind.LOOKUPS else _halvings
    taken, read = zip(*(way(edge, edges) for edge in range(edges)), strict=True)
    return taken, read


def _halvings(edge: int, edges: int) -> tuple[int, int]:
    taken = read = 0
    while edges > 1:
        half = edges // 2
        read += 1
        if edge < half:
            taken += 1
            edges = half
        else:
            edge, edges = edge - half, edges - half
    return taken, read


def _lookups(edge: int, edges: int) -> tuple[int, int]:
    taken = read = 0
    while True:
        middle = (edges - 1) // 2
        taken, read = taken + 1, read + 1
        if edge == middle:
            return taken, read
        if edge < middle:
            read, edges = read + 1, middle
        else:
            read, edge, edges = read + 1 + (middle > 0), edge - middle - 1, edges - middle - 1


@functools.cache
def _lookup_rules(edges: int) -> int:
    """Rules that LOOKUPS of so many edges print as."""
    if edges == 1:
        return 1
    middle = (edges - 1) // 2
    left = 1 + _lookup_rules(middle) if middle else 0
    return 2 + left + _lookup_rules(edges - middle - 1)


def _interruptible(boxes: int, build: Callable[[], T]) -> T:
    """Run *build* so that an interrupt of the main thread reaches the C code: a thread builds, this one waits."""
    if boxes < _BLINK:
        return build()
    try:
        return in_thread(build, lambda: lib.tree_stop(1))
    except BaseException:
        lib.tree_stop(0)
        raise


def _value(words: Any) -> int:
    return int(words[0]) << 64 | int(words[1])


def _copied(start: Any, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if not count:
        return np.empty(0, dtype)
    return np.frombuffer(ffi.buffer(start, count * dtype.itemsize), dtype).copy()


def _check(status: int) -> None:
    """Raise what the engine's status says."""
    if status == lib.TREE_OK:
        return
    if status == lib.TREE_NO_MEMORY:
        raise MemoryError("no memory is left for the tree")
    if status == lib.TREE_STOPPED:
        raise KeyboardInterrupt
    what = {
        lib.TREE_BAD_AXIS: "an axis is impossible: its width, or what it requires",
        lib.TREE_BAD_BOX: "a box is empty, beyond its axes, or out of its rule's order",
        lib.TREE_BAD_OPTION: "no such builder",
    }[status]
    raise ValueError(what)


class _Given:
    """Boxes as the engine reads them; keeps alive what the structure points to."""

    def __init__(self, boxes: Boxes) -> None:
        fields = [axis.field for axis in boxes.axes]
        axes = ffi.new("struct tree_axis[]", len(boxes.axes))
        self.kept: list[Any] = [axes]
        for given, axis in zip(axes, boxes.axes, strict=True):
            given.bits, given.optional, given.cut, given.needs = axis.bits, axis.optional, axis.cut, -1
            if axis.requires is not None:
                other, values = axis.requires
                given.needs = fields.index(other)
                shift = boxes.axes[given.needs].optional
                needed = ffi.new("uint64_t[]", [value + shift for value in values])
                self.kept.append(needed)
                given.needed, given.needed_count = needed, len(values)
        self.boxes = ffi.new("struct tree_boxes *")
        self.boxes.boxes, self.boxes.axes = len(boxes.rule), len(boxes.axes)
        self.boxes.rules, self.boxes.axis = len(boxes.final), axes
        for name, kind in (("low", "uint64_t"), ("high", "uint64_t"), ("rule", "int32_t"),
                           ("final", "uint8_t"), ("weight", "double"), ("free", "uint8_t")):
            setattr(self.boxes, name, ffi.from_buffer(f"{kind} *", getattr(boxes, name)))
        if boxes.prices is not None:
            self.boxes.costs = self._costs(boxes.prices)

    def _costs(self, prices: Prices) -> Any:
        costs = ffi.new("struct tree_costs *", {"jump": prices.jump, "go": prices.go, "act": prices.act})
        for name, kind in (("test", "struct tree_cost"), ("order", "uint32_t"), ("missed", "float"),
                           ("holds", "float"), ("taken", "float")):
            setattr(costs, name, ffi.from_buffer(f"{kind} *", getattr(prices, name)))
        self.kept.append(costs)
        return costs
