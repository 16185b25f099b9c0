"""What updates cost: `make bench-sflgen`, or `python -m benchmarks.updates --short`.

Updates are drawn as in the evaluation of the SFL paper (but those of `sustained`): at random positions,
half of them deletions of random rules, a tenth of the insertions wider than /16 in both addresses, no
address twice.

    times      per update: plan, text, proof, kernel; compared with a compilation of the whole, and
               with one `iptables -I` or `-D` in the uncompiled set
    sustained  benchmarks/streams.py
    growth     rules read with pending updates (the paper's figures 6 to 8): all in front of the tree,
               as in the paper, and where the cost model puts them
    kills      benchmarks/kills.py
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sflgen
from hitables.api import read
from hitables.emit.text import write
from hitables.files import read_text
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.kernel.load_save import load
from hitables.kernel.machine import machine
from hitables.kernel.namespace import Namespace, run
from hitables.parse import classbench
from hitables.parse import trace as traces
from sflgen.counters import counted_text
from sflgen.kernel import Kernel

from . import command_line, streams
from .conext2014 import CHAIN, batch_of, decided
from .doc_tables import DOCS, fill, markdown
from .kills import kills
from .public_sets import SHARED
from .streams import spread

WUSTL = ("acl1_10K", "fw1_10K", "ipc1_10K")
PARTS = ("times", "sustained", "growth", "kills")

CORPUS = "cmarbach_geo-fencing__iptables-rules.rules"


@dataclass(frozen=True, slots=True)
class Case:
    """A rule set, and the chain of it that is updated."""

    name: str
    program: Program
    chain: str


def wustl(name: str) -> Case:
    filters = classbench.parse(read_text(str(SHARED / "rulesets" / "wustl" / f"{name}.gz")), name)
    return Case(name, read(classbench.to_text(filters, chain=CHAIN), name=name), CHAIN)


def corpus() -> Case:
    """The corpus set with the longest chain."""
    program = read(read_text(str(SHARED / "corpus" / "dumps" / CORPUS)), name=CORPUS)
    filters = Program(program.family, (program.table("filter"),), CORPUS)
    longest = max(filters.table("filter").chains, key=lambda chain: len(chain.rules))
    return Case("geo-fencing", filters, longest.name)


class Updates:
    """Commands for a chain that has *count* rules at first."""

    def __init__(self, chain: str, count: int, seed: int, insert: float = 0.5) -> None:
        self.chain, self.count, self.insert = chain, count, insert
        self.rng = random.Random(seed)
        self.seen: set[int] = set()

    def address(self, wide: bool) -> str:
        """A network that was not drawn before."""
        while True:
            length = self.rng.randint(4, 15) if wide else self.rng.randint(17, 32)
            number = self.rng.randrange(1 << length) << (32 - length)
            if number not in self.seen:
                self.seen.add(number)
                return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0)) + f"/{length}"

    def next(self) -> str:
        rng = self.rng
        if rng.random() >= self.insert:
            at = rng.randint(1, self.count)
            self.count -= 1
            return f"-D {self.chain} {at}"
        wide = rng.random() < 0.1
        at = rng.randint(1, self.count + 1)
        self.count += 1
        ports = f"-p {rng.choice(['tcp', 'udp'])} --dport {rng.randrange(1, 65536)}"
        where = f"-s {self.address(wide)} -d {self.address(wide)}"
        return f"-I {self.chain} {at} {where} {ports} -j {rng.choice(['ACCEPT', 'DROP'])}"


def rules_in(case: Case) -> int:
    return len(case.program.table("filter")[case.chain].rules)


# Times.


def times(case: Case, backend: Backend, count: int, seed: int) -> dict[str, Any]:
    """One row: the cost of each update, of compiling and loading all, and of commands in the linear set."""
    started = time.perf_counter()
    plan = sflgen.start_unproved(case.program, sflgen.Settings(backend=backend))
    compiled = time.perf_counter() - started
    plain, tree = write(case.program), write(plan.after.loaded)
    with tempfile.TemporaryDirectory() as folder, Namespace() as namespace:
        load(tree, Family.IPV4, backend, namespace)
        patched = namespace.call(_patched, Path(folder) / "state", plan.after, case, backend, count, seed)
    with Namespace() as namespace:
        linear = namespace.call(_linear, plain, case, backend, min(count, 20), seed)
    with Namespace() as namespace:
        started = time.perf_counter()
        load(tree, Family.IPV4, backend, namespace)
        loaded = time.perf_counter() - started
    spent, every = patched["spent_ms"], 1000 * compiled
    medians = "".join(f"{each['median']:>9.2f}" for each in spent.values())
    print(
        f"{case.name:<12}{backend.value:<8}{medians}{every:>10.0f}{1000 * loaded:>8.0f}"
        f"{linear['median']:>10.1f}  {patched['chosen']}",
        flush=True,
    )
    return {
        "set": case.name,
        "backend": backend.value,
        "rules": rules_in(case),
        "updates": count,
        "seed": seed,
        **patched,
        "rebuild_ms": 1000 * compiled,
        "load_ms": 1000 * loaded,
        "linear": linear,
    }


def _patched(
    folder: Path, state: sflgen.State, case: Case, backend: Backend, count: int, seed: int
) -> dict[str, Any]:
    """Updates without folds."""
    spent: dict[str, list[float]] = {name: [] for name in ("read", "plan", "text", "proof", "kernel")}
    chosen: dict[str, int] = {}
    lines = []
    updates = Updates(case.chain, rules_in(case), seed)
    with sflgen.create(str(folder), state) as store:
        kernel = Kernel(state.master.family, state.settings)
        for number in range(count + 1):
            clock = [time.perf_counter()]
            edits = sflgen.read_commands(updates.next(), state.master)
            clock.append(time.perf_counter())
            plan = sflgen.plan_unproved(state, edits, sflgen.Strategy.GRAFT, delete_in_place=True)
            clock.append(time.perf_counter())
            _ = plan.text  # computed once, and kept
            clock.append(time.perf_counter())
            plan = sflgen.prove_plan(plan, sflgen.Strategy.GRAFT)
            clock.append(time.perf_counter())
            kernel.load(plan.text, store, None)
            clock.append(time.perf_counter())
            state = plan.after
            if not number:
                continue  # the first one fills the cache
            for name, start, end in zip(spent, clock, clock[1:], strict=False):
                spent[name].append(end - start)
            lines.append(len(plan.edits))
            for _, _, strategy in plan.chosen:
                chosen[strategy.value] = chosen.get(strategy.value, 0) + 1
        folded = _folded(state, kernel, store)
    return {
        "spent_ms": {name: spread(each) for name, each in spent.items()},
        "lines": {"median": statistics.median(lines), "mean": statistics.mean(lines)},
        "chosen": chosen,
        "fold": folded,
    }


def _folded(state: sflgen.State, kernel: Kernel, store: sflgen.Store) -> dict[str, float]:
    """A fold of the pending updates: growing, and the time from reading counters to the end of loading,
    in which counts of deleted copies are lost."""
    clock = [time.perf_counter()]
    plan = sflgen.fold_unproved(state)
    clock.append(time.perf_counter())
    text = counted_text(plan, kernel.counters)
    clock.append(time.perf_counter())
    kernel.load(text, store, None)
    clock.append(time.perf_counter())
    grown, asked, loaded = (1000 * (end - start) for start, end in itertools.pairwise(clock))
    return {
        "lines": len(plan.edits),
        "grow_ms": grown,
        "kernel_ms": loaded,
        "counter_window_ms": asked + loaded,
    }


def _linear(plain: str, case: Case, backend: Backend, count: int, seed: int) -> dict[str, float]:
    run([f"iptables-{backend.value}-restore"], plain)
    updates, spent = Updates(case.chain, rules_in(case), seed), []
    for _ in range(count):
        words = updates.next().split()
        started = time.perf_counter()
        run([f"iptables-{backend.value}", *words])
        spent.append(time.perf_counter() - started)
    return spread(spent)


# Growth.


def trace_of(case: Case) -> Any:
    path = SHARED / "rulesets" / "wustl" / f"{case.name}_trace.gz"
    return batch_of(traces.parse(read_text(str(path)), case.name).headers)


def growth(case: Case, deepest: int, every: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Mean rules read by the trace against pending updates: insertions, deletions; in front, by cost."""
    first = sflgen.start_unproved(case.program, sflgen.Settings(backend=Backend.NFT)).after
    batch = trace_of(case)
    curves: list[dict[str, Any]] = []
    for kind, insert in (("insert", 1.0), ("delete", 0.0)):
        for strategy in (sflgen.Strategy.OVERLAY, sflgen.Strategy.GRAFT):
            means: list[list[float]] = []
            for seed in seeds:
                state, updates, row = first, Updates(case.chain, rules_in(case), seed, insert), []
                for pending in range(deepest + 1):
                    if pending % every == 0:
                        row.append(float(decided(state.loaded, batch)[1].mean()))
                    edits = sflgen.read_commands(updates.next(), state.master)
                    state = sflgen.plan(state, edits, strategy).after
                means.append(row)
            reads = [statistics.mean(column) for column in zip(*means, strict=True)]
            curves.append({"kind": kind, "strategy": strategy.value, "reads": reads})
            print(
                f"{case.name} {kind} {strategy.value}: {reads[0]:.1f} rules read, {reads[-1]:.1f} with "
                f"{deepest} pending",
                flush=True,
            )
    steps = list(range(0, deepest + 1, every))
    return {"set": case.name, "pending": steps, "seeds": list(seeds), "curves": curves}


def measured(args: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """What is to be measured, piece by piece."""
    short = args.short
    names = args.sets or (WUSTL[:1] if short else WUSTL)
    cases = [wustl(name) for name in names] + ([] if short or args.sets else [corpus()])
    if "times" in args.parts:
        head = "".join(f"{name:>9}" for name in ("read", "plan", "text", "proof", "kernel"))
        print(f"{'set':<12}{'backend':<8}{head}{'rebuild':>10}{'load':>8}{'linear':>10}  ms, medians")
        rows = [times(case, backend, 10 if short else 60, args.seed) for case in cases for backend in Backend]
        yield "times", rows
    if "sustained" in args.parts:
        kinds = args.kinds or (streams.KINDS[:1] if short else streams.KINDS)
        rows = []
        for kind in kinds:
            for name in names:
                case = streams.public_set(name, kind, args.seed)
                for live in (True,) if args.live else (False, True):
                    rows.append(streams.sustained(case, live, args.seconds, args.seed))
                    yield "sustained", rows
    if "growth" in args.parts:
        deepest, every = (20, 5) if short else (100, 10)
        curves = [growth(case, deepest, every, [args.seed]) for case in cases if case.name in WUSTL]
        yield "growth", curves
    if "kills" in args.parts:
        done = [kills(backend, 10 if short else 100, args.seed) for backend in Backend]
        for each in done:
            print(f"{each['kills']} kills on {each['backend']}: {each['lost']} updates lost", flush=True)
        yield "kills", done


def fill_page() -> None:
    """The tables and the figure of docs/sflgen.md, from the recorded data."""
    from .figures.updates import draw, growth_table, sustained_table, times_table

    data = json.loads((DOCS / "evaluation" / "sflgen.json").read_text())
    for name, table in (("updates", times_table), ("sustained", sustained_table), ("growth", growth_table)):
        fill(DOCS / "sflgen.md", name, markdown(*table(data)))
    draw(data, DOCS / "evaluation" / "sflgen.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="Measure for a minute only.")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="Measure these parts.")
    parser.add_argument("--sets", nargs="+", help="Measure these public sets, and not the corpus set.")
    parser.add_argument(
        "--kinds", nargs="+", choices=streams.KINDS, help="Send streams to sets of these kinds."
    )
    parser.add_argument("--live", action="store_true", help="Send streams to the kernel only.")
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="Send commands to each stream for this long."
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "-o", "--output", type=Path, help="Write the results as JSON; keep the parts that are not measured."
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="Write the tables and the figure of the docs, and measure nothing.",
    )
    args = parser.parse_args()
    if args.page:
        fill_page()
        return
    if args.short:
        args.seconds = min(args.seconds, 10.0)
    known = args.output is not None and args.output.exists()
    data: dict[str, Any] = json.loads(args.output.read_text()) if known else {}
    data |= {"machine": machine(), "seed": args.seed}
    for name, results in measured(args):
        data[name] = results
        if args.output:
            args.output.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    command_line.run(main)
