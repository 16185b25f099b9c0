"""A deadline passes by the wall or by the processor, whichever comes first; the prover keeps both."""

from __future__ import annotations

import time

import pytest
from support.small_programs import DROPS, program, rule, source

from hitables.verify import exact
from hitables.verify.deadline import LEAST, Deadline, TimeIsUp
from hitables.verify.question import Equal, Question, Undecided

MANY = program(*(rule(source(at, at + 60), DROPS) for at in range(0, 241, 3)))
ONE = program(rule(source(0, 300), DROPS))


def test_without_limits_it_never_passes() -> None:
    assert Deadline().left() == (0.0, 0.0)
    assert not Deadline().is_over()


def test_sleep_takes_time_of_the_wall_alone() -> None:
    by_wall, by_processor = Deadline(0.01), Deadline(None, 5.0)
    time.sleep(0.02)
    assert by_wall.is_over() and not by_processor.is_over()
    assert by_wall.left() == (LEAST, 0.0)
    wall, processor = by_processor.left()
    assert wall == 0.0 and 0.0 < processor <= 5.0
    with pytest.raises(TimeIsUp):
        by_wall.tick()


def test_computing_takes_time_of_the_processor() -> None:
    deadline = Deadline(None, 0.01)
    while not deadline.is_over():
        sum(range(1000))
    assert deadline.left() == (0.0, LEAST)


@pytest.mark.engine
@pytest.mark.parametrize("limits", [{"timeout": 1e-6}, {"processor": 1e-6}], ids=["wall", "processor"])
def test_a_proof_without_time_is_undecided(limits: dict[str, float]) -> None:
    assert isinstance(exact.check(MANY, ONE, Question()), Equal)
    answer = exact.check(MANY, ONE, Question(**limits))  # type: ignore[arg-type]
    assert isinstance(answer, Undecided)
    assert "time" in answer.reason
