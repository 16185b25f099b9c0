"""Figures 5b and 5c at saturation: the paper's quotients of the times that were measured."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest

from benchmarks import saturation
from benchmarks.intervals import mean_interval
from benchmarks.wire import Sent
from hitables.errors import HitablesError
from hitables.ir.packet import Backend

pytestmark = pytest.mark.usefixtures("small_namespaces")


def sent(ns: float, cpu_ns: float = 100.0) -> Sent:
    """A thousand packets that took so much each."""
    return Sent(ns / 1e6, 1000, 1000, 1000, cpu_ns / 1e6, ())


def test_the_speed_up_is_the_papers_quotient_with_and_without_io() -> None:
    times = {"input": 1100.0, "paper": 300.0, "tree": 100.0, "empty": 100.0}
    assert saturation.gains(times, "paper") == (1100 / 300, 1000 / 200)
    assert saturation.gains(times, "tree") == (11.0, None), "the quotient is not defined"


def test_a_point_has_mean_and_deviation_over_the_runs() -> None:
    runs = [
        {"input": sent(original), "paper": sent(200), "tree": sent(150), "empty": sent(100)}
        for original in (500, 700, 1200)
    ]
    paper, tree = saturation.points((1000, 3), runs)
    assert (paper["scheme"], tree["scheme"], paper["rules"], paper["barred"]) == ("paper", "tree", 1000, 3)
    assert paper["without_io"]["mean"] == pytest.approx(statistics.fmean([4, 6, 11]))
    assert paper["without_io"]["deviation"] == pytest.approx(statistics.stdev([4, 6, 11]))
    assert tree["with_io"]["mean"] == pytest.approx(statistics.fmean([500, 700, 1200]) / 150)
    assert paper["t_io"]["mean"] == pytest.approx(100) and paper["with_io"]["runs"] == 3
    assert paper["cpu_without_io"] is None, "by the other clock all took the same"
    assert "–" in saturation.line_of(paper)


def test_an_interval_of_ninety_per_cent_has_students_factor() -> None:
    found = mean_interval([1.0, 2.0, 3.0])
    assert found["mean"] == 2 and found["deviation"] == 1 and found["runs"] == 3
    assert found["ci90"] == pytest.approx(2.92 / 3**0.5)
    assert mean_interval([5.0]) == {"mean": 5, "deviation": None, "ci90": None, "runs": 1}
    ten, many = mean_interval([0.0, 2.0] * 5)["ci90"], mean_interval([0.0, 2.0] * 500)["ci90"]
    assert ten == pytest.approx(1.833 * statistics.stdev([0, 2] * 5) / 10**0.5)
    assert many == pytest.approx(1.645 * statistics.stdev([0, 2] * 500) / 1000**0.5)


def test_the_whole_run_takes_about_an_hour_and_the_short_one_a_minute() -> None:
    whole = [case for part in saturation.PARTS for case in saturation.cases_of(part, False)]
    assert len(whole) == 18 + 11 and whole[0] == (100, 0) and whole[17] == (3500, 0)
    assert saturation.planned(whole, 10, 2.5) < 3700
    short = [case for part in saturation.PARTS for case in saturation.cases_of(part, True)]
    assert saturation.planned(short, 2, 0.5) < 90


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend)
def test_every_rule_set_is_measured_with_the_same_packets_and_accepts_them(backend: Backend) -> None:
    runs = [saturation.measured((30, 2), run, 1, 0.05, backend) for run in range(2)]
    assert all(list(run) == ["empty", "input", "paper", "tree"] for run in runs)
    assert all(each.delivered == each.received == each.sent for run in runs for each in run.values())
    for row in saturation.points((30, 2), runs):
        assert row["with_io"]["mean"] > 0 and row["received"][0]["io"] > 0


@pytest.mark.needs_kernel
def test_a_rule_set_that_drops_packets_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = saturation.texts

    def with_a_drop(case: saturation.Case, seed: str, backend: Backend) -> tuple[dict[str, str], bytes, int]:
        found, packets, count = texts(case, seed, backend)
        return {**found, "tree": found["empty"].replace("ACCEPT", "DROP")}, packets, count

    monkeypatch.setattr(saturation, "texts", with_a_drop)
    with pytest.raises(HitablesError, match=r"20 rules, tree: of .* were delivered, and all rules accept"):
        saturation.measured((20, 0), 0, 1, 0.05, Backend.LEGACY)


def test_a_short_run_leaves_the_recorded_data_alone_and_a_resumed_one_keeps_its_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[saturation.Case] = []

    def measured(case: saturation.Case, *others: object) -> dict[str, Sent]:
        asked.append(case)
        return {
            name: sent(ns) for name, ns in zip(("empty", "input", "paper", "tree"), (1, 9, 3, 2), strict=True)
        }

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(saturation, "OUTPUT", tmp_path / "recorded.json")
    monkeypatch.setattr(saturation, "measured", measured)
    monkeypatch.setattr(saturation, "draw", lambda *of: None)
    for options, cases in ((["--only", "barred"], 2), (["--resume"], 3), (["--resume"], 0)):
        asked.clear()
        monkeypatch.setattr(sys, "argv", ["saturation", "--short", *options])
        saturation.main()
        assert len(set(asked)) == cases
    assert not (tmp_path / "recorded.json").exists()
    assert "3 points × 2 runs" in capsys.readouterr().out
