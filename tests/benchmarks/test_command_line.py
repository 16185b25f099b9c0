"""What a benchmark says, and its exit status, when it cannot go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import command_line
from hitables.errors import HitablesError

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def outcome(error: BaseException | None, program: str, monkeypatch: pytest.MonkeyPatch) -> object:
    def main() -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(sys, "argv", [program])
    with pytest.raises(SystemExit) as ended:
        command_line.run(main)
    return ended.value.code


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (None, 0, ""),
        (HitablesError("rte_acl is missing"), 2, "classifiers: rte_acl is missing\n"),
        (FileNotFoundError(2, "No such file or directory", "x.json"), 2, "classifiers: x.json: No such file or directory\n"),
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(1), 1, ""),
    ],
)  # fmt: skip
def test_what_stops_a_benchmark_is_told_in_one_message(
    error: BaseException | None,
    status: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert outcome(error, "/x/benchmarks/classifiers.py", monkeypatch) == status
    assert capsys.readouterr() == ("", told)


def test_a_package_is_named_by_its_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(HitablesError("no figures"), "/x/benchmarks/matrix/__main__.py", monkeypatch) == 2
    assert capsys.readouterr().err == "matrix: no figures\n"


@pytest.mark.parametrize("error", [OSError("what has no file"), ValueError("a fault of the benchmark")])
def test_what_nobody_explains_keeps_its_traceback(error: Exception) -> None:
    def main() -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        command_line.run(main)


def test_a_file_that_is_missing_is_told_by_the_program() -> None:
    command = [sys.executable, "-m", "benchmarks.before_after", "none", "none"]
    done = subprocess.run(command, cwd=BENCHMARKS.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "before_after: none: No such file or directory\n"


def test_every_benchmark_is_run_so() -> None:
    mains = [path for path in BENCHMARKS.rglob("*.py") if "\ndef main(" in path.read_text()]
    others = [path.name for path in mains if "    command_line.run(main)\n" not in path.read_text()]
    assert len(mains) > 40
    assert others == ["two_hosts.py"]  # ends with the benchmark that starts it
