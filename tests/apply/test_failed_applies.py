"""Whatever fails once rules are loaded, or while they are, the old rules come back, and the error says so."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.firewall import Firewall, plain
from support.waiting_rules import NEW, OLD, status_of

import hitables.apply.check_command
import hitables.apply.run
from hitables.apply import guard
from hitables.apply.records import ApplyState
from hitables.apply.request import ApplyRequest, Reporter
from hitables.apply.run import apply
from hitables.apply.store import StateDirectory
from hitables.errors import FileError, HitablesError, LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend

pytestmark = [pytest.mark.needs_kernel, pytest.mark.either_backend]

FULL = "state.json: No space left on device"


def error_of(folder: str, backend: Backend, confirm: float, stage: Callable[[str], None]) -> str:
    request = ApplyRequest({Family.IPV4: ("new.rules", NEW)}, folder, backend, confirm=confirm)
    with pytest.raises(HitablesError) as raised:
        apply(request, Reporter(stage=stage))
    return str(raised.value)


def nothing(stage: str) -> None:
    pass


def with_a_killed_guard(folder: str, backend: Backend) -> str:
    def kill_at_loading(stage: str) -> None:
        if stage == "loading":
            waiting = StateDirectory(Path(folder), -1).state().waiting
            assert waiting is not None
            os.kill(waiting.guard, signal.SIGKILL)

    return error_of(folder, backend, 600, kill_at_loading)


def test_rules_without_a_guard_are_taken_back_at_once(firewall: Firewall) -> None:
    firewall.apply(firewall.file(OLD))
    before = plain(firewall.save())
    error = firewall.namespace.call(with_a_killed_guard, str(firewall.state), firewall.backend)
    assert error == (
        "the process that would roll back has ended, or does not answer\nthe old rules are loaded again"
    )
    assert plain(firewall.save()) == before
    assert status_of(firewall)[max(status_of(firewall))] == "rolled back"
    firewall.apply(firewall.file(NEW))


def on_a_full_disk(folder: str, backend: Backend, confirm: float) -> str:
    """The state can be written until the rules are loaded."""
    set_state = StateDirectory.set_state

    def refuse(self: StateDirectory, state: ApplyState) -> None:
        if state.waiting is None or state.waiting.until:
            raise FileError(FULL)
        set_state(self, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateDirectory, "set_state", refuse)
        return error_of(folder, backend, confirm, nothing)


@pytest.mark.parametrize("confirm", [0, 600], ids=["at once", "later"])
def test_a_disk_that_is_full_when_rules_are_loaded_brings_the_old_ones_back(
    firewall: Firewall, confirm: float
) -> None:
    firewall.load(OLD)
    before = plain(firewall.save())
    error = firewall.namespace.call(on_a_full_disk, str(firewall.state), firewall.backend, confirm)
    assert error == f"{FULL}\nthe old rules are loaded again"
    assert plain(firewall.save()) == before
    assert status_of(firewall)[2] == "rolled back"


def with_a_way_back_that_fails(folder: str, backend: Backend, load_fails: bool) -> tuple[str, bool]:
    """The error of an apply whose rules can be taken back by the guard alone; whether the guard was told."""
    told: list[bool] = []

    def refuse(*arguments: object, **more: object) -> None:
        raise LiveError("the kernel is busy")

    def fail(*arguments: object, **more: object) -> None:
        raise FileError(FULL)

    def abandon(self: guard.Guard) -> None:
        told.append(True)
        self.connection.close()

    with pytest.MonkeyPatch.context() as patch:
        if load_fails:
            patch.setattr(hitables.apply.run, "perform", refuse)
        else:
            patch.setattr(guard.Guard, "loaded", refuse)
        patch.setattr(hitables.apply.run, "undo", fail)
        patch.setattr(hitables.apply.check_command, "undo", fail)
        patch.setattr(guard.Guard, "abandon", abandon)
        return error_of(folder, backend, 600, nothing), bool(told)


@pytest.mark.parametrize("load_fails", [True, False], ids=["load", "wait"])
def test_both_reasons_are_told_if_the_way_back_fails_too_and_the_guard_goes_on(
    firewall: Firewall, load_fails: bool
) -> None:
    firewall.load(OLD)
    before = plain(firewall.save())
    error, told = firewall.namespace.call(
        with_a_way_back_that_fails, str(firewall.state), firewall.backend, load_fails
    )
    assert error == f"the kernel is busy\n{FULL}\nhitables status says what becomes of the rules"
    assert told
    firewall.until(lambda: "taken back, because the loading ended half-way" in firewall.log())
    assert plain(firewall.save()) == before
