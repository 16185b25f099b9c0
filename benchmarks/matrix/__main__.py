"""The table of reads and writes tested against the kernel: python -m benchmarks.matrix [--mutants]

For each writer (targets, and every match as if it were one) and each probe of every match, in both families
and backends: does some packet get another answer after the writer?  See docs/matrix.md.  The figures are in
docs/evaluation/matrix.json.  The exit status is 1 if the table calls a pair independent that the kernel
shows to be dependent.

--judge    compare the table with the recorded figures, without the kernel
--mutants  remove each single read, write and role from the table, and list the mistakes that the figures miss
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from hitables.ir.rule import Role
from hitables.kernel.machine import machine
from hitables.syntax.extensions import MATCHES

from .. import command_line
from ..doc_tables import DOCS, fill, markdown
from .judge import UNTRIED, Disagreement, Judgement, Mistake, is_event, judge, rule_of, try_mistakes
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
from .rules import FORMS_NOT_TRIED, NOT_TRIED, READERS, REFUSED_HERE
from .runs import Row, collect, run_all

FIGURES, PAGE = DOCS / "evaluation" / "matrix.json", DOCS / "matrix.md"


def summary(record: Record, judged: Judgement) -> dict[str, int]:
    """The counts of the record and of its judgement."""
    letters = Counter("".join("".join(words) for words in record.codes.values()))
    return {
        "writers": len(WRITERS),
        "readers": len(READERS),
        "pairs": judged.pairs,
        "changed": letters[CHANGED],
        "changed by itself": letters[BY_ITSELF],
        "never changed": letters[NEVER],
        "not tried": judged.pairs - sum(letters[each] for each in (CHANGED, BY_ITSELF, NEVER)),
        "changed in a later table": sum(len(d) for each in record.later.values() for d in each.values()),
        "failures": len(judged.failures),
        "dependent, never shown": len(judged.idle),
        "extensions not tried": len(NOT_TRIED),
        "forms not tried": len(FORMS_NOT_TRIED),
    }


def tables(record: Record) -> dict[str, str]:
    """The tables of docs/matrix.md, by name."""
    rows = []
    for setting in SETTINGS:
        letters = Counter("".join(record.codes[setting.name]))
        pairs = letters.total() - letters[APART]
        shown = letters[CHANGED], letters[BY_ITSELF], letters[NEVER]
        rows.append((setting.name, pairs, *shown, pairs - sum(shown)))
    head = ("", "pairs that a chain takes", "changed", "changed by itself", "never changed", "not tried")
    events = sorted({each.name for each in READERS if is_event(rule_of(each, min(each.families)))})
    alone = sorted(name for name, shown in record.by_itself.items() if shown)
    reasons = [(f"`{words}`", reason) for words, reason in NOT_TRIED.values()]
    reasons += [(f"`{rule}`", _why_refused(rule, record)) for rule in sorted(record.refused)]
    reasons += list(FORMS_NOT_TRIED.items())
    return {
        "matrix": markdown(head, rows),
        "matrix-events": f"Events: {_listed(events)}. Seen to change by themselves: {_listed(alone)}.\n",
        "matrix-not-tried": "".join(f"- {what}: {reason}\n" for what, reason in reasons),
        "matrix-mutants": _mutants(record),
    }


def _mutants(record: Record) -> str:
    mutants = record.head.get("mutants", {"shown": 0, "ruled": [], "survive": []})
    shown, ruled, left = mutants["shown"], mutants["ruled"], mutants["survive"]
    return (
        f"{shown + len(ruled) + len(left)} mistakes: the kernel shows {shown}; {len(ruled)} are caught only "
        f"because pairs that cannot be tried must be dependent; {len(left)} survive.\n\n"
        f"Caught only so: {'; '.join(ruled) or 'none'}.\n\nSurvivors:\n\n"
        + "".join(f"- {text}\n" for text in left)
    )


def _why_refused(rule: str, record: Record) -> str:
    name = _names()[rule]
    return f"{REFUSED_HERE.get(name, 'refused')} ({record.refused[rule]})"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def draw(record: Record) -> None:
    """Write the tables of docs/matrix.md, from the record."""
    for name, table in tables(record).items():
        fill(PAGE, name, table)


def why_left(mistake: Mistake, record: Record) -> str:
    """Why the record does not show a mistake of the table."""
    if mistake.name in NOT_TRIED:
        return NOT_TRIED[mistake.name][1]
    own = [identity(each) for each in (*WRITERS, *READERS) if each.name == mistake.name]
    if mistake.name and all(words in record.refused for words in own):
        return _why_refused(own[0], record)
    changed = {what for what, _ in mistake.change}
    extension = MATCHES.get(mistake.name)
    if "counting" in changed:
        return "the forms with these options are tried as writers, not as probes"
    if "role" in changed and mistake.name == "statistic":
        return "the parser takes its role from --mode"
    if "role" in changed:
        return "both copies of the probe remember the same, so their answers never differ"
    header_test = extension is not None and extension.role is Role.SPACE
    if "reads" in changed and header_test and mistake.name != "conntrack":
        return "a test of header fields, for which FIELDS_WRITTEN counts"
    if "ends" in changed:
        return "no packet was seen to end, or to go on, against it"
    return "no packet shows it: the pairs that hang on it are called dependent and never changed"


def _names() -> dict[str, str]:
    """The extension of each reader and writer, by its name in the record."""
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
        if failure.kind == UNTRIED:  # one line for each extension that cannot be tried
            unknown = any(failure.reader == words for words, _ in NOT_TRIED.values())
            writer, reader = ("anything", reader) if unknown else (writer, "anything")
        key = failure.kind, writer, reader
        groups.setdefault(key, []).append(failure)
    for (kind, writer, reader), failures in sorted(groups.items()):
        if everything:
            for failure in failures:
                click.echo(failure.text())
        else:
            pair = f"{writer} -> {reader}" if reader else writer
            example = failures[0].text().partition(": ")[2]
            click.echo(f"{kind}: {pair}: {len(failures)}, as {example}")
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
        for setting, setting_rows in run_all(SETTINGS, only, jobs):
            rows[setting] = setting_rows
            click.echo(f"{setting.name}: {len(setting_rows)} rows")
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
        tried = try_mistakes(record)
        ruled = [mistake.text for mistake in tried.ruled]
        left = [f"{mistake.text}: {why_left(mistake, record)}" for mistake in tried.left]
        for text in ruled:
            click.echo(f"caught only because some pairs cannot be tried: {text}")
        for text in left:
            click.echo(f"survives: {text}")
        record.head["mutants"] = {"shown": len(tried.shown), "ruled": ruled, "survive": left}
        click.echo(_mutants(record).splitlines()[0])
        record.write(output)
        if output == FIGURES:
            draw(record)
        return
    _tell(record, judged, everything)
    if idle:
        for pair in idle_pairs(record, judged):
            click.echo(f"called dependent, never shown: {pair}")
    sys.exit(1 if judged.failures else 0)


if __name__ == "__main__":
    command_line.run(main)
