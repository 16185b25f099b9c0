"""The protocol of the SFL paper, in small: updates are right while they are measured, and figures come of data."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import lcn2016
from benchmarks.figures import lcn2016 as figures
from benchmarks.lcn2016 import Classic, Workload, exponents, simulate, updates
from hitables import engine


@pytest.mark.parametrize("plan", ["linear", "rfc", "sfl(rfc)"])
@pytest.mark.parametrize("kind", ["insert", "delete"])
def test_the_updates_that_are_timed_leave_the_right_rules(plan: str, kind: str) -> None:
    work = Workload(1, 20, 2000, 100)
    db, linear = Classic(plan, work.rules), Classic("linear", work.rules)
    for target in (db, linear):
        for update in updates(work, target, kind, 20):
            update()
    result, wanted = np.empty((2, 2000), np.int32)
    db.search(work.headers, result)
    linear.search(work.headers, wanted)
    assert (result == wanted).all()
    assert len(db.fast) == (120 if kind == "insert" else 80)


def test_an_algorithm_that_is_being_built_again_is_stood_in_for_by_linear_search() -> None:
    work = Workload(2, 1, 500, 50)
    db = Classic("rfc", work.rules)
    with engine.open("linear", work.rules) as linear:
        result = np.empty(500, np.int32)
        db.stale = True
        db.search(work.headers, result)
        assert (result == linear.search(work.headers)).all()


def test_four_threads_classify_and_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over when an update and a batch are done, whenever that is."""
    updated, classified = threading.Event(), threading.Event()

    def reported(*arguments: Any) -> Iterator[Callable[[], None]]:
        for number, each in enumerate(updates(*arguments)):
            if number:  # the one before is counted
                updated.set()
            yield each

    class Told(Classic):
        batches = 0

        def search(self, headers: Any, result: Any) -> None:
            Told.batches += 1
            if Told.batches > 1:
                classified.set()
            super().search(headers, result)

    monkeypatch.setattr(lcn2016, "updates", reported)
    monkeypatch.setattr(lcn2016, "Classic", Told)
    monkeypatch.setattr(lcn2016.time, "sleep", lambda seconds: updated.wait() and classified.wait())
    run = simulate("sfl(rfc)", Workload(3, 5, 20_000, 100), "insert", 5, 0.5)
    assert run["processed"] > 0 and 0 < run["done"] <= 5 and sum(run["ticks"]) <= run["processed"]


def test_the_figures_are_drawn_from_the_data_alone(tmp_path: Path) -> None:
    rows = [
        {
            "algorithm": name,
            "kind": kind,
            "updates": count,
            "seconds": 1.0,
            "ns": 2.0,
            "millions": 3.0,
            "done": 9,
            "ticks": [1, 2],
        }
        for name in figures.PAPER
        for kind in ("insert", "delete")
        for count in (10, 100, 300, 600)
    ]
    over = [
        {"algorithm": "rfc", "kind": kind, "delta": 5, "millions_per_s": 1.0, "done": 3}
        for kind in ("insert", "delete")
    ]
    fitted = [{"algorithm": "rfc", "exponents": {"spawn": 1.0, "update": 1.0, "classify": 0.0}}]
    data = {"seconds": 1.0, "figure5": rows, "table2": rows, "figure7": over, "table1": fitted}
    figures.draw(data, tmp_path)
    figures.show(data)
    assert "<svg" in (tmp_path / "sfl.svg").read_text()


def test_exponents_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that counts the rules of a list that is read: its exponent is 1, that of what reads none is 0."""
    clock = [0.0]

    class Counted(Classic):
        def search(self, headers: Any, result: Any) -> None:
            super().search(headers, result)
            clock[0] += len(self.fast)

    monkeypatch.setattr(lcn2016, "Classic", Counted)
    monkeypatch.setattr(lcn2016, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(lcn2016, "ALL", ("linear",))
    fitted = exponents(lambda stage: None)[0]["exponents"]
    assert fitted["classify"] == pytest.approx(1.0, abs=0.05)
    assert fitted["spawn"] == pytest.approx(0.0, abs=1e-6)
