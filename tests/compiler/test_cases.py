"""Every case in tests/cases comes out as recorded (tests/support/golden.py)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.golden import CASES, outcome, record


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_gives_the_recorded_output(case: Path) -> None:
    name, text = outcome(case)
    assert (case / name).exists(), f"{case.name} gives {name} now"
    assert text == (case / name).read_text(), "if that is meant: make golden, and a line in CHANGELOG, Output"


def test_a_case_has_one_outcome() -> None:
    for case in CASES:
        assert (case / "compiled").exists() != (case / "error").exists(), case.name


def test_recording_replaces_one_outcome_by_the_other(tmp_path: Path) -> None:
    case = tmp_path / "case"
    case.mkdir()
    (case / "rules").write_text("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp --sprot 1\nCOMMIT\n")
    assert record(case)
    assert not record(case)
    assert "--sprot" in (case / "error").read_text()
    (case / "rules").write_text("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n")
    assert record(case)
    assert sorted(path.name for path in case.iterdir()) == ["compiled", "rules"]


@pytest.mark.parametrize("option", ["--no-prove", "--no-verify"])
def test_a_case_may_not_turn_the_proof_off(option: str, tmp_path: Path) -> None:
    case = shutil.copytree(CASES[0], tmp_path / "case")
    (case / "options").write_text(option)
    with pytest.raises(ValueError, match="may not turn the proof off"):
        record(case)
