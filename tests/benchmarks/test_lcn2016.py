"""The protocol of the SFL paper, in small: updates are right while they are measured, nothing is measured twice."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import lcn2016, lcn2016_growth, lcn2016_tables
from benchmarks.confidence import spread
from benchmarks.lcn2016 import Protocol, never_rebuilt, over_delta, table_two
from benchmarks.lcn2016_sets import FORMS, KINDS, PLANS, Workload
from benchmarks.record.lcn2016 import whole_durations
from hitables import engine

TINY = Protocol(
    sets=1,
    seconds=0.01,
    counts=(10,),
    asked=(10,),
    deltas=(0, 5, 20),
    our_deltas=(0, 20),
    durations=(0.01,),
    issued=10,
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of 60 rules and 500 packets."""

    def workload(number: int, more: int = 0, *rest: Any) -> Workload:
        return Workload(number, more, 500, 60)

    monkeypatch.setattr(lcn2016, "workload", workload)
    monkeypatch.setattr(lcn2016_growth, "workload", workload)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_updates_that_are_timed_leave_the_right_rules(plan: str, kind: str) -> None:
    work = Workload(1, 20, 2000, 100)
    with (
        engine.open(lcn2016_growth.unbuilt(plan), work.rules) as db,
        engine.open("linear", work.rules) as linear,
    ):
        for each in (db, linear):
            assert lcn2016_growth.timed_updates(each, work, kind, 20) > 0
        assert (db.search(work.headers) == linear.search(work.headers)).all()
        assert len(db) == (120 if kind == "insert" else 80)
        assert db.rebuilds == (20 if plan.startswith("classic") else 0)


def test_a_run_of_all_parts_has_every_row_and_a_second_one_measures_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lcn2016, "SHORT", TINY)
    monkeypatch.setattr(lcn2016_growth, "SIZES", (40, 50, 60))
    path = tmp_path / "sfl.json"
    arguments = ["--short", "-o", str(path), "--only", "figure5", "table2", "deltas"]
    lcn2016.main(arguments)
    assert "minutes on an idle machine" in capsys.readouterr().out
    data = json.loads(path.read_text())
    assert {(row["plan"], row["kind"]) for row in data["figure5"]} == {(p, k) for p in PLANS for k in KINDS}
    assert {(row["plan"], row["kind"]) for row in data["table2"]} == {(p, k) for p in PLANS for k in KINDS}
    # (3 + 2 deltas) × 3 classifiers × 2 kinds, but RFC without SFL is in both forms.
    assert len(data["deltas"]) == 28
    assert {row["delta"] for row in data["deltas"] if row["form"] == "ours"} == {0, 20}
    for part in ("figure5", "table2", "deltas"):
        assert {"machine", "parameters"} <= set(data["runs"][part])

    def none(*of: object) -> None:
        raise AssertionError(f"measured again: {of}")

    monkeypatch.setattr(lcn2016, "simulated", none)
    monkeypatch.setattr(lcn2016, "timed_updates", none)
    lcn2016.main(arguments)
    assert json.loads(path.read_text()) == data
    with pytest.raises(AssertionError, match="measured again"):
        lcn2016.main([*arguments, "--again"])
    with pytest.raises(AssertionError, match="measured again"):
        lcn2016.main([*arguments, "--sets", "2"])


def test_a_run_that_was_ended_goes_on_where_it_was() -> None:
    rows = list(table_two(TINY, []))
    assert list(table_two(TINY, rows)) == []
    (left,) = table_two(TINY, rows[:3] + rows[4:])
    assert (left["plan"], left["kind"]) == (rows[3]["plan"], rows[3]["kind"])


def test_delta_zero_is_the_classifier_without_sfl() -> None:
    rows = list(over_delta(TINY, []))
    assert {row["plan"] for row in rows if row["delta"] == 0} == {
        plans[inner] for plans in FORMS.values() for inner in ("hypersplit", "rfc", "bit_vector")
    }
    for row in rows:
        spec = engine.AlgorithmSpec.read(row["plan"])
        if row["delta"]:
            assert spec.algorithm.name == "sfl" and spec.values[0] == row["delta"]


def test_figures_7_and_8_go_set_by_set_and_over_many_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is stopped leaves rows of as many sets each; another day goes on with the next set."""
    seen: list[int] = []
    real = lcn2016.simulate

    def stopped(plan: str, work: Any, kind: str, count: int, seconds: float) -> Any:
        if len(seen) == 17:
            raise KeyboardInterrupt
        seen.append(1)
        return real(plan, work, kind, count, 0.01)

    monkeypatch.setattr(lcn2016, "simulate", stopped)
    path = tmp_path / "sfl.json"
    few = ["--short", "--only", "deltas", "--deltas", "0", "10", "--forms", "ours", "--sets", "2"]
    with pytest.raises(KeyboardInterrupt):
        lcn2016.main([*few, "-o", str(path)])
    data = json.loads(path.read_text())
    # 2 deltas × 3 classifiers × 2 kinds, then five of the second set.
    assert [len(row["rebuilds"]) for row in data["deltas"]] == [1] * 7 + [2] * 5
    first = {lcn2016.delta_key(row): row for row in data["deltas"]}
    data["runs"]["deltas"]["machine"]["date"] = "2020-02-02"
    release = data["runs"]["deltas"]["machine"]["kernel"].partition("-")[0]
    data["runs"]["deltas"]["machine"]["kernel"] = f"{release}-other"
    path.write_text(json.dumps(data))
    seen.clear()
    lcn2016.main([*few, "-o", str(path)])
    data = json.loads(path.read_text())
    assert len(seen) == 7 and [len(row["done"]["runs"]) for row in data["deltas"]] == [2] * 12
    for row in data["deltas"]:
        assert row["millions"]["runs"][0] == first[lcn2016.delta_key(row)]["millions"]["runs"][0]
    assert data["runs"]["deltas"]["since"] == "2020-02-02"


def test_a_row_with_more_updates_than_delta_and_no_rebuild_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row: dict[str, Any] = {
        "plan": "sfl(rfc)", "kind": "insert", "updates": 100, "seconds": 10.0, "done": spread([21, 15]),
        "rebuilds": [1, 0], "millions": spread([1.0, 2.0]), "ticks": [1],
    }  # fmt: skip
    assert never_rebuilt({"table2": [row]}) == []
    wrong = row | {"rebuilds": [0, 0]}
    (message,) = never_rebuilt({"table2": [wrong]})
    assert "sfl(rfc), 100 × insert in 10 s, set 1: 21 updates done with a delta of 20" in message
    assert never_rebuilt({"deltas": [wrong | {"delta": 25}]}) == []
    assert len(never_rebuilt({"deltas": [wrong | {"delta": 10}]})) == 2
    assert never_rebuilt({"table2": [wrong | {"plan": "classic(rfc)"}]}) == []
    monkeypatch.setattr(lcn2016, "table_two", lambda protocol, known: iter([wrong]))
    with pytest.raises(SystemExit, match="A was never built again"):
        lcn2016.main(["--short", "--only", "table2", "-o", str(tmp_path / "sfl.json")])


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--sets", "0"], "at least one"), (["--seconds", "0"], "no time"), (["--deltas", "-5"], "from 0")],
)
def test_options_that_make_no_run_are_refused(options: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        lcn2016.main(options)


def test_an_interval_is_that_of_student() -> None:
    """Of the textbook: 3 values of mean 2 and deviation 1: 2.92 / sqrt(3)."""
    assert spread([1.0, 2.0, 3.0])["interval"] == pytest.approx(1.686, abs=1e-3)
    assert spread([5.0]) == {"mean": 5.0, "interval": None, "runs": [5.0]}
    assert spread([4.0] * 40)["interval"] == 0


def test_exponents_are_fitted() -> None:
    sizes = [10, 20, 40, 80]
    assert lcn2016_growth.exponent(sizes, [7.0 * size**2 for size in sizes]) == pytest.approx(2)
    assert lcn2016_growth.exponent(sizes, [3.0] * 4) == pytest.approx(0)
    assert lcn2016_growth.exponent(sizes, [1.0, 0.0, 1.0, 2.0]) is None
    assert lcn2016_growth.exponent(sizes[:2], [1.0, 2.0]) is None


def test_growth_has_a_row_for_each_case_and_says_why_a_series_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(np.arange(0, 1e6, 100.0).tolist())  # each build takes too long
    monkeypatch.setattr(lcn2016_growth.time, "perf_counter", lambda: next(clock))
    row = lcn2016_growth.over_rules("tss", "acl", (30, 40), 1)
    assert row["sizes"] == [30] and "a build took 100 s" in row["ended"] and row["exponents"]["spawn"] is None
    monkeypatch.undo()
    monkeypatch.setattr(lcn2016_growth, "MOST", 50_000)
    row = lcn2016_growth.over_rules("linear", "acl", (100, 200, 4000), 1)
    assert row["sizes"] == [100, 200] and row["ended"].startswith("4000 rules: linear")


def test_the_searches_of_deleted_rules_are_of_deleted_rules() -> None:
    row = lcn2016_growth.over_deleted("sfl(hypersplit)", "acl", (50, 60), 2)
    assert row["case"] == "deleted" and [len(times) for times in row["seconds"]["classify"]] == [2, 2]
    row = lcn2016_growth.over_pending("sfl(hypersplit)", "acl", (2, 4, 8), 1)
    assert len(row["seconds"]["update"][0]) == 3 and "ns_per_rule" in row


def test_tables_show_what_was_measured_and_the_papers_figures() -> None:
    rows = [
        {"plan": plan, "kind": kind, "updates": 100, "seconds": 1.0, "millions": spread([4.0, 6.0]),
         "done": spread([99, 99]), "rebuilds": [4, 4], "ticks": [1]}
        for plan in PLANS for kind in KINDS
    ]  # fmt: skip
    table = lcn2016_tables.table_two(rows)
    assert "| `sfl(rfc)` | 5.00 ± 6.31 / 99.0 | 5.00 ± 6.31 / 99.0 | 43.6 / 75.7 |" in table
    assert "| `sfl(rfc)` | 1.00 | 1.00 | 1.00 | 2.73 | 18.2 |" in lcn2016_tables.claims(rows)
    assert "–" in lcn2016_tables.exponents([{"case": "rules", "plan": "linear", "seed": "acl", "ended": "x"}])


def test_the_page_shows_durations_that_are_measured_at_every_delta() -> None:
    protocol = Protocol(**{**asdict(TINY), "durations": (0.01, 0.02)})
    rows = list(over_delta(protocol, []))
    assert whole_durations(rows) == [0.01, 0.02]
    assert whole_durations(rows[:-1]) == [0.01]
