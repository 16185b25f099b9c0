"""`hitables apply`, `confirm` and `rollback` as functions: from files to a firewall that can be taken back.

Order of an apply: read, compile, prove and try the new rules; report what changes; check that this session is
not locked out; record what runs now; start the guard; load; leave the confirmation to the guard.  Until the
guard runs, nothing is changed.  From then on this process may end in any way: the kernel ends with the new
rules, confirmed, or with the old ones.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..compiler.options import Options
from ..errors import HitablesError, InvalidOption, LiveError
from ..files import is_there
from ..interrupts import answered, deferred
from ..ir.fields import Family
from ..ir.foreign import is_foreign, patterns_of, unmatched
from ..ir.foreign import recognised as recognised_presets
from ..ir.packet import Backend
from ..ir.program import Program
from ..kernel.checked_save import also_present
from ..parse.iptables import read
from ..version import __version__
from . import docker_raw, texts
from . import guard as guards
from .confirm import duty, undo
from .counts import keyed, of_source, recognised
from .drift import as_named, cut_off_jumps, differences, holds, moved_jumps
from .in_force import InForce, confirm_record, in_force, own_places
from .kernel import Kernel
from .load import RuleSetChange, perform
from .lockout import LockoutCheck, refuse
from .must_packets import check_must, family_of, must_unasked
from .neighbours import flushers
from .prepare import Found, find, prepare
from .recording import Ready, Recorder, has_changed, is_same, what_runs, what_will_run
from .ssh_session import SshSession, may_be_remote, session_of
from .status import shown
from .store import (
    CONFIRMED,
    FOUND,
    WAITING,
    ApplyState,
    Half,
    StateDirectory,
    Waiting,
    boot_id,
)
from .texts import Tables


@dataclass(frozen=True, slots=True)
class ApplyRequest:
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


class ApplyResult(enum.Enum):
    """What an apply did."""

    NOTHING = "nothing to do"
    WOULD_CHANGE = "would change"
    WAITING = "waiting"
    CONFIRMED = "confirmed"


@dataclass(slots=True)
class Reporter:
    """What an apply calls to report how it goes.

    stage         is called with the name of each stage as it begins
    tell          is called with each message for the user
    show_changes  is called with the families and what is confirmed before anything is loaded
    """

    stage: Callable[[str], None] = lambda stage: None
    tell: Callable[[str], None] = lambda message: None
    show_changes: Callable[[Sequence[Ready], InForce | None], None] = lambda ready, loaded: None


# ---- apply ----


def apply(request: ApplyRequest, report: Reporter) -> ApplyResult:
    """Apply the files of *request*.  Errors are HitablesError; then the kernel has its old rules."""
    request = replace(request, folder=os.path.abspath(request.folder))  # the guard has another directory
    session = session_of(os.environ)
    if request.connection and session is None:
        raise HitablesError("no SSH session: SSH_CONNECTION is not set, so no new connection can confirm")
    check_must(request.must, request.files)
    if request.dry_run and not is_there(Path(request.folder)):
        with tempfile.TemporaryDirectory(prefix="hitables-") as folder:
            return _applied(replace(request, folder=folder), report, session)
    return _applied(request, report, session)


def _applied(request: ApplyRequest, report: Reporter, session: SshSession | None) -> ApplyResult:
    """`apply`, once the arguments are known to be good; the folder exists if nothing may be changed."""
    with StateDirectory.open(request.folder, create=not request.dry_run) as store:
        state = store.state()
        _check_nothing_waits(state)
        if not request.must and _is_confirmed(request, state, store):
            return ApplyResult.NOTHING
        ready = [_ready(request, family, state, store, report) for family in sorted(request.files)]
        for each in ready:
            for note in each.prepared.merged.notes:
                report.tell(note)
        if state.confirmed:
            _tell_of_moved_jumps(ready, in_force(store, state.confirmed), report)
        if all(each.change.is_idle for each in ready):
            _check_lockout(request, ready, None, report)
            if request.dry_run:
                pass
            elif state.confirmed and _is_recorded(request, ready, state, store):
                _record_leave(request, ready, in_force(store, state.confirmed), store)
            else:
                _record_as_is(request, ready, state, store, report)
            return ApplyResult.NOTHING
        for each in ready:
            _tell_of_presets(each, patterns_of(request.leave), report)
            _tell_of_docker(each, report)
        for warning in flushers():
            report.tell(warning)
        report.show_changes(ready, in_force(store, state.confirmed) if state.confirmed else None)
        if session is None and may_be_remote(os.environ):
            report.tell(
                "no SSH session is known here (SSH_CONNECTION), so it is not checked that these rules keep it"
            )
        _check_lockout(request, ready, session, report)
        if request.dry_run:
            return ApplyResult.WOULD_CHANGE
        return _load(request, ready, state, store, session, report)


def _check_nothing_waits(state: ApplyState) -> None:
    waiting = state.waiting
    if waiting is None:
        _check_no_guard()
        return
    rest = max(0, round(waiting.until - time.time()))
    alive = guards.is_alive(waiting.guard)
    when = f"it is rolled back in {rest} s" if alive else "its guard has ended"
    raise HitablesError(
        f"rule set {waiting.number} waits for its confirmation ({when}): "
        "hitables confirm, or hitables rollback"
    )


def _check_no_guard() -> None:
    """No rules wait whose state is elsewhere: they would become those that a rollback loads."""
    guard = guards.running()
    if guard is not None:
        guards.wait_for_end(guard)  # it may have nothing to do any more
        guard = guards.running()
    if guard is not None:
        raise HitablesError(
            "rules of another state directory, or of one that was removed, wait for their confirmation "
            f"(guard: process {guard}): confirm them there, or try again when they are taken back"
        )


def _options(request: ApplyRequest) -> str:
    """What a record states about its compiling."""
    return f"{__version__} {request.options or 'as it is'}"


def _is_confirmed(request: ApplyRequest, state: ApplyState, store: StateDirectory) -> bool:
    """Whether these files were applied last, in the same way, and are what the kernel holds.

    Then there is nothing to compile.
    """
    if not state.confirmed:
        return False
    record = store.record(state.confirmed)
    patterns = patterns_of(request.leave)
    same = record.leave == patterns and record.options == _options(request)
    if not same or request.files.keys() != record.halves.keys():
        return False
    if request.backend is not None and request.backend.value != record.backend:
        return False
    for family, (_, text) in request.files.items():
        if text != record.halves[family].source:
            return False
        kernel = Kernel(family, request.backend, [store.lock])
        if kernel.backend.value != record.backend:
            return False
        present, half = find(kernel, patterns).tables, record.halves[family]
        strange = itertools.chain(
            moved_jumps(present, half, patterns), cut_off_jumps(present, half, patterns)
        )
        if not holds(present, half, patterns) or any(strange):
            return False
    return True


def _ready(
    request: ApplyRequest, family: Family, state: ApplyState, store: StateDirectory, report: Reporter
) -> Ready:
    name, text = request.files[family]
    patterns = patterns_of(request.leave)
    kernel = Kernel(family, request.backend, [store.lock])
    report.stage(f"reading the kernel, IPv{int(family)}")
    found = find(kernel, patterns)
    other_backend = also_present(family, kernel.backend)
    if other_backend:
        report.tell(other_backend)
    known = known_tables(found, _confirmed_half(state, store, family), patterns)
    _check_leave(request, family, found, report)
    prepared = prepare(
        kernel, found, text, name, patterns, request.options, request.timeout, report.stage, known
    )
    change = RuleSetChange(kernel, prepared.wanted, lambda name: is_foreign(name, patterns))
    return Ready(kernel, found, prepared, known, change)


def _check_leave(request: ApplyRequest, family: Family, found: Found, report: Reporter) -> None:
    """Tell of names of --leave that no chain has; InvalidOption for one that resembles a preset."""
    strange = [word for word, _ in unmatched(request.leave, [found.program])]
    if not strange:
        return
    name, text = request.files[family]
    for word, preset in unmatched(strange, [read(text, family=family, name=name)]):
        if preset:
            raise InvalidOption(f"--leave {word}: no chain has this name; did you mean {preset}?")
        report.tell(f"warning: --leave {word}: no chain has this name")


def _tell_of_moved_jumps(ready: Sequence[Ready], force: InForce, report: Reporter) -> None:
    """Tell of jumps to chains of --leave that stand behind more rules than in *force*."""
    for each in ready:
        half = force.half(each.kernel.family)
        for moved in moved_jumps(each.found.tables, half, force.leave()) if half is not None else ():
            report.tell(f"warning: {moved}; hitables status --repair before apply moves it back")


def _tell_of_presets(ready: Ready, patterns: Sequence[str], report: Reporter) -> None:
    """Tell of chains of known programs in the tables that change."""
    changing = {table for table, plan in ready.change.plans.items() if not plan.is_idle}
    program = ready.found.program
    program = replace(program, tables=tuple(table for table in program if table.name in changing))
    for preset in recognised_presets(program, patterns):
        report.tell(
            f"warning: the kernel has chains of {preset}, which these rules replace; "
            f"--leave {preset} keeps them"
        )


def _tell_of_docker(ready: Ready, report: Reporter) -> None:
    rules = docker_raw.removed(ready.found.program, ready.prepared.source)
    if rules:
        file = ready.prepared.file
        remedy = f"leave table raw out of {file}, and it stays as it is"
        report.tell(docker_raw.warning(rules, file, remedy))


def _confirmed_half(state: ApplyState, store: StateDirectory, family: Family) -> Half | None:
    return in_force(store, state.confirmed).half(family) if state.confirmed else None


def known_tables(kernel: Found, loaded: Half | None, patterns: Sequence[str]) -> Tables:
    """What the kernel holds, with keys: those of what was loaded, for rules that are still there."""
    tables = keyed(kernel.tables, of_source(kernel.program))
    return recognised(tables, as_named(tables, loaded, patterns)) if loaded is not None else tables


def _check_lockout(
    request: ApplyRequest, ready: Sequence[Ready], session: SshSession | None, report: Reporter
) -> None:
    refusals = []
    programs = [_with_tables_that_stay(each) for each in ready]
    for word in must_unasked(request.must, programs):
        report.tell(f"warning: {word}")
    for each, program in zip(ready, programs, strict=True):
        prepared, family = each.prepared, each.kernel.family
        own = {table.name for table in prepared.source}

        def name_of(table: str, line: int, file: str = prepared.file, own: set[str] = own) -> str:
            return f"{file}:{line}" if table in own and 0 < line < texts.LINES_OF_KERNEL else "the kernel"

        check = LockoutCheck(program, own, each.kernel.backend, name_of)
        if session is not None and session.family is family:
            if not session.interface:
                report.tell(
                    "warning: the interface of this SSH session is unknown; rules with -i or -o are "
                    "taken not to match it"
                )
            check.trace_session(session)
        check.trace_must([packet for packet in request.must if family_of(packet) in (family, None)])
        refusals += check.refusals
        for caution in dict.fromkeys(check.cautions):
            report.tell(f"warning: {caution}")
    if refusals and request.force:
        for refusal in refusals:
            report.tell(f"warning: would not pass: {refusal}")
    else:
        refuse(refusals)


def _with_tables_that_stay(ready: Ready) -> Program:
    """The new rules, and the tables of the kernel that they leave as they are."""
    source = ready.prepared.source
    own = {table.name for table in source}
    return replace(
        source, tables=(*source, *(table for table in ready.found.program if table.name not in own))
    )


def _is_recorded(
    request: ApplyRequest, ready: Sequence[Ready], state: ApplyState, store: StateDirectory
) -> bool:
    """Whether the rules that are loaded already are those that are confirmed."""
    force = in_force(store, state.confirmed)
    is_ours = force.record.backend == ready[0].kernel.backend.value
    return is_ours and is_same(force, what_will_run(ready), patterns_of(request.leave))


def _record_as_is(
    request: ApplyRequest, ready: Sequence[Ready], state: ApplyState, store: StateDirectory, report: Reporter
) -> None:
    """An apply of what somebody has loaded already: it is recorded, so that status and boots know it."""
    state, record = _recorder(request, ready, store).add(
        state, what_will_run(ready), WAITING, options=_options(request)
    )
    confirm_record(store, state, record.number)
    store.log(f"{record.number}: confirmed, as it was loaded already")
    report.tell(f"recorded as rule set {record.number}, and confirmed")


def _recorder(request: ApplyRequest, ready: Sequence[Ready], store: StateDirectory) -> Recorder:
    return Recorder(store, ready[0].kernel.backend.value, patterns_of(request.leave))


def _record_leave(
    request: ApplyRequest, ready: Sequence[Ready], force: InForce, store: StateDirectory
) -> None:
    """The rules are loaded already, and from now on other chains are left: status and rollback must know."""
    asked = {(each.kernel.family, table) for each in ready for table in each.prepared.wanted.tables}
    for part in force.parts:
        own = set(own_places(part))
        patterns = patterns_of(request.leave)
        if not own <= asked:
            patterns = tuple(dict.fromkeys((*part.leave, *patterns)))
        if own & asked and patterns != part.leave:
            store.set_leave(part.number, patterns)


def _read_again(
    request: ApplyRequest, ready: Sequence[Ready], state: ApplyState, store: StateDirectory, report: Reporter
) -> None:
    """Read what others changed while the rules were compiled, as a rollback must bring that back."""
    patterns = patterns_of(request.leave)
    for each in ready:
        each.change.read()
        now = what_runs([each])[each.kernel.family].tables
        was = {
            table: {
                name: chain for name, chain in chains.items() if name not in each.change.merged.left[table]
            }
            for table in now
            for chains in [each.known.get(table) or texts.empty(table)]
        }
        changed = list(differences(now, Half(was), patterns))
        if changed:
            family = each.kernel.family
            each.found = find(each.kernel, patterns)
            each.known = known_tables(each.found, _confirmed_half(state, store, family), patterns)
            wanted = replace(each.prepared.wanted, known=each.known)
            each.prepared = replace(each.prepared, wanted=wanted)
            each.change = RuleSetChange(each.kernel, wanted, each.change.is_foreign)
            _tell_of_replaced(family, changed, report)


def _tell_of_replaced(family: Family, changed: Sequence[str], report: Reporter) -> None:
    report.tell(
        f"warning: IPv{int(family)}: the rules of the kernel changed while the new ones were prepared: "
        f"{'; '.join(shown(changed))}.  The new rules replace these too; hitables rollback brings them back"
    )


def _load(
    request: ApplyRequest,
    ready: Sequence[Ready],
    state: ApplyState,
    store: StateDirectory,
    session: SshSession | None,
    report: Reporter,
) -> ApplyResult:
    _read_again(request, ready, state, store, report)
    recorder, running = _recorder(request, ready, store), what_runs(ready)
    state, before = recorder.before(state, running)
    state, record = recorder.add(state, what_will_run(ready), WAITING, before, _options(request))
    number = record.number
    store.begin_waiting(number)
    state = replace(state, waiting=Waiting(number, before, 0.0, boot_id()))
    store.set_state(state)
    guard = guards.start(duty(request.folder, number, session if request.connection else None))

    def set_waiting(**values: Any) -> None:
        nonlocal state
        assert state.waiting is not None
        state = replace(state, waiting=replace(state.waiting, **values))
        store.set_state(state)

    def add_what_came_since() -> None:
        """The new chains are staged: what others changed meanwhile belongs to the old rules, too."""
        nonlocal state, running
        halves = what_runs(ready)
        changed = {
            family: list(differences(half.tables, running[family], record.leave))
            for family, half in halves.items()
            if has_changed(half, running[family], record.leave)
        }
        if changed:
            running = halves
            for family, messages in changed.items():
                _tell_of_replaced(family, messages, report)
            state, late = recorder.add(state, halves, FOUND)
            store.set_before(number, late.number)
            set_waiting(before=late.number)

    try:
        set_waiting(guard=guard.pid)
        if request.confirm:
            guards.start_timer(Path(request.folder), number, guard.pid, request.confirm + 60)
        report.stage("loading")
        performed = perform([each.change for each in ready], add_what_came_since)
    except HitablesError as error:
        with deferred():
            undo(store, state, str(error))
            guard.abandon()
        raise LiveError(f"{error}\nthe old rules are loaded again") from None
    except BaseException:
        guard.abandon()  # it rolls back as soon as this process releases the lock
        raise
    how = f"within {performed.seconds * 1000:.1f} ms" if performed.seconds else "in one commit"
    store.log(f"{number}: loaded; all tables changed {how}")
    if request.confirm or request.check:
        set_waiting(until=time.time() + request.confirm)
    if request.confirm:  # else it waits until this process ends
        guard.loaded(request.confirm)
    report.tell(f"loaded as rule set {number}; all tables changed {how}")
    if performed.added:
        report.tell(
            "warning: other programs have added rules since: they stay, and hitables status shows them: "
            f"{'; '.join(shown(performed.added))}"
        )
    if performed.lost:
        report.tell(
            "warning: other programs changed rules while these were loaded; the new rules replace what they "
            f"added: {'; '.join(shown(performed.lost))}"
        )
    if not request.confirm and not request.check:
        return _confirm_now(store, state, guard)
    return _checked(request, store, state, guard) if request.check else ApplyResult.WAITING


def _confirm_now(store: StateDirectory, state: ApplyState, guard: guards.Guard) -> ApplyResult:
    assert state.waiting is not None
    number = state.waiting.number
    state = confirm_record(store, state, number)
    guard.loaded(0)
    guards.stop_timer(number)
    store.log(f"{number}: confirmed")
    store.forget_old(state)
    return ApplyResult.CONFIRMED


def _checked(
    request: ApplyRequest, store: StateDirectory, state: ApplyState, guard: guards.Guard
) -> ApplyResult:
    """Run the command that decides.  It may be a command of ours, so it runs without the lock."""
    assert state.waiting is not None
    number = state.waiting.number
    store.close()
    try:
        why = why_failed(request.check, request.confirm)
    except BaseException:
        with deferred():
            answered()  # else the files of the state would not be written
            try:
                _take_back(request.folder, number, "the check was interrupted")
            finally:
                guard.abandon()
        raise
    with StateDirectory.open(request.folder, wait=60.0) as again:
        state = again.state()
        waits = state.waiting is not None and state.waiting.number == number
        if waits and why:
            undo(again, state, f"the check failed: {why}")
        elif waits:
            state = confirm_record(again, state, number)
            guards.stop_timer(number)
            again.log(f"{number}: confirmed by the check")
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


def _take_back(folder: str, number: int, why: str) -> None:
    """Load the old rules, if record *number* still waits."""
    with StateDirectory.open(folder, wait=60.0) as store:
        state = store.state()
        if state.waiting is not None and state.waiting.number == number:
            undo(store, state, why)


def why_failed(check: str, seconds: float) -> str:
    """Why the command *check* fails, which has *seconds* (0: any time); "" if it succeeds.

    What it has started ends with it if it is stopped: it would hold our output open.
    """
    process = subprocess.Popen(check, shell=True, start_new_session=True)
    try:
        status = process.wait(seconds or None)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            return f"it did not end within {seconds:g} s"
        raise
    return f"it ended with exit status {status}" if status else ""
