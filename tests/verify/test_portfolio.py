"""Two proof engines in turn: the second runs where the first takes long."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.small_programs import DROPS, LOG, program, rule, source

from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.verify import bdd, exact, portfolio
from hitables.verify.question import Answer, Difference, Equal, Question, Undecided

pytestmark = pytest.mark.engine
ONE = program(rule(source(0, 9), DROPS))
OTHER = program(rule(source(0, 9), LOG))
GIVES_UP = Undecided("out of time", "filter", "INPUT", Backend.LEGACY, 0.5)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float | None]]:
    """Which engine was asked, and its limit by the wall; exact.py gives up while it has a limit of its own."""
    log: list[tuple[str, float | None]] = []
    real = exact.check, bdd.check

    def one(before: Program, after: Program, question: Question, **more: object) -> Answer:
        log.append(("exact", question.timeout))
        return real[0](before, after, question) if question.processor is None else GIVES_UP

    def two(before: Program, after: Program, question: Question) -> Answer:
        log.append(("diagrams", question.timeout))
        return real[1](before, after, question)

    monkeypatch.setattr(portfolio, "exact", SimpleNamespace(check=one))
    monkeypatch.setattr(bdd, "check", two)
    return log


def test_the_first_engine_answers_alone_when_it_can() -> None:
    assert portfolio.check(ONE, ONE, Question()) == exact.check(ONE, ONE, Question())
    assert isinstance(portfolio.check(ONE, OTHER, Question()), Difference)


def test_diagrams_run_where_the_first_engine_takes_long(asked: list[tuple[str, float | None]]) -> None:
    assert isinstance(portfolio.check(ONE, ONE, Question()), Equal)
    assert [name for name, _ in asked] == ["exact", "diagrams"]
    assert isinstance(portfolio.check(ONE, OTHER, Question()), Difference)


def test_without_the_library_the_first_engine_has_all_the_time(
    asked: list[tuple[str, float | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portfolio, "_has_diagrams", lambda: False)
    assert isinstance(portfolio.check(ONE, ONE, Question()), Equal)
    assert asked == [("exact", None)]


def test_the_users_limit_is_kept(asked: list[tuple[str, float | None]]) -> None:
    assert isinstance(portfolio.check(ONE, ONE, Question(timeout=1e-6)), Undecided)
    assert all(limit is not None and limit <= 1e-6 for _, limit in asked)


def test_a_turn_ends_by_the_time_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs besides takes time of the wall alone: it changes neither the engine nor its memory."""
    limits: list[tuple[float | None, float | None, float | None]] = []
    real = exact.check

    def one(before: Program, after: Program, question: Question, **more: object) -> Answer:
        limits.append((question.timeout, question.processor, question.each_class))
        return real(before, after, question)

    monkeypatch.setattr(portfolio, "exact", SimpleNamespace(check=one))
    assert isinstance(portfolio.check(ONE, ONE, Question()), Equal)
    ((wall, processor, each_class),) = limits
    assert wall is None
    assert each_class is not None and each_class >= portfolio.FIRST
    assert processor is not None and processor > each_class, (
        "classes that are proved in time give time to others"
    )
