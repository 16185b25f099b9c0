"""`make evaluation` runs what has not ended, in order, and says beforehand how long it takes."""

from __future__ import annotations

import importlib
import json
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from benchmarks.record import run as evaluation
from benchmarks.record.papers import PAPERS
from benchmarks.record.run import STAGES, Done, Stage, duration

ROOT = Path(__file__).parents[2]
PASSES = "import sys; open(sys.argv[1], 'a').write(sys.argv[2])"


class Script(Stage):
    """A stage that is a script: it notes its name and whether it goes on, and fails if it is named so."""

    def command(self, short: bool, was_begun: bool) -> list[str]:
        script = f"import sys; sys.exit({3 if self.name.startswith('fails') else 0})"
        noted = f"{self.name}{'+' if was_begun else ''} "
        return [sys.executable, "-c", f"{PASSES}\n{script}", "noted", noted]


def stages(*names: str) -> list[Script]:
    return [Script(name, "", 30.0, 0.5) for name in names]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(*names: str) -> tuple[list[str], str, str]:
    """The stages that failed, what was printed, and what was run."""
    console = Console(record=True, width=200, file=open("printed", "w"))  # noqa: SIM115
    failed = evaluation.run(stages(*names), Done(Path("done.json")), False, console)
    noted = Path("noted")
    return failed, console.export_text(), noted.read_text() if noted.exists() else ""


def test_stages_run_in_order_and_the_total_time_is_said_first() -> None:
    failed, printed, noted = ran("one", "two")
    assert (failed, noted) == ([], "one two ")
    assert printed.startswith("2 of 2 stages are to be run: about 60.0 minutes.")


def test_what_has_ended_is_not_run_again_and_what_failed_goes_on() -> None:
    assert ran("one", "fails", "two")[0] == ["fails"]
    failed, printed, noted = ran("one", "fails", "two")
    assert (failed, noted) == (["fails"], "one fails two fails+ ")
    assert "1 of 3 stages are to be run" in printed
    assert "failed with exit status 3" in printed


def test_a_stage_that_was_interrupted_goes_on() -> None:
    done = Done(Path("done.json"))
    done.note("one", None)
    assert ran("one")[2] == "one+ "
    assert json.loads(Path("done.json").read_text())["one"] >= 0


def test_all_stages_have_a_benchmark_that_knows_their_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for stage in STAGES:
        monkeypatch.setattr(sys, "argv", [stage.module, "--help"])
        with pytest.raises(SystemExit) as ended:
            importlib.import_module(f"benchmarks.{stage.module}").main()
        assert not ended.value.code, stage.name
        shown = capsys.readouterr().out
        named = [*stage.options, *stage.short_options, *stage.resuming]
        assert all(option in shown for option in named if option.startswith("-")), stage.name


def test_every_file_of_the_page_is_recorded_by_a_stage() -> None:
    names = {stage.name for stage in STAGES}
    assert {source for paper in PAPERS for source in paper.sources} <= names


def test_durations_are_minutes_or_hours() -> None:
    assert (duration(0.5), duration(99), duration(120)) == ("0.5 minutes", "99.0 minutes", "2.0 hours")


def test_the_citation_file_is_yaml_and_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (cited["cff-version"], cited["title"]) == ("1.2.0", project["name"])
    assert cited["version"] == project["version"]
    assert cited["license"] == project["license"]
    assert len(cited["references"]) == 5
    assert all(each["title"] and each["authors"] for each in cited["references"])
