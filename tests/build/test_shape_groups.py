"""Trees of groups: the laws of the builder auto, tested on every point of a small space.

A rule that may be moved decides each packet that it matches, though its box may contain other packets; so does one
that leaves the chain, which may not be in a tree that is called.  Other rules have an effect on each packet that
reaches them in their box and, unless they are final, pass the packet on.  The result for a packet is the list of rules
with an effect on it, in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples
from support.worst_paths import worst

from hitables.analyse.boxes import Axis, Boxes, Cut, Reorder
from hitables.build.grow import grow
from hitables.build.tree import EntryKind, NodeKind, Tree
from hitables.ir.fields import Field

AXES = (
    Axis(Field.SRC, 3, False, Cut.PREFIX),
    Axis(Field.DST, 3, False, Cut.PREFIX),
    Axis(Field.PROTO, 2, False, Cut.POINT),
    Axis(Field.DPORT, 2, True, Cut.RANGE, (Field.PROTO, (1, 2))),
)
POINTS = list(itertools.product(*(range(axis.top + 1) for axis in AXES)))
WORDS = np.array(POINTS, np.uint64)[:, :, None] * np.array([0, 1], np.uint64)


MOVABLE = Reorder.DEFERRABLE | Reorder.SPLITTABLE
LEAVES = Reorder.SPLITTABLE
STAYS = Reorder(0)
KINDS = (
    [MOVABLE],
    [*9 * [MOVABLE], Reorder.LATE],
    [*4 * [MOVABLE], Reorder.LATE],
    [*9 * [MOVABLE], LEAVES],
    [*6 * [MOVABLE], LEAVES, Reorder.LATE],
    [*9 * [MOVABLE], STAYS],
    [*3 * [MOVABLE], LEAVES, STAYS, Reorder.LATE],
)


@st.composite
def crossing(draw: st.DrawFn, most: int = 24) -> tuple[Boxes, list[bool]]:
    """Rules specific in one address, or the other, or neither; and which of them match all their boxes."""
    kinds = draw(st.sampled_from(KINDS))

    def prefix(axis: Axis) -> tuple[int, int]:
        bits = draw(st.integers(0, axis.bits - 1))
        low = draw(st.integers(0, (1 << axis.bits) - 1)) >> bits << bits
        return low, low + (1 << bits) - 1

    rules, final, free, whole = [], [], [], []
    for _ in range(draw(st.integers(0, most))):
        shape = draw(st.sampled_from([(Field.SRC,), (Field.DST,), (Field.SRC, Field.DST), ()]))
        box = {axis.field: prefix(axis) for axis in AXES[:2] if axis.field in shape}
        if draw(st.booleans()):
            proto = draw(st.integers(0, 3))
            box[Field.PROTO] = (proto, proto)
            if proto in (1, 2) and draw(st.booleans()):
                port = draw(st.integers(0, 3))
                box[Field.DPORT] = (port, draw(st.integers(port, 3)))
        rules.append([box])
        kind = draw(st.sampled_from(kinds))
        exact = draw(st.integers(0, 4)) > 0
        free.append(kind)
        final.append(exact if kind & Reorder.SPLITTABLE else draw(st.booleans()))
        # A box that says all of a rule that decides is final; of the others some match, some do not.  What a
        # late rule does with a packet that it does not match counts too.
        whole.append(final[-1] or kind is Reorder.LATE or draw(st.booleans()))
    return Boxes.of(AXES, rules, final, reorder=free), whole


def holds_of(given_boxes: Boxes) -> np.ndarray:
    low, high = given_boxes.low[:, :, 1], given_boxes.high[:, :, 1]
    points = np.array(POINTS, np.uint64)[:, None]
    return ((points >= low) & (points <= high)).all(axis=2)


def decides(boxes: Boxes, rule: int) -> bool:
    return bool(boxes.final[rule] or boxes.reorder[rule] & Reorder.SPLITTABLE)


def read_list(boxes: Boxes, holds: np.ndarray, whole: list[bool]) -> list[int]:
    """The rules that do something to a packet."""
    done = []
    for rule in np.flatnonzero(holds).tolist():
        if not whole[rule]:
            continue
        done.append(rule)
        if decides(boxes, rule):
            break
    return done


def walk(
    tree: Tree, point: tuple[int, ...], holds: np.ndarray, whole: list[bool], asked: Callable[[int], bool]
) -> list[int]:
    """The same, by the tree.  *asked*: whether what is free to ask of a rule lets the packet through."""
    boxes, done = tree.boxes, []
    nodes = list(tree.nodes())
    back: list[tuple[int, int]] = []
    at, place = tree.root, 0
    while True:
        row = tree.node[at]
        lead = None
        for entry in range(row["entry"] + place, row["entry"] + row["entries"]):
            step, rule = EntryKind(tree.step[entry]), int(tree.entry[entry])
            does = step in (EntryKind.ACT, EntryKind.CALL, EntryKind.GO) or bool(holds[rule] and whole[rule])
            if step is EntryKind.ASK:
                # Of a rule that may be split all is asked; what is free to ask of another lets in more.
                splits = bool(boxes.reorder[rule] & Reorder.SPLITTABLE)
                does = bool(holds[rule]) and (whole[rule] or not splits)
                does |= not splits and asked(rule)
            if not does:
                continue
            if step in (EntryKind.RULE, EntryKind.ACT):
                done.append(rule)
                assert boxes.reorder[rule] not in (LEAVES, STAYS) or not back, "it would return to the caller"
                if decides(boxes, rule):
                    return done
                continue
            lead = int(tree.link[entry])
            if step in (EntryKind.ASK, EntryKind.CALL):
                back.append((at, entry + 1 - int(row["entry"])))
            break
        if lead is not None:
            at, place = lead, 0
            continue
        node = nodes[at]
        if node.kind is NodeKind.LEAF:
            if not back:
                return done
            at, place = back.pop()
            continue
        assert node.axis is not None
        value = point[AXES.index(node.axis)] - node.axis.optional
        inside = node.edges[0].low <= value <= node.edges[0].high
        at, place = (node.taken if inside != node.negated else node.other), 0


@settings(max_examples=examples(60))
@given(
    sample=crossing(),
    nesting=st.integers(0, 20),
    size_penalty=st.sampled_from([0.0, 0.2, 3.0]),
    grouping=st.integers(0, 40),
    lets_in=st.booleans(),
)
def test_trees_of_groups_do_what_the_list_does(
    sample: tuple[Boxes, list[bool]], nesting: int, size_penalty: float, grouping: int, lets_in: bool
) -> None:
    boxes, whole = sample
    tree = grow(boxes, algorithm="auto", max_nesting=nesting, size_penalty=size_penalty, grouping=grouping)
    for point, holds in zip(POINTS, holds_of(boxes), strict=True):
        got = walk(tree, point, holds, whole, lambda rule: lets_in)
        assert got == read_list(boxes, holds, whole), point


@settings(max_examples=examples(30))
@given(sample=crossing(), nesting=st.integers(0, 20), spare=st.integers(0, 60), grouping=st.integers(0, 40))
def test_groups_keep_the_budget_and_the_nesting(
    sample: tuple[Boxes, list[bool]], nesting: int, spare: int, grouping: int
) -> None:
    boxes, _ = sample
    budget = len(boxes.final) + spare
    tree = grow(
        boxes, algorithm="auto", max_nesting=nesting, budget=budget, size_penalty=0.0, grouping=grouping
    )
    assert tree.printed_rules() <= budget
    assert tree.nesting() <= nesting
    assert (tree.nesting(), tree.longest_read()) == worst(tree.as_tests(), tree.root)


def crossed(rules: int) -> Boxes:
    """In turn blocks of rules with a destination and of rules with a source."""
    axes = (Axis(Field.SRC, 32, False, Cut.PREFIX), Axis(Field.DST, 32, False, Cut.PREFIX))
    listed = [
        [{axes[at // 50 % 2].field: (at * 2654435761 % 2**32 & ~255, at * 2654435761 % 2**32 | 255)}]
        for at in range(rules)
    ]
    return Boxes.of(axes, listed, [True] * rules, reorder=[Reorder.DEFERRABLE | Reorder.SPLITTABLE] * rules)


def test_rules_that_cross_are_kept_in_groups_that_are_small_and_shallow() -> None:
    boxes = crossed(1000)
    together = grow(boxes, algorithm="bisect", budget=4000)
    apart = grow(boxes, algorithm="auto", budget=4000)
    assert EntryKind.ASK in apart.step or EntryKind.SEND in apart.step
    assert apart.printed_rules() <= 4000
    points = boxes.low
    first, reads = apart.search(points)
    assert np.array_equal(first, together.search(points)[0])
    assert reads.mean() < together.search(points)[1].mean() / 2


def test_rules_that_may_not_be_moved_get_one_tree() -> None:
    boxes = crossed(400)
    boxes.reorder[:] = 0
    assert not grow(boxes, algorithm="auto").step.any()


def test_no_step_leads_into_a_circle_and_called_trees_are_only_called() -> None:
    tree = grow(crossed(1000), algorithm="auto", budget=4000)
    order, seen = [tree.root], {tree.root}
    for at in order:
        row = tree.node[at]
        entries = range(row["entry"], row["entry"] + row["entries"])
        ends = tree.edge["to"][row["edge"] : row["edge"] + row["edges"]].tolist()
        leads = [
            int(tree.link[e])
            for e in entries
            if EntryKind(tree.step[e]) not in (EntryKind.RULE, EntryKind.ACT)
        ]
        for each in (*ends, *leads):
            if each not in seen:
                seen.add(each)
                order.append(each)
    assert seen == set(range(len(tree)))
    assert (tree.nesting(), tree.longest_read()) == worst(tree.as_tests(), tree.root)
    assert tree.longest_read() >= int(tree.search(crossed(1000).low)[1].max())


@pytest.mark.parametrize("memory", [4096, 200_000])
def test_lack_of_memory_is_an_error_in_groups_too(memory: int) -> None:
    with pytest.raises(MemoryError):
        grow(crossed(2000), algorithm="auto", memory=memory)
