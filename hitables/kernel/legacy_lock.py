"""The lock of iptables-legacy, held while counters are read.

A legacy tool changes a table in two steps: it replaces the rules, all counters at zero, and then adds the
counters of before.  It holds a lock meanwhile, but iptables-legacy-save does not take that lock, so it may
print zeros for every rule (docs/kernel.md, 20).  Whoever carries counters over must read them under the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from ..errors import LiveError

PATIENCE = 30.0  # seconds
_PAUSE = 0.005
_PATH = "/run/xtables.lock"  # where the tools look, unless $XTABLES_LOCKFILE names another file


@contextlib.contextmanager
def legacy_lock(is_needed: bool = True, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the lock, if *is_needed*; LiveError if another program holds it for *patience* seconds."""
    path = os.environ.get("XTABLES_LOCKFILE", _PATH)
    try:
        lock = os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600) if is_needed else -1
    except OSError:
        lock = -1  # then no tool of iptables-legacy can change a table either
    if lock < 0:
        yield
        return
    try:
        deadline = time.monotonic() + patience
        while not _is_locked(lock):
            if time.monotonic() >= deadline:
                raise LiveError(
                    f"{path}: another program holds this lock of iptables-legacy; try again later"
                )
            time.sleep(_PAUSE)
        yield
    finally:
        os.close(lock)


def _is_locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
