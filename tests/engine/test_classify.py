"""hitables classify, bench classify and algorithms, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hitables import engine
from hitables.cli.main import main

RULES = """\
@10.0.0.0/8 0.0.0.0/0 0 : 65535 53 : 53 0x11/0xFF
@0.0.0.0/0 192.0.2.0/24 0 : 65535 0 : 1023 0x06/0xFF
@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x06/0xFF
"""
TRACE = "167772161 1 5000 53 17\n5 3221225985 1 80 6\n1 2 3 4 6\n1 2 3 4 17\n"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "rules").write_text(RULES)
    (tmp_path / "trace").write_text(TRACE)
    return [str(tmp_path / "rules"), str(tmp_path / "trace")]


def test_classify_writes_the_rule_of_each_packet(files: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["classify", *files, "--algorithm", "sfl(linear)", "-o", str(tmp_path / "out")]
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out").read_text().split() == ["0", "1", "2", "-1"]


def test_classify_gives_json(files: list[str]) -> None:
    done = CliRunner().invoke(
        main, ["classify", *files, "--algorithm", "linear", "--check", "--time", "--json"]
    )
    result = json.loads(done.output)
    assert result["mismatches"] == 0 and result["rules"] == 3 and result["packets"] == 4
    assert result["bytes"] > 0 and result["lookups_per_s"] > 1000
    assert 0 < result["lookup_ns"] < 1e6 and result["work"] is None


def test_classify_counts_what_searches_read(files: list[str]) -> None:
    run = ["classify", *files, "--algorithm", "flows(linear)"]
    result = json.loads(CliRunner().invoke(main, [*run, "--work", "--json"]).output)
    assert result["work"]["flows"]["most"] == 1, "each flow was looked up before"
    assert result["work"].keys() == {"hashes", "flows"} and result["lookup_ns"] is None
    linear = json.loads(CliRunner().invoke(main, ["classify", *files, "--work", "--json"]).output)
    assert linear["work"]["rules"] == {"mean": 9 / 4, "most": 3}, "1, 2, 3 rules, and all three"
    shown = CliRunner().invoke(main, ["classify", *files, "--work", "--time"]).output
    assert "2.2 (3) rules" in shown and "ns alone" in shown
    plan = "flows(sfl(linear, delta=5), scheme=2, buckets=77)"
    shown = CliRunner().invoke(main, ["classify", *files, "--work", "--time", "--algorithm", plan]).output
    names = (line.split("│")[1].strip() for line in shown.splitlines() if "│" in line)
    # The table may be printed in parts, each with the plan.
    assert plan.replace(" ", "") in "".join(names).replace(" ", ""), "a long plan is shown whole"


def test_bench_classify_has_a_row_for_each_plan(files: list[str]) -> None:
    done = CliRunner().invoke(
        main, ["bench", "classify", *files, "--algorithms", "linear;sfl(linear, delta=3)", "--json"]
    )
    assert [row["algorithm"] for row in json.loads(done.output)["rows"]] == ["linear", "sfl(linear, delta=3)"]


def test_algorithms_lists_every_one() -> None:
    listed = json.loads(CliRunner().invoke(main, ["algorithms", "--json"]).output)
    assert [each["name"] for each in listed["classifiers"]] == list(engine.ALGORITHMS)
    assert "auto" in listed["builders"]
    shown = CliRunner().invoke(main, ["algorithms"]).output
    assert all(name in shown for name in engine.ALGORITHMS)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("linea", "did you mean linear?"),
        ("sfl", "wraps one other"),
        ("sfl(linear, delta=-1)", "whole number"),
        ("sfl(linear, delta=2000000)", "delta must lie in"),
        ("storm(linear, window=5)", "a window of 5 samples never fills a cache of 20 rules: widen it"),
    ],
)
def test_plans_that_cannot_be_are_refused(files: list[str], algorithm: str, message: str) -> None:
    done = CliRunner().invoke(main, ["classify", *files, "--algorithm", algorithm])
    assert done.exit_code == 2 and message in done.output


def test_a_limit_of_memory_that_is_too_small_is_said(files: list[str]) -> None:
    Path(files[0]).write_text(RULES * 10_000)
    done = CliRunner().invoke(main, ["classify", *files, "--max-memory", "1M", "--algorithm", "sfl(linear)"])
    assert done.exit_code == 2 and "do not fit" in done.output
