"""A tree over rules of several kinds by turns, which packets are told apart for first (ir/crossing.py).

Where each rule of the first kind decides its packets, a tree over that kind asks before each rule whether the
packet matches one of the second kind, too; such packets read the list, and end there:

    rules of the first kind:  matched     rules of the second kind:  matched     the list
                                                                     others      that rule
                              others      rules of the second kind

Else the packet must not come back from the list to the rule, so a third tree reads the rules of the first
kind for packets that match none of the second.  Of more kinds, all but one must decide their packets: a tree
over each is read in turn, and asks the trees over those behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from hitables.analyse.boxes import Boxes, Reorder
from hitables.core.trees import EDGE, NODE, EntryKind, NodeKind, TreeArrays, depths

from .tree import Tree

# Grows a tree over boxes with so much nesting, of at most so many printed rules.
Grow = Callable[[Boxes, int, int], Tree]


def apart(
    boxes: Boxes, kinds: Sequence[Sequence[int]], max_nesting: int, budget: int, grow: Grow
) -> list[Tree]:
    """The trees over *boxes* whose rules are of these *kinds*.

    There is none where nesting or budget do not allow it, or rules of two of three kinds let packets pass.
    """
    # RETURN in the list that is asked would come back to the rule.
    comes_back = (boxes.reorder & (Reorder.DEFERRABLE | Reorder.LATE)) == 0
    decides = (boxes.final != 0) & (boxes.reorder & Reorder.DEFERRABLE != 0)
    passing = [kind for kind in kinds if comes_back.any() or not decides[list(kind)].all()]
    found: list[Tree | None] = []
    if len(passing) > 1 or comes_back.any():
        found = [_telling(boxes, kinds, max_nesting, budget, grow)] if len(kinds) == 2 else []
    else:
        ordered = [*(kind for kind in kinds if kind not in passing), *passing]
        if len(kinds) == 2:
            halves = _asking_halves(boxes, ordered, max_nesting, budget, grow)
            found = [_asking(boxes, ordered, max_nesting, budget, grow), halves]
        else:
            found = [_asking_many(boxes, ordered, max_nesting, budget, grow)]
    return [tree for tree in found if tree is not None]


def _asking(
    boxes: Boxes, kinds: Sequence[Sequence[int]], max_nesting: int, budget: int, grow: Grow
) -> Tree | None:
    """The tree where each rule of the first kind decides its packets."""
    nesting, rules = max_nesting - 2, len(boxes.final)
    # Besides the trees the list is printed, and a rule that asks before each of the first kind.
    spare = budget - rules - len(kinds[0])
    grown = _grown(boxes, kinds, (1, 2), (nesting // 2, nesting - nesting // 2), spare, grow)
    if grown is None:
        return None
    first, second = grown
    parts = [first, second, second, _Pieces.list_of(rules)]
    starts = _starts(parts)
    parts[0] = first.asking(starts[1] + second.root).then(starts[2] + second.root)
    parts[1] = second.telling(starts[3])
    asked, told, read, _ = (part.longest() for part in parts)
    return _joined(boxes, parts, asked + max(told + rules, read))


def _asking_halves(
    boxes: Boxes, kinds: Sequence[Sequence[int]], max_nesting: int, budget: int, grow: Grow
) -> Tree | None:
    """As `_asking`; packets whose rule of the second kind is in the second half of the list read that alone.

    Of the first half only rules of the first kind can match them: a tree over these is called before.
    """
    rules = len(boxes.final)
    half = rules // 2
    early = [rule for rule in kinds[0] if rule < half]
    # A path leads through the trees over both kinds, then over the early rules, then to the second half.
    nesting = max_nesting - 4
    shallow = nesting // 4
    # Besides the trees the list is printed, and a rule that asks before each of the first kind.
    spare = budget - rules - len(kinds[0]) - 3
    if not early or shallow < 1:
        return None
    levels = nesting - shallow
    depths_of = levels // 2, levels - levels // 2, shallow
    grown = _grown(boxes, [*kinds, early], (1, 2, 1), depths_of, spare, grow)
    if grown is None:
        return None
    first, second, before = grown
    parts = [first, second, second, before, _Pieces.list_of(half), _Pieces.list_of(rules, half)]
    parts[4] = parts[4].then(0)
    parts.append(_Pieces.calls([0, 0]))
    starts = _starts(parts)
    _, tells, reads, decides, whole, rest, later = (
        start + part.root for start, part in zip(starts, parts, strict=True)
    )
    asked, told, read, called, *_ = (part.longest() for part in parts)
    parts = [
        first.asking(tells).then(reads),
        second.telling(whole, half, later),
        second,
        before,
        _Pieces.list_of(half).then(rest),
        _Pieces.list_of(rules, half),
        _Pieces.calls([decides, rest]),
    ]
    return _joined(boxes, parts, asked + max(told + max(half, called + 1) + 1 + rules - half, read))


def _asking_many(
    boxes: Boxes, kinds: Sequence[Sequence[int]], max_nesting: int, budget: int, grow: Grow
) -> Tree | None:
    """The tree of three kinds or more where each rule of all but the last decides its packets.

    It calls the trees over the kinds, one after the other; each asks those over the following kinds.
    """
    nesting, rules, last = (max_nesting - 4) // 2, len(boxes.final), len(kinds) - 1
    spare = budget - rules - (rules - len(kinds[last]))
    trees = _grown(boxes, kinds, [1, *[2] * last], [nesting] * len(kinds), spare, grow)
    if trees is None:
        return None
    # The parts: the calls of all trees, these, those that tell, the calls of these, the list.
    calls = [_Pieces.calls([0] * (last - at)) for at in range(last - 1)]
    whole = _Pieces.list_of(rules)
    parts = [_Pieces.calls([0] * len(kinds)), *trees, *trees[1:], *calls, whole]
    starts = _starts(parts)
    roots = [start + part.root for start, part in zip(starts, parts, strict=True)]
    reads, tells = roots[1 : last + 2], [0, *roots[last + 2 : 2 * last + 2]]
    asks = [*roots[2 * last + 2 : -1], tells[last]]
    longest = [tree.longest() for tree in trees]
    parts = [
        _Pieces.calls(reads),
        *(tree.asking(ask) for tree, ask in zip(trees, asks, strict=False)),
        trees[last],
        *(tree.telling(roots[-1]) for tree in trees[1:]),
        *(_Pieces.calls(tells[at + 1 :]) for at in range(last - 1)),
        whole,
    ]
    # A packet reads each tree, half of whose entries ask, and the trees that one rule asks; then the list.
    return _joined(boxes, parts, len(kinds) + 2 * sum(longest) + last + sum(longest[1:]) + rules)


def _telling(
    boxes: Boxes, kinds: Sequence[Sequence[int]], max_nesting: int, budget: int, grow: Grow
) -> Tree | None:
    """The tree where a rule of either kind may let its packets pass."""
    # A path leads through both trees that tell apart, then through one of them again.
    nesting, rules = max_nesting - 2, len(boxes.final)
    third = nesting // 3
    grown = _grown(boxes, kinds, (2, 2), (third, nesting - 2 * third), budget - rules, grow)
    if grown is None:
        return None
    first, second = grown
    parts = [first, second, first, second, _Pieces.list_of(rules)]
    starts = _starts(parts)
    tells_second, reads_first, reads_second = (starts[at] + parts[at].root for at in (1, 2, 3))
    parts[0] = first.telling(tells_second).then(reads_second)
    parts[1] = second.telling(starts[4]).then(reads_first)
    told_first, told_second, read_first, read_second, _ = (part.longest() for part in parts)
    return _joined(boxes, parts, told_first + max(told_second + max(rules, read_first), read_second))


def _grown(
    boxes: Boxes,
    kinds: Sequence[Sequence[int]],
    times: Sequence[int],
    nesting: Sequence[int],
    budget: int,
    grow: Grow,
) -> list[_Pieces] | None:
    """A tree over each kind, each to be printed so many *times*, with *budget* rules in all."""
    least = sum(count * len(kind) for count, kind in zip(times, kinds, strict=True))
    if min(nesting) < 1 or budget < least:
        return None
    grown = []
    for kind, deep in zip(kinds, nesting, strict=True):
        tree = grow(boxes.of_rules(kind), deep, budget * len(kind) // least)
        if tree.step.any():
            return None
        grown.append(_Pieces.of(tree, np.asarray(kind, np.int32)))
    return grown


class _Pieces:
    """The arrays of a tree, which become a part of another one."""

    def __init__(
        self, node: npt.NDArray[np.void], edge: npt.NDArray[np.void], entry: npt.NDArray[np.int32],
        step: npt.NDArray[np.uint8], link: npt.NDArray[np.uint32], root: int, peak: int = 0,
    ) -> None:  # fmt: skip
        self.node, self.edge, self.entry, self.step, self.link = node, edge, entry, step, link
        self.root, self.peak = root, peak

    def longest(self) -> int:
        """The most rules that a packet reads in this part."""
        step = np.zeros_like(self.step)
        arrays = TreeArrays(self.node, self.edge, self.entry, step, self.link, self.root)
        return depths(arrays)[1]

    @classmethod
    def of(cls, tree: Tree, rules: npt.NDArray[np.int32]) -> _Pieces:
        """Those of a tree over a part of a list: *rules*."""
        return cls(tree.node, tree.edge, rules[tree.entry], tree.step, tree.link, tree.root, tree.peak)

    @classmethod
    def list_of(cls, rules: int, first: int = 0) -> _Pieces:
        """Those of one leaf of the rules from *first* on, of so many."""
        count = rules - first
        node = np.array([(0, count, 0, 0, int(NodeKind.LEAF), 0, 0, 0)], NODE)
        entry = np.arange(first, rules, dtype=np.int32)
        return cls(node, np.empty(0, EDGE), entry, np.zeros(count, np.uint8), np.zeros(count, np.uint32), 0)

    @classmethod
    def calls(cls, nodes: Sequence[int]) -> _Pieces:
        """Those of a leaf that calls *nodes*, and goes to the last."""
        count = len(nodes)
        node = np.array([(0, count, 0, 0, int(NodeKind.LEAF), 0, 0, 0)], NODE)
        step = np.array([*[EntryKind.CALL] * (count - 1), EntryKind.GO], np.uint8)
        return cls(node, np.empty(0, EDGE), np.full(count, -1, np.int32), step, np.array(nodes, np.uint32), 0)

    def telling(self, matched: int, half: int = 0, later: int = 0) -> _Pieces:
        """The tree that sends packets which match a rule to node *matched*.

        Those of rules from *half* on, unless it is 0, go to node *later*.
        """
        step, link = np.full_like(self.step, EntryKind.MEET), np.full_like(self.link, matched)
        if half:
            link[self.entry >= half] = later
        return _Pieces(self.node, self.edge, self.entry, step, link, self.root, self.peak)

    def asking(self, node: int) -> _Pieces:
        """The tree in which *node* is asked before each rule."""
        entry, step, link = np.repeat(self.entry, 2), np.repeat(self.step, 2), np.repeat(self.link, 2)
        step[::2], link[::2] = EntryKind.ASK, node
        nodes = self.node.copy()
        nodes["entry"] *= 2
        nodes["entries"] *= 2
        return _Pieces(nodes, self.edge, entry, step, link, self.root, self.peak)

    def then(self, others: int) -> _Pieces:
        """The tree whose leaves lead to node *others*."""
        counts = self.node["entries"].astype(np.int64)
        is_leaf = self.node["kind"] == NodeKind.LEAF
        starts = np.cumsum(counts + is_leaf) - counts - is_leaf
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        old = np.repeat(self.node["entry"].astype(np.int64), counts) + within
        new = np.repeat(starts, counts) + within
        total = int(counts.sum() + is_leaf.sum())
        entry = np.full(total, -1, np.int32)
        step = np.full(total, EntryKind.GO, np.uint8)
        link = np.full(total, others, np.uint32)
        entry[new], step[new], link[new] = self.entry[old], self.step[old], self.link[old]
        node = self.node.copy()
        node["entry"], node["entries"] = starts, counts + is_leaf
        return _Pieces(node, self.edge, entry, step, link, self.root, self.peak)


def _starts(parts: Sequence[_Pieces]) -> list[int]:
    """The number of the first node of each part in the tree of all."""
    starts: list[int] = np.cumsum([0, *(len(part.node) for part in parts)]).tolist()
    return starts[:-1]


def _joined(boxes: Boxes, parts: Sequence[_Pieces], longest: int) -> Tree:
    """One tree of all parts, which begins with the first; their links are numbers of nodes in it."""
    nodes, edges = [], []
    node_start = edge_start = entry_start = 0
    for part in parts:
        node, edge = part.node.copy(), part.edge.copy()
        node["edge"] += edge_start
        node["entry"] += entry_start
        edge["to"] += node_start
        nodes.append(node)
        edges.append(edge)
        node_start, edge_start = node_start + len(node), edge_start + len(edge)
        entry_start += len(part.entry)
    return Tree(
        boxes,
        np.concatenate(nodes),
        np.concatenate(edges),
        np.concatenate([part.entry for part in parts]),
        np.concatenate([part.step for part in parts]),
        np.concatenate([part.link for part in parts]),
        parts[0].root,
        max(part.peak for part in parts),
        longest,
    )
