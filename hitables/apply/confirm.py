"""Confirming a rule set, and taking it back: what the commands do, and the guard.

A rule set that waits is confirmed or taken back once: each function takes the lock of the state directory and
reads the state before it acts.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from dataclasses import replace
from pathlib import Path

from ..errors import FileError, HitablesError, LiveError, described
from ..ir.fields import Family
from ..ir.foreign import is_foreign
from ..ir.packet import Backend
from . import guard as guards
from .boot_clock import boot_id, since_boot
from .both_backends import behind, still_loaded
from .connections import NewConnections
from .drift import as_named, file_has
from .dropped import keep_dropped
from .found_before import differences_of_found
from .in_force import InForce, TablePlace, confirm_record, in_force, own_places, places
from .kept_sets import create_missing
from .kernel import Kernel
from .load import RuleSetChange, Wanted, perform
from .net_namespace import check_namespace
from .others import emptied, of_kernel
from .records import ROLLED_BACK, ApplyState, Copy, TakenBack, Waiting
from .ssh_session import SshSession
from .still_held import NotHeld, check_held
from .store import StateDirectory
from .waiting import cannot

_NEWS = 60.0  # seconds after which a user is taken to know that a guard has taken rules back

# ---- in the guard ----


def duty(folder: str, number: int, session: SshSession | None) -> guards.Duty:
    """The duty of the guard of record *number*; a new connection from the client of *session* confirms it."""
    new = NewConnections(session.client, session.server_port) if session is not None else None
    copy: Copy = {}
    logged: set[str] = set()

    def log(message: str) -> None:
        if message not in logged:  # the guard asks four times a second
            logged.add(message)
            StateDirectory(Path(folder), -1).log(f"{number}: {message}")

    return guards.Duty(
        is_waiting=lambda: is_waiting(folder, number, copy),
        confirm=lambda: confirmed_by_connection(folder, number, new),
        roll_back=lambda why: guard_rolls_back(folder, number, why, copy),
        log=log,
    )


def is_waiting(folder: str, number: int, copy: Copy) -> bool:
    """Whether record *number* waits for its confirmation; asked without the lock.

    The first time that it does, what a rollback needs goes to *copy*: somebody may remove the directory.
    """
    try:
        store = StateDirectory(Path(folder).resolve(), -1)
        state = store.state()
        is_own = _is_own(state.waiting, number)
        if is_own and not copy:
            copy.update(store.copy(state))
    except HitablesError:
        return True  # the file is being replaced, or the disk fails: look again
    return not store.is_there or is_own


def _is_own(waiting: Waiting | None, number: int) -> bool:
    """Whether this process is the guard of what waits.

    A new state directory, in place of one that was moved away, counts its records from 1, too.
    """
    return waiting is not None and waiting.number == number and waiting.guard == os.getpid()


def confirmed_by_connection(folder: str, number: int, new: NewConnections | None) -> bool:
    """Confirm record *number* if a *new* connection has been established; whether it is confirmed."""
    if new is None or not new.look():
        return False
    try:
        confirm(folder, number, "a new connection")
    except NotHeld as error:
        new.begin_again()  # the same connection would be refused again, four times a second
        StateDirectory(Path(folder), -1).log(f"{number}: a new connection does not confirm it: {error}")
    except HitablesError:
        pass
    else:
        return True
    return False


def guard_rolls_back(folder: str, number: int, why: str, copy: Copy) -> None:
    """Load the old rules because of *why*, if record *number* still waits; *copy*: what that needs.

    Each failure is logged.
    """
    try:
        with StateDirectory.open(folder, create=bool(copy), wait=60.0) as store:
            if _has_ended(store, number):
                return
            if store.mend(copy):
                store.log(f"{number}: files of the state were missing or damaged, and are written again")
            state = store.state()
            if not _is_own(state.waiting, number):
                raise HitablesError(f"{folder}: the state is missing")
            notes = undo(store, state, why, by_guard=True)
    except Exception as error:
        StateDirectory(Path(folder), -1).log(f"{cannot(number)}{described(error)}")
        raise
    messages = [f"rule set {number} was taken back, because {why}; the old rules are loaded", *notes]
    guards.tell_everyone("\n".join(f"hitables: {each}" for each in messages))


def _has_ended(store: StateDirectory, number: int) -> bool:
    """Whether record *number* does not wait any more; where the state is damaged, its mark says it."""
    try:
        return store.is_there and not _is_own(store.state().waiting, number)
    except FileError:
        return store.has_ended(number)


def undo(store: StateDirectory, state: ApplyState, why: str, by_guard: bool = False) -> list[str]:
    """Load what ran before the rule set that waits; notes for the user.

    LiveError if that is in another network namespace.
    *by_guard*: the guard does it, so the user may not know of it yet.  The state records that.
    """
    waiting = state.waiting
    assert waiting is not None
    check_namespace(waiting, "rollback")
    then, now = in_force(store, waiting.before), in_force(store, waiting.number)
    notes: list[str] = []
    if waiting.until:  # else the kernel has parts of either
        state, notes = _told_of_dropped(store, state, then, now)
    notes += differences_of_found(store, state, then)
    notes += bring_back(store, then, now)
    try:
        store.end_waiting(waiting.number)
    except FileError as error:
        raise FileError(
            f"{error}\nthe rules before rule set {waiting.number} are loaded again, but the state directory "
            "cannot record it: call hitables rollback again when it can be written"
        ) from None
    status = {**state.status, waiting.number: ROLLED_BACK}
    taken_back = TakenBack(waiting.number, boot_id(), since_boot()) if by_guard else None
    with contextlib.suppress(FileError):  # the mark is gone, and says the same
        store.set_state(replace(state, waiting=None, status=status, taken_back=taken_back))
    guards.stop_timer(waiting.number, waiting.guard)
    store.log(f"{waiting.number}: taken back, because {why}; {waiting.before or 'nothing'} is loaded")
    for note in notes:
        store.log(f"{waiting.number}: {note}")
    return notes


def _told_of_dropped(
    store: StateDirectory, state: ApplyState, then: InForce, now: InForce
) -> tuple[ApplyState, list[str]]:
    """`keep_dropped`, of which no error keeps the old rules from being loaded."""
    try:
        return keep_dropped(store, state, then, now)
    except Exception as error:
        return state, [f"what other programs added to rule set {now.record.number} is not kept: {error}"]


# ---- confirm and rollback ----


def confirm(
    folder: str, number: int | None = None, by: str = "", force: bool = False
) -> tuple[int, list[str]]:
    """Confirm the rule set that waits; its number, and notes for the user.

    NotHeld if the kernel lacks rules of it, unless *force*.
    """
    with StateDirectory.open(folder) as store:
        state = store.state()
        waiting = state.waiting
        if waiting is None or number not in (None, waiting.number):
            last = state.last_applied
            ended = f": rule set {last} is {state.status[last]}" if last else ""
            raise HitablesError(f"no rule set waits for its confirmation{ended}")
        if not waiting.until:
            raise HitablesError(f"rule set {waiting.number} was not loaded completely: hitables rollback")
        check_namespace(waiting, "confirm")
        notes = [] if force else check_held(store, waiting.number)
        try:
            state = confirm_record(store, state, waiting.number)
        except FileError as error:
            raise FileError(f"{error}; rule set {waiting.number} is not confirmed, and waits on") from None
        guards.stop_timer(waiting.number, waiting.guard)
        store.log(f"{waiting.number}: confirmed" + (f" by {by}" if by else ""))
        for note in notes:
            store.log(f"{waiting.number}: {note}")
        store.forget_old(state)
    guards.wait_for_end(waiting.guard)
    return waiting.number, notes


def roll_back(folder: str, number: int | None = None, guarded_by: int | None = None) -> tuple[int, list[str]]:
    """Load an earlier rule set: the one before, or *number*; its number, and notes for the user.

    A rule set that waits is taken back first.  *guarded_by*: do it only if this process guards it, and does
    not do it in time, counted from when the rules were loaded.
    """
    if guarded_by is not None:
        _await_guard(folder, guarded_by)
    asked_about = _waiting_now(folder)
    result = _rolled_back(folder, number, guarded_by, asked_about.number if asked_about else 0)
    if asked_about is not None:
        guards.wait_for_end(asked_about.guard)
    return result


def _await_guard(folder: str, guard: int) -> None:
    """Return when process *guard* has ended, or is late, or when nothing waits that it guards.

    The timer of systemd begins before the rules are loaded, and the time of the guard after that.
    """
    while (waiting := _waiting_now(folder)) is not None and waiting.guard == guard:
        is_late = waiting.until and waiting.seconds_left < -guards.LATE
        if is_late or not guards.is_alive(guard):
            return
        time.sleep(0.25)


def _rolled_back(
    folder: str, number: int | None, guarded_by: int | None, asked_about: int
) -> tuple[int, list[str]]:
    """`roll_back`; *asked_about*: the record that waited when it was called, or 0."""
    notes: list[str] = []
    with StateDirectory.open(folder, wait=60.0) as store:
        state = store.state()
        waiting = state.waiting
        if guarded_by is not None and (waiting is None or waiting.guard != guarded_by):
            return 0, []
        if waiting is None and number is None and state.status.get(asked_about) == ROLLED_BACK:
            note = f"rule set {asked_about} was taken back while this command waited"
            return store.record(asked_about).before, [note]
        if waiting is not None:
            if number == waiting.number:
                raise HitablesError(f"rule set {number} is loaded, and waits: hitables confirm")
            if number not in (None, waiting.before):
                _exchanged(store, number, state.confirmed)  # an error of it comes before anything changes
            by_timer = "it was not confirmed in time, and its guard has not taken it back"
            why = "hitables rollback was called" if guarded_by is None else by_timer
            notes += undo(store, state, why, by_guard=guarded_by is not None)
            if number in (None, waiting.before):
                return waiting.before, notes
            state = store.state()
        current = state.confirmed
        wanted = number or (store.record(current).before if current else 0)
        if number is None:
            _check_not_taken_back(state, wanted)
        if current and not wanted:
            raise HitablesError(f"{folder}: there is no rule set before {current}")
        then, now = _exchanged(store, wanted, current)
        other = _of_other_backend(store, then, now, is_named=number is not None)
        state, dropped_notes = _told_of_dropped(store, state, then, now)
        found_notes = differences_of_found(store, state, then) if number is None else []
        notes += dropped_notes + found_notes
        try:
            store.set_state(state)  # it can be written: found out before any rule changes
        except FileError as error:
            raise FileError(f"{error}; rule set {wanted} is not loaded") from None
        try:
            notes += bring_back(store, then, now, everything=wanted == current)
            for (family, table), holder in places(now.record).items():
                if (family, table) not in places(then.record):
                    store.add_beside(wanted, family, table, holder)
                    what = f"IPv{int(family)}, table {table}"
                    notes.append(f"{what}: rule set {wanted} does not have it; it stays as it is")
            confirm_record(store, state, other or wanted)
        except FileError as error:  # the disk is full: what is recorded as loaded must be loaded
            bring_back(store, now, then, everything=wanted == current)
            with contextlib.suppress(FileError):  # if that was written
                confirm_record(store, state, current)
            raise FileError(f"{error}; rule set {current} is loaded again") from None
        store.log(f"{wanted}: loaded again in place of {current}")
        for note in dropped_notes + found_notes:
            store.log(f"{wanted}: {note}")
        if other:
            tool = f"iptables-{then.record.backend}"
            notes.append(
                f"{tool} holds what it held before rule set {other} was replaced (rule set {wanted})"
            )
            store.log(f"{other}: confirmed again, as the kernel still holds it")
        return other or wanted, notes


def _of_other_backend(store: StateDirectory, then: InForce, now: InForce, is_named: bool) -> int:
    """The rule set of the other backend that comes into force again with *then*; 0: none does.

    HitablesError if the kernel does not hold it any more, unless the user has named *then*.
    """
    force = behind(store, then, now)
    if force is None:
        return 0
    with contextlib.suppress(LiveError):  # its tools are gone
        if still_loaded(force, [store.lock]).tables:
            return force.record.number
    if is_named:
        return 0
    record, wanted = force.record, then.record
    raise HitablesError(
        f"rule set {wanted.number} is what iptables-{wanted.backend} held beside "
        f"rule set {record.number} of iptables-{record.backend}, which the kernel does not hold any more: "
        f"nothing is changed. Apply the file of {record.number} again, "
        f"or load what iptables-{wanted.backend} held: hitables rollback {wanted.number}"
    )


def _check_not_taken_back(state: ApplyState, wanted: int) -> None:
    """HitablesError if a guard has just taken rules back: a rollback would go to *wanted*, one too far.

    The user may have seen that his connection ended, and not that the old rules are there already.
    """
    taken = state.taken_back
    if taken is None or taken.boot != boot_id():
        return
    seconds = since_boot() - taken.at
    if seconds > _NEWS:
        return
    further = f"; hitables rollback {wanted} goes further, to rule set {wanted}" if wanted else ""
    raise HitablesError(
        f"the guard took rule set {taken.number} back {seconds:.0f} s ago, and the rules before it are "
        f"loaded: nothing is changed{further}"
    )


def _exchanged(store: StateDirectory, wanted: int, current: int) -> tuple[InForce, InForce]:
    """Both rule sets; HitablesError if *wanted* cannot be loaded in place of *current*, or that is none."""
    if not current:
        raise HitablesError(f"{store.folder}: no rule set is confirmed, so there is none to replace")
    then, now = in_force(store, wanted), in_force(store, current)
    if then.record.backend != now.record.backend:
        raise HitablesError(
            f"rule set {wanted} was loaded by iptables-{then.record.backend}, and {current} by "
            f"iptables-{now.record.backend}: packets would pass both; apply the file of {wanted} with "
            f"--backend {now.record.backend} instead"
        )
    return then, now


def _waiting_now(folder: str) -> Waiting | None:
    """What waits, asked without the lock; None: nothing, or it is not known."""
    with contextlib.suppress(HitablesError):
        return StateDirectory(Path(folder), -1).state().waiting
    return None


def _is_in_no_file(
    restored: InForce, family: Family, table: str, name: str, number: int, entered: str
) -> bool:
    """Whether no file of *restored* has a jump of chain *name* to *entered*: another program made it."""
    halves = (part.halves[family] for part in restored.parts if family in part.halves)
    return not any(file_has(half, family, table, name, entered) for half in halves)


def _created_sets(store: StateDirectory, wanted: InForce) -> list[str]:
    """`create_missing`, of which no error keeps the old rules from being loaded."""
    try:
        return create_missing(store, wanted.parts)
    except Exception as error:
        return [f"ipsets that do not exist any more are not created again: {described(error)}"]


def bring_back(
    store: StateDirectory, wanted: InForce, current: InForce, everything: bool = False
) -> list[str]:
    """Load *wanted* in place of *current*; notes on the chains of others.

    Tables that both have from the same record stay as they are, unless *everything* is to be loaded.  Chains
    of others are those of the patterns of either, as they are now.  From then on the records of *wanted* have
    the patterns of both, so that `status` does not take these chains for changes, nor `status --repair`
    remove them.
    """
    now = places(current.record)
    wanted = wanted.only(
        [place for place, number in places(wanted.record).items() if everything or now.get(place) != number]
    )
    # Tables whose patterns are the same change together.
    together: dict[tuple[Family, tuple[str, ...]], list[TablePlace]] = {}
    for part in wanted.parts:
        for place in own_places(part):
            patterns = tuple(dict.fromkeys((*current.leave(place), *part.leave)))
            together.setdefault((place[0], patterns), []).append(place)
    changes = []
    for (family, patterns), tables in together.items():
        restored = wanted.only(tables)
        half, loaded = restored.half(family), current.only(tables).half(family)
        assert half is not None
        is_left = functools.partial(is_foreign, patterns=patterns)
        kernel = Kernel(family, Backend(wanted.record.backend), [store.lock])
        known = as_named(kernel.read(), loaded, patterns) if loaded is not None else {}
        came_from_kernel = functools.partial(_is_in_no_file, restored, family)
        stored = of_kernel(half.with_absent(), is_left, came_from_kernel)
        to_load = Wanted(stored, half.generated, known)
        changes.append(RuleSetChange(kernel, to_load, is_left))
    created = _created_sets(store, wanted)
    empty_now = [note for change in changes for note in emptied(change.merged, change.present)]
    performed = perform(changes)
    for part in wanted.parts:
        patterns = tuple(dict.fromkeys((*part.leave, *current.leave(*own_places(part)))))
        if patterns != part.leave:
            store.set_leave(part.number, patterns)
    notes = [note for change in changes for note in change.merged.notes]
    return [
        *created,
        *notes,
        *empty_now,
        *(f"another program has added a rule, which stays: {rule}" for rule in performed.added),
    ]
