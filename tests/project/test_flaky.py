"""`make flaky`: what fails in some runs only is named last, with what it takes to fail again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Fails where SIGINT is ignored, which is in every second run; the others write down their order.
TESTS = """
import os, signal
from pathlib import Path
import pytest
ORDER = Path(__file__).with_name("order")
def test_it_runs_in_the_foreground():
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
@pytest.mark.parametrize("number", range(9))
def test_order(number):
    with ORDER.open("a") as file:
        file.write(f"{number}" + os.environ["PYTHONHASHSEED"][0])
"""


def flaky(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, ROOT / "tools/flaky.py", "--logs", folder / "logs", *arguments]
    pytest = ["-p", "support.shuffled", "-p", "no:cacheprovider", folder / "test_some.py"]
    return subprocess.run([*command, *pytest], env=env, capture_output=True, text=True, check=False)


def test_what_fails_is_named_last_with_its_seeds_and_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    done = flaky(tmp_path, "--runs", "2", "--seed", "4")
    assert (done.returncode, done.stderr) == (1, "")
    name = r"\S*test_some.py::test_it_runs_in_the_foreground"
    assert re.search(rf"^{name}\n    failed in 1 of 2 runs: seeds 5\n", done.stdout, re.MULTILINE)
    assert re.search(rf"\n1 tests failed\n  {name}\n\Z", done.stdout)
    again = re.search(r"^    again: (.*)$", done.stdout, re.MULTILINE)
    assert again
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "tests")}
    failed = subprocess.run(
        ["bash", "-c", again[1]], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert failed.returncode == 1 and "1 failed, 9 passed" in failed.stdout
    orders = re.findall(r"(?:\d4){9}|(?:\d5){9}", (tmp_path / "order").read_text())
    assert len(orders) == 3 and orders[1] == orders[2], "a seed has one order"
    assert orders[0][::2] != orders[1][::2], "and others have others"


def test_where_none_fails_the_status_says_so(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    done = flaky(tmp_path, "--runs", "1", "--seed", "4")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "0 tests failed")
    done = flaky(tmp_path, "--runs", "1", "--seed", "4", "--load", "1", "--no-such-option")
    assert done.returncode == 1 and "the run itself: exit status 4" in done.stdout
