"""Interrupts (Ctrl-C): each ends the command, whenever it arrives.

Python raises KeyboardInterrupt in the code that the main thread is running.  Some callers swallow it, with
a trace on standard error: Python itself (in finalizers, at the end of each import, at a fork) and C code
that ignores an error. So this module records interrupts.  One that was swallowed is raised again shortly
afterwards, and a step that cannot be undone first calls `check`.

An interrupt that was ignored when the process started stays ignored; nohup, and shells without job control,
start background processes in that state.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

INTERRUPTED = 130  # as in a shell: 128 plus the number of SIGINT

# Seconds after which an interrupt that was swallowed is raised again.
AGAIN = 0.001
# Seconds after which the main thread notices an interrupt that did not wake it.
WAKE = 0.05

_pending: list[int] = []  # numbers of the signals that are still pending


def watch() -> None:
    """Record interrupts from now on; for the process of a command, not for a library."""
    sys.unraisablehook = _swallowed
    signal.signal(signal.SIGALRM, _raised_again)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)


def is_watched() -> bool:
    """Whether this is the process of a command."""
    return signal.getsignal(signal.SIGALRM) is _raised_again


def check() -> None:
    """Raise KeyboardInterrupt if one is pending: called before a step that cannot be undone, and at the
    end.
    """
    if _pending:
        raise KeyboardInterrupt


def is_pending() -> bool:
    """Whether there was an interrupt without an effect yet.

    An error may then be that interrupt: of one in `__set_name__`, Python 3.11 makes a RuntimeError.
    """
    return bool(_pending)


def answered() -> None:
    """The pending interrupt has had its effect."""
    _pending.clear()


@contextlib.contextmanager
def terminated() -> Iterator[None]:
    """While the block runs, SIGTERM interrupts as SIGINT does."""
    before = signal.signal(signal.SIGTERM, _interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(name: str, load: Callable[[], Callable[[], Any]]) -> NoReturn:
    """The process of the command *name*; *load* imports the module and returns the function to run.

    An interrupt after the end of the command has no effect, so the exit status is that of the command.
    """
    status: Any = None
    try:
        watch()
        try:
            load()()
        except SystemExit as end:
            status = end.code
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except (KeyboardInterrupt, Exception) as error:
        if not isinstance(error, KeyboardInterrupt) and not is_pending():
            raise
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        status = INTERRUPTED
        with contextlib.suppress(OSError, ValueError, AttributeError):  # standard error is full or closed
            sys.stderr.write(f"{name}: interrupted\n")
            sys.stderr.flush()
    raise SystemExit(status)


def in_thread(work: Callable[[], T], stop: Callable[[], None]) -> T:
    """The result of *work*, run in a thread while this one can be interrupted; *stop* makes it end early.

    When the interrupt leaves this function, *work* has ended.  (After an interrupt, Thread.join may return
    although the thread still runs.)  The wait ends now and then: a signal that comes just before the main
    thread blocks, or that another thread receives, does not wake it.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()  # only the main thread is interrupted
    done: list[T] = []
    failed: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    started = False
    try:
        with deferred():
            _worker().put(run)
            started = True
        while not ended.wait(WAKE):
            pass
    except BaseException:
        if started:
            with deferred():
                stop()
                ended.wait()
        raise
    if failed:
        raise failed[0]
    return done[0]


@functools.cache
def _worker() -> queue.SimpleQueue[Callable[[], None]]:
    """The queue of a thread that never ends: starting a thread takes longer than most of its work."""
    works: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def serve() -> None:
        while True:
            works.get()()

    threading.Thread(target=serve, daemon=True).start()
    return works


os.register_at_fork(after_in_child=_worker.cache_clear)  # a fork does not copy threads


@contextlib.contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Defer interrupts to the end of the block: the code that Python runs at a fork would swallow them.

    The value of the block is a function that ends the deferral, for the forked process, which never leaves
    the block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None  # only the main thread is interrupted
        return
    arrived: list[int] = []
    before: dict[signal.Signals, Any] = {}

    def hear() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            # A handler that is not Python's cannot be restored; what is ignored needs none.
            if signal.getsignal(number) not in (None, signal.SIG_IGN):
                before[number] = signal.signal(number, lambda number, frame: arrived.append(number))
        yield hear
    finally:
        hear()
        for each in arrived:  # the first may be ignored
            signal.raise_signal(each)


def _interrupted(number: int, frame: FrameType | None) -> None:
    _pending.append(number)
    raise KeyboardInterrupt


def _swallowed(what: sys.UnraisableHookArgs) -> None:
    """Called by Python for an error that it cannot raise."""
    if issubclass(what.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, AGAIN)
    else:
        sys.__unraisablehook__(what)


def _raised_again(number: int, frame: FrameType | None) -> None:
    if frame is not None and frame.f_code is _swallowed.__code__:
        signal.setitimer(signal.ITIMER_REAL, AGAIN)  # it would be swallowed here, too
    elif _pending:
        raise KeyboardInterrupt
