"""The simulator of SFL's evaluation: what it counts was classified and updated, whatever the time allows."""

from __future__ import annotations

import numpy as np
import pytest

from hitables import engine
from hitables.core.update_run import UpdateRun, update_run
from hitables.engine import Layout, Rules
from hitables.errors import DatabaseError

LAYOUT = Layout((16, 16))
COUNT = 12


def rules(first: int, count: int) -> Rules:
    lows = np.random.default_rng(first + 1).integers(0, 60_000, (count, 2)).tolist()
    return Rules.of_ranges(
        [[(x, x + 3000), (y, y + 3000)] for x, y in lows], LAYOUT, range(first, first + count)
    )


HEADERS = np.random.default_rng(3).integers(0, 65_536, (700, 2)).astype(np.uint32)


def run(db: engine.Database, updates: Rules, insert: bool, seconds: float = 0.2) -> UpdateRun:
    return update_run(db.opened(), HEADERS, insert, updates.boxes, updates.priority, seconds, 4, "the plan")


@pytest.mark.parametrize("insert", [True, False])
@pytest.mark.parametrize("plan", ["linear", "tss", "classic(rfc)", "sfl(rfc, delta=3, background=2)"])
def test_the_updates_that_are_counted_are_in_force(plan: str, insert: bool) -> None:
    start, added = rules(0, 60), rules(100, COUNT)
    changed = added if insert else Rules(LAYOUT, start.boxes[:COUNT], start.priority[:COUNT])
    with engine.open(plan, start) as db:
        result = run(db, changed, insert)
        applied = abs(len(db) - 60)
        # One update may end after the time, and is not counted.
        assert result.done <= applied <= min(COUNT, result.done + 1)
        assert result.ticks.shape == (4,) and int(result.ticks.sum()) <= result.processed
        with engine.open("linear", start) as linear:
            for number in range(applied):
                if insert:
                    linear.insert([(int(a), int(b)) for a, b in added.boxes[number]], 100 + number)
                else:
                    linear.remove(number)
            assert (db.search(HEADERS) == linear.search(HEADERS)).all()
        assert result.rebuilds == (
            applied if plan.startswith("classic") else applied // 4 if plan.startswith("sfl") else 0
        )


def test_a_run_without_updates_classifies() -> None:
    with engine.open("linear", rules(0, 5)) as db:
        result = run(db, Rules(LAYOUT, np.empty((0, 2, 2), np.uint32), np.empty(0, np.uint32)), True)
        assert result.done == 0 and result.processed % 512 == 0


def test_an_update_that_is_refused_ends_the_run_with_the_reason() -> None:
    with engine.open("tss", rules(0, 200)) as db:
        with pytest.raises(DatabaseError, match="a priority that is there already"):
            run(db, rules(0, 200), True, 20)
        with pytest.raises(DatabaseError, match="removes a rule that is not there"):
            run(db, rules(200, 200), False, 20)


def test_an_interrupt_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from hitables.core import classifiers

    def interrupted(call: object, stop: object, *, short: bool) -> int:
        assert not short
        stop()  # type: ignore[operator]
        return call()  # type: ignore[operator, no-any-return]

    with engine.open("tss", rules(0, 5)) as db:
        monkeypatch.setattr(classifiers, "stoppable", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(db, rules(100, 1), True, 60)
