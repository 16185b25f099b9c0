"""`hitables apply` as a function: from files to a firewall that can be taken back.

Order of an apply: read, compile, prove and try the new rules; report what changes; check that this session is
not locked out; record what runs now; start the guard; load; leave the confirmation to the guard.  Until the
guard runs, nothing is changed.  From then on this process may end in any way: the kernel ends with the new
rules, confirmed, or with the old ones.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from ..errors import HitablesError, LiveError
from ..files import is_there
from ..interrupts import deferred
from ..ir.fields import Family
from ..ir.foreign import is_foreign, patterns_of
from ..kernel.checked_save import also_present
from ..version import __version__
from . import guard as guards
from . import texts
from .boot_clock import boot_id, since_boot
from .both_backends import default_backend, what_is_left
from .check_command import decide_by_command, take_back
from .confirm import duty, undo
from .counts import keyed, of_source, recognised
from .drift import as_named, cut_off_jumps, differences, holds, moved_jumps
from .in_force import InForce, confirm_record, in_force, own_places
from .kept_sets import keep
from .kernel import Kernel
from .load import Performed, RuleSetChange, perform
from .must_packets import check_must
from .neighbours import flushers
from .open_files import refuse_few
from .precautions import (
    check_leave,
    check_lockout,
    tell_of_commented,
    tell_of_docker,
    tell_of_lost_chains,
    tell_of_moved_jumps,
    tell_of_presets,
    tell_of_replaced,
)
from .prepare import Found, find, prepare
from .recording import Ready, Recorder, has_changed, is_same, what_runs, what_will_run
from .records import FOUND, WAITING, ApplyState, Half, Record, Waiting
from .request import ApplyRequest, ApplyResult, Reporter
from .ssh_session import SshSession, may_be_remote, session_of
from .status import shown
from .store import StateDirectory
from .texts import Tables
from .waiting import fate


def apply(request: ApplyRequest, report: Reporter) -> ApplyResult:
    """Apply the files of *request*.

    Errors are HitablesError; then the kernel has its old rules, unless the new ones were confirmed while
    --check ran.
    """
    request = replace(request, folder=os.path.abspath(request.folder))  # the guard has another directory
    refuse_few()
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
        _check_nothing_waits(store.folder, state)
        if request.backend is None:
            backend, note = default_backend(sorted(request.files), store, state)
            request = replace(request, backend=backend)
            if note:
                report.tell(note)
        if not request.must and _is_confirmed(request, state, store):
            return ApplyResult.NOTHING
        ready = [_ready(request, family, state, store, report) for family in sorted(request.files)]
        for each in ready:
            for note in each.prepared.merged.notes:
                report.tell(note)
        if state.confirmed:
            tell_of_moved_jumps(ready, in_force(store, state.confirmed), report)
        new = [(each.kernel.family, table) for each in ready for table in each.prepared.wanted.tables]
        for warning in what_is_left(ready[0].kernel.backend, new, store, state):
            report.tell(warning)
        if all(each.change.is_idle for each in ready):
            check_lockout(request, ready, None, report)
            if request.dry_run:
                pass
            elif state.confirmed and _is_recorded(request, ready, state, store):
                _record_leave(request, ready, in_force(store, state.confirmed), store)
            else:
                _record_as_is(request, ready, state, store, report)
            return ApplyResult.NOTHING
        force = in_force(store, state.confirmed) if state.confirmed else None
        for each in ready:
            patterns = patterns_of(request.leave)
            tell_of_presets(each, patterns, report)
            earlier = force.half(each.kernel.family) if force is not None else None
            tell_of_lost_chains(each, earlier, patterns, report)
            tell_of_docker(each, report)
            tell_of_commented(each, patterns, report)
        for warning in flushers():
            report.tell(warning)
        report.show_changes(ready, force)
        if session is None and may_be_remote(os.environ):
            report.tell(
                "no SSH session is known here (SSH_CONNECTION), so it is not checked that these rules keep it"
            )
        check_lockout(request, ready, session, report)
        if request.dry_run:
            return ApplyResult.WOULD_CHANGE
        return _load(request, ready, state, store, session, report)


def _check_nothing_waits(folder: Path, state: ApplyState) -> None:
    waiting = state.waiting
    if waiting is None:
        _check_no_guard()
        return
    words, _ = fate(folder, waiting)
    raise HitablesError(f"rule set {waiting.number} {words}: hitables confirm, or hitables rollback")


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
    check_leave(request, family, found, report)
    prepared = prepare(
        kernel, found, text, name, patterns, request.options, request.timeout, report.stage, known
    )
    change = RuleSetChange(kernel, prepared.wanted, lambda name: is_foreign(name, patterns))
    return Ready(kernel, found, prepared, known, change)


def _confirmed_half(state: ApplyState, store: StateDirectory, family: Family) -> Half | None:
    return in_force(store, state.confirmed).half(family) if state.confirmed else None


def known_tables(kernel: Found, loaded: Half | None, patterns: Sequence[str]) -> Tables:
    """What the kernel holds, with keys: those of what was loaded, for rules that are still there."""
    tables = keyed(kernel.tables, of_source(kernel.program))
    return recognised(tables, as_named(tables, loaded, patterns)) if loaded is not None else tables


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
            tell_of_replaced(family, changed, report)


@dataclass(slots=True)
class _Loading:
    """The rules that are about to be loaded: their record, and what the kernel held before them.

    running   what the kernel held when this began
    recorded  what it held when it was recorded last
    found     the record of that, if it is of this apply; else 0
    replaced  such records of earlier attempts, which nothing needs any more
    """

    ready: Sequence[Ready]
    report: Reporter
    recorder: Recorder
    record: Record
    running: dict[Family, Half]
    recorded: dict[Family, Half]
    state: ApplyState
    found: int
    replaced: set[int] = field(default_factory=set)

    @classmethod
    def begin(
        cls,
        request: ApplyRequest,
        ready: Sequence[Ready],
        state: ApplyState,
        store: StateDirectory,
        report: Reporter,
    ) -> Self:
        """Record what runs now and what is to be loaded, which waits from now on."""
        recorder, running, last = _recorder(request, ready, store), what_runs(ready), state.last
        state, before = recorder.before(state, running)
        keep(store, in_force(store, before).parts)
        state, record = recorder.add(state, what_will_run(ready), WAITING, before, _options(request))
        store.begin_waiting(record.number)
        state = replace(state, waiting=Waiting(record.number, before, 0.0, boot_id()), taken_back=None)
        store.set_state(state)
        found = before if before > last else 0
        return cls(ready, report, recorder, record, running, running, state, found)

    def set_waiting(self, **values: Any) -> None:
        """Change *values* of what waits, in the state directory."""
        assert self.state.waiting is not None
        self.state = replace(self.state, waiting=replace(self.state.waiting, **values))
        self.recorder.store.set_state(self.state)

    def add_what_came_since(self) -> None:
        """The new chains are staged: what others changed meanwhile belongs to the old rules, too.

        Where the change is tried again, this replaces the record of an earlier attempt.  Others change the
        rules while this runs, so files that nothing needs any more are removed later.
        """
        halves, number = what_runs(self.ready), self.record.number
        if self._has_changed(halves, self.recorded):
            self.recorded = halves
            # The next number, or the one after it: they are used in turn.
            last = number if self.found != number + 1 else number + 1
            self.state, late = self.recorder.add(replace(self.state, last=last), halves, FOUND)
            keep(self.recorder.store, [late])
            self.recorder.store.set_before(number, late.number)
            if self.found:
                self.replaced.add(self.found)
                status = {each: how for each, how in self.state.status.items() if each != self.found}
                self.state = replace(self.state, status=status)
            self.set_waiting(before=late.number)
            self.found = late.number

    def remove_replaced(self) -> None:
        """Remove the records of earlier attempts."""
        self.recorder.store.remove(sorted(self.replaced - {self.found}))

    def tell_of_what_came_since(self) -> None:
        """Tell what others changed meanwhile."""
        for family, half in self.recorded.items():
            if self._has_changed({family: half}, self.running):
                changed = differences(half.tables, self.running[family], self.record.leave)
                tell_of_replaced(family, list(changed), self.report)

    def _has_changed(self, now: Mapping[Family, Half], was: Mapping[Family, Half]) -> bool:
        return any(has_changed(half, was[family], self.record.leave) for family, half in now.items())


def _load(
    request: ApplyRequest,
    ready: Sequence[Ready],
    state: ApplyState,
    store: StateDirectory,
    session: SshSession | None,
    report: Reporter,
) -> ApplyResult:
    """Load the rules, then run --check, confirm at once, or leave them waiting for `hitables confirm`.

    A guard, a process of its own, brings the old rules back if they are not confirmed in time.
    """
    _read_again(request, ready, state, store, report)
    loading = _Loading.begin(request, ready, state, store, report)
    number = loading.record.number
    guard = guards.start(duty(request.folder, number, session if request.connection else None))
    performed = _perform_guarded(request, loading, guard)
    how = f"within {performed.seconds * 1000:.1f} ms" if performed.seconds else "in one commit"
    store.log(f"{number}: loaded; all tables changed {how}")
    try:
        if request.confirm or request.check:
            loading.set_waiting(until=time.time() + request.confirm, deadline=since_boot() + request.confirm)
        if request.confirm:  # else it waits until this process ends
            guard.loaded(request.confirm)
        report.tell(f"loaded as rule set {number}; all tables changed {how}")
        _tell_of_others_rules(performed, report)
        if request.check:
            return decide_by_command(request, store, loading.state, guard, report)
    except KeyboardInterrupt:
        take_back(request, store, number, guard, "the command was interrupted")
        raise
    return ApplyResult.WAITING if request.confirm else _confirm_now(store, loading.state, guard)


def _perform_guarded(request: ApplyRequest, loading: _Loading, guard: guards.Guard) -> Performed:
    """Load the rules; if that fails, the old ones are loaded again, by this process or by its guard."""
    try:
        loading.set_waiting(guard=guard.pid)
        if request.confirm:
            guards.start_timer(Path(request.folder), loading.record.number, guard.pid, request.confirm + 60)
        loading.report.stage("loading")
        performed = perform([each.change for each in loading.ready], loading.add_what_came_since)
    except HitablesError as error:
        with deferred():
            undo(loading.recorder.store, loading.state, str(error))
            guard.abandon()
            loading.remove_replaced()
        raise LiveError(f"{error}\nthe old rules are loaded again") from None
    except BaseException:
        guard.abandon()  # it rolls back as soon as this process releases the lock
        raise
    loading.remove_replaced()
    loading.tell_of_what_came_since()
    return performed


def _tell_of_others_rules(performed: Performed, report: Reporter) -> None:
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


def _confirm_now(store: StateDirectory, state: ApplyState, guard: guards.Guard) -> ApplyResult:
    assert state.waiting is not None
    number = state.waiting.number
    state = confirm_record(store, state, number)
    guard.loaded(0)
    guards.stop_timer(number)
    store.log(f"{number}: confirmed")
    store.forget_old(state)
    return ApplyResult.CONFIRMED
