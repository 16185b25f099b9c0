"""A run of the prover that ends early, for want of time or of steps, leaves the next run its right answer."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from benchmarks import writes
from hitables import read
from hitables.core import prover
from hitables.core.prover import PairRun, Prover, ProveStatus
from hitables.verify import exact
from hitables.verify.question import Answer, Question

pytestmark = pytest.mark.engine
PROGRAMS = 30
AT_ONCE = 1e-9  # seconds


def answers() -> list[tuple[int, type[Answer]]]:
    """Whether each of some programs, with jumps and memories, equals itself after an edit."""
    return [
        (number, type(exact.check(read(drawn.before), read(drawn.after), Question())))
        for number in range(PROGRAMS)
        for drawn in [writes.draw(random.Random(f"early {number}"))]
    ]


def also_stopped(steps: int) -> Callable[..., ProveStatus]:
    """`Prover.run`, before which another run gives up after *steps* steps."""
    original = Prover.run

    def run(self: Prover, run: PairRun, *, strict: bool = False, short: bool = False) -> ProveStatus:
        self.bound(steps)
        original(self, run, strict=strict, short=True)
        self.bound(0)
        return original(self, run, strict=strict, short=True)

    return run


@pytest.fixture(scope="module")
def alone() -> list[tuple[int, type[Answer]]]:
    """The answers of one run each."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prover, "FEW", 0)
        return answers()


def test_a_run_after_one_without_time_answers_as_one_run_does(
    alone: list[tuple[int, type[Answer]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len({kind for _, kind in alone}) == 2
    monkeypatch.setattr(prover, "QUICK", AT_ONCE)
    assert answers() == alone


@pytest.mark.parametrize("steps", [1, 2, 4, 8, 16])
def test_a_run_after_one_without_steps_answers_as_one_run_does(
    steps: int, alone: list[tuple[int, type[Answer]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prover, "FEW", 0)
    monkeypatch.setattr(Prover, "run", also_stopped(steps))
    assert answers() == alone
