"""Table I of the SFL paper: how build, update and search grow, fitted by least squares over logarithms.

Cases: `rules`, over the number of rules; `pending`, over the updates in the buffer of SFL; `deleted`, the
search of a header whose rule was deleted, over the number of rules.  From the times of the last two, that of
a structure without pending or deleted rules is subtracted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hitables import engine
from hitables.engine import Database, Rules
from hitables.errors import DatabaseError

from .confidence import spread
from .lcn2016_sets import PLANS, RULES, U32Array, Workload, with_delta, workload

SEEDS = ("acl", "fw")
SIZES = (500, 1000, 2000, 4000, 8000, 16000, 32000)
PENDING = (16, 32, 64, 128, 256, 512, 1024)
PACKETS = 20_000
UPDATES = 10
# A larger set is not tried after a build that took as many seconds, or when one takes more bytes.
SLOW, MOST = 4.0, 1 << 30

Row = dict[str, Any]


def ns_per_packet(db: Database, headers: U32Array) -> float:
    """The fastest of three searches of all headers, in one thread."""
    out = np.empty(len(headers), np.int32)
    runs = []
    for _ in range(3):
        start = time.perf_counter()
        db.search(headers, out)
        runs.append(time.perf_counter() - start)
    return min(runs) / len(headers) * 1e9


def timed_updates(db: Database, work: Workload, kind: str, count: int) -> float:
    """Seconds for updates, until the last build has ended."""
    boxes, priority = work.updates(kind, count)
    inserts = np.full(count, kind == "insert")
    start = time.perf_counter()
    db.update(inserts, boxes, priority)
    db.settle()
    return time.perf_counter() - start


def unbuilt(plan: str) -> str:
    """The plan with a buffer that no update of these measurements fills."""
    return with_delta(plan, 100_000) if plan.startswith("sfl") else plan


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float | None:
    """The slope of log(values) over log(sizes); None where a value is not above 0, or there are too few."""
    if len(sizes) < 3 or min(values) <= 0:
        return None
    return float(np.polyfit(np.log(sizes[: len(values)]), np.log(values), 1)[0])


def fitted(exponents: Sequence[float | None]) -> Row | None:
    known = [each for each in exponents if each is not None]
    return spread(known) if known and len(known) == len(exponents) else None


def over_rules(plan: str, seed: str, sizes: Sequence[int], sets: int) -> Row:
    """Build, one update and one search over the number of rules.

    exponents  None where too few sizes could be built; *ended* says why
    """
    series: dict[str, list[list[float]]] = {"spawn": [], "update": [], "classify": []}
    reached, ended = list(sizes), None
    for number in range(1, sets + 1):
        one: dict[str, list[float]] = {name: [] for name in series}
        for size in reached:
            work = workload(number, UPDATES, PACKETS, size, seed)
            try:
                one["spawn"].append(_spawn(plan, work))
            except DatabaseError as error:
                ended = f"{size} rules: {error}"
                break
            with engine.open(unbuilt(plan), work.rules, limit=MOST) as db:
                one["update"].append(_update(db, work, slow=one["spawn"][-1] > 0.5))
                one["classify"].append(ns_per_packet(db, work.headers) / 1e9)
            if one["spawn"][-1] > SLOW:
                ended = f"{size} rules: a build took {one['spawn'][-1]:.0f} s"
                break
        reached = reached[: len(one["spawn"])]  # the sizes of all sets
        for name, values in one.items():
            series[name].append(values)
    cut = {name: [values[: len(reached)] for values in sets_of] for name, sets_of in series.items()}
    exponents = {
        name: fitted([exponent(reached, values) for values in sets_of]) for name, sets_of in cut.items()
    }
    return {
        "case": "rules", "plan": plan, "seed": seed, "sizes": reached, "seconds": cut, "exponents": exponents,
        "ended": ended,
    }  # fmt: skip


def _spawn(plan: str, work: Workload) -> float:
    """Seconds of a build: the fastest of some, unless they are long."""
    taken: list[float] = []
    while len(taken) < 5 and sum(taken) < 0.2:
        start = time.perf_counter()
        with engine.open(unbuilt(plan), work.rules, limit=MOST):
            taken.append(time.perf_counter() - start)
    return min(taken)


def _update(db: Database, work: Workload, slow: bool) -> float:
    """Seconds of an insertion: the fastest of some rounds, unless they are long."""
    taken: list[float] = []
    count = 2 if slow else UPDATES
    while len(taken) < 5 and sum(taken) < 0.2:
        for priority in work.updates("insert", count if taken else 0)[1].tolist():
            db.remove(priority)
        taken.append(timed_updates(db, work, "insert", count))
    return min(taken) / count


def over_pending(plan: str, seed: str, sizes: Sequence[int], sets: int) -> Row:
    """One update and one search over the rules in the buffer, 2,000 rules."""
    updates: list[list[float]] = []
    searches: list[list[float]] = []
    for number in range(1, sets + 1):
        work = workload(number, max(sizes) + UPDATES, PACKETS, RULES, seed)
        boxes, priority = work.updates("insert", max(sizes) + UPDATES)
        with engine.open(unbuilt(plan), work.rules) as db:
            empty, filled = ns_per_packet(db, work.headers), 0
            updates.append([])
            searches.append([])
            for pending in sizes:
                count = pending - filled
                db.update(np.ones(count, bool), boxes[filled:pending], priority[filled:pending])
                start = time.perf_counter()
                db.update(
                    np.ones(UPDATES, bool),
                    np.ascontiguousarray(boxes[pending : pending + UPDATES]),
                    np.ascontiguousarray(priority[pending : pending + UPDATES]),
                )
                updates[-1].append((time.perf_counter() - start) / UPDATES)
                for each in priority[pending : pending + UPDATES].tolist():
                    db.remove(each)
                filled = pending
                searches[-1].append(max(0.0, ns_per_packet(db, work.headers) - empty) / 1e9)
    per_rule = [float(np.polyfit(sizes, values, 1)[0]) * 1e9 for values in searches]
    return {
        "case": "pending", "plan": plan, "seed": seed, "sizes": list(sizes),
        "seconds": {"update": updates, "classify": searches},
        "exponents": {
            "update": fitted([exponent(sizes, values) for values in updates]),
            "classify": fitted([exponent(sizes, values) for values in searches]),
        },
        "ns_per_rule": spread(per_rule), "ended": None,
    }  # fmt: skip


def headers_of(rules: Rules, chosen: U32Array, count: int, number: int) -> U32Array:
    """[count][dims] headers in the boxes of the rules of those numbers."""
    rng = np.random.default_rng(number)
    boxes = rules.boxes[rng.choice(chosen, count)].astype(np.int64)
    inside = boxes[:, :, 0] + (rng.random(boxes.shape[:2]) * (boxes[:, :, 1] - boxes[:, :, 0] + 1)).astype(
        np.int64
    )
    return np.ascontiguousarray(inside.astype(np.uint32))


def over_deleted(plan: str, seed: str, sizes: Sequence[int], sets: int) -> Row:
    """The search of headers whose rule, one of the first ten, was deleted, over the number of rules."""
    searches: list[list[float]] = []
    for number in range(1, sets + 1):
        searches.append([])
        for size in sizes:
            work = workload(number, UPDATES, PACKETS, size, seed)
            first = np.arange(10, dtype=np.uint32)
            with engine.open(unbuilt(plan), work.rules) as db:
                headers = headers_of(work.rules, first, 4096, number)
                hit = np.isin(db.search(headers), work.rules.priority[first])
                headers = np.ascontiguousarray(headers[hit])
                before = ns_per_packet(db, headers)
                for each in work.rules.priority[first].tolist():
                    db.remove(each)
                searches[-1].append(max(0.0, ns_per_packet(db, headers) - before) / 1e9)
    return {
        "case": "deleted", "plan": plan, "seed": seed, "sizes": list(sizes),
        "seconds": {"classify": searches},
        "exponents": {"classify": fitted([exponent(sizes, values) for values in searches])}, "ended": None,
    }  # fmt: skip


@dataclass(frozen=True)
class Effort:
    """The seeds, numbers of rules and numbers of pending updates of a run."""

    seeds: tuple[str, ...] = SEEDS
    sizes: tuple[int, ...] = SIZES
    pending: tuple[int, ...] = PENDING


SHORT = Effort(SEEDS[:1], SIZES[:3], PENDING[1:6:2])


def growth(effort: Effort, sets: int, known: Sequence[Row]) -> Iterator[Row]:
    """All rows of table I, but for those whose case, plan and seed are among *known*."""
    there = {(row["case"], row["plan"], row["seed"]) for row in known}
    for seed in effort.seeds:
        for plan in PLANS:
            cases = [("rules", partial(over_rules, plan, seed, effort.sizes, sets))]
            if plan.startswith("sfl"):
                # The sizes that every A of the set builds.
                small = [size for size in effort.sizes if size <= (8000 if seed == "acl" else 2000)]
                cases.append(("pending", partial(over_pending, plan, seed, effort.pending, sets)))
                cases.append(("deleted", partial(over_deleted, plan, seed, small, sets)))
            for case, measure in cases:
                if (case, plan, seed) in there:
                    continue
                try:
                    yield measure()
                except DatabaseError as error:
                    yield {"case": case, "plan": plan, "seed": seed, "ended": str(error)}
