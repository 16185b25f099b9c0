"""Rules of iptables-legacy and of iptables-nft at once: packets pass both, and one rule set has one of them.

A rule set that the kernel still holds stays loaded when another one is loaded by the other backend.  So an
apply goes on with the backend of what is in force, unless it is told another, and then says what is left.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import HitablesError, LiveError
from ..ir.fields import Family
from ..ir.packet import Backend
from ..kernel.checked_save import backend_of, tables_present
from . import texts
from .boot_files import settings_of
from .in_force import InForce, TablePlace, in_force, places
from .kernel import Kernel
from .records import CONFIRMED, FOUND, ApplyState
from .store import StateDirectory
from .texts import Chains


@dataclass(frozen=True, slots=True)
class StillLoaded:
    """The *tables* of rule set *number*, which *backend* loaded, of which the kernel holds rules."""

    number: int
    backend: Backend
    tables: tuple[TablePlace, ...]

    def of(self, families: Iterable[Family]) -> StillLoaded:
        """The same of these families alone."""
        families = set(families)
        return StillLoaded(
            self.number, self.backend, tuple(each for each in self.tables if each[0] in families)
        )

    def removal(self) -> str:
        """Commands of the shell that remove the tables, with all that is in them, one a line."""
        commands = []
        for family in sorted({family for family, _ in self.tables}):
            named = [table for of, table in self.tables if of is family]
            lines = [line for table in named for line in _emptied(table)]
            tool = f"{family.tool}-{self.backend.value}-restore"
            commands.append(f"  printf '%s\\n' {shlex.join(lines)} | {tool}")
        return "\n".join(commands)


def _emptied(table: str) -> list[str]:
    heads = [f":{chain} {content.policy}" for chain, content in texts.empty(table).items()]
    return [f"*{table}", *heads, "COMMIT"]


def still_loaded(force: InForce, handles: Sequence[int] = ()) -> StillLoaded:
    """What the kernel holds of *force*: the tables with a rule of it, or with a policy that drops packets."""
    backend = Backend(force.record.backend)
    tables: list[TablePlace] = []
    for family in Family:
        half = force.half(family)
        if half is None or not _filters(family, backend):
            continue
        present = Kernel(family, backend, handles).read()
        tables += (
            (family, table)
            for table, chains in half.tables.items()
            if _has_part_of(present.get(table, {}), chains)
        )
    return StillLoaded(force.record.number, backend, tuple(tables))


def _filters(family: Family, backend: Backend) -> bool:
    """Whether *backend* has a table that may affect a packet; asked without its tools."""
    return any(busy for _, busy in tables_present(family, backend))


def _has_part_of(present: Chains, recorded: Chains) -> bool:
    for name, chain in recorded.items():
        now = present.get(name)
        if now is None:
            continue
        if not set(now.bodies).isdisjoint(chain.bodies):
            return True
        if now.policy == chain.policy == "DROP":
            return True
    return False


def _other(backend: Backend) -> Backend:
    return Backend.LEGACY if backend is Backend.NFT else Backend.NFT


def default_backend(
    families: Iterable[Family], store: StateDirectory, state: ApplyState
) -> tuple[Backend | None, str]:
    """The backend of an apply that was not told one, and a note for the user.

    That of the rule set in force, if the kernel holds it; else None, that of the tool called iptables.
    """
    of_tools = {family: backend_of(f"{family.tool}-save") for family in families}
    if state.confirmed:
        force = in_force(store, state.confirmed)
        backend, number = Backend(force.record.backend), state.confirmed
        others = [family for family, of_tool in of_tools.items() if of_tool is not backend]
        try:
            is_still_loaded = bool(others) and bool(still_loaded(force, [store.lock]).tables)
        except LiveError as error:
            raise HitablesError(
                f"rule set {number} was loaded by iptables-{backend.value}, and it is not known whether the "
                f"kernel still holds it: {error}\n"
                f"--backend {backend.value} or --backend {_other(backend).value} says what loads these rules"
            ) from None
        if is_still_loaded:
            tool = others[0].tool
            return backend, (
                f"these rules are for iptables-{backend.value}, as it loaded rule set {number}, which the "
                f"kernel holds; {tool} is {tool}-{_other(backend).value} now: --backend "
                f"{_other(backend).value} changes over, and says how"
            )
    if len(set(of_tools.values())) > 1:
        named = " and ".join(f"{family.tool} is {each.value}" for family, each in of_tools.items())
        raise HitablesError(f"{named}, and one rule set is loaded by one of them: --backend says which")
    return None, ""


def what_is_left(
    backend: Backend, new: Iterable[TablePlace], store: StateDirectory, state: ApplyState
) -> list[str]:
    """Warnings of an apply of tables *new* by *backend*: which rules of the other one stay loaded."""
    try:
        force = _last_of_other(backend, store, state)
        if force is None:
            return []
        left = still_loaded(force, [store.lock])
    except LiveError as error:
        return [f"warning: whether rules of iptables-{_other(backend).value} stay loaded: {error}"]
    new = set(new)
    families = {family for family, _ in new}
    replaced, kept = left.of(families), left.of(_booted(left, store) - families)
    warnings = []
    if replaced.tables:
        lacking = [place for place in places(force.record) if place[0] in families and place not in new]
        without = f" (they have no {_named(lacking)})" if lacking else ""
        warnings.append(
            f"warning: rule set {left.number} stays loaded by iptables-{left.backend.value}, and packets "
            f"must pass it, too. Once the new rules{without} are confirmed, no boot loads it, and status "
            f"compares it no more. Remove it then, with all that other programs have in its tables:\n"
            f"{replaced.removal()}"
        )
    if kept.tables:
        warnings.append(
            f"warning: rule set {left.number} has {_named(kept.tables)}, by "
            f"iptables-{left.backend.value}: that stays, and boots load it, but once the new rules are "
            f"confirmed status compares it no more; apply both families together"
        )
    return warnings


def left_by_change(store: StateDirectory, state: ApplyState) -> list[str]:
    """Notes on rules of the other backend that were in force before, and that the kernel still holds."""
    if not state.confirmed:
        return []
    with contextlib.suppress(LiveError):  # hooks.others tells of it
        force = _last_of_other(Backend(store.record(state.confirmed).backend), store, state)
        return _notes_on(still_loaded(force, [store.lock]), store) if force is not None else []
    return []


def _last_of_other(backend: Backend, store: StateDirectory, state: ApplyState) -> InForce | None:
    """What was in force by the other backend before the first of the rule sets of *backend*."""
    if not any(_filters(family, _other(backend)) for family in Family):
        return None  # as on most hosts; to read the records takes its time
    number, seen = state.confirmed, {0}
    with contextlib.suppress(HitablesError):  # a record, or one with some of its tables, is not kept any more
        while number not in seen:
            seen.add(number)
            record = store.record(number)
            if record.backend != backend.value and state.status.get(number) == CONFIRMED:
                return in_force(store, number)
            number = record.before
    return None


def _booted(left: StillLoaded, store: StateDirectory) -> set[Family]:
    """The families that boots load as *left*, since no other backend has rules of them confirmed."""
    backends = settings_of(store.folder).backends
    return {family for family, backend in backends.items() if backend is left.backend}


def behind(store: StateDirectory, then: InForce, now: InForce) -> InForce | None:
    """What the other backend had in force when *then* was found in the kernel, before *now* was loaded.

    None if there is no such rule set, or if *now* has tables that *then* lacks.
    """
    before = then.record.before
    if not before or not store.has(before) or store.state().status.get(then.record.number) != FOUND:
        return None
    if not places(now.record).keys() <= places(then.record).keys():
        return None
    with contextlib.suppress(HitablesError):  # some of its tables are not kept any more
        force = in_force(store, before)
        return force if force.record.backend != then.record.backend else None
    return None


def _notes_on(left: StillLoaded, store: StateDirectory) -> list[str]:
    booted = left.of(_booted(left, store))
    unloaded = left.of(set(Family) - _booted(left, store))
    notes = []
    if unloaded.tables:
        notes.append(
            f"rule set {left.number} is still loaded by iptables-{left.backend.value}, and no boot loads it; "
            f"this removes it, with all that other programs have in its tables:\n{unloaded.removal()}"
        )
    if booted.tables:
        notes.append(
            f"rule set {left.number} has {_named(booted.tables)}, by iptables-{left.backend.value}: it is "
            "loaded, and by boots, too, and not compared here; apply both families together"
        )
    return notes


def _named(tables: Iterable[TablePlace]) -> str:
    return ", ".join(f"table {table} of IPv{int(family)}" for family, table in sorted(tables))
