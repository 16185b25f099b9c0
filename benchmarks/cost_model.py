"""The cost model compared with the kernel: `python -m benchmarks.cost_model`.

Whole rule sets, as they are and compiled, in both backends: the modelled and the measured cost of a packet
above an empty rule set.  With few flows in turn, whose rules stay in the processor's cache, and with many.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hitables.api import read
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.costs import Costs, default, load, spent
from hitables.emit.text import write
from hitables.files import read_text
from hitables.ir.fields import Family, Field
from hitables.ir.packet import Backend
from hitables.kernel.calibrate import difference
from hitables.kernel.machine import machine
from hitables.kernel.routable import crafted, routable
from hitables.kernel.stopwatch import DEVICE, EMPTY, compare
from hitables.parse import classbench, trace
from hitables.simulate.batch import PacketBatch
from hitables.simulate.five_tuple import batch_of, set_interface

from . import command_line
from .conext2014 import headers_of
from .kernel import FEW, MANY, random_rules, rules_text

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared" / "rulesets" / "wustl"
GOAL = 0.2  # of what was measured
CHAIN = "OUTPUT"


@dataclass(frozen=True, slots=True)
class RuleSet:
    """A rule set of one chain, and packets that its rules were drawn for."""

    name: str
    text: str
    batch: PacketBatch


def rule_sets(seed: int, full: bool) -> Iterator[RuleSet]:
    """Random ones, ClassBench's in rulesets/ and, with *full*, those of 10,000 rules in ../shared."""
    for name, lengths, count in (("/24", [24], 1000), ("/22 to /30", list(range(22, 31)), 4000)):
        rng = random.Random(seed)
        rules = random_rules(count, lengths, rng)
        batch = batch_of(headers_of([rng.choice(rules).packet(rng) for _ in range(4 * MANY)]))
        yield RuleSet(f"{count} random {name}", rules_text(rules), batch)
    folder = REPOSITORY / "rulesets" / "classbench"
    places = [(name, folder / f"{name}.gz", folder / f"{name}_trace.gz") for name in ("acl_1k", "fw_1k")]
    if full and SHARED.is_dir():
        places += [
            (name, SHARED / f"{name}.gz", SHARED / f"{name}_trace.gz")
            for name in ("acl1_10K", "ipc1_10K", "fw1_10K")
        ]
    for name, filters, packets in places:
        text = classbench.to_text(classbench.parse(read_text(str(filters)), name), CHAIN)
        yield RuleSet(name, text, batch_of(trace.parse(read_text(str(packets)), name).headers))


def case(
    rules: RuleSet, flows: int, backend: Backend, costs: Costs, runs: int, seed: int
) -> list[dict[str, Any]]:
    """The rule set as it is and compiled: model and measurement."""
    program = read(rules.text, family=Family.IPV4)
    compiled = compile_rules(program, Options(backend=backend)).program
    batch = rules.batch.pick(routable(rules.batch))
    chosen = np.random.default_rng(seed).permutation(len(batch))[:flows]
    packets, sent = crafted(batch.pick(chosen))
    set_interface(sent, Field.OIF, DEVICE)
    texts = {"empty": EMPTY, "input": rules.text, "compiled": write(compiled)}
    times = compare(texts, packets, len(sent), backend, runs)
    rows = []
    for which, tried in (("input", program), ("compiled", compiled)):
        modelled = spent(tried, "filter", CHAIN, sent, costs, backend)
        measured = difference(times[which], times["empty"])
        differences = [one - other for one, other in zip(times[which], times["empty"], strict=True)]
        spread = statistics.median(abs(each - measured) for each in differences)
        rows.append(
            {
                "set": rules.name,
                "which": which,
                "backend": backend.value,
                "flows": len(sent),
                "rules": tried.rule_count(),
                "reads": modelled.reads,
                "near_ns": modelled.cached,
                "far_ns": modelled.cache_miss,
                "modelled_ns": modelled.total,
                "measured_ns": measured,
                # What the median of so many differences may be off by, at two standard deviations.
                "doubt_ns": 2 * 1.25 * 1.48 * spread / len(differences) ** 0.5,
                "error": modelled.total / measured - 1,
                "all_ns": {name: times[name] for name in ("empty", which)},
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--costs", help="a profile; the shipped one when left out")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--full", action="store_true", help="with the sets of 10,000 rules in ../shared")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    costs = load(args.costs) if args.costs else default()
    print("nanoseconds per packet above an empty rule set")
    print(
        f"{'set':<24}{'':<10}{'backend':<8}{'flows':>6}{'read':>9}{'model':>10}{'measured':>10}{'+-':>6}{'error':>8}"
    )
    rows = []
    for rules in rule_sets(args.seed, args.full):
        for backend in Backend:
            for flows in (FEW, MANY):
                for row in case(rules, flows, backend, costs, args.runs, args.seed):
                    rows.append(row)
                    print(
                        f"{row['set']:<24}{row['which']:<10}{row['backend']:<8}{row['flows']:>6}"
                        f"{row['reads']:>9.1f}{row['modelled_ns']:>10.0f}{row['measured_ns']:>10.0f}"
                        f"{row['doubt_ns']:>6.0f}{row['error']:>8.0%}",
                        flush=True,
                    )
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        data = {"machine": machine(), "profile": costs.name, "rows": rows}
        args.output.write_text(json.dumps(data, indent=1) + "\n")
    middle = statistics.median(abs(row["error"]) for row in rows)
    plain = sum(abs(row["error"]) > GOAL for row in rows)
    outside = [row for row in rows if beyond(row)]
    print(f"error, median of {len(rows)}: {middle:.0%}; beyond {GOAL:.0%}: {plain}")
    print(f"{len(outside)} of them by more than the measurement's own doubt")
    sys.exit(1 if outside else 0)


def beyond(row: dict[str, Any]) -> bool:
    """Whether the model is off by more than GOAL, wherever in its doubt the true time lies."""
    off = abs(row["modelled_ns"] - row["measured_ns"]) - row["doubt_ns"]
    return bool(off > GOAL * (row["measured_ns"] + row["doubt_ns"]))


if __name__ == "__main__":
    command_line.run(main)
