"""The gain of compiling real rule sets, chain by chain: `python -m benchmarks.chains`.

Part of `make corpus`.  For every chain of at least 50 rules and each backend: rules read and modelled
nanoseconds, before and after, of packets drawn evenly over its rules (packets that reach their rule).  No
chain may get slower.  The geometric mean of the ratios counts each site once, whatever the number of its
rule sets and chains.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from hitables.api import read
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import NESTING, Options
from hitables.compiler.result import ChainReport
from hitables.files import read_text
from hitables.ir.choices import backend_choice
from hitables.kernel.machine import machine

from . import command_line
from .corpus import SHARED

LONG = 50
GOAL = 5.0  # times fewer rules read
OUTPUT = Path("docs/evaluation/chains.json")


@dataclass(frozen=True, slots=True)
class Row:
    """One chain for one backend; *why* it stayed as it was, "" when it was compiled.

    site            where the rule set comes from
    rules, printed  before and after
    read, reads     rules read, before and after
    ns, spent       modelled nanoseconds per kernel that it was compiled for, before and after
    """

    site: str
    file: str
    table: str
    chain: str
    backend: str
    rules: int
    printed: int
    read: float
    reads: float
    ns: Mapping[str, float]
    spent: Mapping[str, float]
    why: str

    @property
    def ratio(self) -> float:
        return 1.0 if self.why else self.read / self.reads

    @property
    def worse(self) -> bool:
        if self.why:
            return False
        return self.reads > self.read or any(self.spent[name] > ns for name, ns in self.ns.items())


def sites(folder: Path) -> dict[str, str]:
    """The site of each file: INDEX.tsv groups the files that have one origin."""
    with (folder / "INDEX.tsv").open(newline="") as file:
        return {row["file"]: row["group"] for row in csv.DictReader(file, delimiter="\t")}


def row_of(site: str, file: str, backend: str, report: ChainReport) -> Row:
    return Row(
        site,
        file,
        report.table,
        report.chain,
        backend,
        report.before,
        report.after,
        report.read_before,
        report.read_after,
        report.ns_before,
        report.ns_after,
        report.why,
    )


def measure(folder: Path, backends: Iterable[str]) -> list[Row]:
    group = sites(folder)
    rows = []
    for path in sorted((folder / "dumps").iterdir()):
        if path.suffix == ".tsv":
            continue
        program = read(read_text(str(path)), name=path.name)
        if all(len(chain.rules) < LONG for table in program for chain in table.chains):
            continue
        for backend in backends:
            reports = compile_rules(program, Options(backend=backend_choice(backend))).reports
            rows += [
                row_of(group.get(path.name, path.name), path.name, backend, each)
                for each in reports
                if each.before >= LONG
            ]
    return rows


def geometric_mean(rows: Iterable[Row]) -> float:
    """Of the ratios of rules read, one site counted once."""
    by_site: dict[str, list[float]] = {}
    for row in rows:
        by_site.setdefault(row.site, []).append(math.log(row.ratio))
    return math.exp(statistics.fmean(statistics.fmean(each) for each in by_site.values()))


def line_of(row: Row) -> str:
    where = f"{row.file[:44]:<46}{row.table:<8}{row.chain[:18]:<20}{row.backend:<8}{row.rules:>6}"
    if row.why:
        return f"{where}  {row.why}"
    spent = "  ".join(f"{name} {ns:.0f} -> {row.spent[name]:.0f} ns" for name, ns in row.ns.items())
    worse = "  WORSE" if row.worse else ""
    return f"{where}{row.printed:>7}{row.read:>8.1f} ->{row.reads:>6.1f}{row.ratio:>7.1f}  {spent}{worse}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=SHARED)
    parser.add_argument("--backends", nargs="*", default=list(NESTING), choices=list(NESTING))
    parser.add_argument("-o", "--output", type=Path, help=f"write the figures there, as {OUTPUT}")
    args = parser.parse_args()
    if not args.folder.is_dir():
        sys.exit(f"chains: {args.folder}: no such folder")
    rows = measure(args.folder, args.backends)
    for row in rows:
        print(line_of(row))
    means = {name: geometric_mean(row for row in rows if row.backend == name) for name in args.backends}
    worse = sum(row.worse for row in rows)
    for name, mean in means.items():
        chains = [row for row in rows if row.backend == name]
        left = sum(bool(row.why) for row in chains)
        count = len({row.site for row in chains})
        print(
            f"{name}: {len(chains)} chains of {LONG} rules or more on {count} sites, {left} left alone; "
            f"rules read, geometric mean over sites: {mean:.1f} times fewer (goal {GOAL:g})"
        )
    print(f"{worse} worse")
    if args.output:
        data = {"machine": machine(), "geometric_means": means, "rows": [asdict(row) for row in rows]}
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(data) + "\n")
    sys.exit(1 if worse or min(means.values()) < GOAL else 0)


if __name__ == "__main__":
    command_line.run(main)
