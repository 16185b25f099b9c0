"""Variants of the scheme of "Trees in the List" on its public sets, and times of building (figure 5f).

Variants: runs as the paper defines them (all rules of five fields) and as its tool cut them (tcp and udp
only), and both heuristics for the axis that is cut: growth and rules read.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hitables.compiler import conext2014 as scheme
from hitables.compiler.conext2014 import transform
from hitables.compiler.options import PAPER_CHOICES

from .conext2014 import batch_of, decided, in_processes, options, set_of

BINTH = 16
# Trees beyond these are given up here: with the paper's runs those of fw1 grow a thousand times.
MEMORY, PRINTED = 512 << 20, 2_000_000
BINTHS = (8, 20)  # of figure 5f, fw1_10K

Row = dict[str, Any]


def variant(task: tuple[Path | None, str, str, str]) -> Row:
    """One set in one variant; without growth and reads where its trees are given up, and *why*."""
    folder, name, runs, dim_choice = task
    scheme.MEMORY, scheme.MOST_RULES = MEMORY, PRINTED
    program, headers = set_of(folder, name)
    batch = batch_of(headers)
    started = time.process_time()
    compiled = transform(program, options(BINTH, runs=runs, dim_choice=dim_choice))
    row: Row = {
        "set": name,
        "runs": runs,
        "dim_choice": dim_choice,
        "rules": program.rule_count(),
        "seconds": time.process_time() - started,
        "why": next(each.why for each in compiled.reports if each.before),
    }
    if not row["why"]:
        before, _ = decided(program, batch)
        after, reads = decided(compiled.program, batch)
        row |= {
            "growth": compiled.program.rule_count() / program.rule_count(),
            "mean": float(reads.mean()),
            "deviation": float(reads.std()),
            "longest": int(reads.max()),
            "differ": int(np.count_nonzero(before != after)),
        }
    return row


def variants(folder: Path | None, names: Sequence[str]) -> Iterator[Row]:
    tasks = [
        (folder, name, runs, dim_choice)
        for name in names
        for runs in PAPER_CHOICES["runs"]
        for dim_choice in PAPER_CHOICES["dim_choice"]
    ]
    print("\nvariants of scheme paper")
    for row in in_processes(variant, tasks):
        found = row["why"] or f"growth {row['growth']:.2f}, mean {row['mean']:.1f}, longest {row['longest']}"
        print(f"{row['set']:<10}runs {row['runs']:<6} {row['dim_choice']:<10}{found}", flush=True)
        yield row


def built(task: tuple[Path | None, str, int]) -> Row:
    folder, name, binth = task
    program, _ = set_of(folder, name)
    started = time.process_time()
    compiled = transform(program, options(binth))
    return {
        "seconds": time.process_time() - started,
        "trees": sum(each.built for each in compiled.reports),
        "growth": compiled.program.rule_count() / program.rule_count(),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def build_times(folder: Path | None, name: str, runs: int) -> Iterator[Row]:
    """CPU seconds of the trees and of the whole compilation: mean and deviation of five runs at most."""
    print("\ntimes of building")
    for binth in BINTHS:
        found = list(in_processes(built, [(folder, name, binth)] * min(runs, 5)))
        row: Row = {"set": name, "binth": binth, "runs": len(found), "growth": found[0]["growth"]}
        row["megabytes"] = max(each["megabytes"] for each in found)
        for what in ("trees", "seconds"):
            times = [each[what] for each in found]
            row |= {what: statistics.fmean(times), f"{what}_deviation": statistics.pstdev(times)}
        print(f"{name}, binth {binth}: {row['trees']:.2f} s trees, {row['seconds']:.2f} s all", flush=True)
        yield row
