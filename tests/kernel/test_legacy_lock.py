"""Counters of legacy tables are read only while no tool is between its two steps."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.small_namespace import Namespace

import hitables.kernel.legacy_lock as legacy_locks
from hitables import interrupts
from hitables.apply.kernel import Kernel
from hitables.apply.load import RuleSetChange, Wanted, perform
from hitables.apply.texts import TextChain, TextRule
from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel import checked_save
from hitables.kernel.legacy_lock import can_be_held_for, is_held, legacy_lock
from hitables.kernel.load_save import load
from hitables.kernel.namespace import run
from sflgen.kernel import Kernel as PatchedKernel
from sflgen.settings import Settings

pytestmark = pytest.mark.needs_kernel

RULES = "*filter\n:INPUT ACCEPT [0:0]\n[50:500] -A INPUT -s 10.0.0.1/32 -j DROP\nCOMMIT\n"


def read_to_apply() -> object:
    return Kernel(Family.IPV4, Backend.LEGACY).read()


def read_with_a_check() -> object:
    return checked_save.KernelReader(Family.IPV4, "iptables-legacy").read(counters=True)


def read_for_a_patch() -> object:
    kernel = PatchedKernel(Family.IPV4, Settings(backend="legacy"))
    return kernel.counters({("filter", "INPUT")})


READERS = [read_to_apply, read_with_a_check, read_for_a_patch]


def read_while_a_tool_is_at_work(reader: Callable[[], object]) -> bool:
    """Whether *reader* returned only after a tool had released its lock; called in a namespace."""
    lock = os.open(os.environ["XTABLES_LOCKFILE"], os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    events: list[str] = []

    def read() -> None:
        reader()
        events.append("read")

    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(0.5)  # many times what reading takes
    events.append("tool has ended")
    os.close(lock)
    thread.join()
    return events == ["tool has ended", "read"]


@pytest.mark.parametrize("reader", READERS)
def test_reading_counters_waits_until_a_tool_has_set_them(reader: Callable[[], object]) -> None:
    with Namespace() as namespace:
        load(RULES, Family.IPV4, Backend.LEGACY, namespace)
        assert namespace.call(read_while_a_tool_is_at_work, reader)


def save_under_the_lock() -> str:
    with legacy_lock():
        return run(["iptables-legacy-save", "-c"])


def test_20_the_tool_itself_does_not_wait() -> None:
    """So the reader may run it while it holds the lock."""
    with Namespace() as namespace:
        load(RULES, Family.IPV4, Backend.LEGACY, namespace)
        assert "[50:500] -A INPUT" in namespace.call(save_under_the_lock)


def test_a_lock_that_is_never_released_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "xtables.lock"
    monkeypatch.setenv("XTABLES_LOCKFILE", str(path))
    held = pytest.raises(LiveError, match=r"xtables.lock: another program holds this lock")
    with open(path, "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with held, legacy_lock(patience=0.02):
            pass
    with legacy_lock(patience=0.0):  # it was released
        pass


def wait_for_the_lock(load: bool) -> str:
    """What a command writes to standard error while another program holds the lock; called in a namespace."""
    lock = os.open(os.environ["XTABLES_LOCKFILE"], os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    release = threading.Timer(0.3, os.close, [lock])
    release.start()
    interrupts.watch()
    legacy_locks.SILENT = 0.1
    kernel = Kernel(Family.IPV4, Backend.LEGACY)
    with contextlib.redirect_stderr(io.StringIO()) as error:
        if load:
            kernel.load(RULES)
        else:
            kernel.read()
    release.join()
    return error.getvalue()


@pytest.mark.parametrize("load", [False, True])
def test_a_command_tells_once_what_it_waits_for(load: bool) -> None:
    with Namespace() as namespace:
        namespace.run(["iptables-legacy-restore"], RULES)
        told = namespace.call(wait_for_the_lock, load)
    assert re.fullmatch(r"waiting for \S+, the lock of iptables-legacy, which another program holds\n", told)


def test_without_a_lock_file_no_tool_can_be_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTABLES_LOCKFILE", str(tmp_path / "missing" / "lock"))
    with legacy_lock():
        pass


def test_blocks_of_one_thread_may_be_nested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTABLES_LOCKFILE", str(tmp_path / "lock"))
    with legacy_lock():
        with legacy_lock(patience=0.0):
            assert is_held()
        assert is_held()
    assert not is_held()


def test_a_tool_that_is_run_under_the_lock_takes_another_one() -> None:
    """Else it would wait for us; a tool that does not know the variable is not run under the lock."""
    assert can_be_held_for("iptables-legacy-restore")
    assert not can_be_held_for("cat")
    assert not can_be_held_for("no-such-tool")
    with Namespace() as namespace:
        namespace.call(load_under_the_lock)
        assert "10.0.0.1" in namespace.run(["iptables-legacy-save"])


def load_under_the_lock() -> None:
    with legacy_lock():
        Kernel(Family.IPV4, Backend.LEGACY).load(RULES)


def replaced_while_others_change() -> list[str]:
    """The rules of FORWARD after another program deleted its jump between the reading and the change."""
    jump = ["FORWARD", "-o", "docker0", "-j", "DOCKER"]
    iptables = ["iptables-legacy", "-w", "30"]
    run(["iptables-legacy-restore"], "*filter\n:DOCKER - [0:0]\n-A FORWARD -o docker0 -j DOCKER\nCOMMIT\n")
    kernel = Kernel(Family.IPV4, Backend.LEGACY)
    rules = (TextRule("-s 10.0.0.1/32 -j ACCEPT"),)
    chains = {
        "INPUT": TextChain("ACCEPT"),
        "FORWARD": TextChain("DROP", rules),
        "OUTPUT": TextChain("ACCEPT"),
    }
    change = RuleSetChange(kernel, Wanted({"filter": chains}), lambda name: name == "DOCKER")
    other = threading.Thread(target=run, args=[[*iptables, "-D", *jump]])
    flip_text = change.flip_text

    def slow_flip_text() -> str:
        text = flip_text()
        if not other.ident:
            other.start()
            time.sleep(0.5)  # many times what the other program takes
        return text

    change.flip_text = slow_flip_text  # type: ignore[method-assign]
    perform([change])
    other.join()
    run([*iptables, "-F", "DOCKER"])
    run([*iptables, "-X", "DOCKER"])
    return [line for line in run(["iptables-legacy-save"]).splitlines() if line.startswith("-A")]


def test_a_jump_that_another_program_deletes_meanwhile_does_not_come_back() -> None:
    """Without the lock from reading to loading, its chain could not be removed: "Too many links"."""
    with Namespace() as namespace:
        lines = namespace.call(replaced_while_others_change)
    assert lines == ["-A FORWARD -s 10.0.0.1/32 -j ACCEPT"]
