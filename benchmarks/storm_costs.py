"""What the steps of Storm cost on this machine, for the model of its threads (storm_model.py).

Costs of a batch and of a packet in it are measured in the real pipeline with one thread, by batches of 1 to
32 packets: the best of several short runs, so that other work on the machine counts little.  The cost of an
entry, of a sample and of a publication is processor time of the parts by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables import engine
from hitables.engine import EvolvingRules, Rules, Storm

from .storm_model import Costs
from .storm_sets import Headers

BATCHES = (1, 2, 4, 8, 16, 32)
# Packets of a run that costs are measured in: a millisecond, so that some runs are not interrupted.
PACKETS = 20_000
# Groups of packets of about equal work.
GROUPS = 8
CACHE = 20
# Costs of the paper's machine (section 3.1.1), ns: 200 in the cache and 2,000 in HyperCuts.
PAPER = Costs(cache_packet=200, class_packet=2000, sample=1000, publish=200)

Classes = npt.NDArray[np.uint32] | None
Row = dict[str, Any]


def best_ns(storm: Storm, headers: Headers, runs: int) -> float:
    """ns per packet of the best run."""
    return min(storm.run(headers).seconds for _ in range(runs)) / len(headers) * 1e9


def by_batch(
    inner: str, rules: Rules, classes: Classes, headers: Headers, runs: int, **options: Any
) -> tuple[float, float]:
    """The cost of a batch and of each packet in it, one thread, by least squares over BATCHES."""
    times = dict.fromkeys(BATCHES, float("inf"))
    with ExitStack() as stack:
        storms = {
            batch: stack.enter_context(
                Storm(inner, rules, classes, partition="1-0-0", batch=batch, pin=True, **options)
            )
            for batch in BATCHES
        }
        # In turn, so that a disturbance does not last for all runs of one size.
        for _ in range(runs):
            for batch, storm in storms.items():
                times[batch] = min(times[batch], batch * best_ns(storm, headers, 1))
    wholes = np.array([times[batch] for batch in BATCHES])
    # Relative errors count: a batch of 1 is as important as one of 32.
    packet, whole = np.polyfit(BATCHES, wholes, 1, w=1 / wholes)
    return max(0.0, float(whole)), max(0.0, float(packet))


def evolved(rules: Rules, classes: Classes, headers: Headers) -> EvolvingRules:
    evolving = EvolvingRules(rules, classes, tries=32)
    evolving.sample(np.ascontiguousarray(headers[-(1 << 16) :: 16]))
    return evolving


def look_up_ns(evolving: EvolvingRules, headers: Headers, form: str, runs: int, cache: int = CACHE) -> float:
    """Processor time of a look-up, in the loop of the cache alone."""
    spent = []
    for _ in range(runs):
        start = time.thread_time()
        evolving.look_up(headers, cache=cache, times=3, form=form)
        spent.append((time.thread_time() - start) / 3 / len(headers) * 1e9)
    return min(spent)


def updater_ns(rules: Rules, classes: Classes, headers: Headers, cold: bool) -> tuple[float, float]:
    """Processor time of a sample, and of a publication; *cold*: from the first sample on."""
    samples = headers[::16]
    spent_on_samples = []
    for _ in range(3):
        with EvolvingRules(rules, classes, tries=32) as evolving:
            warm = 0 if cold else len(samples) // 2
            evolving.sample(samples[:warm])
            start = time.thread_time()
            evolving.sample(samples[warm:])
            spent_on_samples.append((time.thread_time() - start) / (len(samples) - warm) * 1e9)
    sample = min(spent_on_samples)
    spent = {}
    for publish in (1, 1 << 20):
        with EvolvingRules(rules, classes, tries=32) as evolving:
            start = time.thread_time()
            evolving.replay(samples, cache=CACHE, every=1, publish=publish)
            spent[publish] = (time.thread_time() - start) / len(samples) * 1e9
    return sample, max(0.0, spent[1] - spent[1 << 20])


def measured(
    inner: str, rules: Rules, classes: Classes, headers: Headers, runs: int = 20, cold: bool = False
) -> Costs:
    """The costs with *inner* as the classifier, on this traffic; *cold*: the updater begins with it."""
    short = headers[:PACKETS]
    class_batch, class_packet = by_batch(inner, rules, classes, short, runs)
    rows, counts = np.unique(short, axis=0, return_counts=True)
    alone = np.ascontiguousarray(np.repeat(rows[counts.argmax()][None], PACKETS, axis=0))
    cache_batch, cache_packet = by_batch(inner, rules, classes, alone, runs, own=True, every=1 << 20)
    with evolved(rules, classes, headers) as evolving:
        place = evolving.look_up(short, cache=CACHE)
        searched = float(np.minimum(place + 1, CACHE).mean())
        many = look_up_ns(evolving, short, "columns", 5)
    with evolved(rules, classes, alone) as evolving:
        one = look_up_ns(evolving, alone, "columns", 5)
    entry = max(0.0, (many - one) / max(0.1, searched - 1))
    with Storm("best", rules, classes, partition="1-1-0", full="wait", pin=True) as storm:
        push = best_ns(storm, short, 2 * runs)
    sample, publish = updater_ns(rules, classes, headers, cold)
    return Costs(
        cache_batch, max(0.0, cache_packet - entry), entry, push, class_batch, class_packet, sample, publish
    )


def delays(inner: str, rules: Rules, classes: Classes, headers: Headers) -> Row:
    """Section 5.1.1: ns of a look-up in the cache (d1) and the classifier (d2), one by one and in batches."""
    short = headers[: 3 * PACKETS]
    row: Row = {}
    with evolved(rules, classes, headers) as evolving:
        row["d1_ns"] = look_up_ns(evolving, short, "rows", 5)
        row["d1_batch_ns"] = look_up_ns(evolving, short, "columns", 5)
        place = evolving.look_up(short, cache=CACHE)
        row["hit_ratio"] = float((place < CACHE).mean())
        # d1 by position: look-ups of packets that one entry holds, one by one.
        row["d1_by_place"] = {}
        for at in range(CACHE + 1):
            there = np.ascontiguousarray(short[place == at])
            if len(there) >= 64:
                tiled = np.tile(there, (1 + 10_000 // len(there), 1))
                row["d1_by_place"][str(at)] = look_up_ns(evolving, tiled, "rows", 3)
    with engine.open(inner, rules) as db:
        row["d2_ns"] = search_ns(db.search_one_by_one, short, 5)
        row["d2_batch_ns"] = search_ns(db.search, short, 5)
    return row


def search_ns(search: Callable[[Headers], Any], headers: Headers, runs: int) -> float:
    """Processor time of a search per header, best of *runs*."""
    spent = []
    for _ in range(runs):
        start = time.thread_time()
        search(headers)
        spent.append(time.thread_time() - start)
    return min(spent) / len(headers) * 1e9


def work_of(inner: str, rules: Rules, headers: Headers, runs: int = 3) -> npt.NDArray[np.float64]:
    """[headers] the cost of classifying each, as a share of the mean: that of its group of equal work."""
    with engine.open(inner, rules) as db:
        _, counts = db.work(headers)
        order = np.argsort(sum(counts[name].astype(np.int64) for name in ("nodes", "lists", "rules")))
        share = np.empty(len(headers))
        for group in np.array_split(order, GROUPS):
            chosen = np.ascontiguousarray(headers[np.sort(group)])
            share[group] = search_ns(db.search, chosen, runs)
    share /= share.mean()
    return share
