"""A guard knows what the user has asked for, and takes rules back then, whatever fails meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.firewall import Firewall
from support.small_namespace import Namespace
from support.waiting_rules import NEW

from hitables.apply import guard
from hitables.apply.boot_clock import since_boot
from hitables.apply.confirm import roll_back
from hitables.apply.request import ApplyRequest, Reporter
from hitables.apply.run import _check_no_guard, apply
from hitables.apply.store import StateDirectory
from hitables.errors import FileError, HitablesError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend


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


def test_what_a_guard_cannot_find_out_is_logged() -> None:
    def look() -> bool:
        raise KeyError("why")

    logged: list[str] = []
    duty = guard.Duty(look, look, lambda why: None, logged.append)
    assert guard._is_waiting(duty) and not guard._confirms(duty)
    assert len(logged) == 2 and all(line.endswith("is not known: KeyError: 'why'") for line in logged)


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


def test_a_guard_ignores_what_ends_or_stops_the_processes_of_a_session() -> None:
    started = guard.start(guard.Duty(lambda: False, lambda: False, lambda why: None))
    lines = Path(f"/proc/{started.pid}/status").read_text().splitlines()
    (ignored,) = [int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:")]
    for name in ("HUP", "INT", "QUIT", "TERM", "PIPE", "ALRM", "USR1", "USR2", "TSTP", "TTOU"):
        assert ignored >> signal.Signals[f"SIG{name}"] - 1 & 1, name
    started.abandon()
    guard.wait_for_end(started.pid)


def test_a_guard_that_has_ended_is_not_alive_although_its_parent_has_not_noticed() -> None:
    child = os.fork()
    if not child:
        for each in guard.IGNORED:
            signal.signal(each, signal.SIG_IGN)
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert not guard.is_alive(child)
    os.waitpid(child, 0)


@pytest.mark.parametrize(("process", "name"), [(77, "process 77"), (0, "a process of another container")])
def test_a_guard_whose_process_is_not_known_is_named_without_a_number(
    process: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "running", lambda: process)
    monkeypatch.setattr(guard, "wait_for_end", lambda pid: None)
    with pytest.raises(HitablesError, match=rf"wait for their confirmation \(guard: {name}\)"):
        _check_no_guard()


def test_the_time_that_is_left_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "clock_gettime", lambda clock: clock)
    assert since_boot() == time.CLOCK_BOOTTIME


@dataclass
class Given:
    """What guard and systemd are told by an apply with `--confirm 600`, and whether a connection confirms."""

    seconds: list[float]
    begun: list[list[str]]
    ended: list[list[str]]
    confirms: bool
    waits: bool
    guard: int


def applied(folder: str) -> Given:
    """Apply rules in a session of ssh, open a new one, and roll back."""
    duties: list[guard.Duty] = []
    seconds: list[float] = []
    commands: list[list[str]] = []
    start, loaded = guard.start, guard.Guard.loaded

    def start_with(duty: guard.Duty) -> guard.Guard:
        duties.append(duty)
        return start(duty)

    def loaded_with(self: guard.Guard, given: float) -> bool:
        seconds.append(given)
        return loaded(self, given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSH_CONNECTION", "127.0.0.1 40000 127.0.0.1 2222")
        patch.setattr(guard, "start", start_with)
        patch.setattr(guard.Guard, "loaded", loaded_with)
        patch.setattr(guard, "SYSTEMD", Path("/"))
        patch.setattr(guard, "_is_of_systemd", lambda: True)
        patch.setattr(guard, "shutil", SimpleNamespace(which=lambda name: name))
        patch.setattr(guard, "_quietly", lambda command: commands.append(list(command)) or True)
        request = ApplyRequest({Family.IPV4: ("new.rules", NEW)}, folder, Backend.NFT, confirm=600)
        apply(request, Reporter())
        (duty,), begun = duties, list(commands)
        duty.confirm()  # the first look
        address = "127.0.0.1", 2222
        with (
            socket.create_server(address) as listener,
            socket.create_connection(address),
            listener.accept()[0],
        ):
            confirms = duty.confirm()
        waiting = StateDirectory(Path(folder), -1).state().waiting
        roll_back(folder)
    process = waiting.guard if waiting is not None else 0
    return Given(seconds, begun, commands[len(begun) :], confirms, waiting is not None, process)


@pytest.fixture(scope="module")
def given(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Given:
    request.getfixturevalue("needs_kernel")
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path_factory.mktemp("given"), Backend.NFT)
        return namespace.call(applied, str(firewall.state))


@pytest.mark.needs_kernel
def test_a_new_connection_confirms_only_where_it_was_asked_to(given: Given) -> None:
    assert not given.confirms and given.waits


@pytest.mark.needs_kernel
def test_the_guard_is_told_the_time_that_the_user_has_named(given: Given) -> None:
    assert given.seconds == [600]


@pytest.mark.needs_kernel
def test_systemd_has_a_timer_as_long_as_rules_wait(given: Given) -> None:
    """It is later than the guard, also if loading the rules takes a while.

    Rules of another state directory that wait with the same number have a timer, too.
    """
    (begun,) = given.begun
    unit = f"hitables-rollback-2-{given.guard}"
    assert begun[:4] == ["systemd-run", "--quiet", "--on-active=665s", f"--unit={unit}"]
    assert ["systemctl", "stop", f"{unit}.timer"] in given.ended
