"""Hot rules in the kernel: `python -m benchmarks.hot`, or `make bench-hot`.

Nanoseconds of a packet above an empty rule set, in both backends, on the public sets of 10,000 rules:
compiled without weights, weighed by a trace (`--trace`), and with hot rules besides (`--trace`, `--hot`).
The traffic is that of `hitables generate --traffic`: the trace is its first part, the packets that are
measured come after it, in their order.  All rule sets are measured in turn, in one run.

Goals: on `edge`, 1.5 times fewer nanoseconds with hot rules than compiled without weights; on `uniform`, at
most 2 % more than with the trace alone.  Where no hot rule pays, the two are the same rule set, and the
difference of their figures is that of two measurements.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from hitables import engine
from hitables.api import read
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.costs import default, spent
from hitables.emit.text import write
from hitables.files import read_text
from hitables.generate.traffic import traffic
from hitables.ir.fields import Family, Field
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.kernel.agreement import NEW
from hitables.kernel.machine import machine
from hitables.kernel.rivals import CHAIN
from hitables.kernel.routable import crafted, routable
from hitables.kernel.stopwatch import Router, Stopwatch
from hitables.kernel.user_bench import routed
from hitables.parse import classbench
from hitables.simulate.batch import PacketBatch
from hitables.simulate.five_tuple import batch_of, set_interface
from hitables.simulate.traffic import from_packets
from hitables.verify.portfolio import check
from hitables.verify.question import Equal, Question

from . import command_line
from .doc_tables import DOCS, fill, markdown

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "rulesets" / "wustl"
SETS = ("acl1_10K", "fw1_10K", "ipc1_10K")
PRESETS = ("edge", "uniform")
TRACED, SENT = 1 << 18, 40_000  # packets that rules are weighed by, and that are measured
OUTPUT, PAGE = DOCS / "evaluation" / "hot.json", DOCS / "hot.md"
HOT = 20  # what Storm gives its cache
GOAL, MOST_SLOWER = 1.5, 0.02
EMPTY = f"*filter\n:INPUT ACCEPT [0:0]\n:{CHAIN} ACCEPT [0:0]\nCOMMIT\n"
COMPILED = ("compiled", "traced", "hot")


def packets_of(filters: Any, preset: str, seed: int) -> tuple[PacketBatch, PacketBatch]:
    """The packets of a trace, and those after it that a router forwards."""
    rules = engine.Rules.of_filter(filters)
    blocks = traffic(preset, TRACED + 2 * SENT, seed=seed, rules=rules)
    batch = batch_of(np.concatenate([block.headers for block in blocks]))
    after = batch.pick(slice(TRACED, None))
    return batch.pick(slice(0, TRACED)), after.pick(routable(after)).pick(slice(0, SENT))


def programs(program: Program, traced: PacketBatch, backend: Backend) -> dict[str, Any]:
    """The three compiled programs, each proved equal to *program*; "hot" also says how many it has."""
    weights = from_packets(program, "filter", CHAIN, traced, backend, "the trace")
    options = {
        "compiled": Options(backend=backend),
        "traced": Options(backend=backend, traffic=weights),
        "hot": Options(backend=backend, traffic=weights, hot=HOT),
    }
    done: dict[str, Any] = {}
    for name, each in options.items():
        compiled = compile_rules(program, each)
        after = read(write(compiled.program), family=program.family)
        answer = check(read(write(program), family=program.family), after, Question((backend,)))
        if not isinstance(answer, Equal):
            raise SystemExit(f"{name}, {backend.value}: not proved equal: {answer}")
        done[f"{name} by lists"] = not answer.by_regions
        done[name] = compiled.program
        if name == "hot":
            done["hot rules"] = next(x.hot for x in compiled.reports if x.chain == CHAIN)
    return done


def case(name: str, preset: str, backend: Backend, runs: int, seed: int) -> dict[str, Any]:
    filters = classbench.parse(read_text(str(SHARED / f"{name}.gz")), name)
    program = routed(read(classbench.to_text(filters), family=Family.IPV4, name=name), "FORWARD")
    traced, after = packets_of(filters, preset, seed)
    done = programs(program, traced, backend)
    packets, sent = crafted(after)
    router = Router(Family.IPV4, "in0", "out0")
    set_interface(sent, Field.IIF, router.incoming)
    set_interface(sent, Field.OIF, router.outgoing)
    sent.rows["low"][:, Field.STATE] = NEW
    with Stopwatch(backend, router=router) as watch:
        watch.add("empty", EMPTY, packets, len(sent))
        for each in COMPILED:
            watch.add(each, write(done[each]), packets, len(sent))
        times = watch.run(runs)
    above = {
        each: statistics.median(one - two for one, two in zip(times[each], times["empty"], strict=True))
        for each in COMPILED
    }
    modelled = {each: spent(done[each], "filter", CHAIN, sent, default(), backend).total for each in COMPILED}
    return {
        "case": name,
        "preset": preset,
        "backend": backend.value,
        "rules": program.rule_count(),
        "packets": len(sent),
        "seed": seed,
        "runs": runs,
        "hot_rules": done["hot rules"],
        "proved_by_lists": {each: done[f"{each} by lists"] for each in COMPILED},
        "is_traced": write(done["hot"]) == write(done["traced"]),
        "empty_ns": statistics.median(times["empty"]),
        **{f"{each}_ns": above[each] for each in COMPILED},
        **{f"{each}_modelled_ns": modelled[each] for each in COMPILED},
        "ratio": above["compiled"] / above["hot"],
        "ratio_to_traced": above["traced"] / above["hot"],
        "all_ns": times,
    }


def table_of(rows: list[dict[str, Any]]) -> str:
    """The rows as the table of docs/hot.md."""
    head = ["set, traffic, backend", "hot rules", "compiled", "--trace", "--hot", "ratio", "to --trace"]
    lines = [
        [
            f"{row['case']}, {row['preset']}, {row['backend']}",
            row["hot_rules"],
            *(f"{row[f'{each}_ns']:.0f}" for each in COMPILED),
            f"{row['ratio']:.2f}",
            f"{row['ratio_to_traced']:.2f}",
        ]
        for row in rows
    ]
    return markdown(head, lines)


def is_met(row: dict[str, Any]) -> bool:
    """Whether the goal of the preset is met."""
    if row["preset"] == "edge":
        return bool(row["ratio"] >= GOAL)
    return row["is_traced"] or bool(row["hot_ns"] <= (1 + MOST_SLOWER) * row["traced_ns"])


def save(output: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows so far, and the table of the page if *output* is its file."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"machine": machine(), "cases": rows}, indent=1) + "\n")
    if output.resolve() == OUTPUT:
        fill(PAGE, "hot", table_of(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=SETS)
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        help="write the figures there; docs/evaluation/hot.json fills docs/hot.md",
    )
    args = parser.parse_args()
    if not SHARED.is_dir():
        raise SystemExit(f"the public rule sets are not at hand ({SHARED}): nothing is measured")
    rows = []
    print("nanoseconds of a packet above an empty rule set, medians")
    print(f"{'':<10}{'':<9}{'':<8}{'hot rules':>10}{'compiled':>10}{'traced':>8}{'hot':>8}{'ratios':>14}")
    for preset in PRESETS:
        for name in [args.only] if args.only else SETS:
            for backend in Backend:
                row = case(name, preset, backend, args.runs, args.seed)
                rows.append(row)
                if args.output:
                    save(args.output, rows)
                print(
                    f"{name:<10}{preset:<9}{backend.value:<8}{row['hot_rules']:>10}{row['compiled_ns']:>10.0f}"
                    f"{row['traced_ns']:>8.0f}{row['hot_ns']:>8.0f}{row['ratio']:>8.2f}"
                    f"{row['ratio_to_traced']:>6.2f}{'' if is_met(row) else '  goal missed'}",
                    flush=True,
                )
    missed = sum(not is_met(row) for row in rows)
    if missed:
        print(f"{missed} goals missed", file=sys.stderr)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    command_line.run(main)
