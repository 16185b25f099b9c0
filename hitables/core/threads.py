"""Long calls of the C engine that Ctrl-C ends: a thread computes while the main thread waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hitables.interrupts import in_thread

T = TypeVar("T")


def stoppable(call: Callable[[], T], stop: Callable[[], None], *, short: bool = False) -> T:
    """The value of *call*; an interrupt of the main thread calls *stop*, which makes *call* return early.

    *short*: the call returns before a user could interrupt it, so that a thread would only cost time.
    """
    return call() if short else in_thread(call, stop)
