"""What `hitables compile` tells besides the rules: faults, chains that are not compiled, and the summary."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from ..nouns import counted

# Chains that are left for one reason: as many are named.
NAMED_CHAINS = 4


def warn_of_faults(faults: Any) -> None:
    """Warn of chains whose trees were wrong, and which are printed unchanged."""
    for fault in faults:
        click.echo(
            f"hitables: warning: table {fault.table}, chain {fault.chain} is printed {fault.left}: "
            f"{fault.why}\n"
            "(this is a fault of hitables: please report it with the rule set; the output is correct)",
            err=True,
        )
        if fault.detail:
            click.echo(fault.detail, err=True)


def show_result(result: Any, options: Any, output: str) -> None:
    """Name the long chains that are not compiled, with the reasons; on a terminal, sum up the result."""
    from ..compiler.options import NOT_ASKED
    from ..ir.foreign import recognised

    compiled = [each for each in result.reports if not each.why]
    left: dict[tuple[str, str], list[str]] = {}
    for each in result.reports:
        if each.why and each.before >= options.min_length and each.why != NOT_ASKED:
            chains = left.setdefault((each.table, each.why), [])
            chains.append(f"{each.chain} ({each.before} rules)")
    for (table, why), chains in left.items():
        many = len(chains) > NAMED_CHAINS
        named = ", ".join(chains[:NAMED_CHAINS]) + (f" and {len(chains) - NAMED_CHAINS} more" if many else "")
        verb = "is" if len(chains) == 1 else "are"
        noun = "chain" if len(chains) == 1 else "chains"
        click.echo(f"hitables: table {table}, {noun} {named} {verb} not compiled: {why}", err=True)
    for preset in recognised(result.before, options.leave):
        click.echo(
            f"hitables: {preset} changes its chains itself; --leave {preset} leaves them as they are",
            err=True,
        )
    if sys.stderr.isatty():
        click.echo(_success(result, compiled, output), err=True)


def _success(result: Any, compiled: Any, output: str) -> str:
    """One line on what was done, and how to load it."""
    if not compiled:
        return "no chain was compiled: the rules are printed as they are"
    rules = sum(each.before for each in compiled)
    means = [
        sum(getattr(each, name) * each.before for each in compiled) / rules
        for name in ("read_before", "read_after")
    ]
    count = f"{counted(len(compiled), 'chain')} compiled"
    proof = "proved equal" if result.proved else "NOT PROVED"
    name = result.before.name
    restore = f"{result.before.family.tool}-restore"
    loader = f"{restore} {shlex.quote(output)}" if name == "-" else f"hitables apply {shlex.quote(name)}"
    load = "" if output == "-" else f"; load the rules with: {loader}"
    after = sum(each.after for each in compiled)
    read = f"{means[0]:.1f} read per packet, now {means[1]:.1f}"
    return f"{count}: {counted(rules, 'rule')} as {after}, {read}; {proof}{load}"


def show_summary(result: Any) -> None:
    """Print a row for each chain, why some were proved by regions, and what weighed the rules."""
    _show_chains(result.reports)
    for each in result.by_regions:
        click.echo(
            f"table {each.table}, chain {each.chain}: proved by cutting the header space, which may take "
            f"long, in place of by its groups: {each.why}",
            err=True,
        )
    if result.weighed:
        click.echo(f"rules are weighed by {result.weighed}", err=True)


def _show_chains(reports: Any) -> None:
    """Print a row for each chain, and how many chains were left unchanged because they are short."""
    from ..report.columns import open_console, print_table

    short: dict[str, int] = {}
    for report in reports:
        if report.why.startswith("short") and not report.gone:
            short[report.why] = short.get(report.why, 0) + 1
    any_removed = any(report.gone for report in reports)
    any_hot = any(report.hot for report in reports)
    backends = sorted({backend for report in reports for backend in report.ns_after})
    numbers = [
        "rules",
        *(["removed"] if any_removed else []),
        *(["hot"] if any_hot else []),
        *("printed", "read", "read after", "longest after", "nested"),
        *(name for backend in backends for name in (f"{backend} ns", f"{backend} after")),
    ]
    columns = [("table", False), ("chain", False), *((name, True) for name in numbers), ("", False)]
    rows = [
        _summary_row(report, any_removed, any_hot, backends)
        for report in reports
        if report.why not in short or report.gone
    ]
    console = open_console(160, stderr=True)
    if rows:
        print_table(console, columns, rows, keys=2, title="chains, and the rules that packets read in each")
    for why, count in short.items():
        console.print(f"{counted(count, 'chain')} left unchanged: {why}")
    for report in reports:
        if report.returns:
            console.print(
                f"table {report.table}, chain {report.chain}: {report.returns} RETURN rules are printed with "
                "the policy as target: compile again after a change of the policy"
            )
    if any_removed:
        gone = sum(report.gone for report in reports)
        console.print(
            f"{counted(gone, 'rule')} removed: no verdict depends on {'it' if gone == 1 else 'them'}"
        )


def _summary_row(report: Any, any_removed: bool, any_hot: bool, backends: list[str]) -> list[str]:
    removed = [str(report.gone or "")] if any_removed else []
    removed += [str(report.hot or "")] if any_hot else []
    row = [report.table, report.chain, str(report.before), *removed]
    if report.why:
        printed = str(report.after) if report.gone else ""
        return [*row, printed, *[""] * (4 + 2 * len(backends)), report.why]
    read = f"{report.read_before:.1f}", f"{report.read_after:.1f}"
    times = [
        f"{time[backend]:.0f}" if time else ""
        for backend in backends
        for time in (report.ns_before, report.ns_after)
    ]
    done = "compiled: packets that match no rule skip the list" if report.gated else "compiled"
    return [*row, str(report.after), *read, str(report.longest), str(report.nesting), *times, done]
