"""An interrupt (Ctrl-C) ends a command wherever it comes, and none is lost.

Python raises KeyboardInterrupt in whatever the main thread does.  It is swallowed, with a trace on standard
error, by what Python calls behind a program's back (when an object dies, at the end of each import, at a
fork) and by C code that drops an error.  So interrupts are noted here: one that was swallowed is raised again
a moment later, and whatever cannot be undone asks first whether one came.

An interrupt that was ignored when the process began stays ignored, as nohup and shells without job control
have it for what runs in the background.
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

INTERRUPTED = 130  # as a shell has it: 128 and the number of SIGINT

# Seconds after which an interrupt that was swallowed is raised again.
AGAIN = 0.001

_came: list[int] = []  # numbers of signals that nothing answered yet


def watch() -> None:
    """Note interrupts from now on; for the process of a command, not for a library."""
    sys.unraisablehook = _swallowed
    signal.signal(signal.SIGALRM, _raised_again)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)


def check() -> None:
    """KeyboardInterrupt if one came that nothing answered: before what cannot be undone, and at the end."""
    if _came:
        raise KeyboardInterrupt


def answered() -> None:
    """The interrupt that came ends what it was to end."""
    _came.clear()


@contextlib.contextmanager
def terminated() -> Iterator[None]:
    """While the block runs, SIGTERM interrupts as SIGINT does."""
    before = signal.signal(signal.SIGTERM, _interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(name: str, load: Callable[[], Callable[[], Any]]) -> NoReturn:
    """The process of the command *name*; *load* imports and gives what runs it.

    Once the command has ended an interrupt changes nothing: the status says what was done.
    """
    status: Any = None
    try:
        watch()
        try:
            load()()
        except SystemExit as end:
            status = end.code
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        status = INTERRUPTED
        with contextlib.suppress(OSError, ValueError, AttributeError):  # standard error is full or closed
            sys.stderr.write(f"{name}: interrupted\n")
            sys.stderr.flush()
    raise SystemExit(status)


def in_thread(work: Callable[[], T], stop: Callable[[], None]) -> T:
    """What *work* gives, done in a thread while this one can be interrupted; *stop* has it end early.

    When the interrupt goes on from here, *work* has ended.  (Thread.join may forget that a thread still runs
    once it was interrupted itself.)
    """
    if threading.current_thread() is not threading.main_thread():
        return work()  # only that one is interrupted
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
        with held_back():
            _worker().put(run)
            started = True
        ended.wait()
    except BaseException:
        if started:
            with held_back():
                stop()
                ended.wait()
        raise
    if failed:
        raise failed[0]
    return done[0]


@functools.cache
def _worker() -> queue.SimpleQueue[Callable[[], None]]:
    """The work of a thread that goes on for ever: to start one takes longer than most of its work."""
    works: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def serve() -> None:
        while True:
            works.get()()

    threading.Thread(target=serve, daemon=True).start()
    return works


os.register_at_fork(after_in_child=_worker.cache_clear)  # threads do not come along


@contextlib.contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """Interrupts that come meanwhile come at its end: what Python calls when it forks would swallow them.

    What it gives has them heard again at once, for the process that is forked, which never comes to the end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None  # only that one is interrupted
        return
    came: list[int] = []
    before: dict[signal.Signals, Any] = {}

    def hear() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not None:  # what is not Python's cannot be put back
                before[number] = signal.signal(number, lambda number, frame: came.append(number))
        yield hear
    finally:
        hear()
        for each in came:  # the first may be one that is ignored
            signal.raise_signal(each)


def _interrupted(number: int, frame: FrameType | None) -> None:
    _came.append(number)
    raise KeyboardInterrupt


def _swallowed(what: sys.UnraisableHookArgs) -> None:
    """Called by Python for an error that it cannot raise."""
    if issubclass(what.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, AGAIN)
    else:
        sys.__unraisablehook__(what)


def _raised_again(number: int, frame: FrameType | None) -> None:
    if frame is not None and frame.f_code is _swallowed.__code__:
        signal.setitimer(signal.ITIMER_REAL, AGAIN)  # not there either
    elif _came:
        raise KeyboardInterrupt
