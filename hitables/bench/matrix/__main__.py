"""The table of reads and writes against the kernel: python -m hitables.bench.matrix [--mutants]

For each writer (targets, and every match as if it were one) and each probe of every match, in both
families and backends: does some packet get another answer behind the writer?  See docs/matrix.md.
Figures go to docs/evaluation/matrix.json.  Exit status 1 if the table calls a pair independent that
the kernel shows to be dependent.

--judge    hold the table against the figures that are there, without the kernel
--mutants  drop each single read, write and role from the table: which of these the figures show
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from ...errors import HitablesError
from ..machine import machine
from ..pages import DOCS, fill, markdown
from .judge import UNTRIED, Disagreement, Judgement, Mistake, is_event, judge, rule_of, survivors
from .record import (
    APART,
    BY_ITSELF,
    CHANGED,
    NEVER,
    SETTINGS,
    WRITERS,
    Record,
    Setting,
    identity,
    read_record,
)
from .rules import FORMS_NOT_TRIED, NOT_TRIED, READERS
from .runs import Row, collect, run_all

FIGURES, PAGE = DOCS / "evaluation" / "matrix.json", DOCS / "matrix.md"


def summary(record: Record, judged: Judgement) -> dict[str, int]:
    """The counts of the record and of its judgement."""
    letters = Counter("".join("".join(words) for words in record.codes.values()))
    return {
        "writers": len(WRITERS), "readers": len(READERS), "pairs": judged.pairs,
        "changed": letters[CHANGED], "changed by itself": letters[BY_ITSELF], "never changed": letters[NEVER],
        "not tried": judged.pairs - sum(letters[each] for each in (CHANGED, BY_ITSELF, NEVER)),
        "changed in a later table": sum(len(d) for each in record.later.values() for d in each.values()),
        "failures": len(judged.failures), "dependent, never shown": len(judged.idle),
        "extensions not tried": len(NOT_TRIED), "forms not tried": len(FORMS_NOT_TRIED),
    }  # fmt: skip


def draw(record: Record) -> None:
    """Write the tables of docs/matrix.md, from the record."""
    rows = []
    for setting in SETTINGS:
        letters = Counter("".join(record.codes[setting.name]))
        pairs = letters.total() - letters[APART]
        shown = letters[CHANGED], letters[BY_ITSELF], letters[NEVER]
        rows.append((setting.name, pairs, *shown, pairs - sum(shown)))
    head = ("", "pairs that a chain takes", "changed", "changed by itself", "never changed", "not tried")
    fill(PAGE, "matrix", markdown(head, rows))
    events = sorted({each.name for each in READERS if is_event(rule_of(each, min(each.families)))})
    alone = sorted({name for name, shown in record.by_itself.items() if shown})
    said = ", ".join(f"`{name}`" for name in events)
    fill(PAGE, "matrix-events", f"Events: {said}. Seen to change by themselves: "
         f"{', '.join(f'`{name}`' for name in alone) or 'none'}.\n")  # fmt: skip
    reasons = [(f"`{words}`", reason) for words, reason in NOT_TRIED.values()]
    reasons += [(f"`{rule}`", said) for rule, said in sorted(record.refused.items())]
    reasons += [(what, reason) for what, reason in FORMS_NOT_TRIED.items()]
    fill(PAGE, "matrix-not-tried", "".join(f"- {what}: {reason}\n" for what, reason in reasons))


def _draw_mutants(caught: int, left: Sequence[Mistake]) -> None:
    lines = [f"{caught + len(left)} mistakes: {caught} shown, {len(left)} survive.\n\n"]
    lines += [f"- {mistake.text}\n" for mistake in left]
    fill(PAGE, "matrix-mutants", "".join(lines))


def _names() -> dict[str, str]:
    """The extension that each reader and writer stands for, by what the record calls it."""
    names = {words: words.split()[1] for words, _ in NOT_TRIED.values()}
    names |= {each.words: each.name or "header" for each in READERS}
    return names | {identity(each): each.name or "header" for each in (*READERS, *WRITERS)}


def idle_pairs(record: Record, judged: Judgement) -> list[str]:
    """Pairs of extensions that are called dependent in some spelling, and shown to be in none."""
    names = _names()
    shown = {(names[w], names[r]) for w, readers in record.shown.items() for r in readers}
    idle = {(names[writer], names[reader]) for writer, reader in judged.idle}
    return [f"{writer} -> {reader}" for writer, reader in sorted(idle - shown)]


def _tell(record: Record, judged: Judgement, everything: bool) -> None:
    names = _names()
    groups: dict[tuple[str, str, str], list[Disagreement]] = {}
    for failure in judged.failures:
        writer, reader = names[failure.writer], names.get(failure.reader, "")
        if failure.kind == UNTRIED:  # one line for what cannot be tried, whatever it is tried with
            unknown = any(failure.reader == words for words, _ in NOT_TRIED.values())
            writer, reader = ("anything", reader) if unknown else (writer, "anything")
        key = failure.kind, writer, reader
        groups.setdefault(key, []).append(failure)
    for (kind, writer, reader), found in sorted(groups.items()):
        if everything:
            for failure in found:
                click.echo(failure.text())
        else:
            pair = f"{writer} -> {reader}" if reader else writer
            example = found[0].text().partition(": ")[2]
            click.echo(f"{kind}: {pair}: {len(found)}, as {example}")
    for setting, packets in record.lost.items():
        for packet in packets:
            click.echo(f"{setting}: a probe dropped {packet} times")
    if judged.failures:
        click.echo(f"{len(judged.failures)} failures of {len(groups)} pairs of extensions")
    counts = summary(record, judged).items()
    click.echo("; ".join(f"{count:,} {what}" for what, count in counts))


@click.command()
@click.option("--judge", "judge_only", is_flag=True, help="Use the figures that are there; no kernel.")
@click.option("--mutants", is_flag=True, help="Which mistakes of the table the figures show.")
@click.option("--all", "everything", is_flag=True, help="Tell every failure, not one example of a kind.")
@click.option("--idle", is_flag=True, help="Tell pairs that are called dependent and never changed.")
@click.option("--only", default="", help="Only writers whose words hold this; writes no figures.")
@click.option("-j", "--jobs", default=2, show_default=True)
@click.option("--json", "output", type=click.Path(path_type=Path), default=FIGURES)
def main(
    judge_only: bool, mutants: bool, everything: bool, idle: bool, only: str, jobs: int, output: Path
) -> None:
    """Hold the table of reads and writes against the kernel."""
    if not (judge_only or mutants):
        began = time.monotonic()
        rows: dict[Setting, list[Row]] = {}
        for setting, found in run_all(SETTINGS, only, jobs):
            rows[setting] = found
            click.echo(f"{setting.name}: {len(found)} rows")
        record = collect({setting: rows[setting] for setting in SETTINGS})
        record.head = {"machine": machine(), "seconds": round(time.monotonic() - began, 1)}
        judged = judge(record)
        record.head["summary"] = summary(record, judged)
        if not only:
            record.write(output)
        if output == FIGURES and not only:
            draw(record)
    else:
        if not output.is_file():
            click.echo(f"matrix: {output}: no figures yet; run without --judge first", err=True)
            sys.exit(2)
        record = read_record(output)
        judged = judge(record)
    if mutants:
        caught, left = survivors(record)
        for mistake in left:
            click.echo(f"survives: {mistake.text}")
        click.echo(f"{len(caught) + len(left)} mistakes, {len(caught)} shown, {len(left)} survive")
        if output == FIGURES:
            _draw_mutants(len(caught), left)
        return
    _tell(record, judged, everything)
    if idle:
        for pair in idle_pairs(record, judged):
            click.echo(f"called dependent, never shown: {pair}")
    sys.exit(1 if judged.failures else 0)


if __name__ == "__main__":
    try:
        main()
    except HitablesError as error:
        click.echo(f"matrix: {error}", err=True)
        sys.exit(2)
