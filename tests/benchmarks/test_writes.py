"""The campaign of programs whose rules write what others read (make writes), in short."""

from __future__ import annotations

import random

import pytest

from benchmarks import writes
from hitables import read
from hitables.ir.rule import Role


def test_some_programs_through_both_engines() -> None:
    tally = writes.try_seeds(([f"short/{number}" for number in range(60)], 0.0))
    assert not tally.failures, tally.failures[0]
    assert tally.counts["programs"] == 60
    assert tally.counts["differ"] >= 15
    assert tally.counts["equal"] >= 15


@pytest.mark.needs_kernel
def test_the_kernel_contradicts_none_of_some_differences() -> None:
    tally = writes.try_seeds(([f"kernel/{number}" for number in range(10)], 1.0))
    assert not tally.failures, tally.failures[0]
    assert tally.counts["kernel: confirmed"] >= 2


def test_programs_have_what_they_are_drawn_for() -> None:
    rules = [
        rule
        for number in range(200)
        for table in read(writes.draw(random.Random(number)).before)
        for chain in table.chains
        for rule in chain.rules
    ]
    assert sum(bool(rule.writes) for rule in rules) > 200
    assert any(match.writes for rule in rules for match in rule.matches)
    assert sum(match.role is Role.CONSTANT for rule in rules for match in rule.matches) > 200


def test_equal_seeds_draw_equal_programs() -> None:
    assert writes.draw(random.Random("x")) == writes.draw(random.Random("x"))
