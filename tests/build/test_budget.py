"""A tree that just misses its budget is cut back to the budget, not far below it."""

from __future__ import annotations

import pytest

from hitables.analyse.boxes import Axis, Boxes, Cut
from hitables.build.expected_cost import rules_read
from hitables.build.grow import grow
from hitables.ir.fields import Field

pytestmark = pytest.mark.engine

AXES = (Axis(Field.SRC, 16, False, Cut.PREFIX), Axis(Field.DPORT, 16, False, Cut.RANGE))


def crossing(count: int) -> Boxes:
    """Rules that are narrow in one field and wide in the other, in turns: trees copy them against each other."""
    step = 2**16 // count
    rules = [[{(Field.SRC, Field.DPORT)[n % 2]: (n * step, n * step + step - 1)}] for n in range(count)]
    return Boxes.of(AXES, rules, [False] * count)


@pytest.mark.parametrize("count", [64, 128])
def test_a_larger_budget_never_reads_more(count: int) -> None:
    boxes = crossing(count)
    reads = []
    for budget in range(count, 6 * count, count // 3):
        tree = grow(boxes, algorithm="auto", budget=budget)
        assert tree.printed_rules() <= budget
        reads.append(rules_read(boxes, tree)[1])
    assert reads == sorted(reads, reverse=True)
    assert reads[-1] < reads[0] / 2


def test_size_penalties_between_one_that_exceeds_the_budget_and_its_double_are_tried() -> None:
    """The tree of the first penalty has 774 rules, that of its double 391, which read 51 on the mean."""
    boxes = crossing(128)
    tree = grow(boxes, algorithm="auto", budget=552)
    assert 450 < tree.printed_rules() <= 552
    assert rules_read(boxes, tree)[1] < 40
