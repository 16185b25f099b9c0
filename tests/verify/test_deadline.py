"""A deadline passes by the wall or by the processor, whichever comes first; the prover keeps both."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from support.small_programs import DROPS, program, rule, source

import hitables
from hitables.ir.program import Program
from hitables.verify import deadline, exact
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
    limit = Deadline(None, 0.01)
    while not limit.is_over():
        sum(range(1000))
    assert limit.left() == (0.0, LEAST)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The processor's time that a deadline sees."""
    now = [0.0]
    clocks = SimpleNamespace(monotonic=time.monotonic, process_time=lambda: now[0])
    monkeypatch.setattr(deadline, "time", clocks)
    return now


def test_a_part_that_ends_in_time_gives_the_next_one_as_much(clock: list[float]) -> None:
    limit = Deadline(None, 10.0, each_part=3.0)
    for now in (2.0, 4.0):
        clock[0] = now
        assert not limit.is_over()
        limit.begin_part()
    clock[0] = 7.0
    assert limit.is_over()
    limit.begin_part()
    assert limit.is_over(), "a part that took too long ends the comparison"


def test_all_parts_have_a_limit_together(clock: list[float]) -> None:
    limit = Deadline(None, 10.0, each_part=3.0)
    for now in (2.0, 4.0, 6.0, 8.0):
        clock[0] = now
        limit.begin_part()
    assert limit.left() == (0.0, 2.0)
    clock[0] = 10.0
    assert limit.is_over()


@pytest.mark.engine
def test_each_class_of_packets_is_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Deadline] = []
    real = Deadline.begin_part

    def begin(limit: Deadline) -> None:
        begun.append(limit)
        real(limit)

    monkeypatch.setattr(Deadline, "begin_part", begin)
    for one, other, classes in ((MANY, ONE, 1), (limited(), limited(), 4)):  # merged, and each by itself
        begun.clear()
        assert isinstance(exact.check(one, other, Question()), Equal)
        assert len(begun) > classes, "one part begins with the deadline"


def limited() -> Program:
    return hitables.read("*filter\n:INPUT ACCEPT\n-A INPUT -p tcp --dport 22 -m limit -j ACCEPT\nCOMMIT\n")


@pytest.mark.engine
@pytest.mark.parametrize("limits", [{"timeout": 1e-6}, {"processor": 1e-6}], ids=["wall", "processor"])
def test_a_proof_without_time_is_undecided(limits: dict[str, float]) -> None:
    assert isinstance(exact.check(MANY, ONE, Question()), Equal)
    answer = exact.check(MANY, ONE, Question(**limits))  # type: ignore[arg-type]
    assert isinstance(answer, Undecided)
    assert "time" in answer.reason
