"""Counters of legacy tables are read only while no tool is between its two steps."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hitables.apply.kernel import Kernel
from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel import checked_save
from hitables.kernel.legacy_lock import legacy_lock
from hitables.kernel.load_save import load
from hitables.kernel.namespace import Namespace, run
from sflgen.kernel import Kernel as PatchedKernel
from sflgen.settings import Settings

pytestmark = pytest.mark.needs_kernel

RULES = "*filter\n:INPUT ACCEPT [0:0]\n[50:500] -A INPUT -s 10.0.0.1/32 -j DROP\nCOMMIT\n"


def read_to_apply() -> object:
    return Kernel(Family.IPV4, Backend.LEGACY).read()


def read_with_a_check() -> object:
    return checked_save.Reader(Family.IPV4, "iptables-legacy").read(counters=True)


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
    with legacy_lock(), held, legacy_lock(patience=0.02):
        pass
    with legacy_lock(patience=0.0):  # it was released
        pass


def test_without_a_lock_file_no_tool_can_be_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTABLES_LOCKFILE", str(tmp_path / "missing" / "lock"))
    with legacy_lock():
        pass
