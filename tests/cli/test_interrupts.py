"""An interrupt ends a command wherever it comes, with 130 and nothing written; none is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hitables import interrupts

RULES = (
    "*filter\n:INPUT ACCEPT [0:0]\n"
    + "".join(f"-A INPUT -s 10.0.{n}.0/24 -p tcp -m tcp --dport {n + 1} -j DROP\n" for n in range(40))
    + "COMMIT\n"
)

# The tests may run with SIGINT ignored: shells ignore it for jobs in the background.
HEARD = """
import signal, sys
from hitables.start import hitables
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[0] = "hitables"
"""
COMMAND = "hitables()"

# SIGINT comes when Python calls a function for the N-th time; how often it calls one is told with N = 0.
AT_CALL = """
import atexit, os
at, count = int(sys.argv.pop(1)), 0
def called(frame, event, argument):
    global count
    if event == "call":
        count += 1
        if count == at:
            signal.raise_signal(signal.SIGINT)
if not at:
    atexit.register(lambda: print(count, file=sys.stderr))
sys.setprofile(called)
"""

# SIGINT comes inside the N-th call of what Python calls when an import has ended, which nothing can leave.
AT_IMPORT = """
at, count = int(sys.argv.pop(1)), 0
def called(frame, event, argument):
    global count
    if event == "call" and frame.f_code.co_name == "cb" and "importlib" in frame.f_code.co_filename:
        count += 1
        if count == at:
            signal.raise_signal(signal.SIGINT)
sys.setprofile(called)
"""


def python(code: str, *arguments: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules"
    path.write_text(RULES)
    return path


def test_an_interrupt_at_any_call_ends_the_command(rules: Path, tmp_path: Path) -> None:
    """Either nothing is written and the status is 130, or all was written before."""
    output = tmp_path / "output"
    command = ["compile", rules, "-o", output]
    whole = python(HEARD + AT_CALL + COMMAND, 0, *command)
    assert whole.returncode == 0
    calls, written = int(whole.stderr), output.read_text()
    for share in (0.001, 0.1, 0.4, 0.7, 0.95):
        output.unlink(missing_ok=True)
        done = python(HEARD + AT_CALL + COMMAND, max(1, int(share * calls)), *command)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "hitables: interrupted\n"), share
        assert not output.exists() or output.read_text() == written


@pytest.mark.parametrize("number", [1, 20, 200])
def test_an_interrupt_that_python_swallows_comes_again(rules: Path, tmp_path: Path, number: int) -> None:
    done = python(HEARD + AT_IMPORT + COMMAND, number, "compile", rules, "-o", tmp_path / "output")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hitables: interrupted\n")
    assert not (tmp_path / "output").exists()


SWALLOWED = """
from hitables import files
def write_texts(texts, real=files.write_texts):
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:  # as C code does that drops an error
        pass
    real(texts)
files.write_texts = write_texts
"""


def test_nothing_is_written_once_an_interrupt_came(rules: Path, tmp_path: Path) -> None:
    done = python(HEARD + SWALLOWED + COMMAND, "compile", rules, "-o", tmp_path / "output")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hitables: interrupted\n")
    assert os.listdir(tmp_path) == ["rules"]


BEHIND = """
import atexit, os
atexit.register(os.kill, os.getpid(), signal.SIGINT)
"""


def test_an_interrupt_behind_the_end_changes_neither_output_nor_status(rules: Path) -> None:
    done = python(HEARD + BEHIND + COMMAND, "compile", rules)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.endswith("COMMIT\n")
    refused = python(HEARD + BEHIND + COMMAND, "compile", "--chain", "NOPE", rules)
    assert refused.returncode == 2 and "no chain NOPE" in refused.stderr


PARSED = """
import click
def parse_args(*given):
    signal.raise_signal(signal.SIGINT)
click.Command.parse_args = click.Group.parse_args = parse_args
"""


@pytest.mark.parametrize("program", ["hitables", "sflgen"])
def test_an_interrupt_while_arguments_are_read_is_one(program: str) -> None:
    done = python(
        HEARD + PARSED + f"from hitables.start import {program}\nsys.argv[0] = '{program}'\n{program}()"
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", f"{program}: interrupted")


def test_an_interrupt_that_was_ignored_stays_ignored(rules: Path) -> None:
    """nohup, and a shell that runs a command in the background, ignore it for the command."""
    done = python(
        HEARD.replace("signal.default_int_handler", "signal.SIG_IGN") + AT_CALL + COMMAND,
        1000,
        "compile",
        rules,
    )
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.endswith("COMMIT\n")


HELPED = """
import os, signal, time
from hitables.kernel.namespace import Namespace
signal.signal(signal.SIGINT, signal.default_int_handler)
def busy():
    os.killpg(0, signal.SIGINT)
    time.sleep(10**6)
try:
    with Namespace() as namespace:
        namespace.call(busy)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.needs_kernel
def test_an_interrupt_ends_what_a_namespace_is_busy_with() -> None:
    """A terminal sends it to both processes; neither waits for the other."""
    done = subprocess.run(
        [sys.executable, "-c", HELPED], capture_output=True, text=True, check=False, start_new_session=True
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


@pytest.fixture
def heard() -> Iterator[None]:
    """SIGINT is heard here, too, for the length of a test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_a_thread_has_ended_when_the_interrupt_goes_on() -> None:
    told, last = threading.Event(), []

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        told.wait()
        os.kill(os.getpid(), signal.SIGINT)  # a second one changes nothing
        last.append("ended")

    with pytest.raises(KeyboardInterrupt):
        interrupts.in_thread(work, told.set)
    assert last == ["ended"]


def raises() -> None:
    raise ZeroDivisionError


@pytest.mark.usefixtures("heard")
def test_a_thread_gives_its_value_or_its_error() -> None:
    assert interrupts.in_thread(lambda: 5, raises) == 5
    with pytest.raises(ZeroDivisionError):
        interrupts.in_thread(raises, raises)


def test_a_process_that_is_forked_has_a_thread_of_its_own() -> None:
    assert interrupts.in_thread(os.getpid, raises) == os.getpid()
    child = os.fork()
    if not child:
        os._exit(interrupts.in_thread(lambda: 7, raises))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.usefixtures("heard")
def test_what_is_held_back_comes_at_the_end_the_ignored_and_the_others() -> None:
    came: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append("term"))
    try:
        with pytest.raises(KeyboardInterrupt), interrupts.deferred():
            signal.raise_signal(signal.SIGINT)
            came.append("behind")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with interrupts.deferred():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            came.append("held")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == ["behind", "held", "term"]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
