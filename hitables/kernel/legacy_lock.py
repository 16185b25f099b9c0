"""The lock of iptables-legacy, held while counters are read and while chains are replaced.

A legacy tool changes a table in two steps: it replaces the rules, all counters at zero, and then adds the
counters of before.  It holds a lock meanwhile, but iptables-legacy-save does not take that lock, so it may
print zeros for every rule (docs/kernel.md, 20).  A program that carries counters over must read them under
the lock.

A program that writes a chain anew from what it has read must hold the lock from the reading to the writing,
or rules that others insert or delete in between are lost.  Then the tool that writes must not wait for the
lock: `under_lock` gives it another one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import cache

from .. import interrupts
from ..errors import LiveError

PATIENCE = 30.0  # seconds
SILENT = 2.0  # seconds after which a command tells what it waits for
_PAUSE = 0.005
_PATH = "/run/xtables.lock"  # where the tools look, unless $XTABLES_LOCKFILE names another file
_VARIABLE = "XTABLES_LOCKFILE"
_held = threading.local()  # .lock: the open file of the lock that this thread holds; -1: none


@contextlib.contextmanager
def legacy_lock(is_needed: bool = True, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the lock, if *is_needed*; LiveError if another program holds it for *patience* seconds.

    Blocks of one thread may be nested.  In the process of a command, standard error tells of a long wait.
    """
    path = os.environ.get(_VARIABLE, _PATH)
    is_needed = is_needed and not is_held()
    try:
        lock = os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600) if is_needed else -1
    except OSError:
        lock = -1  # then no tool of iptables-legacy can change a table either
    if lock < 0:
        yield
        return
    try:
        deadline = time.monotonic() + patience
        tell_at = deadline - patience + SILENT if interrupts.is_watched() else deadline
        while not _is_locked(lock):
            if time.monotonic() >= tell_at < deadline:
                _tell_of_wait(path)
                tell_at = deadline
            if time.monotonic() >= deadline:
                raise LiveError(
                    f"{path}: another program holds this lock of iptables-legacy; try again later"
                )
            time.sleep(_PAUSE)
        _held.lock = lock
        yield
    finally:
        _held.lock = -1
        os.close(lock)


def _tell_of_wait(path: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # standard error is full or closed
        sys.stderr.write(f"waiting for {path}, the lock of iptables-legacy, which another program holds\n")
        sys.stderr.flush()


def is_held() -> bool:
    """Whether this thread holds the lock."""
    return bool(handles())


def handles() -> tuple[int, ...]:
    """The open file of the lock, if this thread holds it: a process that inherits it holds the lock, too."""
    lock = getattr(_held, "lock", -1)
    return () if lock < 0 else (lock,)


@contextlib.contextmanager
def under_lock() -> Iterator[dict[str, str]]:
    """The environment of a tool that is run while this thread holds the lock: it takes another one."""
    if not is_held():
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="hitables-") as folder:
        yield {_VARIABLE: os.path.join(folder, "lock")}


@cache
def can_be_held_for(tool: str) -> bool:
    """Whether *tool* takes the lock that its environment names, as of iptables 1.8.8; others would wait."""
    path = shutil.which(tool)
    if path is None:
        return False
    try:
        with open(os.path.realpath(path), "rb") as file:
            return _VARIABLE.encode() in file.read()
    except OSError:
        return False


def _is_locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
