"""Real rule sets compared with real kernels: python -m benchmarks.corpus [FOLDER] [-n PACKETS] [--only WORD]

For every rule set of FOLDER (dumps/, extensions/; one line each, without exception):

a  our printed text, once loaded, gives the same iptables-save output as the original, in both backends
b  the compiled set loads in both
c  boundary packets of its boxes, through each built-in chain with rules: the kernel with the set before, the
   kernel with the set after, and the C interpreter agree on every packet that the interpreter can predict,
   and on the counter of every rule; some packets go through ir.semantics, too

Every text of refused/ must get a message and exit status 2.  The exit status is 1 if anything fails.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, replace
from pathlib import Path

import click

from hitables.api import read
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.emit.text import write
from hitables.errors import HitablesError
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.kernel.load_save import load, save
from hitables.kernel.namespace import Namespace

from . import command_line
from .agreement import Line, try_packets

PACKETS = 20_000  # that must be compared, of each set
# Packets to draw for each packet needed: some do not reach the rules, as nat sees new connections only.
DRAWN = 1.5
ENOUGH_REACHED, MOST_OPEN = 0.9, 0.02
SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "corpus"


def try_set(path: Path, packets: int) -> Line:
    """All of (a), (b) and (c) for the rule set in *path*."""
    began = time.monotonic()
    line = Line(path.name)
    try:
        text = path.read_text("utf-8", "surrogateescape")
        program = read(text, name=path.name)
        printed = write(program)
        output = compile_rules(program, Options()).program
        compiled_text = write(output)
        compiled = _with_origins(read(compiled_text, family=program.family, name="compiled"), output)
        line.rules, line.compiled = program.rule_count(), compiled.rule_count()
        _same_when_loaded(program, text, printed, line)
        _loads(compiled, compiled_text, line)
        try_packets(program, compiled, int(DRAWN * packets), line)
        compared = line.packets - line.open
        if 0 < compared < packets:  # too many were open: draw as many more as it takes
            line.forget_packets()
            try_packets(program, compiled, int(1.1 * DRAWN * packets * packets / compared), line)
            compared = line.packets - line.open
        if compared < packets:
            line.failures.append(f"(c) only {compared} packets could be compared")
    except HitablesError as error:
        line.failures.append(f"{type(error).__name__}: {error}")
    except Exception:  # a set that ends in a fault still gets its line
        line.failures.append(traceback.format_exc())
    line.seconds = time.monotonic() - began
    return line


def _same_when_loaded(program: Program, text: str, printed: str, line: Line) -> None:
    for backend in Backend:
        differences = []
        for each in (text, printed):
            with Namespace() as namespace:
                load(each, program.family, backend, namespace)
                differences.append(save(program.family, backend, namespace, counters=True))
        if differences[0] != differences[1]:
            pairs = zip(differences[0].splitlines(), differences[1].splitlines(), strict=False)
            where = next((f"{a!r} became {b!r}" for a, b in pairs if a != b), "one is longer")
            line.failures.append(f"(a) {backend.value}: printed, it saves otherwise: {where}")


def _loads(compiled: Program, text: str, line: Line) -> None:
    for backend in Backend:
        try:
            with Namespace() as namespace:
                load(text, compiled.family, backend, namespace)
        except HitablesError as error:
            line.failures.append(f"(b) {backend.value}: the compiled set does not load: {error}")


def _with_origins(program: Program, compiled: Program) -> Program:
    """*program*, its rules with the lines that *made*, from which it was printed, gives them."""
    tables = []
    for table in program:
        chains = []
        for chain in table.chains:
            origins = compiled.table(table.name)[chain.name].rules
            rules = (rule._replace(line=o.line) for rule, o in zip(chain.rules, origins, strict=True))
            chains.append(chain.with_rules(tuple(rules)))
        tables.append(replace(table, chains=tuple(chains)))
    return replace(program, tables=tuple(tables))


def refuse(path: Path) -> Line:
    """A file that iptables-restore refuses: ours must, with a message and exit status 2."""
    line = Line(path.name)
    script = "from hitables.cli.main import main; main()"
    command = [sys.executable, "-c", script, "compile", "-o", os.devnull, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    message = done.stderr.strip().splitlines()
    if done.returncode != 2 or not message or "fault of hitables" in done.stderr:
        line.failures.append(f"exit status {done.returncode}, not 2: {message[:1]}")
    return line


def _files(folder: Path, only: str) -> list[Path]:
    """The rule sets of *folder* whose names hold *only*."""
    return [path for path in sorted(folder.iterdir()) if path.suffix != ".tsv" and only in path.name]


def _job(task: tuple[Path, int]) -> Line:
    return try_set(*task)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=SHARED)
@click.option("-n", "--packets", default=PACKETS, show_default=True, help="Packets per set.")
@click.option("--only", default="", help="Only sets whose name holds this.")
@click.option("-j", "--jobs", default=2, show_default=True)
@click.option("--json", "output", type=click.Path(path_type=Path), help="Write the figures there.")
def main(folder: Path, packets: int, only: str, jobs: int, output: Path | None) -> None:
    """Try every rule set of FOLDER in the kernel."""
    if not folder.is_dir():
        click.echo(f"corpus: {folder}: no such folder", err=True)
        sys.exit(2)
    paths = [path for part in ("dumps", "extensions") for path in _files(folder / part, only)]
    paths.sort(key=lambda path: -path.stat().st_size)
    began = time.monotonic()
    lines = []
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=10) as pool:
        for line in pool.imap_unordered(_job, [(path, packets) for path in paths], chunksize=1):
            lines.append(line)
            click.echo(line.text())
        refused = pool.map(refuse, _files(folder / "refused", only))
    for line in refused:
        click.echo(f"{'FAIL' if line.failures else 'ok  '} {line.name}: refused {'; '.join(line.failures)}")
    total = {
        "sets": len(lines), "failed": sum(bool(line.failures) for line in lines),
        "refused": len(refused), "not refused": sum(bool(line.failures) for line in refused),
        "fewest packets": min((line.packets for line in lines), default=0),
        "packets": sum(line.packets for line in lines), "open": sum(line.open for line in lines),
        "slowly": sum(line.slow for line in lines),
        "reachable": sum(line.reachable for line in lines), "reached": sum(line.reached for line in lines),
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    click.echo(
        "{sets} sets, {failed} failed; {refused} to refuse, {not refused} taken; {packets} packets "
        "({fewest packets} at least), {open_share:.2%} open; {slowly} slowly; rules reached {reached} of "
        "{reachable} ({reach:.1%}); {seconds} s".format(
            **total,
            open_share=total["open"] / max(total["packets"], 1),
            reach=total["reached"] / max(total["reachable"], 1),
        )
    )
    if output is not None:
        output.write_text(json.dumps({"total": total, "sets": [asdict(line) for line in lines]}, indent=1))
    failed = bool(total["failed"] or total["not refused"])
    if only:  # some sets are harder than others; the shares are promised for all of them
        sys.exit(failed)
    if total["reached"] < ENOUGH_REACHED * total["reachable"]:
        click.echo(f"fewer than {ENOUGH_REACHED:.0%} of the reachable rules were reached")
        failed = True
    if total["open"] > MOST_OPEN * total["packets"]:
        click.echo(f"more than {MOST_OPEN:.0%} of the packets are open")
        failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    command_line.run(main)
