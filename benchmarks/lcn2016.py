"""The evaluation of "The Small, the Fast and the Lazy" (section V) again: `make papers-sfl`.

Figure 5: how long k updates take, and how fast packets are classified afterwards.  Table II and
figure 6: four threads for some seconds: one classifies, one feeds it, one updates, one counts.  Figures
7 and 8: the same over delta.  Table I: exponents, fitted.

Rule sets come from our generator, 2,000 rules each.  As in the paper, an algorithm that cannot be updated
is built again for each update, in the thread that updates, while linear search answers; SFL(A) builds in
the background, where the paper's stops.  The paper ran ten sets for ten seconds each; `--sets` and
`--seconds` say what was run here, and counts are scaled to ten seconds.

Figures are drawn from the data that this writes (benchmarks.figures.lcn2016).
"""

from __future__ import annotations

import argparse
import json
import queue
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitables import engine
from hitables.engine import Database, Rules
from hitables.generate import rules as made
from hitables.generate import seed as seeds
from hitables.generate import trace as traces
from hitables.kernel.machine import machine

SEED = Path(__file__).resolve().parents[1] / "rulesets/seeds/acl.seed"
RULES = 2000
DELTA = 20
STATIC = ("hypersplit", "rfc", "bit_vector")
# Name, and whether the paper's protocol rebuilds it for each update.
CLASSIC = ("linear", "tss", *STATIC)
ALL = ("linear", "tss", *(name for each in STATIC for name in (each, f"sfl({each})")))
# Of the paper's thread that feeds; smaller ones would measure Python's queue.
BATCH = 16384
TICK = 0.1
WRITTEN = Path("docs/evaluation")

Row = dict[str, Any]
Headers = NDArray[np.uint32]


class Workload:
    """A rule set of RULES + *more* rules, of which *more* are held back, and packets of all of them."""

    def __init__(self, number: int, more: int = 0, packets: int = 100_000, rules: int = RULES) -> None:
        filters = made.rules(seeds.parse(SEED.read_text(), SEED.name), rules + more, number)
        every = Rules.of_filter(filters)
        rng = np.random.default_rng(number)
        present = np.zeros(len(every), bool)
        present[rng.choice(len(every), more, replace=False)] = True
        self.rules = Rules(every.layout, every.boxes[~present], every.priority[~present])
        self.held = Rules(every.layout, every.boxes[present], every.priority[present])
        self.order = rng.permutation(more)
        self.deletions = rng.permutation(len(self.rules))
        self.headers = traces.headers(every, packets, number)


class Classic:
    """An algorithm as the paper drives it: updates build it again, and linear search answers meanwhile."""

    def __init__(self, plan: str, rules: Rules) -> None:
        self.plan, self.layout = plan, rules.layout
        self.fast = engine.open(plan, rules)
        self.rebuilds = not engine.AlgorithmSpec.read(plan).algorithm.updates
        self.slow = engine.open("linear", rules) if self.rebuilds else None
        self.stale = False
        self.kept = dict(zip(rules.priority.tolist(), rules.boxes, strict=True))

    def insert(self, box: Headers, priority: int) -> None:
        sides = [(int(low), int(high)) for low, high in box]
        self.kept[priority] = box
        self._update(lambda db: db.insert(sides, priority))

    def remove(self, priority: int) -> None:
        del self.kept[priority]
        self._update(lambda db: db.remove(priority))

    def _update(self, change: Callable[[Database], None]) -> None:
        if self.slow is None:
            change(self.fast)
            return
        change(self.slow)
        self.stale = True
        priority = np.array(sorted(self.kept), np.uint32)
        boxes = np.array([self.kept[int(each)] for each in priority], np.uint32).reshape(
            -1, self.layout.dims, 2
        )
        self.fast = engine.open(self.plan, Rules(self.layout, boxes, priority))
        self.stale = False

    def search(self, headers: Headers, out: NDArray[np.int32]) -> None:
        if self.stale and self.slow is not None:
            self.slow.search(headers, out)
        else:
            self.fast.search(headers, out)


def updates(work: Workload, target: Any, kind: str, count: int) -> Iterator[Callable[[], None]]:
    """The first *count* updates of that kind, to be done one by one."""
    for number in range(count):
        if kind == "insert":
            at = int(work.order[number])
            yield lambda at=at: target.insert(work.held.boxes[at], int(work.held.priority[at]))  # type: ignore[misc]
        else:
            at = int(work.deletions[number])
            yield lambda at=at: target.remove(int(work.rules.priority[at]))  # type: ignore[misc]


def isolated(sets: int, tell: Callable[[str], None]) -> list[Row]:
    """Figure 5: seconds for k updates, without rebuilds of SFL, and nanoseconds per packet afterwards."""
    rows = []
    for plan in ALL:
        # Here SFL does not build again, so its buffer may hold all updates.
        used = plan.replace(")", ", delta=1000)") if plan.startswith("sfl") else plan
        for kind in ("insert", "delete"):
            for count in range(10, 101, 30):
                tell(f"figure 5: {plan}, {count} × {kind}")
                took, each = [], []
                for number in range(sets):
                    work = Workload(number, count)
                    db = Classic(used, work.rules)
                    start = time.perf_counter()
                    for update in updates(work, db, kind, count):
                        update()
                    took.append(time.perf_counter() - start)
                    each.append(_ns_per_packet(db, work.headers))
                rows.append(
                    {
                        "algorithm": plan,
                        "kind": kind,
                        "updates": count,
                        "seconds": statistics.fmean(took),
                        "ns": statistics.fmean(each),
                    }
                )
    return rows


def _ns_per_packet(db: Classic, headers: Headers) -> float:
    few = headers[: 5000 if db.plan == "linear" or "sfl" in db.plan else len(headers)]
    out = np.empty(len(few), np.int32)
    runs = []
    for _ in range(3):
        start = time.perf_counter()
        db.search(few, out)
        runs.append(time.perf_counter() - start)
    return min(runs) / len(few) * 1e9


def simulate(plan: str, work: Workload, kind: str, count: int, seconds: float) -> Row:
    """Four threads for *seconds*, with *count* updates at fixed moments.

    Gives packets classified and updates done, and the packets of each tenth of a second.
    """
    db = Classic(plan, work.rules)
    fed: queue.Queue[Headers] = queue.Queue(maxsize=8)
    stop = threading.Event()
    processed = [0]
    done = [0]
    ticks: list[int] = []
    batches = [work.headers[at : at + BATCH] for at in range(0, len(work.headers) - BATCH, BATCH)]

    def feed() -> None:
        number = 0
        while not stop.is_set():
            try:
                fed.put(batches[number % len(batches)], timeout=TICK)
                number += 1
            except queue.Full:
                pass

    def classify() -> None:
        out = np.empty(BATCH, np.int32)
        while not stop.is_set():
            try:
                db.search(fed.get(timeout=TICK), out)
                processed[0] += BATCH
            except queue.Empty:
                pass

    def update() -> None:
        began = time.perf_counter()
        for number, each in enumerate(updates(work, db, kind, count)):
            moment = began + seconds * (number + 0.5) / count
            # An update whose moment has passed is done at once; those after the end are not done.
            if stop.wait(max(0.0, moment - time.perf_counter())):
                return
            each()
            done[0] += not stop.is_set()

    def tick() -> None:
        before = 0
        while not stop.wait(TICK):
            now = processed[0]
            ticks.append(now - before)
            before = now

    threads = [threading.Thread(target=run) for run in (feed, classify, update, tick)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return {"processed": processed[0], "done": done[0], "ticks": ticks}


def table_two(sets: int, seconds: float, tell: Callable[[str], None]) -> list[Row]:
    """Table II (figure 6 is its rows of 100 updates), scaled to ten seconds."""
    rows = []
    for plan in ALL:
        for kind in ("insert", "delete"):
            for asked in (10, 100, 300, 600):
                tell(f"table II: {plan}, {asked} × {kind}")
                count = max(1, round(asked * seconds / 10))
                runs = [
                    simulate(plan, Workload(number, count), kind, count, seconds) for number in range(sets)
                ]
                rows.append(
                    {
                        "algorithm": plan,
                        "kind": kind,
                        "updates": asked,
                        "millions": statistics.fmean(run["processed"] for run in runs) * 10 / seconds / 1e6,
                        "done": statistics.fmean(run["done"] for run in runs) * asked / count,
                        "ticks": runs[0]["ticks"],
                    }
                )
    return rows


def deltas(sets: int, seconds: float, tell: Callable[[str], None]) -> list[Row]:
    """Figures 7 and 8: 100 updates in ten seconds, scaled, over delta; delta 0 is the algorithm itself."""
    rows = []
    for inner in STATIC:
        for kind in ("insert", "delete"):
            for delta in (0, 5, 10, 20, 30, 50, 70, 100):
                tell(f"figures 7, 8: {inner}, {kind}, delta {delta}")
                plan = f"sfl({inner}, delta={delta})" if delta else inner
                # The protocol of the paper has 100 updates whatever the time, so a short run has them closer.
                runs = [simulate(plan, Workload(number, 100), kind, 100, seconds) for number in range(sets)]
                rows.append(
                    {
                        "algorithm": inner,
                        "kind": kind,
                        "delta": delta,
                        "millions_per_s": statistics.fmean(run["processed"] for run in runs) / seconds / 1e6,
                        "done": statistics.fmean(run["done"] for run in runs),
                    }
                )
    return rows


def exponents(tell: Callable[[str], None]) -> list[Row]:
    """Table I: how build, update and classify grow with the number of rules, fitted by least squares."""
    sizes = (250, 500, 1000, 2000, 4000)
    rows = []
    for plan in ALL:
        fitted: dict[str, list[float]] = {"spawn": [], "update": [], "classify": []}
        for size in sizes:
            tell(f"table I: {plan}, {size} rules")
            work = Workload(1, 10, 20_000, size)
            start = time.perf_counter()
            db = Classic(plan, work.rules)
            fitted["spawn"].append(time.perf_counter() - start)
            start = time.perf_counter()
            for update in updates(work, db, "insert", 10):
                update()
            fitted["update"].append((time.perf_counter() - start) / 10)
            fitted["classify"].append(_ns_per_packet(db, work.headers) / 1e9)
        slopes = {
            what: float(np.polyfit(np.log(sizes), np.log(np.maximum(times, 1e-9)), 1)[0])
            for what, times in fitted.items()
        }
        rows.append({"algorithm": plan, "sizes": sizes, "seconds": fitted, "exponents": slopes})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of each simulation (the paper: 10)")
    parser.add_argument("--sets", type=int, default=2, help="rule sets of each figure (the paper: 10)")
    parser.add_argument(
        "-o", "--output", type=Path, default=WRITTEN, help="folder of sfl.json and the figures"
    )
    parser.add_argument("--draw", action="store_true", help="draw the figures from the data that is there")
    args = parser.parse_args(arguments)

    def tell(stage: str) -> None:
        print(stage, file=sys.stderr)

    written = args.output / "sfl.json"
    if not args.draw:
        data = {
            "machine": machine(), "seed": SEED.name, "rules": RULES,
            "sets": args.sets, "seconds": args.seconds,
            "figure5": isolated(args.sets, tell), "table2": table_two(args.sets, args.seconds, tell),
            "figure7": deltas(args.sets, args.seconds, tell), "table1": exponents(tell),
        }  # fmt: skip
        written.write_text(json.dumps(data, indent=1) + "\n")
    from .figures.lcn2016 import draw, show

    data = json.loads(written.read_text())
    draw(data, args.output)
    show(data)


if __name__ == "__main__":
    main()
