"""All rows of the matrix, run and collected."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import BUILT_IN
from hitables.kernel.namespace import Namespace

from .experiment import NO_WRITER, ChainId, Seen, open_bench, try_later, try_row
from .record import (
    APART,
    BY_ITSELF,
    CHANGED,
    NEVER,
    NO_PACKET,
    READER_REFUSED,
    WRITER_REFUSED,
    WRITERS,
    Record,
    Setting,
    identity,
)
from .rules import READERS, TARGETS_TRIED, Try

TELL_EVERY = 50  # rows


@dataclass(frozen=True, slots=True)
class Row:
    """What one row of one setting showed; *writer* None: no writer at all."""

    writer: int | None
    place: ChainId
    readers: tuple[int, ...]
    seen: Seen
    there: ChainId | None = None  # the later chain, which has the readers


# Which CPU a packet meets, and chance, differ from one sending to the next.
_NOT_LATER = ("cpu", "statistic")
# The last table that packets meet on their way through, and on their way out.
LATER = {"PREROUTING": ChainId("security", "FORWARD"), "OUTPUT": ChainId("security", "OUTPUT")}


def places(writer: Try) -> list[ChainId]:
    """Where the writer is tried."""
    return [
        ChainId(table, chain)
        for table in writer.tables
        for chain in BUILT_IN[table]
        if chain in writer.chains
    ]


def run_setting(setting: Setting, only: str = "", tell: bool = True) -> list[Row]:
    """All rows of one setting; *only*: those whose writer has this in its words."""
    rows: list[Row] = []
    family = setting.family
    work: list[tuple[int | None, ChainId]] = [
        (at, place)
        for at, writer in enumerate(WRITERS)
        if family in writer.families and only in writer.words
        for place in places(writer)
    ]
    controls = sorted({place for _, place in work}, key=lambda each: (each.table, each.chain))
    began = time.monotonic()
    with Namespace() as namespace:
        namespace.call(open_bench, family, setting.backend)
        everything = [*((None, place) for place in controls), *work]
        for count, (at, place) in enumerate(everything, 1):
            words = NO_WRITER if at is None else WRITERS[at].rule(family)
            for alone in (False, True):
                chosen = [
                    to
                    for to, probe in enumerate(READERS)
                    if _stands(probe, family, place) and probe.alone is alone
                ]
                # Without a writer, in both orders: a probe that writes changes the probes behind it.
                for order in (chosen, chosen[::-1]) if at is None else (chosen,):
                    seen = namespace.call(try_row, place, words, [READERS[to].rule(family) for to in order])
                    rows.append(Row(at, place, tuple(order), seen))
                if rows[-1].seen.refused:
                    break
            if at is not None and WRITERS[at] in TARGETS_TRIED and place.chain in LATER:
                rows.append(_later(namespace, setting, at, place))
            if tell and count % TELL_EVERY == 0:
                spent = time.monotonic() - began
                click.echo(f"{setting.name}: {count} of {len(everything)} rows, {spent:.0f} s", err=True)
    return rows


def _stands(probe: Try, family: Family, place: ChainId) -> bool:
    """Whether the probe is allowed in that chain."""
    fits = not probe.tables or place.table in probe.tables
    return fits and family in probe.families and place.chain in probe.chains


def _later(namespace: Namespace, setting: Setting, writer: int, place: ChainId) -> Row:
    """The row of probes in a later table."""
    there, family = LATER[place.chain], setting.family
    chosen = [
        to
        for to, probe in enumerate(READERS)
        if _stands(probe, family, there) and not probe.alone and probe.name not in _NOT_LATER
    ]
    probes = [READERS[to].rule(family) for to in chosen]
    if place.table == there.table:
        return Row(writer, place, tuple(chosen), Seen(refused="no table is later"), there)
    seen = namespace.call(try_later, place, WRITERS[writer].rule(family), there, probes)
    return Row(writer, place, tuple(chosen), seen, there)


def collect(rows: dict[Setting, list[Row]]) -> Record:
    """The record of what all rows showed."""
    record = Record()
    for setting, setting_rows in rows.items():
        letters = [[APART] * len(READERS) for _ in WRITERS]
        lost: Counter[str] = Counter()
        alone = {row.readers[at] for row in setting_rows if row.writer is None for at in row.seen.changed}
        for row in setting_rows:
            seen = row.seen
            lost.update(seen.lost)
            where = f"{row.place.table} {row.place.chain}"
            if row.writer is None:
                for at, packet in seen.changed.items():
                    name = identity(READERS[row.readers[at]])
                    record.by_itself.setdefault(name, {}).setdefault(setting.name, f"{where}, {packet}")
                continue
            writer = identity(WRITERS[row.writer])
            if row.there is not None:
                where = f"{where} to {row.there.table} {row.there.chain}"
                later = record.later.setdefault(writer, {})
                for at, packet in seen.changed.items():
                    shown = later.setdefault(identity(READERS[row.readers[at]]), {})
                    shown.setdefault(setting.name, f"{where}, {packet}")
                continue
            if seen.refused:
                record.refused.setdefault(writer, seen.refused)
            if seen.ended:
                record.ended.setdefault(writer, f"{setting.name}, {where}, {seen.ended}")
            if seen.went_on:
                record.went_on.setdefault(writer, f"{setting.name}, {where}, {seen.went_on}")
            for at, reader in enumerate(row.readers):
                letter = _letter(seen, at)
                if letter == CHANGED and reader in alone:
                    letter = BY_ITSELF
                name = identity(READERS[reader])
                if letter == CHANGED:
                    shown = record.shown.setdefault(writer, {}).setdefault(name, {})
                    shown.setdefault(setting.name, f"{where}, {seen.changed[at]}")
                row_letters = letters[row.writer]
                row_letters[reader] = min(row_letters[reader], letter, key=_ORDER.index)
        record.codes[setting.name] = ["".join(line) for line in letters]
        record.lost[setting.name] = [f"{packet}: {count}" for packet, count in lost.most_common()]
    return record


_ORDER = (CHANGED, BY_ITSELF, NEVER, NO_PACKET, WRITER_REFUSED, READER_REFUSED, APART)


def _letter(seen: Seen, at: int) -> str:
    if seen.refused:
        return WRITER_REFUSED
    if at not in seen.asked:
        return READER_REFUSED
    if at in seen.changed:
        return CHANGED
    return NEVER if seen.went_on else NO_PACKET


def _job(task: tuple[Setting, str]) -> tuple[Setting, list[Row]]:
    return task[0], run_setting(*task)


def run_all(settings: Sequence[Setting], only: str, jobs: int) -> Iterator[tuple[Setting, list[Row]]]:
    """The rows of each setting, as they are done; *jobs* settings at a time."""
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        # nft takes longer to load, so its settings come first.
        slow_first = sorted(settings, key=lambda setting: setting.backend is Backend.LEGACY)
        yield from pool.imap_unordered(_job, [(setting, only) for setting in slow_first])
