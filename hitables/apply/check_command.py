"""A command of the user that confirms the rules which are loaded, or has them taken back."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

from ..errors import FileError, HitablesError, LiveError
from ..interrupts import answered, deferred, in_thread
from . import guard as guards
from .confirm import undo
from .in_force import confirm_record
from .records import CONFIRMED, ApplyState
from .request import ApplyRequest, ApplyResult, Reporter
from .still_held import NotHeld, check_held
from .store import StateDirectory


def decide_by_command(
    request: ApplyRequest,
    store: StateDirectory,
    state: ApplyState,
    guard: guards.Guard,
    report: Reporter,
) -> ApplyResult:
    """Run the command that decides.  It may be a command of ours, so it runs without the lock."""
    assert state.waiting is not None
    number = state.waiting.number
    try:
        store.close()
        why = why_failed(request.check, request.confirm)
    except BaseException:
        take_back(request, store, number, guard, "the check was interrupted")
        raise
    with StateDirectory.open(request.folder, wait=60.0) as again:
        state = again.state()
        waits = state.waiting is not None and state.waiting.number == number
        notes: list[str] = []
        if waits and not why:
            try:
                notes = check_held(again, number)
                state = confirm_record(again, state, number)
            except (NotHeld, FileError) as error:
                why = f"it succeeded, but {error}"
        if waits and why:
            undo(again, state, f"the check failed: {why}")
        elif waits:
            guards.stop_timer(number, guard.pid)
            again.log(f"{number}: confirmed by the check")
            for note in notes:
                again.log(f"{number}: {note}")
                report.tell(note)
            again.forget_old(state)
    guard.abandon()  # which has nothing to do any more
    if state.status.get(number) == CONFIRMED:
        if why:
            raise HitablesError(
                f"--check {request.check!r}: {why}; but rule set {number} was confirmed meanwhile, and stays"
            )
        return ApplyResult.CONFIRMED
    why = why or "it ended when the rules were taken back already"
    raise HitablesError(
        f"--check {request.check!r}: {why}; rule set {number} is taken back, and the old rules are loaded"
    )


def take_back(
    request: ApplyRequest, store: StateDirectory, number: int, guard: guards.Guard, why: str
) -> bool:
    """Load the old rules, if record *number* still waits, whether or not *store* still has its lock.

    Whether it has waited.
    """
    with deferred():
        answered()  # else the files of the state would not be written
        store.close()
        try:
            with StateDirectory.open(request.folder, wait=60.0) as again:
                state = again.state()
                waits = state.waiting is not None and state.waiting.number == number
                if waits:
                    undo(again, state, why)
        finally:
            guard.abandon()
    return waits


def taken_back_after(
    error: HitablesError, request: ApplyRequest, store: StateDirectory, number: int, guard: guards.Guard
) -> HitablesError:
    """Take record *number* back because of *error*; what to raise: *error* with what became of the rules."""
    try:
        waited = take_back(request, store, number, guard, str(error))
    except HitablesError as second:
        return not_taken_back(error, second)
    return LiveError(f"{error}\nthe old rules are loaded again") if waited else error


def not_taken_back(error: HitablesError, second: HitablesError) -> LiveError:
    """What to raise if rules failed with *error*, and could not be taken back at once because of *second*."""
    return LiveError(f"{error}\n{second}\nhitables status says what becomes of the rules")


def why_failed(check: str, seconds: float) -> str:
    """Why the command *check* fails, which has *seconds* (0: any time); "" if it succeeds.

    What it has started ends with it if it is stopped: it would hold our output open.
    """
    begun: list[subprocess.Popen[bytes]] = []
    try:
        # In a thread, so that an interrupt does not lose a process that has just been started.
        in_thread(lambda: begun.append(_process(check)), stop=lambda: None)
        status = begun[0].wait(seconds or None)
    except BaseException as error:
        for process in begun:
            _kill(process)
        if isinstance(error, subprocess.TimeoutExpired):
            return f"it did not end within {seconds:g} s"
        raise
    return f"it ended with exit status {status}" if status else ""


def _process(check: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(check, shell=True, start_new_session=True)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End *process* and all that it has started.

    `Popen.wait` takes a lock, which stays taken if an interrupt ends it at an unlucky moment: a second call
    would never return.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, 0)
    process.returncode = -signal.SIGKILL
