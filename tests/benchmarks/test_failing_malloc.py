"""The engine asked for what needs memory while allocations are refused: benchmarks.failing_malloc, and its judge."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext

import pytest

from benchmarks.failing_malloc import outcome, spread
from benchmarks.failing_malloc_trials import NO_MEMORY, RIGHT


def test_refused_allocations_are_said_and_change_no_answer() -> None:
    command = [sys.executable, "-m", "benchmarks.failing_malloc", "--short", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout)
    assert {"check", "diff", "lint", "compile --equivalence verdict", "plan an update"} < set(counts)
    for name, ends in counts.items():
        assert set(ends) == {RIGHT, NO_MEMORY}, name


@pytest.mark.parametrize(
    ("error", "told"), [(MemoryError(), NO_MEMORY), (IndexError("no such word"), "IndexError: no such word")]
)
def test_only_a_lack_of_memory_is_an_excuse(error: Exception, told: str) -> None:
    def trial(refusing: AbstractContextManager[None]) -> str:
        raise error

    assert outcome(trial, nullcontext()) == told


def test_few_allocations_are_refused_one_by_one_and_many_from_first_to_last() -> None:
    assert spread(1, 4) == [1]
    assert spread(4, 10) == [1, 2, 3, 4]
    assert spread(1000, 4) == [1, 334, 667, 1000]
