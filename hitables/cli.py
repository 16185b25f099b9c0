"""The command line: arguments in, exit status out.

Exit 0: done; 1: (check) the rule sets differ; 2: trouble.  Results go to standard
output, messages to standard error.  What a command needs is imported when it runs,
so that `hitables --help` is quick.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from . import __version__
from .errors import HitablesError

TROUBLE = 2


class _Commands(click.Group):
    """Turns every error into a message and an exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        # One command, then the process ends; the collector would only walk what stays
        # (a sixth of the time of compiling 10,000 rules).
        collecting = gc.isenabled()
        gc.disable()
        try:
            return super().invoke(ctx)
        except HitablesError as error:
            click.echo(f"hitables: {error}", err=True)
        except BrokenPipeError:
            # Nobody reads any more; standard output must not complain again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            click.echo("hitables: the reader of the output closed it", err=True)
        except MemoryError:
            click.echo("hitables: out of memory", err=True)
        except RecursionError:
            click.echo("hitables: the rule set nests too deep", err=True)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:
            if os.environ.get("HITABLES_DEBUG"):
                raise
            click.echo(
                f"hitables: a fault of hitables, not of your rules: {type(error).__name__}: {error}; "
                "please report it (HITABLES_DEBUG=1 shows where it happened)",
                err=True,
            )
        finally:
            if collecting:
                gc.enable()
        ctx.exit(TROUBLE)


@contextmanager
def _stages() -> Iterator[Callable[[str], None]]:
    """Tells which stage runs, on a terminal, once it takes more than a second."""
    if not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task("starting", total=None)
    began = time.monotonic()

    def tell(stage: str) -> None:
        progress.update(task, description=stage)
        if not progress.live.is_started and time.monotonic() - began > 1:
            progress.start()

    try:
        yield tell
    finally:
        progress.stop()


def _family(choice: str | None) -> Any:
    from .ir.fields import Family

    return None if choice is None else Family(int(choice))


_family_option = click.option(
    "--family", type=click.Choice(["4", "6"]), help="IP version of the rule set; guessed when left out."
)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hitables")
def main() -> None:
    """Compile iptables rule sets into equivalent jump trees.

    FILE is iptables-save or ip6tables-save text, plain or gzip; "-" is standard input.
    """


@main.command("compile")
@click.argument("file", default="-")
@click.option("-o", "--output", default="-", help='Where the compiled rule set goes; "-" is standard output.')
@click.option(
    "--backend",
    type=click.Choice(["any", "legacy", "nft"]),
    default="any",
    show_default=True,
    help="Which iptables will load the result; any: right and loadable in both.",
)
@click.option(
    "--scheme",
    type=click.Choice(["tree", "paper"]),
    default="tree",
    show_default=True,
    help="tree: whole chains, any rule; paper: the transformation of CoNEXT 2014.",
)
@click.option("--algorithm", default=None, help="Tree builder; see hitables algorithms.")
@click.option(
    "--binth", type=click.IntRange(1), default=None, help="Rules that a leaf may hold before it is split."
)
@click.option(
    "--spfac", type=click.FloatRange(1), default=4.0, show_default=True, help="HiCuts' space factor."
)
@click.option(
    "--cuts",
    type=click.Choice(["equal", "unequal"]),
    default="equal",
    show_default=True,
    help="Scheme paper: cut in equal parts, or between rules.",
)
@click.option(
    "--min-length",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Chains (paper: runs) of fewer rules stay as they are.",
)
@click.option(
    "--max-expansion",
    type=float,
    default=4.0,
    show_default=True,
    help="Rules printed over rules read, per chain, at most.",
)
@click.option(
    "--malformed",
    type=click.Choice(["stricter", "exact"]),
    default="stricter",
    show_default=True,
    help="Packets with cut-off headers: treat them alike or drop them, or treat them alike.",
)
@click.option("--table", "tables", multiple=True, help="Compile this table only; may be repeated.")
@click.option("--chain", "chains", multiple=True, help="Compile this chain only; may be repeated.")
@click.option("--map", "map_file", help="Write the source map (JSON): generated rule -> line of FILE.")
@click.option("--report", is_flag=True, help="Tell on standard error what was done to each chain.")
@click.option("--no-verify", is_flag=True, help="Print without a proof; the output says so.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="For the proof; when it runs out nothing is printed.",
)
@_family_option
def compile_command(
    file: str,
    output: str,
    backend: str,
    scheme: str,
    algorithm: str | None,
    binth: int | None,
    spfac: float,
    cuts: str,
    min_length: int,
    max_expansion: float,
    malformed: str,
    tables: tuple[str, ...],
    chains: tuple[str, ...],
    map_file: str | None,
    report: bool,
    no_verify: bool,
    timeout: float | None,
    family: str | None,
) -> None:
    """Compile the long chains of FILE into decision trees, and print the result.

    What is to be printed is read again and proved equal to FILE; without a proof nothing is printed.
    """
    import json

    from .analyse.sides import Malformed
    from .compile import Options
    from .files import read_text, write_text
    from .pipeline import compile_text

    if scheme == "paper":
        binth = binth or 16
    options = Options(
        backend=backend,
        malformed=Malformed(malformed),
        algorithm=algorithm or "bisect",
        leaf_size=binth or 8,
        spfac=spfac,
        min_length=min_length,
        max_expansion=max_expansion,
        unequal_cuts=cuts == "unequal",
        tables=frozenset(tables),
        chains=frozenset(chains),
    )
    with _stages() as tell:
        made = compile_text(
            read_text(file),
            options,
            family=_family(family),
            name=file,
            scheme=scheme,
            prove=not no_verify,
            timeout=timeout,
            tell=tell,
        )
    if report:
        _show_reports(made.reports)
    if map_file:
        write_text(map_file, json.dumps(made.map, indent=1) + "\n")
    write_text(output, made.text)


def _show_reports(reports: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    left: dict[str, int] = {}
    for each in reports:
        if each.why.startswith("short"):
            left[each.why] = left.get(each.why, 0) + 1
    shown = Table(title="chains", title_justify="left")
    for name in ("table", "chain", "rules", "printed", "read", "then", "longest", "nested", ""):
        shown.add_column(name, justify="left" if name in ("table", "chain", "") else "right")
    for each in reports:
        if each.why in left:
            continue
        if each.why:
            shown.add_row(each.table, each.chain, str(each.before), "", "", "", "", "", each.why)
            continue
        shown.add_row(
            each.table,
            each.chain,
            str(each.before),
            str(each.after),
            f"{each.read_before:.1f}",
            f"{each.read_after:.1f}",
            str(each.longest),
            str(each.nesting),
            "compiled",
        )
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 120)
    if shown.row_count:
        console.print(shown)
    for why, count in left.items():
        console.print(f"{count} chains left alone: {why}")


@main.command()
@click.argument("file", default="-")
@click.option(
    "--packet",
    required=True,
    help='As in "chain=FORWARD in=eth0 src=10.0.0.1 dst=10.0.0.2 proto=tcp sport=1024 dport=22 state=NEW".',
)
@click.option("--backend", type=click.Choice(["legacy", "nft"]), default="legacy", show_default=True)
@_family_option
def trace(file: str, packet: str, backend: str, family: str | None) -> None:
    """Show the verdict of a packet and every rule of FILE that it reads, by line."""
    from .files import read_text
    from .ir.packet import Backend
    from .ir.spelling import read_packet
    from .library import read
    from .library import trace as walk_through
    from .report.walk import describe_walk

    program = read(read_text(file), family=_family(family), name=file)
    wanted = read_packet(packet, program.family)
    for table in (wanted.table,):
        if all(each.name != table for each in program):
            raise HitablesError(f"{file}: there is no table {table}")
    if wanted.chain not in program.table(wanted.table):
        raise HitablesError(f"{file}: table {wanted.table} has no chain {wanted.chain}")
    walk = walk_through(
        program, wanted.packet, table=wanted.table, chain=wanted.chain, backend=Backend(backend)
    )
    click.echo(describe_walk(walk))
    if walk.open:
        click.echo("the packet does not say whether these hold; they were taken for no:", err=True)
        for key in sorted(walk.open):
            click.echo(f"  {key}", err=True)


@main.command()
@click.argument("file", default="-")
@click.option("--trace", "trace_file", help="ClassBench trace to run through the chain.")
@click.option("--chain", default=None, help="Built-in chain that the trace runs through.")
@click.option("--backend", type=click.Choice(["legacy", "nft"]), default="legacy", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_family_option
def stats(
    file: str, trace_file: str | None, chain: str | None, backend: str, as_json: bool, family: str | None
) -> None:
    """Per chain of FILE: rules, roles, rules read per packet, modelled cost."""
    import json

    from .files import read_text
    from .ir.packet import Backend
    from .library import read
    from .profile import profile, read_over_trace
    from .report.stats import show_stats

    program = read(read_text(file), family=_family(family), name=file)
    found = profile(program, Backend(backend))
    over = None
    if trace_file is not None:
        over = read_over_trace(program, read_text(trace_file), trace_file, chain, Backend(backend))
    if as_json:
        click.echo(json.dumps({**found, "trace": over}, indent=1))
    else:
        show_stats(found, over)


@main.command()
@click.argument("source")
@click.option("--from", "given", type=click.Choice(["classbench"]), required=True)
@click.option("--to", "wanted", type=click.Choice(["iptables"]), required=True)
@click.option("-o", "--output", default="-")
@click.option("--chain", default="FORWARD", show_default=True)
@click.option("--action", default="ACCEPT", show_default=True)
def convert(source: str, given: str, wanted: str, output: str, chain: str, action: str) -> None:
    """Turn ClassBench filters into iptables rules, one each."""
    from .files import read_text, write_text
    from .parse.classbench import parse, to_text

    del given, wanted  # one of each so far
    write_text(output, to_text(parse(read_text(source), source), chain, action))


@main.command()
@click.argument("file", default="-")
@click.option(
    "--format", "form", type=click.Choice(["dot", "graphml", "svg"]), default="dot", show_default=True
)
@click.option("-o", "--output", default="-")
@click.option("--table", "tables", multiple=True, help="This table only; may be repeated.")
@_family_option
def graph(file: str, form: str, output: str, tables: tuple[str, ...], family: str | None) -> None:
    """Draw which chain jumps where; of a compiled rule set, the trees."""
    from .files import read_text, write_text
    from .parse.iptables import read
    from .report.graph import draw

    program = read(read_text(file), family=_family(family), name=file)
    for name in tables:
        if all(table.name != name for table in program):
            raise HitablesError(f"{file}: there is no table {name}")
    write_text(output, draw(program, form, tables))


@main.command()
def algorithms() -> None:
    """List the tree builders."""
    from .build.tree import ALGORITHMS

    for name in ALGORITHMS:
        click.echo(name)
