"""A state directory with records of tables without rules, of which no kernel knows."""

from __future__ import annotations

import os
from dataclasses import replace

from hitables.apply.boot_clock import boot_id
from hitables.apply.in_force import beside, own_places
from hitables.apply.records import CONFIRMED, WAITING, ApplyState, Half, Record, Waiting
from hitables.apply.store import StateDirectory
from hitables.apply.texts import empty
from hitables.ir.fields import Family

FILTER, NAT = ("filter",), ("nat",)


def add(
    store: StateDirectory, state: ApplyState, tables: tuple[str, ...], status: str = CONFIRMED
) -> ApplyState:
    """The state after an apply of *tables* of IPv4, which is confirmed or taken back."""
    halves = {Family.IPV4: Half({table: empty(table) for table in tables})}
    base = store.record(state.confirmed) if state.confirmed else None
    record = Record(state.last + 1, 0.0, "nft", (), halves, state.confirmed)
    record = replace(record, beside=beside(base, "nft", own_places(record)))
    state = store.add(state, record, status)
    return replace(state, confirmed=record.number) if status == CONFIRMED else state


def let_wait(store: StateDirectory, state: ApplyState, until: float = 1.0) -> ApplyState:
    """The state in which one more record waits over the confirmed one; it is written.

    *until*: 0 as long as the record is being loaded.
    """
    before = state.confirmed
    state = add(store, state, FILTER, WAITING)
    store.begin_waiting(state.last)
    state = replace(state, waiting=Waiting(state.last, before, until, boot_id(), os.getpid()))
    store.set_state(state)
    return state
