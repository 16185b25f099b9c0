"""The rule sets that are in force together.

A file has some tables of one family, and an apply of it leaves all other tables as they are.  So with a
record the tables of earlier records stay in force that no later one has.  `Record.beside` names them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from ..errors import HitablesError
from ..ir.fields import Family
from ..ir.packet import Backend
from .boot_files import keep_for_boot, settings_of
from .boot_texts import BootRules, boot_rules
from .kept_sets import keep
from .records import CONFIRMED, ApplyState, Half, Record
from .store import StateDirectory

TablePlace = tuple[Family, str]  # a table of a family
_T = TypeVar("_T")


def own_places(record: Record) -> list[TablePlace]:
    """The tables of which *record* says what they hold."""
    return [
        (family, table) for family, half in record.halves.items() for table in (*half.tables, *half.absent)
    ]


def places(record: Record) -> dict[TablePlace, int]:
    """By table that is in force with *record*: the number of the record that has it."""
    beside = {
        (family, table): number
        for family, tables in record.beside.items()
        for table, number in tables.items()
    }
    return beside | dict.fromkeys(own_places(record), record.number)


def beside(base: Record | None, backend: str, own: Collection[TablePlace]) -> dict[Family, dict[str, int]]:
    """What stays in force beside tables *own* when they are loaded over *base*; None: nothing was loaded.

    Of rules of another backend nothing is said: they are not what this one replaces.
    """
    stays: dict[Family, dict[str, int]] = {}
    for (family, table), number in places(base).items() if base and base.backend == backend else ():
        if (family, table) not in own:
            stays.setdefault(family, {})[table] = number
    return stays


def restricted(record: Record, tables: Collection[TablePlace]) -> Record:
    """*record* with only those of its tables that *tables* has; the text of a source stays whole."""
    halves: dict[Family, Half] = {}
    for family, half in record.halves.items():
        kept = replace(
            half,
            tables={name: chains for name, chains in half.tables.items() if (family, name) in tables},
            generated={name: chains for name, chains in half.generated.items() if (family, name) in tables},
            absent=tuple(name for name in half.absent if (family, name) in tables),
        )
        if kept.tables or kept.absent:
            halves[family] = kept
    return replace(record, halves=halves)


@dataclass(frozen=True, slots=True)
class InForce:
    """*record*, and what is in force with it.

    *parts*: the records whose tables are in force, each with these only; *record* first, then the newest
    """

    record: Record
    parts: tuple[Record, ...]

    def leave(self, *tables: TablePlace) -> tuple[str, ...]:
        """The patterns of foreign chains of all parts that have one of *tables*; none named: of all."""
        parts = (part for part in self.parts if not tables or not set(tables).isdisjoint(own_places(part)))
        return tuple(dict.fromkeys(pattern for part in parts for pattern in part.leave))

    def half(self, family: Family) -> Half | None:
        """All tables of *family* together, without a source; None if there are none."""
        halves = [part.halves[family] for part in self.parts if family in part.halves]
        if not halves:
            return None
        return Half(
            _joined(half.tables for half in halves),
            _joined(half.generated for half in halves),
            absent=tuple(name for half in halves for name in half.absent),
        )

    def only(self, tables: Collection[TablePlace]) -> InForce:
        """The same of *tables* alone."""
        parts = (restricted(part, tables) for part in self.parts)
        return InForce(self.record, tuple(part for part in parts if part.halves))


def _joined(mappings: Iterable[Mapping[str, _T]]) -> dict[str, _T]:
    return {name: value for mapping in mappings for name, value in mapping.items()}


def number_in_force(store: StateDirectory, state: ApplyState) -> int:
    """The rule set that waits, or else the one that was confirmed last; HitablesError if there is none."""
    number = state.waiting.number if state.waiting else state.confirmed
    if number:
        return number
    last = state.last_applied
    if not last:
        raise HitablesError(f"{store.folder}: no rule set was applied from here; hitables apply does that")
    raise HitablesError(
        f"{store.folder}: no rule set is in force, as rule set {last} is {state.status[last]}; "
        "hitables apply loads one"
    )


def in_force(store: StateDirectory, number: int) -> InForce:
    """What is in force with record *number*; HitablesError if a record with a table of it is not kept."""
    record = store.record(number)
    by_number: dict[int, set[TablePlace]] = {}
    for place, holder in places(record).items():
        by_number.setdefault(holder, set()).add(place)
    parts = []
    for holder in sorted(by_number, key=lambda each: (each != number, -each)):
        if not store.has(holder):
            raise HitablesError(
                f"{store.folder}: rule set {number} had tables of rule set {holder}, which is not kept"
            )
        whole = record if holder == number else store.record(holder)
        parts.append(restricted(whole, by_number[holder]))
    return InForce(record, tuple(parts))


def for_boot(force: InForce, with_source: bool) -> dict[Family, BootRules]:
    """What a boot loads of *force*; *with_source*: with the rules that it was compiled from."""
    rules: dict[Family, BootRules] = {}
    for part in force.parts:
        for family, half in part.halves.items():
            source = half.source if with_source or part.leave else ""
            of_part = boot_rules(half.tables, half.absent, source, half.file, family, part.leave)
            rules[family] = rules[family].over(of_part) if family in rules else of_part
    return rules


def confirm_record(
    store: StateDirectory, state: ApplyState, number: int, given_up: Collection[TablePlace] = ()
) -> ApplyState:
    """The state in which record *number* is confirmed; the next boot loads what is in force with it.

    If that cannot be written down, the next boot loads what it would have loaded before.  *given_up*: tables
    that no boot loads any more.
    """
    force = in_force(store, number)
    keep(store, force.parts)
    with_source = settings_of(store.folder).access is not None
    status = {**state.status, number: CONFIRMED}
    state = replace(state, confirmed=number, waiting=None, status=status, taken_back=None)
    keep_for_boot(
        store.folder,
        Backend(force.record.backend),
        for_boot(force, with_source),
        given_up=given_up,
        record=lambda: store.set_state(state),
    )
    store.end_waiting(number)
    return state
