"""The way back: a process that rolls back unless the new rule set is confirmed in time.

It is started before anything is loaded, and does not depend on the session that started it: it has a session
of its own and no terminal, and ignores HUP, INT, QUIT, TERM and PIPE.  It is a fork, so it needs no file of
this program later.  The loading process holds a connection to it and sends a message when the rules are
loaded; if the connection closes before, the loading has failed, and the guard loads the old rule set at once.
The guard answers the message when it has looked which connections there are, so that one which is opened
after the user was told counts as new.

A guard has a socket whose name is known in its network namespace, so that no other rules are applied while
it lives, also from another state directory.

Where systemd runs, a transient timer is a second way back: it remains when the machine ends all processes of
a session (KillUserProcesses).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import LiveError, described
from ..interrupts import deferred
from ..ipc import close_all_but
from .boot_clock import since_boot
from .net_namespace import network_namespace
from .open_files import raise_limit

IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE,
           signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGTSTP, signal.SIGTTOU)  # fmt: skip
_PAUSES = (0.5, 1, 2, 4, 8, 16, 32, *(60,) * 60)  # seconds, between attempts to roll back
_POLL = 0.25  # seconds between two looks at the state
_PATIENCE = 10.0  # seconds for which an answer of the guard is awaited
LATE = 5.0  # seconds by which the timer of systemd is later than the guard
SYSTEMD = Path("/run/systemd/system")
_NAME = "\0hitables-guard"  # the socket of a guard: of this network namespace, as its rules are
_NOT_STARTED = "the process that would roll back did not start"
_CREDENTIALS = struct.Struct("3i")  # process, user, group


@dataclass(frozen=True, slots=True)
class Duty:
    """What a guard asks while it waits, and what it does at the end.

    is_waiting  whether the rule set still waits for its confirmation
    confirm     confirms the rule set if a connection shows that it may, which began after the first call;
                whether it did.  The first call comes when the rules are loaded, before the user is told
    roll_back   loads the old rule set, for the reason given
    log         writes down what went wrong with the first two
    """

    is_waiting: Callable[[], bool]
    confirm: Callable[[], bool]
    roll_back: Callable[[str], None]
    log: Callable[[str], None] = lambda message: None


@dataclass(slots=True)
class Guard:
    """A guard that runs: its process, and our end of the connection to it."""

    pid: int
    connection: socket.socket

    def loaded(self, seconds: float) -> bool:
        """The rules are loaded: the guard waits *seconds* for the confirmation; whether it has answered.

        Then it has taken its first look at the connections.
        """
        self.connection.settimeout(_PATIENCE)
        answer = b""
        with contextlib.suppress(OSError):
            self.connection.sendall(f"{seconds!r}\n".encode())
            answer = self.connection.recv(1)
        self.connection.close()
        return bool(answer)

    def abandon(self) -> None:
        """The loading has failed: the guard rolls back now.  After `loaded` this changes nothing."""
        self.connection.close()


def start(duty: Duty) -> Guard:
    """Start a guard; LiveError if that fails."""
    ours, theirs = socket.socketpair()
    with deferred():
        try:
            child = os.fork()
        except OSError as error:
            ours.close()
            theirs.close()
            raise LiveError(f"{_NOT_STARTED}: {error.strerror}; nothing is loaded") from error
        if not child:
            _detach(theirs, duty)
    theirs.close()
    os.waitpid(child, 0)
    ours.settimeout(_PATIENCE)
    try:
        answer = ours.recv(32)
    except OSError:
        answer = b""
    if not answer.endswith(b"\n"):
        ours.close()
        raise LiveError(f"{_NOT_STARTED}; nothing is loaded")
    ours.settimeout(None)
    return Guard(int(answer), ours)


def _detach(connection: socket.socket, duty: Duty) -> None:
    """The first child: it starts the guard and ends, so the guard has no parent and no terminal."""
    try:
        for ignored in IGNORED:
            signal.signal(ignored, signal.SIG_IGN)
        os.setsid()
        if os.fork():
            os._exit(0)
        close_all_but(connection)
        raise_limit()
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.chdir("/")
        with _mark():
            connection.sendall(f"{os.getpid()}\n".encode())
            _watch(connection, duty)
    finally:
        os._exit(0)


def _watch(connection: socket.socket, duty: Duty) -> None:
    seconds = _seconds_to_wait(connection)
    if seconds is None:
        if _is_waiting(duty):
            _insist(duty.roll_back, "the loading ended half-way")
        return
    deadline = since_boot() + seconds
    _confirms(duty)  # the first look
    with contextlib.suppress(OSError):
        connection.sendall(b"\n")
    while _is_waiting(duty):
        if _confirms(duty):
            return
        rest = deadline - since_boot()
        if rest <= 0:
            _insist(duty.roll_back, "it was not confirmed in time")
            return
        time.sleep(min(_POLL, rest))


# Nothing else takes the rules back, so the guard survives errors of any kind: memory or files may be short
# for a moment.


def _seconds_to_wait(connection: socket.socket) -> float | None:
    """What the message of `Guard.loaded` says; None if the loading process ends without one."""
    message = b""
    while not message.endswith(b"\n"):
        try:
            part = connection.recv(32)
        except ConnectionError:
            return None
        except Exception:
            time.sleep(_POLL)
            continue
        if not part:
            return None
        message += part
    return float(message)


def _is_waiting(duty: Duty) -> bool:
    """Whether the rule set waits for its confirmation; True if that is unknown."""
    try:
        return duty.is_waiting()
    except Exception as error:
        _log(duty, f"whether it waits is not known: {described(error)}")
        return True


def _confirms(duty: Duty) -> bool:
    """Whether a connection has confirmed the rule set; False if that is unknown."""
    try:
        return duty.confirm()
    except Exception as error:
        _log(duty, f"whether a new connection confirms it is not known: {described(error)}")
        return False


def _log(duty: Duty, message: str) -> None:
    with contextlib.suppress(Exception):
        duty.log(message)


def _insist(roll_back: Callable[[str], None], why: str) -> None:
    """Roll back, and try again if that fails: another program may hold the lock."""
    trouble = ""
    for pause in (*_PAUSES, 0):
        try:
            roll_back(why)
            return
        except Exception as error:
            is_first, trouble = not trouble, described(error)
            if is_first:
                _tell_of_trouble(f"the old rules cannot be loaded now: {trouble}; trying again for an hour")
        time.sleep(pause)
    _tell_of_trouble(f"the old rules are not loaded: {trouble}; hitables rollback tries it once more")


def _tell_of_trouble(message: str) -> None:
    with contextlib.suppress(Exception):
        tell_everyone(f"hitables: {message}")


def is_alive(pid: int) -> bool:
    """Whether the process *pid* is a guard, by the signals that it ignores: the system uses numbers again."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    ignored = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn")), 0)
    return all(ignored >> number - 1 & 1 for number in IGNORED) and "State:\tZ" not in status


def _mark() -> socket.socket:
    """The socket that `running` finds as long as this guard lives."""
    mark = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(OSError):  # somebody else has the name
        mark.bind(_NAME)
        mark.listen(socket.SOMAXCONN)
    return mark


def running() -> int | None:
    """The guard of this network namespace, whatever its state directory; None: there is none.

    0: its process is not known, as one of another container.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.setblocking(False)
        try:
            connection.connect(_NAME)
        except BlockingIOError:
            return 0  # thousands have asked
        except OSError:
            return None
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(credentials)
    return pid if user == os.geteuid() else None  # else it is not ours, but of somebody who only has the name


def wait_for_end(pid: int) -> None:
    """Wait until the guard *pid*, which has nothing to do any more, has seen that; a second at most."""
    deadline = time.monotonic() + 1
    while pid != os.getpid() and is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)


# The second way back.


def timer_command(folder: Path, number: int, guard: int, seconds: float) -> list[str]:
    """The command that makes systemd roll back record *number* if it still waits after *seconds*.

    *guard*: its guard, as another state directory may have a record of this number that waits, too.
    """
    return [
        *("systemd-run", "--quiet", f"--on-active={seconds + LATE:g}s", f"--unit={_unit(number, guard)}"),
        *(sys.executable, "-m", "hitables", "rollback", "--guarded-by", str(guard)),
        *("--state", str(folder.resolve())),
    ]


def start_timer(folder: Path, number: int, guard: int, seconds: float) -> bool:
    """Start the timer where systemd runs, in this network namespace; whether it runs."""
    if not SYSTEMD.is_dir() or not _is_of_systemd() or shutil.which("systemd-run") is None:
        return False
    return _quietly(timer_command(folder, number, guard, seconds))


def _is_of_systemd() -> bool:
    """Whether the network namespace is that of systemd, in which it would start the rollback, or may be."""
    return network_namespace("1") in (network_namespace(), "")


def stop_timer(number: int, guard: int) -> None:
    """Stop the timer of systemd that watches over record *number* of *guard*, if there is systemd."""
    if SYSTEMD.is_dir() and shutil.which("systemctl") is not None:
        _quietly(["systemctl", "stop", f"{_unit(number, guard)}.timer"])


def _unit(number: int, guard: int) -> str:
    return f"hitables-rollback-{number}-{guard}"


def _quietly(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def tell_everyone(message: str) -> None:
    """Send *message* to all terminals and to the journal, as far as the machine has the commands for it."""
    for command in (["wall", message], ["logger", "-t", "hitables", "-p", "auth.warning", message]):
        if shutil.which(command[0]) is not None:
            _quietly(command)
