"""Trees that tell packets apart by the kinds of rules that they match."""

from __future__ import annotations

import numpy as np
import pytest

from hitables.analyse.boxes import Axis, Boxes, Cut, Reorder
from hitables.build.apart import apart
from hitables.build.expected_cost import points_in
from hitables.build.grow import grow
from hitables.build.tree import Step, Tree, unsplit
from hitables.ir.fields import Field

AXES = (Axis(Field.SRC, 32, False, Cut.PREFIX), Axis(Field.DST, 32, False, Cut.PREFIX))
COUNT = 60
KINDS = list(range(0, 2 * COUNT, 2)), list(range(1, 2 * COUNT, 2))
DECIDES = int(Reorder.DEFERRABLE | Reorder.SPLITTABLE)


def boxes(seed: int, final: bool = True, reorder: int = DECIDES) -> Boxes:
    """Rules of a source and of a destination by turns; their values are few, so that packets match both."""
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 2**32 - 16, 2 * COUNT)
    rules = [
        [{(Field.SRC, Field.DST)[at % 2]: (int(first), int(first) + int(rng.integers(1, 16)))}]
        for at, first in enumerate(low)
    ]
    return Boxes.of(AXES, rules, [final] * len(rules), None, [reorder] * len(rules))


def growing(own: Boxes, nesting: int, budget: int) -> Tree:
    return grow(own, algorithm="bisect", max_nesting=nesting, budget=budget, leaf_size=2)


def told(own: Boxes, nesting: int = 14, growth: float = 4) -> Tree | None:
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
    tree = told(own)
    assert tree is not None and Step.ASK in tree.step and Step.MEET in tree.step
    packets = points(own, seed)
    (listed, _), (found, reads) = unsplit(own).search(packets), tree.search(packets)
    assert (listed == found).all() and len(set(found.tolist())) > COUNT
    assert reads.max() <= tree.longest_read() <= len(own.final) + 60
    assert reads[found < 0].mean() < 40


def test_rules_that_let_packets_pass_have_a_tree_that_is_read_once() -> None:
    own = boxes(0, final=False, reorder=int(Reorder.LATE))
    tree = told(own)
    assert tree is not None and Step.ASK not in tree.step and Step.CALL not in tree.step
    packets = points(own, 0)
    (listed, _), (found, reads) = unsplit(own).search(packets), tree.search(packets)
    assert (listed == found).all() and reads.max() <= tree.longest_read()


def test_a_packet_that_the_list_lets_return_does_not_come_back_to_a_rule() -> None:
    """RETURN may be split, but not deferred."""
    tree = told(boxes(0, reorder=int(Reorder.SPLITTABLE)))
    assert tree is not None and Step.ASK not in tree.step


def test_nesting_and_growth_are_kept() -> None:
    own = boxes(1)
    for nesting in range(4, 15):
        tree = told(own, nesting)
        assert tree is not None and tree.nesting() <= nesting
    assert told(own, 3) is None
    assert told(own, growth=2.5) is None
    tree = told(own)
    assert tree is not None and tree.printed_rules() <= 4 * len(own.final)
