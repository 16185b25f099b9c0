"""`hitables status`: whether the kernel holds the rules that were applied, and what it means if it does not.

The kernel is read with a check of what the tools print, and compared rule by rule.  Where rules differ, the
proof engines answer whether any packet is treated otherwise.
"""

from __future__ import annotations

import enum
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import HitablesError, LiveError
from ..ir.choices import Malformed
from ..ir.fields import Family
from ..ir.foreign import PRESETS, entered_by_foreign, hide, is_foreign, recognised
from ..ir.packet import Backend
from ..ir.program import Program
from ..ir.set_counters import counting
from ..kernel.counter_readers import counter_readers
from ..kernel.other_tables import tables_beside
from ..reader import read
from ..verify.diff import Changes, changes
from ..verify.question import Question
from . import docker_raw, known_rules, texts
from .boot_clock import boot_id
from .boot_files import boot_notes
from .both_backends import left_by_change
from .confirm import bring_back
from .drift import differences, strange_jumps
from .in_force import InForce, in_force, number_in_force, own_places
from .kernel import Kernel
from .known_rules import KnownRule
from .others import merge
from .prepare import THE_KERNEL, Found, find
from .records import CONFIRMED, ApplyState, Half, Record
from .store import StateDirectory
from .waiting import fate

_SHOWN = 10


class Level(enum.IntEnum):
    """The exit status."""

    SAME = 0
    DRIFT = 1
    TROUBLE = 2


@dataclass(slots=True)
class Compared:
    """The tables of one family that one rule set has.

    number     of the rule set; *file*: that it was made of
    tables     their names; empty: they are all of the family that were applied
    differing  where rules differ
    changes    the packets that are treated otherwise; None if the rules are the same or not comparable
    trouble    why they are not comparable
    names      of the two rule sets that *changes* compares
    programs   presets of --leave whose chains differ: these programs have changed them
    leaves     whether chains are left to others, and not compared
    of_docker  rules of docker in table raw that the rule set lacks
    of_others  rules of other programs, in no chain of theirs, that the rule set lacks
    unread     why the kernel's rules cannot be read; then nothing is compared
    """

    family: Family
    number: int
    file: str
    tables: tuple[str, ...] = ()
    differing: list[str] = field(default_factory=list)
    changes: Changes | None = None
    trouble: str = ""
    names: tuple[str, str] = ("", "")
    programs: list[str] = field(default_factory=list)
    leaves: bool = False
    of_docker: list[str] = field(default_factory=list)
    of_others: list[KnownRule] = field(default_factory=list)
    unread: str = ""


@dataclass(slots=True)
class Status:
    """*number*: the rule set that the kernel should hold.  *notes*: what else the user should know."""

    number: int
    level: Level = Level.SAME
    compared: list[Compared] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Seen:
    """What `compare` needs.  The state directory is locked while it is read, not while it is compared.

    force   the rule set that was confirmed last or that waits, and what else is in force
    found   the kernel; *unread*: by family that is not in it, why the rules cannot be read
    others  who else filters packets: rules of ours that the other backend has, and other programs
    """

    folder: Path
    state: ApplyState
    force: InForce
    found: Mapping[Family, Found]
    others: tuple[str, ...]
    unread: Mapping[Family, str] = field(default_factory=dict)


def look(
    store: StateDirectory, tell: Callable[[str], None] = lambda stage: None, family: Family | None = None
) -> Seen:
    """Read the state directory and the kernel; *family* alone, if it is given.

    HitablesError if nothing of this state directory is in force, or if no family can be read.
    """
    state = store.state()
    force = _of_family(in_force(store, number_in_force(store, state)), family)
    found: dict[Family, Found] = {}
    unread: dict[Family, LiveError] = {}
    for part in force.parts:
        for family in part.halves:
            if family not in found and family not in unread:
                tell(f"reading the kernel, IPv{int(family)}")
                try:
                    found[family] = find(Kernel(family, Backend(part.backend)), force.leave())
                except LiveError as error:
                    unread[family] = error
    if not found:
        raise next(iter(unread.values()))
    beside = [*left_by_change(store, state), *tables_beside(found, Backend(force.record.backend))]
    whys = {family: str(error) for family, error in unread.items()}
    return Seen(store.folder, state, force, found, tuple(beside), whys)


def compare(
    seen: Seen, timeout: float | None = None, tell: Callable[[str], None] = lambda stage: None
) -> Status:
    """Compare the kernel with the rule set."""
    force = seen.force
    result = Status(force.record.number)
    _note_waiting(seen.folder, seen.state, result)
    families = Counter(family for part in force.parts for family in part.halves)
    for part in force.parts:
        for family, half in part.halves.items():
            if family in seen.unread:
                result.compared.append(Compared(family, part.number, half.file, unread=seen.unread[family]))
                result.level = Level.TROUBLE
                continue
            compared = _compare(part, family, half, seen.found[family], timeout, tell)
            if families[family] > 1:
                compared.tables = (*half.tables, *half.absent)
            result.compared.append(compared)
            result.notes += (
                f"chains of {program} are not those of rule set {part.number}: --repair loads those of the "
                f"rule set; hitables apply {shlex.quote(half.file)} --leave {program} leaves them to "
                f"{program}"
                for program in compared.programs
            )
            if compared.of_docker:
                remedy = "to keep them, give the table up first (hitables release raw)"
                result.notes.append(docker_raw.warning(compared.of_docker, "--repair", remedy))
            result.notes += known_rules.warnings(compared.of_others, "--repair", "your file")
            level = Level.TROUBLE if compared.trouble else Level.DRIFT if compared.differing else Level.SAME
            result.level = max(result.level, level)
    if result.level is not Level.SAME:
        result.notes += boot_notes(seen.folder, boot_id())
    result.notes += seen.others
    return result


def exit_status(result: Status, repaired: bool, still: Sequence[str]) -> Level:
    """What `status` ends with; *still*: what it has to say of a kernel that was *repaired*."""
    if any(compared.unread for compared in result.compared):
        return Level.TROUBLE
    if still:
        return Level.DRIFT
    return Level.SAME if repaired else result.level


def _note_waiting(folder: Path, state: ApplyState, result: Status) -> None:
    waiting = state.waiting
    if waiting is None:
        last = state.last_applied
        if last and state.status[last] != CONFIRMED:
            result.notes.append(f"rule set {last}: {state.status[last]}")
        return
    words, is_trouble = fate(folder, waiting)
    if is_trouble:
        result.level = Level.TROUBLE
        words += ": hitables confirm, or hitables rollback"
    result.notes.append(f"rule set {waiting.number} {words}")


def _compare(
    record: Record,
    family: Family,
    half: Half,
    found: Found,
    timeout: float | None,
    tell: Callable[[str], None],
) -> Compared:
    compared = Compared(family, record.number, half.file, leaves=bool(record.leave))
    compared.differing = _differing(record, half, found)
    if not compared.differing:
        return compared
    compared.programs = _programs_at_work(found, half, record.leave)
    tell("comparing")
    try:
        before = with_others(half, found, record, family)
        after = _with_tables(found.program, before)
        if any(counter_readers()):
            before = counting(before)  # and with it the other one, when they are compared
        compared.of_docker = docker_raw.removed(after, before)
        compared.of_others = known_rules.removed(after, before, record.leave)
        question = Question(
            (Backend(record.backend),),
            Malformed.STRICTER,
            tables=frozenset(table.name for table in before),
            entered=entered_by_foreign(before, record.leave) | entered_by_foreign(after, record.leave),
            timeout=timeout,
        )
        compared.names = before.name, THE_KERNEL
        compared.changes = changes(hide(before, record.leave), hide(after, record.leave), question, tell=tell)
        if not compared.changes.complete and not compared.changes.regions:
            compared.trouble = compared.changes.undecided[0].reason
    except HitablesError as error:
        compared.trouble = str(error)
    return compared


def _differing(record: Record, half: Half, found: Found) -> list[str]:
    """Where the kernel differs from *half*, one of *record*."""
    return [
        *differences(found.tables, half, record.leave),
        *strange_jumps(found.tables, half, found.program.family, record.leave),
    ]


def _programs_at_work(found: Found, half: Half, leave: Sequence[str]) -> list[str]:
    """The presets of which the kernel has chains that *half* lacks, or has with other rules."""
    programs = []
    for program in recognised(found.program, leave):
        for table, recorded in half.tables.items():
            chains = found.tables.get(table, {})
            own = {name: chain for name, chain in chains.items() if is_foreign(name, PRESETS[program])}
            if any(name not in recorded or chain.differs_from(recorded[name]) for name, chain in own.items()):
                programs.append(program)
                break
    return programs


def with_others(half: Half, found: Found, record: Record, family: Family) -> Program:
    """The source of *half*, one of *record*, with the chains of others that the kernel has now."""
    source = read(half.source, family=family, name=half.file) if half.source else None
    tables = half.with_absent()
    if source is not None:
        of_source = texts.of_program(source)
        tables = {name: of_source.get(name, chains) for name, chains in tables.items()}
    merged = merge(tables, found.tables, lambda name: is_foreign(name, record.leave))
    name = half.file if source is not None else f"rule set {record.number}"
    return texts.with_lines(read(texts.write(merged.tables), family=family, name=name), merged.tables)


def _with_tables(program: Program, other: Program) -> Program:
    """*program* with the tables that *other* has, and no others."""
    names = [table.name for table in other]
    return replace(program, tables=tuple(table for table in program if table.name in names))


def _of_family(force: InForce, family: Family | None) -> InForce:
    """What *force* has of *family*, all if it is None; HitablesError if that is nothing."""
    if family is None:
        return force
    tables = [place for part in force.parts for place in own_places(part) if place[0] is family]
    if not tables:
        raise HitablesError(f"no rules of IPv{int(family)} are in force with rule set {force.record.number}")
    return force.only(tables)


def repair(store: StateDirectory, family: Family | None = None) -> tuple[int, list[str]]:
    """Load the confirmed rules again, or those of *family*; their number, and notes for the user."""
    state = store.state()
    if state.waiting is not None:
        raise HitablesError(
            f"rule set {state.waiting.number} waits for its confirmation: "
            "hitables confirm, or hitables rollback"
        )
    if not state.confirmed:
        raise HitablesError(f"{store.folder}: no rule set is confirmed")
    force = in_force(store, state.confirmed)
    notes = bring_back(store, _of_family(force, family), force, everything=True)
    alone = f" --family {int(family)}" if family is not None else ""
    store.log(f"{state.confirmed}: loaded again by status --repair{alone}")
    return state.confirmed, notes


def still_differing(seen: Seen) -> list[str]:
    """What to say of a kernel that was *seen* behind `repair`, if it differs from the rule set all the same.

    The rule set has no place for a jump that its program appends behind a tree; another apply makes one.
    """
    lines: list[str] = []
    commands: list[str] = []
    for part in seen.force.parts:
        differing = {
            family: _differing(part, half, seen.found[family])
            for family, half in part.halves.items()
            if family in seen.found
        }
        lines += (f"  IPv{int(family)}: {each}" for family in differing for each in shown(differing[family]))
        if any(differing.values()):
            files = shlex.join(half.file if half.source else "FILE" for half in part.halves.values())
            leave = "".join(f" --leave {shlex.quote(each)}" for each in part.leave)
            commands.append(f"hitables apply {files}{leave}")
    if not lines:
        return []
    return [
        f"rules still differ from rule set {seen.force.record.number} when it is loaded again:",
        *lines,
        *(f"another apply loads rules that have a place for them: {each}" for each in commands),
    ]


def shown(differing: Sequence[str]) -> list[str]:
    """The first differences, and how many more there are."""
    more = [f"… and {len(differing) - _SHOWN} more"] if len(differing) > _SHOWN else []
    return [*differing[:_SHOWN], *more]
