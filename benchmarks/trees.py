"""The size and depth of trees: `make bench-trees`.

Every set is compiled with default settings for each chosen backend.  The C interpreter sends its whole
trace through the input and through the output; the same rule of the input must decide each packet.  Rules
read are counted there, in legacy's reading; the goals are for backend legacy, and the other backends, which
nest 15 chains at most, may read SLACK more.  The sets with goals are also compiled for legacy with several
--max-expansion: growth against rules read (benchmarks.figures.trees draws it, docs/trees.md shows it).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hitables.analyse.levels import levels_above
from hitables.api import read
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import NESTING, Options
from hitables.files import read_text
from hitables.ir.choices import backend_choice
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.kernel.machine import machine
from hitables.parse import classbench
from hitables.parse import trace as traces

from . import command_line
from .conext2014 import CHAIN, batch_of, decided
from .doc_tables import fill, markdown
from .figures.trees import draw, table

SETS = Path("../shared/rulesets")
OUTPUT = Path("docs/evaluation/trees.json")
PAGE = Path("docs/trees.md")
EXPANSIONS = (1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0)
FEW_EXPANSIONS = (1.25, 2.0, 4.0)  # of sets of more rules than MANY
MANY = 50_000


@dataclass(frozen=True, slots=True)
class Goal:
    """At most: rules printed over rules read, mean rules read, most rules read."""

    growth: float
    mean: float
    longest: int


GOALS = {
    "wustl/acl1_1K": Goal(1.4, 12.5, 30),
    "wustl/acl1_10K": Goal(1.5, 15.5, 38),
    "classbench/acl3_10k": Goal(2.2, 17, 45),
    "wustl/ipc1_1K": Goal(2.3, 15.5, 34),
    "wustl/ipc1_10K": Goal(2.5, 20, 46),
    "wustl/fw1_1K": Goal(3, 19, 35),
    "wustl/fw1_5K": Goal(3.8, 23, 45),
    "wustl/fw1_10K": Goal(3.7, 24, 47),
    "classbench/fw1_10k": Goal(4, 27, 55),
    "classbench/acl1_100k": Goal(1.3, 18.5, 50),
    "classbench/ipc1_100k": Goal(4, 28, 65),
    "classbench/fw1_100k": Goal(4, 36, 75),
}
SLACK = 1.15
# Seconds that building the trees may take, by the number of rules.
SECONDS = ((20_000, 0.2), (200_000, 3.0))


@dataclass(frozen=True, slots=True)
class Row:
    """One set for one backend.

    linear, mean, longest   rules read over the trace: of the input, of the output
    built, compiled         CPU seconds: building trees alone, program to program
    nesting                 chains below the built-in one, at most, in what is printed
    differ                  packets that another rule decides than in the input
    """

    set: str
    backend: str
    rules: int
    packets: int
    growth: float
    linear: float
    mean: float
    longest: int
    built: float
    compiled: float
    megabytes: float
    nesting: int
    differ: int
    percentiles: list[int]

    def missed(self) -> list[str]:
        """What is not reached."""
        misses = []
        if self.differ:
            misses.append(f"{self.differ} packets are decided by another rule")
        if self.backend != "legacy" and self.nesting > NESTING[self.backend]:
            misses.append(f"nests {self.nesting} deep")
        if self.built > next(most for rules, most in SECONDS if self.rules <= rules):
            misses.append(f"built in {self.built:.2f} s")
        goal = GOALS.get(self.set)
        if goal is not None:
            mean = goal.mean if self.backend == "legacy" else goal.mean * SLACK
            # Compared with as many digits as the goals have.
            if round(self.growth, 2) > goal.growth:
                misses.append("growth")
            if round(self.mean, 1) > mean:
                misses.append("mean")
            if self.backend == "legacy" and self.longest > goal.longest:
                misses.append("longest")
        return misses


def program_of(folder: Path, name: str) -> Program:
    filters = classbench.parse(read_text(str(folder / f"{name}.gz")), name)
    return read(classbench.to_text(filters, chain=CHAIN), name=name)


def measure(task: tuple[Path, str, str]) -> Row:
    """One set for one backend, in a process of its own: its peak memory is the case's."""
    folder, name, backend = task
    program = program_of(folder, name)
    batch = batch_of(traces.parse(read_text(str(folder / f"{name}_trace.gz")), name).headers)
    before, linear = decided(program, batch)
    started = time.process_time()
    compiled = compile_rules(program, Options(backend=backend_choice(backend)))
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    after, reads = decided(compiled.program, batch)
    above = levels_above(compiled.program.table("filter"))
    return Row(
        name,
        backend,
        program.rule_count(),
        len(batch),
        compiled.program.rule_count() / program.rule_count(),
        float(linear.mean()),
        float(reads.mean()),
        int(reads.max()),
        sum(report.built for report in compiled.reports),
        seconds,
        peak,
        max(above.values()),
        int(np.count_nonzero(before != after)),
        np.percentile(reads, range(101)).astype(int).tolist(),
    )


def bounded(task: tuple[Path, str]) -> list[dict[str, Any]]:
    """One set with several bounds of its growth."""
    folder, name = task
    program = program_of(folder, name)
    batch = batch_of(traces.parse(read_text(str(folder / f"{name}_trace.gz")), name).headers)
    rows = []
    for bound in FEW_EXPANSIONS if program.rule_count() > MANY else EXPANSIONS:
        compiled = compile_rules(program, Options(backend=Backend.LEGACY, max_expansion=bound)).program
        _, reads = decided(compiled, batch)
        growth = compiled.rule_count() / program.rule_count()
        assert growth <= bound, f"{name} grew {growth} times, and {bound} was the bound"
        rows.append(
            {
                "set": name,
                "max_expansion": bound,
                "growth": growth,
                "mean": float(reads.mean()),
                "longest": int(reads.max()),
            }
        )
    return rows


HEAD = (
    f"{'set':<22}{'backend':<8}{'growth':>7}{'linear':>8}{'mean':>7}{'longest':>8}{'nesting':>8}"
    f"{'build s':>8}{'all s':>7}{'MB':>6}{'differ':>7}   goal: growth, mean, longest"
)


def line_of(row: Row) -> str:
    goal = GOALS.get(row.set)
    paths = f"{row.growth:>7.2f}{row.linear:>8.0f}{row.mean:>7.1f}{row.longest:>8}{row.nesting:>8}"
    spent = f"{row.built:>8.2f}{row.compiled:>7.2f}{row.megabytes:>6.0f}{row.differ:>7}"
    missed = row.missed()
    says = "NOT REACHED: " + ", ".join(missed) if missed else "reached"
    wanted = f"{goal.growth:g}, {goal.mean:g}, {goal.longest}: " if goal else ""
    return f"{row.set:<22}{row.backend:<8}{paths}{spent}   {wanted}{says}"


def all_sets(folder: Path) -> list[str]:
    """The sets that have a trace, those with goals first."""
    sets = sorted(
        f"{path.parent.name}/{path.name.removesuffix('_trace.gz')}" for path in folder.glob("*/*_trace.gz")
    )
    return sorted(sets, key=lambda name: name not in GOALS)


def run(folder: Path, names: Iterable[str], backends: Sequence[str], jobs: int) -> list[Row]:
    rows = []
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=1) as pool:
        tasks = [(folder, name, backend) for name in names for backend in backends]
        for row in pool.imap(measure, tasks):
            print(line_of(row), flush=True)
            rows.append(row)
    return rows


def show(data: dict[str, Any], folder: Path) -> None:
    """Draw the figure beside the data, and fill the page."""
    draw(data, folder)
    head, lines = table(data)
    fill(PAGE, "pareto", markdown(head, lines))
    fill(PAGE, "goals", markdown(*goals_table(data)))


def in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sets with goals first, in the order of GOALS."""
    place = {name: at for at, name in enumerate(GOALS)}
    return sorted(rows, key=lambda row: (place.get(row["set"], len(place)), row["set"]))


def goals_table(data: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """What was reached, per set with a goal and backend."""
    lines: list[list[object]] = [
        [
            f"{row['set'].partition('/')[2]}, {row['backend']}",
            f"{row['growth']:.2f}",
            f"{row['mean']:.1f}",
            row["longest"],
            row["nesting"],
            f"{row['built']:.2f}",
        ]
        for row in data["rows"]
        if row["set"] in data["goals"]
    ]
    return ["set, backend", "growth", "mean", "longest", "nesting", "built, s"], lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=Path, default=SETS)
    parser.add_argument("--only", nargs="*", help="names, as wustl/fw1_10K: these anew, the others stay")
    parser.add_argument("--backends", nargs="*", default=["legacy", "nft", "any"], choices=list(NESTING))
    parser.add_argument("--jobs", type=int, default=1, help="sets compiled at a time")
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT)
    args = parser.parse_args()
    if not args.sets.is_dir():
        sys.exit(f"trees: {args.sets} is missing: it holds the rule sets")
    print(HEAD)
    rows = run(args.sets, args.only or all_sets(args.sets), args.backends, args.jobs)
    with multiprocessing.get_context("spawn").Pool(args.jobs, maxtasksperchild=1) as pool:
        tasks = [(args.sets, name) for name in args.only or GOALS if name in GOALS]
        pareto = [row for set_rows in pool.imap(bounded, tasks) for row in set_rows]
    data: dict[str, Any] = {
        "machine": machine(),
        "goals": {name: asdict(goal) for name, goal in GOALS.items()},
        "slack": SLACK,
        "rows": [asdict(row) for row in rows],
        "pareto": pareto,
    }
    if args.only is not None and args.output.exists():
        old = json.loads(args.output.read_text())
        for part in ("rows", "pareto"):
            data[part] = in_order([*(row for row in old[part] if row["set"] not in args.only), *data[part]])
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(data) + "\n")
    show(data, args.output.parent)
    print(f"data: {args.output}")
    unreached = [row for row in rows if row.missed()]
    print(f"{len(rows) - len(unreached)} of {len(rows)} reached")
    sys.exit(1 if unreached else 0)


if __name__ == "__main__":
    command_line.run(main)
