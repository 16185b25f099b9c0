"""The way back: a process that rolls back unless the new rule set is confirmed in time.

It is started before anything is loaded, and shares nothing with the session that started it: it has a session
and no terminal of its own, and ignores HUP, INT, QUIT, TERM and PIPE.  It is a fork, so it needs no file of
this program later.  While the rules are being loaded it listens to the loading process; if that ends without
a word, whatever ended it, the old rule set is loaded at once.

Where systemd runs, a transient timer is a second way back: it survives when the machine ends all processes of
a session (KillUserProcesses).
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import LiveError
from ..interrupts import deferred
from ..ipc import close_all_but

IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE,
           signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGTSTP, signal.SIGTTOU)  # fmt: skip
_POLL = 0.25  # seconds between two looks at the state
_LATE = 5.0  # seconds by which the timer of systemd is later than the guard
SYSTEMD = Path("/run/systemd/system")
_LOADED = b"loaded\n"


@dataclass(slots=True)
class Guard:
    """A guard that runs: its process, and the end of the connection by which it is told of the loading."""

    pid: int
    connection: socket.socket

    def loaded(self) -> None:
        """From now on the guard waits for the confirmation."""
        with contextlib.suppress(OSError):
            self.connection.sendall(_LOADED)
        self.connection.close()

    def abandon(self) -> None:
        """The loading has failed: the guard rolls back now."""
        self.connection.close()


def start(
    is_waiting: Callable[[], bool],
    until: Callable[[], float],
    confirmed: Callable[[], bool],
    roll_back: Callable[[str], None],
) -> Guard:
    """Start a guard.

    is_waiting  whether the rule set still waits for its confirmation
    until       when it is rolled back, in seconds since 1970; asked once it is loaded
    confirmed   whether a new connection confirms it now
    roll_back   loads the old rule set, for the reason given
    """
    ours, theirs = socket.socketpair()
    with deferred():
        child = os.fork()
        if not child:
            _detach(theirs, is_waiting, until, confirmed, roll_back)
    theirs.close()
    os.waitpid(child, 0)
    ours.settimeout(10)
    try:
        answer = ours.recv(32)
    except OSError:
        answer = b""
    if not answer.endswith(b"\n"):
        ours.close()
        raise LiveError("the process that would roll back did not start; nothing is loaded")
    ours.settimeout(None)
    return Guard(int(answer), ours)


def _detach(
    connection: socket.socket,
    is_waiting: Callable[[], bool],
    until: Callable[[], float],
    confirmed: Callable[[], bool],
    roll_back: Callable[[str], None],
) -> None:
    """The first child: it only starts the guard, which so belongs to no session and no parent."""
    try:
        for ignored in IGNORED:
            signal.signal(ignored, signal.SIG_IGN)
        os.setsid()
        if os.fork():
            os._exit(0)
        close_all_but(connection)
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.chdir("/")
        connection.sendall(f"{os.getpid()}\n".encode())
        _watch(connection, is_waiting, until, confirmed, roll_back)
    finally:
        os._exit(0)


def _watch(
    connection: socket.socket,
    is_waiting: Callable[[], bool],
    until: Callable[[], float],
    confirmed: Callable[[], bool],
    roll_back: Callable[[str], None],
) -> None:
    message = b""
    while not message.endswith(b"\n"):
        part = connection.recv(32)
        if not part:
            if is_waiting():
                _insist(roll_back, "the loading ended half-way")
            return
        message += part
    deadline = time.monotonic() + max(0.0, until() - time.time())  # a changed clock changes nothing
    while is_waiting():
        if confirmed():
            return
        rest = deadline - time.monotonic()
        if rest <= 0:
            _insist(roll_back, "it was not confirmed in time")
            return
        select.select([], [], [], min(_POLL, rest))


def _insist(roll_back: Callable[[str], None], why: str) -> None:
    """Roll back; again, if the kernel refuses it, because another program may be in the way."""
    for pause in (0.5, 1, 2, 4, 8, 16, 32):
        try:
            roll_back(why)
            return
        except (
            Exception
        ):  # whatever it is, a later attempt may succeed, and nothing else takes the rules back
            time.sleep(pause)
    roll_back(why)


def is_alive(pid: int) -> bool:
    """Whether the process *pid* is a guard: other processes have not got its signals' dispositions."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    ignored = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn")), 0)
    return all(ignored >> number - 1 & 1 for number in IGNORED) and "State:\tZ" not in status


# The second way back.


def timer_command(folder: Path, number: int, seconds: float) -> list[str]:
    """The command that makes systemd roll back record *number* if it still waits after *seconds*."""
    return [
        *("systemd-run", "--quiet", f"--on-active={seconds + _LATE:g}s", f"--unit={_unit(number)}"),
        *(sys.executable, "-m", "hitables", "rollback", "--waiting", str(number)),
        *("--state", str(folder.resolve())),
    ]


def start_timer(folder: Path, number: int, seconds: float) -> bool:
    """Start the timer where systemd runs; whether it runs."""
    if not SYSTEMD.is_dir() or shutil.which("systemd-run") is None:
        return False
    return _quietly(timer_command(folder, number, seconds))


def stop_timer(number: int) -> None:
    if SYSTEMD.is_dir() and shutil.which("systemctl") is not None:
        _quietly(["systemctl", "stop", f"{_unit(number)}.timer"])


def _unit(number: int) -> str:
    return f"hitables-rollback-{number}"


def _quietly(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def tell_everyone(message: str) -> None:
    """Tell the terminals and the journal what the guard did; a terminal that is gone is no obstacle."""
    for command in (["wall", message], ["logger", "-t", "hitables", "-p", "auth.warning", message]):
        if shutil.which(command[0]) is not None:
            _quietly(command)
