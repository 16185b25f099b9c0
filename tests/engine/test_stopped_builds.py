"""A build that an interrupt stops: KeyboardInterrupt, and the memory is free; later builds are not stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NoReturn

import numpy as np
import pytest

from hitables import engine
from hitables.core import classifiers, threads
from hitables.engine import FIVE_TUPLE, Action, Filter, Filters, Rules

pytestmark = pytest.mark.engine

SINGLE = [name for name, algorithm in engine.ALGORITHMS.items() if not algorithm.wraps]
WRAPPED = [
    f"{name}({inner})"
    for name, algorithm in engine.ALGORITHMS.items()
    if algorithm.wraps
    for inner in ("linear", "hypersplit")
]
ANEW = [name for name in SINGLE if not engine.ALGORITHMS[name].updates]

ANY = (0, 65535)
RANGES = [[(n << 16, (n + 1 << 16) - 1), (0, 2**32 - 1), ANY, (n, n), (6, 6)] for n in range(20)]
RULES = Rules.of_ranges(RANGES, FIVE_TUPLE)
HEADERS = np.array([[n << 16, 0, 0, n, 6] for n in range(21)], np.uint32)


def stopped(call: Callable[[], int], stop: Callable[[], None]) -> NoReturn:
    """In place of `in_thread`: the interrupt comes before the call begins."""
    stop()
    assert call() == classifiers.lib.VFDB_STOPPED
    raise KeyboardInterrupt


@contextlib.contextmanager
def interrupted() -> Iterator[None]:
    """What the block calls is interrupted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "in_thread", stopped)
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.parametrize("plan", SINGLE + WRAPPED)
def test_a_stopped_build_is_an_interrupt_and_the_next_one_is_not_stopped(plan: str) -> None:
    """The engine asserts that a build which fails has given all its memory back."""
    with interrupted():
        engine.open(plan, RULES)
    with engine.open(plan, RULES) as db:
        assert db.search(HEADERS).tolist() == [*range(20), -1]


@pytest.mark.parametrize(
    "plan",
    [
        "sfl(hypersplit, delta=0)",
        "sfl(hypersplit, delta=1)",
        "sfl(hypersplit, delta=1, background=0)",
        "sfl(hypersplit, delta=1, background=2)",
        "classic(hypersplit)",
        "checked(sfl(hypersplit, delta=1))",
    ],
)
@pytest.mark.parametrize("updates", [0, 1])
def test_what_waits_for_a_stopped_rebuild_is_interrupted_once_and_then_it_is_built(
    plan: str, updates: int
) -> None:
    with engine.open(plan, RULES) as db:
        db._opened().plan.stop()  # before the rebuild begins, so that it cannot end in time
        db.insert(RANGES[0], 50)
        db.remove(0)
        with interrupted():
            db.settle()
        built = db.rebuilds
        for n in range(updates):
            db.insert(RANGES[0], 40 + n)
        db.settle()
        assert db.rebuilds > built
        db.settle()
        assert db.search(HEADERS).tolist() == [40 if updates else 50, *range(1, 20), -1]


@pytest.mark.parametrize("plan", [*ANEW, *(f"{name}(hypersplit)" for name in ("checked", "flows", "storm"))])
def test_an_update_whose_build_is_stopped_changes_nothing(plan: str) -> None:
    with engine.open(plan, RULES) as db:
        with interrupted():
            db.insert(RANGES[0], 50)
        with interrupted():
            db.remove(3)
        with interrupted():
            db.insert_at(2, RANGES[0])
        with interrupted():
            db.remove_at(2)
        with interrupted():
            db.update(np.array([False]), RULES.boxes[:1], np.array([4], np.uint32))
        assert len(db) == 20 and db.search(HEADERS).tolist() == [*range(20), -1]
        db.remove(3)
        assert db.search(HEADERS).tolist() == [0, 1, 2, -1, *range(4, 20), -1]


@pytest.mark.parametrize(
    ("plan", "anew"),
    [
        ("hypersplit", True),
        ("flows(checked(hypersplit))", True),
        ("classic(hypersplit)", True),
        ("storm(tss)", False),
        ("classic(tss)", False),
        ("checked(sfl(hypersplit))", False),
        ("best", False),
    ],
)
def test_an_interrupt_ends_each_update_that_builds_anew(plan: str, anew: bool) -> None:
    """The others take too little time for a thread of their own."""
    with engine.open(plan, RULES) as db:
        assert db._opened().plan.anew == anew


def test_filters_whose_build_is_stopped_are_not_open_and_an_update_changes_nothing() -> None:
    listed = [Filter(n, tuple(ranges), Action.ALLOW) for n, ranges in enumerate(RANGES)]
    with interrupted():
        Filters("hypersplit", listed)
    with Filters("hypersplit", listed) as filters:
        with interrupted():
            filters.remove(3)
        with interrupted():
            filters.insert(Filter(30, tuple(RANGES[0]), Action.DENY))
        assert filters.classify(HEADERS).priorities.tolist() == [*range(20), -1]
