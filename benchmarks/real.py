"""Public filter sets with what real firewalls have besides: `make bench-real`.

Each set gets a drawn verdict per rule (ACCEPT or DROP), is decorated (benchmarks.decorations), compiled text
to text with proof in a process of its own, and its trace is sent through input and output: the same rule must
decide each packet.  Rules read are counted in legacy's reading.  A row misses its goal where the decorated
set reads, grows, takes or holds more than the constants below allow beside the plain set.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import resource
import sys
import time
from collections.abc import Container, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hitables.analyse.levels import levels_above
from hitables.api import read
from hitables.compiler.options import NESTING, Options
from hitables.compiler.pipeline import compile_text
from hitables.files import read_text
from hitables.ir.choices import backend_choice
from hitables.ir.fields import STATES, Field, interface_number
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.kernel.machine import machine
from hitables.parse import trace as traces
from hitables.simulate.batch import HALF, PacketBatch
from hitables.simulate.interpreter import Interpreter

from . import command_line
from .conext2014 import batch_of
from .decorations import CHAIN, DECORATIONS, decorate
from .doc_tables import fill, markdown
from .public_sets import verdicts_drawn

SETS = Path("../shared/rulesets")
OUTPUT = Path("docs/evaluation/real.json")
PAGE = Path("docs/trees.md")
SMALL = ("wustl/acl1_10K", "wustl/fw1_10K", "wustl/ipc1_10K", "classbench/acl3_10k")
LARGE = ("classbench/acl1_100k", "classbench/fw1_100k", "classbench/ipc1_100k")
COMBINED = ("est+log", "inv+docker+logend", "est+docker+logdrop", "comment+new+iface", "ret+mark+limit")

# Against the plain set: times its mean (without the head's own rules), times its longest path.
MEAN, LONGEST, GROWTH = 1.25, 2.0, 4.0
# By size of the set: seconds of the processor and MB, text to text with proof.
SPENT = ((20_000, 3.0, 250), (200_000, 30.0, 3072))
# Rules in front that every packet reads besides the groups.
HEAD = {"est": 1, "inv": 1, "set": 1, "docker": 2, "hashlimit": 1, "head": 12, "fail2ban": 3}


@dataclass(frozen=True, slots=True)
class Row:
    """One decorated set for one backend.

    linear, mean, longest  rules read over the trace: of the input, of the output
    bound                  rules read by any packet, at most, as the compiler reports it
    cpu, megabytes         of the process, text to text with proof
    differ                 packets that another rule decides than in the input
    by_regions             chains whose groups did not serve their proof, which may take much longer then
    """

    set: str
    decorations: str
    backend: str
    rules: int
    growth: float
    linear: float
    mean: float
    longest: int
    bound: int
    nesting: int
    cpu: float
    megabytes: float
    differ: int
    by_regions: int = 0

    def missed(self, plain: Row) -> list[str]:
        """The goals that are not reached, given the plain set for the same backend."""
        head = sum(HEAD.get(name, 0) for name in self.decorations.split("+"))
        seconds, megabytes = next((seconds, most) for rules, seconds, most in SPENT if self.rules <= rules)
        misses = {
            "packets decided otherwise": self.differ > 0,
            "proved by regions": self.by_regions > 0,
            "mean": self.mean > MEAN * plain.mean + head,
            "longest": self.longest > LONGEST * plain.longest + head,
            "growth": self.growth > GROWTH,
            "seconds": self.cpu > seconds,
            "MB": self.megabytes > megabytes,
            "nesting": self.backend != "legacy" and self.nesting > NESTING[self.backend],
        }
        return [name for name, is_missed in misses.items() if is_missed]


def decided(program: Program, batch: PacketBatch, returning: Container[int] = ()) -> tuple[Any, Any]:
    """Per packet: the line of the rule that decides (0: the policy), and rules read.

    *returning*: lines of the input whose rules RETURN to the policy, which the output may print instead.
    """
    result = Interpreter(program, Backend.LEGACY).run("filter", CHAIN, batch)
    rules = [rule for chain in program.table("filter").chains for rule in chain.rules]
    lines = [0 if rule.line in returning else rule.line for rule in rules]
    return np.array([*lines, 0])[result.rule], result.reads


def traffic(name: str, text: str) -> PacketBatch:
    """The trace of the set, as packets of new connections.

    A packet comes in by the interface of the rule that it was drawn for, if that rule names one.
    """
    trace = traces.parse(read_text(str(SETS / f"{name}_trace.gz")), name)
    batch = batch_of(trace.headers)
    batch.rows["low"][:, Field.STATE] = STATES.index("NEW")
    batch.rows["present"] |= np.uint16(1 << Field.STATE)
    rules = [line for line in text.splitlines() if line.startswith(f"-A {CHAIN} ")]
    named = [re.search(r"-i (\S+)", rule) for rule in rules]
    numbers = [interface_number(found[1]) if found else 0 for found in named]
    drawn_for = trace.expected if trace.expected is not None else trace.origin
    if all(named) and drawn_for is not None:
        batch.rows["high"][:, HALF[Field.IIF]] = np.array([n >> 64 for n in numbers], np.uint64)[drawn_for]
        batch.rows["low"][:, Field.IIF] = np.array([n & (2**64 - 1) for n in numbers], np.uint64)[drawn_for]
        batch.rows["present"] |= np.uint16(1 << Field.IIF)
    return batch


def measure(task: tuple[str, str, str, bool]) -> Row:
    """One row, in a process of its own: its time and peak memory are the compile's."""
    name, decorations, backend, prove = task
    text = decorate(verdicts_drawn(name), decorations)
    started = time.process_time()
    compiled = compile_text(text, Options(backend=backend_choice(backend)), prove=prove)
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if compiled.faults:
        raise SystemExit(f"real: {name} {decorations}: {compiled.faults[0]}")
    source, output = read(text), compiled.program
    batch = traffic(name, text)
    returning = {rule.line for rule in source.table("filter")[CHAIN].rules if rule.returns}
    (before, linear), (after, reads) = decided(source, batch), decided(output, batch, returning)
    chain = next(report for report in compiled.reports if report.chain == CHAIN)
    return Row(
        name,
        decorations,
        backend,
        source.rule_count(),
        output.rule_count() / source.rule_count(),
        float(linear.mean()),
        float(reads.mean()),
        int(reads.max()),
        chain.longest,
        max(levels_above(output.table("filter")).values()),
        seconds,
        peak,
        int(np.count_nonzero(before != after)),
        len(compiled.by_regions),
    )


def line_of(row: Row, plain: Row | None) -> str:
    missed = row.missed(plain) if plain is not None else []
    counts = (
        f"{row.growth:>7.2f}{row.linear:>7.0f}{row.mean:>7.1f}{row.longest:>8}{row.bound:>7}{row.nesting:>8}"
    )
    says = "NOT REACHED: " + ", ".join(missed) if missed else "reached"
    head = f"{row.set.partition('/')[2]:<11}{row.decorations or 'plain':<20}{row.backend:<7}"
    return f"{head}{counts}{row.cpu:>7.1f}{row.megabytes:>6.0f}   {says}"


HEADING = (
    f"{'set':<11}{'decorations':<20}{'for':<7}{'growth':>7}{'linear':>7}{'mean':>7}{'longest':>8}{'bound':>7}"
    f"{'nesting':>8}{'s':>7}{'MB':>6}"
)


def tasks(args: argparse.Namespace) -> Iterator[tuple[str, str, str, bool]]:
    """Each set and backend: plain first, then decorated."""
    for name in [*args.sets, *(LARGE if args.large else ())]:
        for backend in args.backends:
            for each in ("", *args.decorations):
                yield name, each, backend, not args.unproved


def table(rows: list[Row]) -> str:
    """For the docs: decorations against the plain set, each cell over all sets."""
    head = (
        "decorations",
        "for",
        "sets",
        "mean, times plain",
        "longest, times plain",
        "growth",
        "CPU s",
        "MB",
    )
    plain = {(row.set, row.backend): row for row in rows if not row.decorations}
    lines: list[tuple[object, ...]] = []
    for key in dict.fromkeys((row.decorations, row.backend) for row in rows):
        chosen = [row for row in rows if (row.decorations, row.backend) == key]
        of = [plain[row.set, row.backend] for row in chosen]
        worst_mean = max(row.mean / each.mean for row, each in zip(chosen, of, strict=True))
        worst_long = max(row.longest / each.longest for row, each in zip(chosen, of, strict=True))
        lines.append((
            key[0] or "plain", key[1], len(chosen), f"{worst_mean:.2f}", f"{worst_long:.2f}",
            f"{max(row.growth for row in chosen):.2f}", f"{max(row.cpu for row in chosen):.1f}",
            f"{max(row.megabytes for row in chosen):.0f}",
        ))  # fmt: skip
    return markdown(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="*", default=list(SMALL), help="as wustl/fw1_10K")
    parser.add_argument("--large", action="store_true", help="sets of 100,000 rules besides")
    parser.add_argument("--decorations", nargs="*", default=[*DECORATIONS, *COMBINED])
    parser.add_argument("--backends", nargs="*", default=["nft", "any", "legacy"], choices=list(NESTING))
    parser.add_argument("--jobs", type=int, default=1, help="sets compiled at a time")
    parser.add_argument("--unproved", action="store_true", help="trees alone: a quick look")
    parser.add_argument("-o", "--output", type=Path, help=f"write the data here; a whole run: {OUTPUT}")
    args = parser.parse_args()
    if not SETS.is_dir():
        sys.exit(f"real: {SETS} is missing: it holds the rule sets")
    chosen = args.sets, args.decorations, args.backends
    whole = chosen == (list(SMALL), [*DECORATIONS, *COMBINED], ["nft", "any", "legacy"])
    if args.output is None and whole and not args.unproved and not args.large:
        args.output = OUTPUT
    print(HEADING)
    rows: list[Row] = []
    plain: dict[tuple[str, str], Row] = {}
    with multiprocessing.get_context("spawn").Pool(args.jobs, maxtasksperchild=1) as pool:
        for row in pool.imap(measure, tasks(args)):
            if not row.decorations:
                plain[row.set, row.backend] = row
            print(line_of(row, plain[row.set, row.backend]), flush=True)
            rows.append(row)
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(
            json.dumps({"machine": machine(), "rows": [asdict(row) for row in rows]}, indent=1) + "\n"
        )
    if args.output == OUTPUT:
        fill(PAGE, "real", table(rows))
    unreached = sum(bool(row.missed(plain[row.set, row.backend])) for row in rows)
    print(f"{len(rows) - unreached} of {len(rows)} reached")
    sys.exit(1 if unreached else 0)


if __name__ == "__main__":
    command_line.run(main)
