"""`hitables apply`, `confirm` and `rollback` as functions: from files to a firewall that can be taken back.

Order of an apply: read, compile, prove and try the new rules; report what changes; check that this session is
not locked out; record what runs now; start the guard; load; leave the confirmation to the guard.  Until the
guard runs, nothing is changed.  From then on this process may end in any way: the kernel ends with the new
rules, confirmed, or with the old ones.
"""

from __future__ import annotations

import contextlib
import enum
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..compiler.options import Options
from ..errors import HitablesError, LiveError
from ..interrupts import deferred
from ..ir.fields import Family
from ..ir.foreign import is_foreign, patterns_of
from ..ir.packet import Backend
from . import guard as guards
from . import lockout, texts
from .connections import established
from .counts import keyed, of_source, recognised
from .drift import as_named, holds
from .kernel import Kernel
from .load import Change, Wanted, perform
from .prepare import Found, Prepared, find, prepare
from .store import (
    CONFIRMED,
    ENDED,
    FOUND,
    ROLLED_BACK,
    WAITING,
    Half,
    Record,
    State,
    Store,
    Waiting,
    boot_id,
)
from .texts import Tables


@dataclass(frozen=True, slots=True)
class Request:
    """What to apply, and how.

    files       by family: name and text of a rule set
    backend     None: that of the tool called iptables
    leave       patterns and presets of foreign chains
    options     of the compiler; None: load the files as they are
    confirm     seconds after which an unconfirmed rule set is rolled back; 0: it is confirmed at once
    check       a command of the shell whose success confirms the rule set, and whose failure takes it back
    connection  whether a new connection from the client of this SSH session confirms it
    must        packets that the new rules must let pass
    force       load rules that would lock out this session, or packets of *must*
    """

    files: Mapping[Family, tuple[str, str]]
    folder: str
    backend: Backend | None = None
    leave: tuple[str, ...] = ()
    options: Options | None = field(default_factory=Options)
    timeout: float | None = None
    confirm: float = 60.0
    check: str = ""
    connection: bool = False
    must: tuple[str, ...] = ()
    force: bool = False
    dry_run: bool = False


class Result(enum.Enum):
    """What an apply did."""

    NOTHING = "nothing to do"
    WOULD_CHANGE = "would change"
    WAITING = "waiting"
    CONFIRMED = "confirmed"


@dataclass(slots=True)
class Ready:
    """One family of an apply that can be loaded; *known*: what the kernel holds, with keys."""

    kernel: Kernel
    found: Found
    prepared: Prepared
    known: Tables
    change: Change


@dataclass(slots=True)
class Report:
    """Where an apply reports to.

    stage   the name of each stage as it begins
    tell    a message for the user
    differ  is called with the families and the confirmed record before anything is loaded
    """

    stage: Callable[[str], None] = lambda stage: None
    tell: Callable[[str], None] = lambda message: None
    differ: Callable[[Sequence[Ready], Record | None], None] = lambda ready, loaded: None


# ---- apply ----


def apply(request: Request, report: Report) -> Result:
    """Apply the files of *request*.  Errors are HitablesError; then the kernel has its old rules."""
    request = replace(request, folder=os.path.abspath(request.folder))  # the guard has another directory
    session = lockout.session_of(os.environ)
    if request.connection and session is None:
        raise HitablesError("no SSH session: SSH_CONNECTION is not set, so no new connection can confirm")
    with Store.open(request.folder, create=not request.dry_run or not Path(request.folder).exists()) as store:
        state = store.state()
        _check_nothing_waits(state)
        ready = [_ready(request, family, state, store, report) for family in sorted(request.files)]
        for each in ready:
            for note in each.prepared.merged.notes:
                report.tell(note)
        if all(each.change.is_idle for each in ready):
            if not state.confirmed and not request.dry_run:
                _record_as_is(request, ready, state, store)
            return Result.NOTHING
        report.differ(ready, store.record(state.confirmed) if state.confirmed else None)
        _check_lockout(request, ready, session, report)
        if request.dry_run:
            return Result.WOULD_CHANGE
        return _load(request, ready, state, store, session, report)


def _check_nothing_waits(state: State) -> None:
    waiting = state.waiting
    if waiting is None:
        return
    rest = max(0, round(waiting.until - time.time()))
    alive = guards.is_alive(waiting.guard)
    when = f"it is rolled back in {rest} s" if alive else "its guard has ended"
    raise HitablesError(
        f"rule set {waiting.number} waits for its confirmation ({when}): "
        "hitables confirm, or hitables rollback"
    )


def _ready(request: Request, family: Family, state: State, store: Store, report: Report) -> Ready:
    name, text = request.files[family]
    patterns = patterns_of(request.leave)
    kernel = Kernel(family, request.backend, [store.lock])
    report.stage(f"reading the kernel, IPv{int(family)}")
    found = find(kernel, patterns)
    known = known_tables(found, _confirmed_half(state, store, family), patterns)
    prepared = prepare(
        kernel, found, text, name, patterns, request.options, request.timeout, report.stage, known
    )
    change = Change(kernel, prepared.wanted, lambda name: is_foreign(name, patterns))
    return Ready(kernel, found, prepared, known, change)


def _confirmed_half(state: State, store: Store, family: Family) -> Half | None:
    return store.record(state.confirmed).halves.get(family) if state.confirmed else None


def known_tables(found: Found, loaded: Half | None, patterns: Sequence[str]) -> Tables:
    """What the kernel holds, with keys: those of what was loaded, for rules that are still there."""
    tables = keyed(found.tables, of_source(found.program))
    return recognised(tables, as_named(tables, loaded, patterns)) if loaded is not None else tables


def _check_lockout(
    request: Request, ready: Sequence[Ready], session: lockout.Session | None, report: Report
) -> None:
    refusals = []
    for each in ready:
        prepared, family = each.prepared, each.kernel.family

        def name_of(line: int, file: str = prepared.file) -> str:
            return f"{file}:{line}" if 0 < line < texts.LINES_OF_KERNEL else "the kernel"

        if session is not None and session.family is family:
            if not session.interface:
                report.tell("warning: the interface of this SSH session is unknown; it is taken for none")
            refusals += lockout.session_refusals(session, prepared.source, each.kernel.backend, name_of)
        must = [packet for packet in request.must if lockout.family_of(packet) in (family, None)]
        refusals += lockout.must_refusals(must, prepared.source, each.kernel.backend, name_of)
    if refusals and request.force:
        for refusal in refusals:
            report.tell(f"warning: would not pass: {refusal}")
    else:
        lockout.check(refusals)


def _record_as_is(request: Request, ready: Sequence[Ready], state: State, store: Store) -> None:
    """The first apply of what is loaded already: it is recorded, so that later ones know it."""
    number = state.last + 1
    state = store.add(state, _record(request, ready, number, 0), WAITING)
    store.confirm(state, number)
    store.log(f"{number}: confirmed, as it was loaded already")


def _record(request: Request, ready: Sequence[Ready], number: int, before: int) -> Record:
    halves = {
        each.kernel.family: Half(
            each.change.loaded(), each.change.generated(), each.prepared.text, each.prepared.file
        )
        for each in ready
    }
    patterns = patterns_of(request.leave)
    return Record(number, time.time(), ready[0].kernel.backend.value, patterns, halves, before)


def _before(request: Request, ready: Sequence[Ready], state: State, store: Store) -> tuple[State, int]:
    """The record of what runs now, which is written unless it is the confirmed one."""
    patterns = patterns_of(request.leave)
    halves = {}
    for each in ready:
        tables = {
            table: {name: chain for name, chain in chains.items() if name not in left}
            for table, chains in each.known.items()
            if table in each.prepared.wanted.tables
            for left in [each.change.merged.left[table]]
        }
        absent = tuple(table for table in each.prepared.wanted.tables if table not in tables)
        halves[each.kernel.family] = Half(tables, {}, each.found.text, "the kernel", absent)
    if state.confirmed and _is_same(store.record(state.confirmed), halves, patterns):
        return state, state.confirmed
    number = state.last + 1
    record = Record(number, time.time(), ready[0].kernel.backend.value, patterns, halves, state.confirmed)
    return store.add(state, record, FOUND), number


def _is_same(record: Record, halves: Mapping[Family, Half], patterns: Sequence[str]) -> bool:
    """Whether *record* has all tables of *halves*, with the same rules."""
    for family, half in halves.items():
        recorded = record.halves.get(family)
        if recorded is None or half.absent or half.tables.keys() - recorded.tables.keys():
            return False
        same = replace(recorded, tables={table: recorded.tables[table] for table in half.tables})
        if not holds(half.tables, same, patterns):
            return False
    return True


def _load(
    request: Request,
    ready: Sequence[Ready],
    state: State,
    store: Store,
    session: lockout.Session | None,
    report: Report,
) -> Result:
    state, before = _before(request, ready, state, store)
    number = state.last + 1
    record = _record(request, ready, number, before)
    state = store.add(state, record, WAITING)
    waiting = Waiting(number, before, 0.0, boot_id())
    store.set_state(replace(state, waiting=waiting))
    seen = _connections(session, request)
    guard = guards.start(
        lambda: is_waiting(request.folder, number),
        lambda: _until(request.folder, number),
        lambda: _confirmed_by_connection(request, number, session, seen),
        lambda why: _guard_rolls_back(request.folder, number, why),
    )
    state = replace(state, waiting=replace(waiting, guard=guard.pid))
    try:
        store.set_state(state)
        if request.confirm:
            guards.start_timer(Path(request.folder), number, request.confirm + 60)
        report.stage("loading")
        seconds = perform([each.change for each in ready])
    except HitablesError as error:
        with deferred():
            _undo(store, state, str(error))
            guard.abandon()
        raise LiveError(f"{error}\nthe old rules are loaded again") from None
    except BaseException:
        guard.abandon()  # it rolls back as soon as this process releases the lock
        raise
    how = f"within {seconds * 1000:.1f} ms" if seconds else "in one commit"
    store.log(f"{number}: loaded; all tables changed {how}")
    report.tell(f"loaded as rule set {number}; all tables changed {how}")
    if not request.confirm and not request.check:
        return _confirm_now(store, state, guard)
    until = time.time() + request.confirm
    state = replace(state, waiting=replace(waiting, guard=guard.pid, until=until))
    store.set_state(state)
    guard.loaded()
    if request.check:
        return _checked(request, store, state)
    return Result.WAITING


def _confirm_now(store: Store, state: State, guard: guards.Guard) -> Result:
    assert state.waiting is not None
    number = state.waiting.number
    state = store.confirm(state, number)
    guard.loaded()
    guards.stop_timer(number)
    store.log(f"{number}: confirmed")
    store.forget_old(state)
    return Result.CONFIRMED


def _checked(request: Request, store: Store, state: State) -> Result:
    """Run the command that decides."""
    assert state.waiting is not None
    number = state.waiting.number
    limit = request.confirm or None
    try:
        done = subprocess.run(request.check, shell=True, check=False, timeout=limit)
        why = "" if done.returncode == 0 else f"it ended with exit status {done.returncode}"
    except subprocess.TimeoutExpired:
        why = f"it did not end within {request.confirm:g} s"
    if why:
        _undo(store, state, f"the check failed: {why}")
        raise HitablesError(
            f"--check {request.check!r}: {why}; rule set {number} is taken back, and the old rules are loaded"
        )
    state = store.confirm(state, number)
    guards.stop_timer(number)
    store.log(f"{number}: confirmed by the check")
    store.forget_old(state)
    return Result.CONFIRMED


def _connections(session: lockout.Session | None, request: Request) -> frozenset[tuple[str, int]]:
    if session is None or not request.connection:
        return frozenset()
    return established(session.client, session.server_port)


# ---- the guard ----


def is_waiting(folder: str, number: int) -> bool:
    """Whether record *number* waits for its confirmation; asked without the lock."""
    try:
        waiting = Store(Path(folder).resolve(), -1).state().waiting
    except HitablesError:
        return True  # the file is being replaced, or the disk fails: look again
    return waiting is not None and waiting.number == number


def _until(folder: str, number: int) -> float:
    waiting = Store(Path(folder).resolve(), -1).state().waiting
    return waiting.until if waiting is not None and waiting.number == number else 0.0


def _confirmed_by_connection(
    request: Request, number: int, session: lockout.Session | None, seen: frozenset[tuple[str, int]]
) -> bool:
    if session is None or not request.connection or not _connections(session, request) - seen:
        return False
    with contextlib.suppress(HitablesError):
        confirm(request.folder, number, "a new connection")
        return True
    return False


def _guard_rolls_back(folder: str, number: int, why: str) -> None:
    with Store.open(folder, wait=60.0) as store:
        state = store.state()
        if state.waiting is None or state.waiting.number != number:
            return
        _undo(store, state, why)
    guards.tell_everyone(
        f"hitables: rule set {number} was taken back, because {why}; the old rules are loaded"
    )


def _undo(store: Store, state: State, why: str) -> None:
    """Load what ran before the rule set that waits."""
    waiting = state.waiting
    assert waiting is not None
    bring_back(store, store.record(waiting.before), store.record(waiting.number))
    status = {**state.status, waiting.number: ROLLED_BACK}
    store.set_state(replace(state, waiting=None, status=status))
    guards.stop_timer(waiting.number)
    store.log(f"{waiting.number}: taken back, because {why}; {waiting.before or 'nothing'} is loaded")


# ---- confirm and rollback ----


def confirm(folder: str, number: int | None = None, by: str = "") -> int:
    """Confirm the rule set that waits; its number."""
    with Store.open(folder) as store:
        state = store.state()
        waiting = state.waiting
        if waiting is None or number not in (None, waiting.number):
            last = max(state.status, default=0)
            ended = f": rule set {last} is {state.status[last]}" if last else ""
            raise HitablesError(f"no rule set waits for its confirmation{ended}")
        if not waiting.until:
            raise HitablesError(f"rule set {waiting.number} was not loaded completely: hitables rollback")
        state = store.confirm(state, waiting.number)
        guards.stop_timer(waiting.number)
        store.log(f"{waiting.number}: confirmed" + (f" by {by}" if by else ""))
        store.forget_old(state)
        return waiting.number


def roll_back(
    folder: str, number: int | None = None, waiting_only: int | None = None
) -> tuple[int, list[str]]:
    """Load an earlier rule set: the one before, or *number*; its number, and notes for the user.

    *waiting_only*: do it only if this record still waits.
    """
    with Store.open(folder, wait=60.0) as store:
        state = store.state()
        waiting = state.waiting
        if waiting_only is not None and (waiting is None or waiting.number != waiting_only):
            return 0, []
        if waiting is not None and number in (None, waiting.before):
            _undo(store, state, "hitables rollback was called")
            return waiting.before, []
        current = waiting.number if waiting else state.confirmed
        if not current:
            raise HitablesError(f"{folder}: no rule set is loaded from here, so none can be taken back")
        wanted = number or store.record(current).before
        if not wanted:
            raise HitablesError(f"{folder}: there is no rule set before {current}")
        if wanted == current and waiting is not None:
            raise HitablesError(f"rule set {current} is loaded, and waits: hitables confirm")
        notes = bring_back(store, store.record(wanted), store.record(current))
        if waiting is not None:
            state = replace(state, waiting=None, status={**state.status, waiting.number: ROLLED_BACK})
            guards.stop_timer(waiting.number)
        store.confirm(state, wanted)
        store.log(f"{wanted}: loaded again in place of {current}")
        return wanted, notes


def bring_back(store: Store, record: Record, current: Record) -> list[str]:
    """Load *record* in place of *current*; notes on the chains of others.

    Chains of others are those of either record's patterns, as they are now.
    """
    patterns = tuple(dict.fromkeys((*current.leave, *record.leave)))
    changes = []
    for family, half in record.halves.items():
        kernel = _kernel(family, record, [store.lock])
        tables = {**half.tables, **{table: texts.empty(table) for table in half.absent}}
        loaded = current.halves.get(family)
        known = as_named(kernel.read(), loaded, patterns) if loaded is not None else {}
        wanted = Wanted(tables, half.generated, known)
        changes.append(Change(kernel, wanted, lambda name: is_foreign(name, patterns)))
    perform(changes)
    return [note for change in changes for note in change.merged.notes]


def _kernel(family: Family, record: Record, handles: Sequence[int]) -> Kernel:
    return Kernel(family, Backend(record.backend), handles)


__all__ = ["CONFIRMED", "ENDED", "Report", "Request", "Result", "apply", "confirm", "roll_back"]
