"""The benchmark of growth: its rule sets grow, its fits are right, and a goal that is missed is reported."""

from __future__ import annotations

import pytest

import hitables
from benchmarks.cliffs import exponents, grown, measured, missed, table
from benchmarks.cliffs_inputs import AXES

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("axis", AXES)
def test_each_axis_gives_a_rule_set_that_grows_and_is_always_the_same(axis: str) -> None:
    texts = [AXES[axis](size) for size in (200, 2000)]
    few, many = (hitables.read(text).rule_count() for text in texts)
    assert 0 < few < many
    assert AXES[axis](200) == texts[0]


def test_an_exponent_is_fitted_to_the_points_that_count() -> None:
    points = [
        {"size": size, "cpu_s": 1e-6 * size**2, "mb": 1e-3 * size} for size in (100, 1000, 10_000, 100_000)
    ]
    points[0] = {"size": 100, "cpu_s": 0.05, "mb": 9.0}
    assert exponents(points) == {"time": 2.0, "memory": 1.0}
    assert exponents(points[:1]) == {"time": None, "memory": None}


def test_goals_that_are_missed_are_named() -> None:
    good = {
        "axis": "rules",
        "command": "read",
        "time": 1.0,
        "memory": None,
        "points": [{"size": 1, "mb": 1.0}],
    }
    assert missed([good]) == []
    assert missed([{**good, "time": 1.4}]) == ["read by rules: exponent 1.4 of time, the goal is 1.3"]
    failed = {**good, "points": [{"size": 1000, "failed": "not done after 5 s"}]}
    assert missed([failed]) == ["read by rules, 1,000: not done after 5 s"]
    assert "17,000 MB" in missed([{**good, "points": [{"size": 1, "mb": 17_000}]}])[0]


def test_a_command_that_fails_or_takes_too_long_is_recorded() -> None:
    def fail() -> None:
        raise ValueError("no")

    def busy() -> None:
        while True:
            pass

    assert measured(fail, 5) == {"failed": "ValueError: no"}
    assert measured(busy, 1) == {"failed": "not done after 1 s"}


def test_a_run_measures_every_command_at_every_size() -> None:
    lines = grown(["returns"], ["read", "compile", "check"], (20, 40), 30)
    assert [(line["command"], [point["size"] for point in line["points"]]) for line in lines] == [
        ("read", [20, 40]),
        ("compile", [20, 40]),
        ("check", [20, 40]),
    ]
    assert all(point["cpu_s"] >= 0 and point["mb"] >= 0 for line in lines for point in line["points"])
    assert "| returns | 40 |" in table(lines)
