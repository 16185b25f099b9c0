"""An interrupt ends a command at any point, with status 130 and nothing written; none is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hitables import interrupts

RULES = (
    "*filter\n:INPUT ACCEPT [0:0]\n"
    + "".join(f"-A INPUT -s 10.0.{n}.0/24 -p tcp -m tcp --dport {n + 1} -j DROP\n" for n in range(40))
    + "COMMIT\n"
)

# The tests may run with SIGINT ignored: shells ignore it for jobs in the background.
WITH_SIGINT = """
import signal, sys
from hitables.start import hitables
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[0] = "hitables"
"""
COMMAND = "hitables()"

# SIGINT arrives when Python calls a function for the N-th time; with N = 0 the number of calls is printed.
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

# SIGINT arrives in the N-th call that Python makes at the end of an import; Python swallows exceptions there.
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
    """Either nothing is written and the status is 130, or everything was written before."""
    output = tmp_path / "output"
    command = ["compile", rules, "-o", output]
    whole = python(WITH_SIGINT + AT_CALL + COMMAND, 0, *command)
    assert whole.returncode == 0
    calls, written = int(whole.stderr), output.read_text()
    for share in (0.001, 0.1, 0.4, 0.7, 0.95):
        output.unlink(missing_ok=True)
        done = python(WITH_SIGINT + AT_CALL + COMMAND, max(1, int(share * calls)), *command)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "hitables: interrupted\n"), share
        assert not output.exists() or output.read_text() == written


@pytest.mark.parametrize("number", [1, 20, 200])
def test_an_interrupt_that_python_swallows_is_repeated(rules: Path, tmp_path: Path, number: int) -> None:
    done = python(WITH_SIGINT + AT_IMPORT + COMMAND, number, "compile", rules, "-o", tmp_path / "output")
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


def test_nothing_is_written_after_an_interrupt(rules: Path, tmp_path: Path) -> None:
    done = python(WITH_SIGINT + SWALLOWED + COMMAND, "compile", rules, "-o", tmp_path / "output")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hitables: interrupted\n")
    assert os.listdir(tmp_path) == ["rules"]


# Python 3.11 makes a RuntimeError of what __set_name__ raises.
TURNED = """
class Named:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGINT)
def make():
    class Owner:
        named = Named()
"""
IN_COMMAND = """
from hitables import files
files.write_texts = lambda texts: make()
hitables()
"""
WHILE_LOADING = """
from hitables import interrupts
interrupts.run("hitables", make)
"""


@pytest.mark.parametrize("place", [IN_COMMAND, WHILE_LOADING], ids=["in a command", "while loading"])
def test_an_interrupt_that_python_turns_into_another_error_is_one(
    rules: Path, tmp_path: Path, place: str
) -> None:
    done = python(WITH_SIGINT + TURNED + place, "compile", rules, "-o", tmp_path / "output")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hitables: interrupted\n")


BEHIND = """
import atexit, os
atexit.register(os.kill, os.getpid(), signal.SIGINT)
"""


def test_an_interrupt_after_the_end_changes_neither_output_nor_status(rules: Path) -> None:
    done = python(WITH_SIGINT + BEHIND + COMMAND, "compile", rules)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.endswith("COMMIT\n")
    refused = python(WITH_SIGINT + BEHIND + COMMAND, "compile", "--chain", "NOPE", rules)
    assert refused.returncode == 2 and "no chain NOPE" in refused.stderr


PARSED = """
import click
def parse_args(*given):
    signal.raise_signal(signal.SIGINT)
click.Command.parse_args = click.Group.parse_args = parse_args
"""


@pytest.mark.parametrize("program", ["hitables", "sflgen"])
def test_an_interrupt_while_arguments_are_parsed_ends_the_command(program: str) -> None:
    done = python(
        WITH_SIGINT + PARSED + f"from hitables.start import {program}\nsys.argv[0] = '{program}'\n{program}()"
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", f"{program}: interrupted")


def test_an_interrupt_that_was_ignored_stays_ignored(rules: Path) -> None:
    """nohup, and a shell that starts a command in the background, make the command ignore it."""
    done = python(
        WITH_SIGINT.replace("signal.default_int_handler", "signal.SIG_IGN") + AT_CALL + COMMAND,
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
def test_an_interrupt_ends_the_work_in_a_namespace() -> None:
    """A terminal sends it to both processes, and neither waits for the other."""
    done = subprocess.run(
        [sys.executable, "-c", HELPED], capture_output=True, text=True, check=False, start_new_session=True
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


# SIGINT arrives when the build of a classifier begins; what the build then returns is printed unless it was
# stopped.
BUILDING = """
import os
from hitables.core import classifiers
def stoppable(call, stop, *, short, real=classifiers.stoppable):
    def interrupted():
        os.kill(os.getpid(), signal.SIGINT)
        status = call()
        if status != classifiers.lib.VFDB_STOPPED:
            print("built:", status, flush=True)
        return status
    return real(interrupted, stop)
classifiers.stoppable = stoppable
"""


def crossing(lines: int) -> str:
    """Filters by source, and as many by destination: a tree of all their crossings takes seconds to build."""
    net = [f"{n // 256 + 1}.{n % 256}.0.0/16" for n in range(lines)]
    tail = "0 : 65535\t{0} : {0}\t0x06/0xFF\n"
    return "".join(
        f"@{each}\t0.0.0.0/0\t{tail.format(n % 50)}@0.0.0.0/0\t{each}\t{tail.format(n % 70)}"
        for n, each in enumerate(net)
    )


def test_an_interrupt_while_a_classifier_is_built_ends_the_command(tmp_path: Path) -> None:
    filters, packets = tmp_path / "filters", tmp_path / "packets"
    filters.write_text(crossing(3000))
    packets.write_text("1\t2\t3\t4\t6\n")
    command = ["classify", "--algorithm", "hypersplit(leaf=1)", filters, packets]
    done = python(WITH_SIGINT + BUILDING + COMMAND, *command)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hitables: interrupted\n")


def test_an_interrupt_while_a_server_builds_its_classifier_ends_it(tmp_path: Path) -> None:
    filters, socket = tmp_path / "filters", tmp_path / "socket"
    filters.write_text(
        "".join(
            f"{n} allow src {n // 256 + 1}.{n % 256}.0.0/16 dport {n % 50}\n"
            f"{n + 3000} allow dst {n // 256 + 1}.{n % 256}.0.0/16 dport {n % 70}\n"
            for n in range(3000)
        )
    )
    command = ["filters", "serve", "--algorithm", "hypersplit(leaf=1)", "--socket", socket, filters]
    done = python(WITH_SIGINT + BUILDING + COMMAND, *command)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hitables: interrupted\n")
    assert not socket.exists()


@pytest.fixture
def sigint_handled() -> Iterator[None]:
    """This process handles SIGINT during a test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def to_the_process() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def to_the_working_thread() -> None:
    """The system may choose any thread; the main thread, which waits, is then not woken."""
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


@pytest.mark.usefixtures("sigint_handled")
@pytest.mark.parametrize("interrupt", [to_the_process, to_the_working_thread])
def test_a_thread_has_ended_when_the_interrupt_is_raised(interrupt: Callable[[], None]) -> None:
    stopped, last = threading.Event(), []

    def work() -> None:
        interrupt()
        stopped.wait()
        interrupt()  # a second one changes nothing
        last.append("ended")

    with pytest.raises(KeyboardInterrupt):
        interrupts.in_thread(work, stopped.set)
    assert last == ["ended"]


def raises() -> None:
    raise ZeroDivisionError


@pytest.mark.usefixtures("sigint_handled")
def test_a_thread_returns_its_value_or_raises_its_error() -> None:
    assert interrupts.in_thread(lambda: 5, raises) == 5
    with pytest.raises(ZeroDivisionError):
        interrupts.in_thread(raises, raises)


def test_a_forked_process_has_a_thread_of_its_own() -> None:
    assert interrupts.in_thread(os.getpid, raises) == os.getpid()
    child = os.fork()
    if not child:
        os._exit(interrupts.in_thread(lambda: 7, raises))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.usefixtures("sigint_handled")
def test_delayed_interrupts_are_handled_at_the_end() -> None:
    events: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: events.append("term"))
    try:
        with pytest.raises(KeyboardInterrupt), interrupts.deferred():
            signal.raise_signal(signal.SIGINT)
            events.append("after the interrupt")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with interrupts.deferred():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            events.append("during the delay")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert events == ["after the interrupt", "during the delay", "term"]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
