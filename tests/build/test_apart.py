"""Trees that tell packets apart by the kinds of rules that they match."""

from __future__ import annotations

import numpy as np
import pytest

from hitables.analyse.boxes import Axis, Boxes, Cut, Reorder
from hitables.build.apart import apart
from hitables.build.expected_cost import points_in
from hitables.build.grow import grow
from hitables.build.tree import EntryKind, Tree, unsplit
from hitables.ir.fields import Field

FIELDS = (Field.SRC, Field.DST, Field.IIF, Field.OIF)
AXES = tuple(Axis(field, 32, False, Cut.PREFIX) for field in FIELDS)
COUNT = 60
KINDS = list(range(0, 2 * COUNT, 2)), list(range(1, 2 * COUNT, 2))
DECIDES = int(Reorder.DEFERRABLE | Reorder.SPLITTABLE)


def boxes(seed: int, final: bool = True, reorder: int = DECIDES, kinds: int = 2) -> Boxes:
    """Rules of a source and of a destination, or of more fields, by turns."""
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 2**32 - 16, 2 * COUNT)
    rules = [
        [{FIELDS[at % kinds]: (int(first), int(first) + int(rng.integers(1, 16)))}]
        for at, first in enumerate(low)
    ]
    return Boxes.of(AXES, rules, [final] * len(rules), None, [reorder] * len(rules))


def growing(own: Boxes, nesting: int, budget: int) -> Tree:
    return grow(own, algorithm="bisect", max_nesting=nesting, budget=budget, leaf_size=2)


def told(own: Boxes, nesting: int = 14, growth: float = 4) -> list[Tree]:
    return apart(own, KINDS, nesting, int(growth * len(own.final)), growing)


def points(own: Boxes, seed: int) -> np.ndarray:
    """Of each rule, of two rules of both kinds, and of none."""
    rng = np.random.default_rng(seed)
    wide = Boxes.of(AXES, [[{}]], [True])
    drawn = [points_in(own, np.arange(len(own.rule)), rng) for _ in range(4)]
    drawn.append(points_in(wide, np.zeros(200, np.intp), rng))
    both = drawn[0][KINDS[0]].copy()
    both[:, 1] = drawn[0][rng.permutation(KINDS[1]), 1]
    return np.concatenate([*drawn, both])


@pytest.mark.parametrize("seed", range(5))
def test_each_packet_is_decided_as_in_the_list(seed: int) -> None:
    own = boxes(seed)
    packets = points(own, seed)
    means = []
    for tree in told(own):
        assert EntryKind.ASK in tree.step and EntryKind.MEET in tree.step
        (listed, _), (found, reads) = unsplit(own).search(packets), tree.search(packets)
        assert (listed == found).all() and len(set(found.tolist())) > COUNT
        assert reads.max() <= tree.longest_read() <= len(own.final) + 60
        assert reads[found < 0].mean() < 40
        means.append(reads[-len(KINDS[0]) :].mean())
    # The second one reads half of the list for packets of two kinds whose later rule is in the second half.
    whole, halves = means
    assert halves < whole


def test_rules_that_let_packets_pass_have_a_tree_that_is_read_once() -> None:
    own = boxes(0, final=False, reorder=int(Reorder.LATE))
    (tree,) = told(own)
    assert EntryKind.ASK not in tree.step and EntryKind.CALL not in tree.step
    packets = points(own, 0)
    (listed, _), (found, reads) = unsplit(own).search(packets), tree.search(packets)
    assert (listed == found).all() and reads.max() <= tree.longest_read()


def test_a_packet_that_the_list_lets_return_does_not_come_back_to_a_rule() -> None:
    """RETURN may be split, but not deferred."""
    (tree,) = told(boxes(0, reorder=int(Reorder.SPLITTABLE)))
    assert EntryKind.ASK not in tree.step


def by_turns(count: int) -> list[list[int]]:
    return [list(range(kind, 2 * COUNT, count)) for kind in range(count)]


@pytest.mark.parametrize("count", [3, 4])
def test_of_more_kinds_each_tree_is_called_in_turn(count: int) -> None:
    own = boxes(count, kinds=count)
    (tree,) = apart(own, by_turns(count), 14, 5 * len(own.final), growing)
    assert (tree.step == EntryKind.CALL).sum() >= count - 1
    rng = np.random.default_rng(0)
    packets = points(own, 0)
    for field in range(1, count):  # packets that match rules of several kinds
        more = points_in(own, rng.permutation(np.arange(field, 2 * COUNT, count)), rng)
        packets[: len(more), field] = more[:, field]
    (listed, _), (found, reads) = unsplit(own).search(packets), tree.search(packets)
    assert (listed == found).all() and reads.max() <= tree.longest_read()
    assert reads[found < 0].mean() < 25 * count and tree.nesting() <= 14
    assert tree.printed_rules() <= 5 * len(own.final)


def test_of_more_kinds_all_but_one_decide_their_packets() -> None:
    own = boxes(1, kinds=3)
    for kind in range(3):
        own.final[kind::3] = 0
        assert (apart(own, by_turns(3), 14, 600, growing) == []) == (kind > 0)
    assert apart(boxes(1, kinds=3, reorder=int(Reorder.SPLITTABLE)), by_turns(3), 14, 600, growing) == []


def test_nesting_and_growth_are_kept() -> None:
    own = boxes(1)
    for nesting in range(4, 15):
        trees = told(own, nesting)
        assert len(trees) == (2 if nesting > 7 else 1), nesting
        assert all(tree.nesting() <= nesting for tree in trees)
    assert told(own, 3) == []
    assert told(own, growth=2.5) == []
    assert all(tree.printed_rules() <= 4 * len(own.final) for tree in told(own))
