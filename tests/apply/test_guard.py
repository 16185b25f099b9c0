"""A guard takes rules back when it was told to, whatever fails meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest

from hitables.apply import guard
from hitables.apply.boot_clock import since_boot
from hitables.errors import FileError


@dataclass
class Clock:
    """A clock that goes on only while somebody sleeps."""

    now: float = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(guard, "since_boot", lambda: clock.now)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


def taken_back(clock: Clock, seconds: float, confirm: Callable[[], bool]) -> list[tuple[float, str]]:
    """When and why a guard takes rules back that wait for so many *seconds*."""
    begun, taken = clock.now, []
    ours, theirs = socket.socketpair()
    theirs.sendall(b"\n")  # the answer to what follows
    guard.Guard(os.getpid(), ours).loaded(seconds)
    with theirs:
        guard._watch(
            theirs, guard.Duty(lambda: True, confirm, lambda why: taken.append((clock.now - begun, why)))
        )
    return taken


def test_rules_that_nobody_confirms_are_taken_back_at_the_time_that_the_guard_was_told(clock: Clock) -> None:
    assert taken_back(clock, 600, lambda: False) == [(600, "it was not confirmed in time")]


def test_a_failed_look_at_the_connections_confirms_nothing(clock: Clock) -> None:
    def look() -> bool:
        raise MemoryError

    assert taken_back(clock, 600, look) == [(600, "it was not confirmed in time")]


def test_a_guard_that_cannot_take_rules_back_tries_it_for_an_hour(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, tried, told = clock.now, [], []

    def refuse(why: str) -> None:
        tried.append(clock.now - begun)
        raise FileError("No space left on device")

    monkeypatch.setattr(guard, "tell_everyone", told.append)
    guard._insist(refuse, "it was not confirmed in time")
    assert tried[-1] >= 3600 and max(b - a for a, b in pairwise(tried)) <= 60
    first, last = told
    assert "No space left on device; trying again for an hour" in first
    assert "No space left on device; hitables rollback tries it once more" in last


def test_a_guard_that_has_ended_is_not_alive_although_its_parent_has_not_noticed() -> None:
    child = os.fork()
    if not child:
        for each in guard.IGNORED:
            signal.signal(each, signal.SIG_IGN)
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert not guard.is_alive(child)
    os.waitpid(child, 0)


def test_the_time_that_is_left_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "clock_gettime", lambda clock: clock)
    assert since_boot() == time.CLOCK_BOOTTIME
