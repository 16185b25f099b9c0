"""Give tables up: from then on no record says what they hold, and no boot loads them.

Tables that a file lacks stay in force when it is applied, so a table that was applied once stays with
hitables.  A release adds a record that has all tables in force but these.  The kernel's rules stay.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from ..errors import HitablesError
from ..ir.fields import Family
from .in_force import TablePlace, confirm_record, in_force, places, restricted
from .records import CONFIRMED, ApplyState, Record
from .store import StateDirectory


def release(folder: str, tables: Sequence[str], family: Family | None = None) -> tuple[int, list[TablePlace]]:
    """Give up *tables* of *family*, or of all families; the number of the new record, and what was given up.

    HitablesError if rules wait, if a table is not in force, and if nothing else is.
    """
    with StateDirectory.open(folder) as store:
        state = store.state()
        if state.waiting:
            raise HitablesError(
                f"{folder}: rule set {state.waiting.number} waits for its confirmation; hitables confirm or "
                "hitables rollback first"
            )
        if not state.confirmed:
            raise HitablesError(f"{folder}: no rule set is confirmed, so none has a table")
        current = store.record(state.confirmed)
        given_up = _asked_for(folder, current, tables, family)
        state, record = _without(store, state, current, given_up)
        state = confirm_record(store, state, record.number, given_up)
        store.log(f"{record.number}: {current.number} without {_listed(given_up)}")
        store.forget_old(state)
    return record.number, given_up


def _asked_for(
    folder: str, current: Record, tables: Sequence[str], family: Family | None
) -> list[TablePlace]:
    tables_in_force = sorted(places(current))
    wanted = [place for place in tables_in_force if place[1] in tables and family in (None, place[0])]
    missing = [table for table in tables if all(place[1] != table for place in wanted)]
    if missing:
        of_family = f" of IPv{int(family)}" if family else ""
        raise HitablesError(
            f"table {missing[0]}{of_family} is not in force with rule set {current.number}, which has "
            f"{_listed(tables_in_force)}"
        )
    if len(wanted) == len(tables_in_force):
        raise HitablesError(
            f"rule set {current.number} has no other table.  To give up all, whatever the kernel holds now: "
            f"hitables persist --remove --state {shlex.quote(folder)}, and remove the directory {folder}; "
            "the rules of the kernel stay as they are"
        )
    return wanted


def _without(
    store: StateDirectory, state: ApplyState, current: Record, given_up: Collection[TablePlace]
) -> tuple[ApplyState, Record]:
    """The state with a record of all that is in force but *given_up*; and this record."""
    parts = [
        restricted(part, [place for place in places(part) if place not in given_up])
        for part in in_force(store, current.number).parts
    ]
    base = next(part for part in parts if part.halves)
    beside: dict[Family, dict[str, int]] = {}
    for (family, table), number in places(current).items():
        if number != base.number and (family, table) not in given_up:
            beside.setdefault(family, {})[table] = number
    record = replace(
        base,
        number=state.last + 1,
        when=time.time(),
        before=current.number,
        options="",  # its source has the tables that are given up: an apply of it has something to do
        beside=beside,
    )
    return store.add(state, record, CONFIRMED), record


def _listed(held: Sequence[TablePlace]) -> str:
    return ", ".join(f"{table} of IPv{int(family)}" for family, table in held)
