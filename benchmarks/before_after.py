"""A rule set before and after a change, compared: python -m benchmarks.before_after BEFORE AFTER [-n PACKETS]

The same packets, drawn evenly for the rules that each built-in chain of BEFORE reads, go through both
programs.  The verdicts are compared as well; the exit status is 1 if one differs.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from hitables.api import read
from hitables.files import read_text
from hitables.ir.packet import Backend
from hitables.ir.program import BUILT_IN, Program
from hitables.ir.semantics import DROP
from hitables.simulate.boundary_packets import draw_packets
from hitables.simulate.interpreter import Interner, Interpreter

from . import command_line

SEED = 1


@dataclass(frozen=True, slots=True)
class Gain:
    """One built-in chain: rules read by its packets before and after, and verdicts that differ."""

    chain: str
    mean: tuple[float, float]
    longest: tuple[int, int]
    differing: int


def gains(before: Program, after: Program, packets: int, backend: Backend) -> list[Gain]:
    """A line for each built-in chain of *before* that has rules."""
    interner = Interner()
    machines = Interpreter(before, backend, interner), Interpreter(after, backend, interner)
    lines = []
    for table in before:
        for name in BUILT_IN[table.name]:
            if name not in table or not table[name].rules:
                continue
            batch = draw_packets(before, table.name, name, packets, SEED)
            old, new = (machine.run(table.name, name, batch) for machine in machines)
            # A malformed packet may be dropped where the input accepted it (docs/semantics.md).
            stricter = batch.malformed() & (new.verdict == interner.number(DROP))
            differs = (old.verdict != new.verdict) & ~stricter
            lines.append(
                Gain(
                    f"{table.name} {name}",
                    (float(old.reads.mean()), float(new.reads.mean())),
                    (int(old.reads.max()), int(new.reads.max())),
                    int(np.count_nonzero(differs)),
                )
            )
    return lines


@click.command()
@click.argument("before")
@click.argument("after")
@click.option("-n", "--packets", default=100_000, show_default=True, help="Packets per chain.")
@click.option("--backend", type=click.Choice(["legacy", "nft"]), default="nft", show_default=True)
def main(before: str, after: str, packets: int, backend: str) -> None:
    """Compare what packets read in BEFORE and in AFTER, which was compiled from it."""
    programs = read(read_text(before), name=before), read(read_text(after), name=after)
    lines = gains(*programs, packets, Backend(backend))
    sizes = [program.rule_count() for program in programs]
    shown = Table(title=f"Rules read per packet, {packets:,} packets per chain", title_justify="left")
    shown.add_column("chain")
    for column in ("mean before", "after", "longest before", "after"):
        shown.add_column(column, justify="right")
    for line in lines:
        shown.add_row(line.chain, *(f"{mean:.1f}" for mean in line.mean), *map(str, line.longest))
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(shown)
    console.print(f"Size: {sizes[0]:,} rules before, {sizes[1]:,} after.")
    differing = sum(line.differing for line in lines)
    console.print(f"Verdicts that differ: {differing}.")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    command_line.run(main)
