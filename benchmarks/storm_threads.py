"""Storm's threads: rates of partitions, beside HyperCuts in as many threads (figures 6 and 7, table 6).

A row says what it is: `real` is a run of the pipeline on this machine, with threads that may share its cores;
`model` is the discrete-event model (storm_model.py) with a core for each thread, fed with the costs that were
measured here, or with the paper's (200 ns in the cache, 2,000 in HyperCuts).  `agreement` compares both where
each thread has a core: one and two threads.

The cache of a row is as current as its updater is fast: one packet of `every` is a sample, where *every* is
the packets that pass while the updater works on one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables.engine import EvolvingRules, Storm
from hitables.engine.storm import Partition, optimal_caches, optimal_caches_of_all

from .doc_tables import markdown
from .storm_costs import CACHE, PAPER, delays, measured, work_of
from .storm_model import Costs, Plan, Run, lossless, saturated, share, simulate
from .storm_sets import classes_of, packets_of, sets

TRAFFIC = "edge, s 2.2"  # where the hit ratio is the paper's
INNER = "hypercuts"
PERMIT = "90"
# Packets at the end of the traffic whose rate is modelled, in the steady state.
STEADY = 100_000
# Packets of a real run beside the model: a millisecond or a few, so that some are not interrupted.
SHORT = 20_000
# Of 128 bytes, as the paper has them.
BITS = 1024
PLANS = {
    "2-4-1": Plan(2, 4), "4-2-1": Plan(4, 2), "3-3-1": Plan(3, 3), "dynamic": Plan(4, 4, idle=2),
    "HyperCuts-1": Plan(1, 0, cached=False), "HyperCuts-7": Plan(7, 0, cached=False),
    "HyperCuts-8": Plan(8, 0, cached=False),
    "figure 3, 7 threads": Plan(7, 0, every=16), "4-2-1, one copy": Plan(4, 2, one_copy=True),
}  # fmt: skip
SCALING = {2: Plan(1, 1), 4: Plan(2, 2), 8: Plan(4, 4), 16: Plan(8, 8)}
# Plans with a core for each thread, and options of `Storm`: those of one and two threads, and of more.
ALONE: dict[str, tuple[Plan, dict[str, Any]]] = {
    "HyperCuts-1": (Plan(1, 0, cached=False), {"partition": "1-0-0"}),
    "HyperCuts-2": (Plan(2, 0, cached=False), {"partition": "2-0-0"}),
    "a ring between two threads": (Plan(1, 1, cached=False), {"partition": "1-1-0"}),
    "figure 3, 1 thread": (Plan(1, 0, every=16), {"partition": "1-0-0", "own": True, "every": 16}),
    "figure 3, 2 threads": (Plan(2, 0, every=16), {"partition": "2-0-0", "own": True, "every": 16}),
    "cache and updater": (Plan(1, 0), {"partition": "1-0-1"}),
}
TOGETHER: dict[str, tuple[Plan, dict[str, Any]]] = {
    **{name: (PLANS[name], {"partition": name}) for name in ("2-4-1", "4-2-1", "3-3-1", "dynamic")},
    **{
        f"HyperCuts-{threads}": (Plan(threads, 0, cached=False), {"partition": f"{threads}-0-0"})
        for threads in (4, 7, 8, 14)
    },
    "figure 3, 7 threads": (PLANS["figure 3, 7 threads"], {"partition": "7-0-0", "own": True, "every": 16}),
    "4-2-1, one copy": (PLANS["4-2-1, one copy"], {"partition": "4-2-1", "copies": 1}),
    **{
        f"{plan.caches}-{plan.classifiers}-1": (plan, {"partition": f"{plan.caches}-{plan.classifiers}-1"})
        for plan in (Plan(1, 1), Plan(2, 2), Plan(4, 4), Plan(5, 2), Plan(6, 1), Plan(7, 7), Plan(10, 4))
    },
}
Places = npt.NDArray[np.uint32]
Row = dict[str, Any]


@cache
def places(name: str, preset: str, packets: int, kind: str, every: int) -> Places:
    """[packets] the entry of the cache that holds each packet, with one sample of *every* packets."""
    ((_, rules),) = sets((name,))
    with EvolvingRules(rules, classes_of(rules, kind), tries=32) as evolving:
        publish = max(1, min(4, 64 // every))
        return evolving.replay(packets_of(name, preset, packets), cache=CACHE, every=every, publish=publish)


@cache
def own_places(name: str, preset: str, packets: int, kind: str, threads: int, every: int) -> Places:
    """As `places`, where each of *threads* takes its share of the packets to its own cache (figure 3)."""
    ((_, rules),) = sets((name,))
    found = np.empty(packets, np.uint32)
    for thread in range(threads):
        of_thread = share(packets, threads, thread)
        headers = np.ascontiguousarray(packets_of(name, preset, packets)[of_thread])
        with EvolvingRules(rules, classes_of(rules, kind), tries=32) as evolving:
            found[of_thread] = evolving.replay(headers, cache=CACHE, every=every, publish=4)
    return found


class Traffic:
    """One set's packets, as a plan's cache finds them."""

    def __init__(self, name: str, preset: str, packets: int, kind: str = PERMIT) -> None:
        self._of = (name, preset, packets, kind)
        ((_, self.rules),) = sets((name,))
        self.classes = classes_of(self.rules, kind)
        self.headers = packets_of(name, preset, packets)
        self.work = work_of(INNER, self.rules, self.headers[-STEADY:])

    def every(self, rate: float, costs: Costs) -> int:
        """The packets that pass while the updater takes one sample, as a power of the root of 2."""
        apart = max(1.0, rate * costs.sample * 1e-9)
        return round(math.sqrt(2) ** round(2 * math.log2(apart)))

    def settled(self, plan: Plan, costs: Costs) -> tuple[Places, int, Run]:
        """The steady places of a saturated plan, packets per sample, and its run, each by the others."""
        every, tried = 16, set()
        while True:
            steady = self.found(plan, every)[-STEADY:]
            run = saturated(plan, costs, steady, CACHE, self.work[-len(steady) :])
            now = self.every(run.packets_per_s, costs)
            if plan.every or not plan.cached or now == every or now in tried:
                return steady, plan.every or every, run
            tried.add(every)
            every = now

    def found(self, plan: Plan, every: int) -> Places:
        """[packets] where the cache of *plan* holds each packet, from the first packet on."""
        return own_places(*self._of, plan.caches, plan.every) if plan.every else places(*self._of, every)


def rates(traffic: Traffic, plan: Plan, costs: Costs) -> Row:
    """The rates of one plan in the model, saturated and without loss, in the steady state."""
    steady, every, run = traffic.settled(plan, costs)
    # A short run hides in the input what arrives faster than it is answered: the saturated rate bounds it.
    rate, kept = lossless(plan, costs, steady, CACHE, traffic.work[-len(steady) :], most=run.packets_per_s)
    return {
        "every": every if plan.cached else None,
        "hit_ratio": run.hit_ratio,
        "saturated_per_s": run.packets_per_s,
        "lossless_per_s": rate,
        "gigabits": rate * BITS / 1e9,
        "switches": kept.switches if kept else None,
    }


@cache
def named_costs(name: str, packets: int, runs: int) -> dict[str, Costs]:
    """The costs measured here in the steady state, and the paper's with the updater of this machine."""
    traffic = Traffic(name, TRAFFIC, packets)
    own = measured(INNER, traffic.rules, traffic.classes, traffic.headers[-STEADY:], runs)
    return {"measured": own, "paper": replace(PAPER, sample=own.sample, publish=own.publish)}


def partitions(names: Sequence[str], packets: int, runs: int) -> Iterator[Row]:
    """Figures 6 and 7, table 6: every plan of PLANS in the model, with both costs."""
    for name, _ in sets(tuple(names)):
        traffic = Traffic(name, TRAFFIC, packets)
        for whose, costs in named_costs(name, packets, runs).items():
            common = {"source": "model", "set": name, "preset": TRAFFIC, "costs": whose}
            yield common | {"plan": "costs"} | asdict(costs)
            for title, plan in PLANS.items():
                row = common | {"plan": title, "threads": plan.threads + (plan.classifiers > 0)}
                row |= rates(traffic, plan, costs)
                if title in ("2-4-1", "4-2-1"):
                    row |= warm_up(traffic, plan, costs, row)
                yield row
            for cores, plan in SCALING.items():
                yield (
                    common
                    | {"plan": f"{plan.caches}-{plan.classifiers}-1", "scaling": cores}
                    | rates(traffic, plan, costs)
                )


def warm_up(traffic: Traffic, plan: Plan, costs: Costs, row: Row) -> Row:
    """Table 6: ms from an empty cache until the last loss, and until 90 % hits, at 0.9 of the rate."""
    rate = 0.9 * row["lossless_per_s"]
    if not rate:
        return {"warm_up_ms": None, "to_90_ms": None}
    cold = traffic.found(plan, row["every"])
    lost = np.flatnonzero(simulate(plan, costs, cold, CACHE, rate=rate).by > 1)
    hit = np.convolve(cold < CACHE, np.ones(1000) / 1000, "valid")
    over = np.flatnonzero(hit >= 0.9)
    return {
        "warm_up_ms": float((lost[-1] + 1) / rate * 1e3) if len(lost) else 0.0,
        "to_90_ms": float((over[0] + 1000) / rate * 1e3) if len(over) else None,
    }


def formula(names: Sequence[str], packets: int, runs: int) -> Iterator[Row]:
    """Formula (1) beside all partitions of 7 and 15 threads in the model."""
    for name, _ in sets(tuple(names)):
        traffic = Traffic(name, TRAFFIC, packets)
        for whose, costs in named_costs(name, packets, runs).items():
            for threads in (7, 15):
                plans = [Plan(caches, threads - caches) for caches in range(1, threads)]
                found = [traffic.settled(plan, costs)[2] for plan in plans]
                rate = [run.packets_per_s for run in found]
                ratio = found[int(np.argmax(rate))].hit_ratio
                entries = np.minimum(traffic.found(plans[0], 16)[-STEADY:] + 1, CACHE).mean()
                d1, d2 = costs.cache_ns(32, float(entries)), costs.class_ns(32)
                yield {
                    "source": "model", "set": name, "costs": whose, "threads": threads, "hit_ratio": ratio,
                    "d1_ns": d1, "d2_ns": d2, "per_s": rate, "best": int(np.argmax(rate)) + 1,
                    "formula_1": optimal_caches(threads, d1, d2, ratio),
                    "formula_1_of_all": optimal_caches_of_all(threads, d1, d2, ratio),
                    "balanced": threads * d1 / (d1 + d2 * (1 - ratio)),
                }  # fmt: skip


def agreement(names: Sequence[str], packets: int, runs: int) -> Iterator[Row]:
    """The model beside real runs in which each thread has a core: best of short saturated runs."""
    cores = len(os.sched_getaffinity(0))
    for name, _ in sets(tuple(names)):
        traffic = Traffic(name, TRAFFIC, packets)
        costs = measured(
            INNER,
            traffic.rules,
            traffic.classes,
            np.ascontiguousarray(traffic.headers[:SHORT]),
            runs,
            cold=True,
        )
        for title, (plan, options) in (ALONE | TOGETHER).items():
            threads = Partition.read(options["partition"]).threads
            if threads > max(2, cores):
                continue
            # More threads are sooner at the end, and a cache needs as long as before to fill.
            headers = np.ascontiguousarray(traffic.headers[: SHORT if threads <= 2 else 2 * SHORT * threads])
            with Storm(
                INNER, traffic.rules, traffic.classes, publish=4, tries=32, pin=True, **options
            ) as storm:
                real = max((storm.run(headers) for _ in range(3 * runs)), key=lambda run: run.packets_per_s)
            # The updater takes what samples it has time for: the model has those that were taken.
            every = plan.every or max(1, round(len(headers) / max(1, real.samples)))
            cold = traffic.found(plan, every)[: len(headers)]
            model = saturated(plan, costs, cold, CACHE)
            yield {
                "set": name, "plan": title, "threads": real.threads, "cores": real.cores,
                "shares_cores": real.shares_cores, "real_per_s": real.packets_per_s,
                "real_hit_ratio": real.hit_ratio, "samples": real.samples,
                "model_per_s": model.packets_per_s, "model_hit_ratio": model.hit_ratio,
            }  # fmt: skip


def delay_rows(names: Sequence[str], packets: int) -> Iterator[Row]:
    """Section 5.1.1, by classifier: d1, d2, and the hit ratio above which a cache pays in one thread."""
    for name, rules in sets(tuple(names)):
        for preset in (TRAFFIC, "backbone"):
            headers = packets_of(name, preset, packets)
            for inner in ("hypercuts", "hypersplit", "tss", "best"):
                row = delays(inner, rules, classes_of(rules, PERMIT), headers[-STEADY:])
                # Each packet pays d1; a hit saves d2.
                row["pays_above"] = row["d1_batch_ns"] / row["d2_batch_ns"]
                yield {"set": name, "preset": preset, "inner": inner} | row


def rate_table(rows: Sequence[Row]) -> str:
    """Million packets a second without loss, by plan and set: the paper's costs, and those measured here."""
    chosen = [row for row in rows if row["plan"] in PLANS]
    names = list(dict.fromkeys(row["set"] for row in chosen))
    lines = []
    for whose in ("paper", "measured"):
        for title in PLANS:
            cells = [
                f"{row['lossless_per_s'] / 1e6:.1f}"
                for name in names
                for row in chosen
                if (row["set"], row["plan"], row["costs"]) == (name, title, whose)
            ]
            lines.append([f"{title}, {whose} costs", *cells])
    return markdown(("model", *names), lines)


def delay_table(rows: Sequence[Row]) -> str:
    """ns of a look-up in the cache and in A, one by one and in batches, and where the cache pays."""
    lines = [
        [
            f"{row['inner']}, {row['set']}, {row['preset']}",
            *(f"{row[name]:.1f}" for name in ("d1_ns", "d2_ns", "d1_batch_ns", "d2_batch_ns")),
            f"{row['pays_above']:.0%}" if row["pays_above"] < 1 else "never",
            f"{row['hit_ratio']:.0%}",
        ]
        for row in rows
    ]
    head = ("A", "cache, one by one", "A, one by one", "cache, batches", "A, batches", "pays above", "hits")
    return markdown(head, lines)


def cores_table(data: dict[str, Any]) -> str:
    """Million packets a second of real threads, each with a core, by partition and set."""
    names = list(dict.fromkeys(row["set"] for row in data["agreement"]))
    lines = []
    for title in TOGETHER:
        cells = []
        for name in names:
            cold = [row for row in data["agreement"] if (row["set"], row["plan"]) == (name, title)]
            partition = TOGETHER[title][1]["partition"]
            warm = [row for row in data["threads"] if (row["set"], row["partition"]) == (name, partition)]
            alike = TOGETHER[title][1].keys() == {"partition"}
            cells += [f"{row['real_per_s'] / 1e6:.0f} / {row['model_per_s'] / 1e6:.0f}" for row in cold]
            cells += [
                f"{warm[0][at] / 1e6:.0f}" if warm and alike else "–"
                for at in ("saturated_per_s", "lossless_per_s")
            ]
        lines.append([title, *cells])
    head = [f"{name}, {what}" for name in names for what in ("cold, real / model", "warm", "without loss")]
    return markdown(("threads", *head), lines)


def agreement_table(rows: Sequence[Row]) -> str:
    """Million packets a second, real and in the model."""
    names = list(dict.fromkeys(row["set"] for row in rows))
    lines = []
    for title in ALONE:
        there = [row for row in rows if row["plan"] == title]
        cells = [f"{row['real_per_s'] / 1e6:.1f} / {row['model_per_s'] / 1e6:.1f}" for row in there]
        lines.append([title, *cells])
    return markdown(("real / model", *names), lines)
