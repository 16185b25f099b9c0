"""What is recorded of an apply: the rule set that is loaded, and what ran before it.

The old rules are recorded as the kernel holds them at that moment, unless they are what is confirmed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir.fields import Family
from . import texts
from .counts import counted_as
from .drift import holds
from .in_force import InForce, beside, in_force, own_places
from .kernel import Kernel
from .load import RuleSetChange
from .prepare import Found, Prepared
from .records import FOUND, ApplyState, Half, Record
from .store import StateDirectory
from .texts import Tables


@dataclass(slots=True)
class Ready:
    """One family of an apply that can be loaded.

    known    what the kernel holds, with keys
    options  what the record states about its compiling
    """

    kernel: Kernel
    found: Found
    prepared: Prepared
    known: Tables
    change: RuleSetChange
    options: str


def what_runs(ready: Sequence[Ready]) -> dict[Family, Half]:
    """What the kernel holds of the tables that change, as it was read last."""
    halves = {}
    for each in ready:
        tables = {
            table: {name: chain for name, chain in chains.items() if name not in unseen}
            for table, chains in each.change.present.items()
            if table in each.prepared.wanted.tables
            for unseen in [each.change.merged.left[table] | each.change.staged_chains(table)]
        }
        absent = tuple(table for table in each.prepared.wanted.tables if table not in tables)
        visible = {
            table: {name: chain for name, chain in chains.items() if name not in hidden}
            for table, chains in each.change.present.items()
            for hidden in [each.change.staged_chains(table)]
        }
        halves[each.kernel.family] = Half(tables, {}, texts.write(visible), "the kernel", absent)
    return halves


def what_will_run(ready: Sequence[Ready]) -> dict[Family, Half]:
    """What the kernel will hold."""
    return {
        each.kernel.family: Half(
            each.change.loaded(), each.change.generated(), each.prepared.text, each.prepared.file
        )
        for each in ready
    }


def has_changed(now: Half, was: Half, patterns: Sequence[str]) -> bool:
    """Whether the kernel has other rules *now*.  A table that did not exist may have been created, empty."""
    tables = {table: was.tables.get(table) or texts.empty(table) for table in now.tables}
    return not was.tables.keys() <= now.tables.keys() or not holds(now.tables, Half(tables), patterns)


@dataclass(frozen=True, slots=True)
class Recorder:
    """Adds the records of one apply; *patterns*: of its foreign chains."""

    store: StateDirectory
    backend: str
    patterns: tuple[str, ...]

    def add(
        self,
        state: ApplyState,
        halves: Mapping[Family, Half],
        status: str,
        before: int | None = None,
        options: str = "",
    ) -> tuple[ApplyState, Record]:
        """Add a record with the next number; *before*: the confirmed one, if it is not given."""
        base = self.store.record(state.confirmed) if state.confirmed else None
        number, before = state.last + 1, state.confirmed if before is None else before
        record = Record(number, time.time(), self.backend, self.patterns, halves, before, options)
        record = replace(record, beside=beside(base, self.backend, own_places(record)))
        return self.store.add(state, record, status), record

    def before(self, state: ApplyState, halves: Mapping[Family, Half]) -> tuple[ApplyState, int]:
        """The number of the record of *halves*, which run now; it is added unless they are what is confirmed.

        Then the records of what is confirmed get the counters of now.
        """
        if state.confirmed:
            force = in_force(self.store, state.confirmed)
            if force.record.backend == self.backend and is_same(force, halves, self.patterns):
                places = [(family, table) for family, half in halves.items() for table in half.tables]
                for part in force.only(places).parts:
                    for family, half in part.halves.items():
                        counted = counted_as(half.tables, halves[family].tables)
                        self.store.set_tables(part.number, family, counted)
                return state, state.confirmed
        state, record = self.add(state, halves, FOUND)
        return state, record.number


def is_same(force: InForce, halves: Mapping[Family, Half], patterns: Sequence[str]) -> bool:
    """Whether *force* has all tables of *halves*, with the same rules."""
    for family, half in halves.items():
        recorded = force.half(family)
        tables = recorded.with_absent() if recorded is not None else {}
        if recorded is None or half.absent or half.tables.keys() - tables.keys():
            return False
        same = Half({table: tables[table] for table in half.tables}, recorded.generated)
        if not holds(half.tables, same, patterns):
            return False
    return True
