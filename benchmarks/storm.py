"""Storm (Ma, Lu, Banerjee and Estan), measured again: `make papers-storm`.

Hit ratios over the locality of the traffic (figures 8 and 9), sizes of the cache (table 5), entries searched
(figure 10), evolving rules over the window (3.2.3), warm-up (table 6), what a sample costs, what a cache is
worth in front of each classifier, and the threads: the largest rate without loss and the rate of saturation
beside HyperCuts with as many threads (figure 6), two copies of the cache over one, the mailbox over a queue,
arrays over lists (section 4).

R6 and R7 are the WUSTL sets acl1_5K and acl1_10K, whose sizes agree to the rule; R1 to R5 are not public, and
are drawn from seeds in the same sizes.  The traces are not public either: the traffic is made, and described
by how it repeats, so hit ratios are figures of that traffic, and no claim about the paper's.  Actions are
permit or deny, drawn by a fixed seed at 50 % and 90 % permit; the last rule denies.  Threads that share a
core are marked.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables import engine
from hitables.engine import EvolvingRules, Rules, Storm
from hitables.errors import DatabaseError
from hitables.generate import rules as drawn_rules
from hitables.generate import seed as seeds
from hitables.generate.traffic import traffic
from hitables.generate.traffic_presets import PRESETS as BOUND
from hitables.generate.traffic_presets import Preset, RuleFlows
from hitables.kernel.machine import machine

from .classifiers import load
from .doc_tables import DOCS, fill, markdown
from .public_sets import SHARED

OUTPUT = DOCS / "evaluation" / "storm.json"
ROOT = Path(__file__).resolve().parents[1]
# The presets that bind flows to rules, and two with fewer popular rules: hit ratios follow the locality.
PRESETS: dict[str, Preset] = {name: BOUND[name] for name in ("backbone", "edge", "drifting", "uniform")} | {
    f"edge, s {skew}": replace(BOUND["edge"], of_rules=RuleFlows(2000, skew)) for skew in (1.6, 2.2)
}
# Name, where it is from (a seed, or a public set), rules.
SETS = (
    ("R1", "acl", 460), ("R2", "fw", 711), ("R3", "acl", 852), ("R4", "fw", 1036), ("R5", "fw", 1802),
    ("R6", "wustl/acl1_5K", 4415), ("R7", "wustl/acl1_10K", 9603),
)  # fmt: skip
SHORT_SETS = ("R3", "R5", "R7")
CACHES = (0, 5, 10, 15, 20, 25, 30, 50, 100)
WINDOWS = (256, 512, 1024, 2048, 4096, 8192)
INNER = ("linear", "hypercuts", "hypersplit", "tss", "rfc", "best")
TOPS = (1, 5, 20, 100)
PARTS = ("locality", "hits", "cache", "windows", "worth", "threads", "lessons")
# Packets of which one is a sample, where one thread does everything.
EVERY = 16

# Times that the traffic is sent in a run of threads, so that their updater gets its share of a core.
REPEATED = 8

Headers = npt.NDArray[np.uint32]
Row = dict[str, Any]


@cache
def rule_set(name: str) -> Rules | None:
    """None where the public sets are missing, which is said."""
    source, count = next((source, count) for each, source, count in SETS if each == name)
    if "/" in source:
        if not (SHARED / "rulesets" / f"{source}.gz").exists():
            print(f"{name} ({source}) is missing in {SHARED}: left out")
            return None
        return load(source)
    path = f"rulesets/seeds/{source}.seed"
    seed = seeds.parse((ROOT / path).read_text(), path)
    return Rules.of_filter(drawn_rules.rules(seed, count, sum(map(ord, name))))


def classes_of(rules: Rules, kind: str) -> npt.NDArray[np.uint32] | None:
    """Own: each rule is a class; 8: eight classes; 50, 90: so many percent permit, the last rule denies."""
    rng = np.random.default_rng(7)
    if kind == "own":
        return None
    if kind == "8":
        return rng.integers(0, 8, len(rules.boxes)).astype(np.uint32)
    permit = (rng.random(len(rules.boxes)) < int(kind) / 100).astype(np.uint32)
    permit[-1] = 0
    return permit


@cache
def packets_of(name: str, preset: str, packets: int) -> Headers:
    rules = rule_set(name)
    assert rules is not None
    return np.concatenate([block.headers for block in traffic(PRESETS[preset], packets, rules=rules, seed=1)])


def sets(names: tuple[str, ...]) -> Iterator[tuple[str, Rules]]:
    for name in names:
        rules = rule_set(name)
        if rules is not None:
            yield name, rules


def locality(names: tuple[str, ...], packets: int, presets: Iterable[str] = PRESETS) -> Iterator[Row]:
    """What a hit ratio rests on: shares of the most popular rules, and flows, per 1,024 packets."""
    for name, rules in sets(names):
        with engine.open("best", rules) as db:
            for preset in presets:
                headers = packets_of(name, preset, packets)
                found = db.search(headers)
                windows = range(0, len(headers) - 1023, max(1024, len(headers) // 100))
                tops, flows = [], []
                for at in windows:
                    counts = np.sort(np.unique(found[at : at + 1024], return_counts=True)[1])[::-1]
                    tops.append([counts[:top].sum() / 1024 for top in TOPS])
                    flows.append(len(np.unique(headers[at : at + 1024], axis=0)))
                yield {
                    "set": name, "rules": len(rules.boxes), "preset": preset,
                    "window_shares": np.mean(tops, axis=0).tolist(), "window_flows": float(np.mean(flows)),
                }  # fmt: skip


def hits(names: tuple[str, ...], packets: int, presets: Iterable[str] = PRESETS) -> Iterator[Row]:
    """Figures 8, 9, tables 5, 6: one thread, one sample of EVERY packets, and of every packet."""
    for name, rules in sets(names):
        for preset in presets:
            headers = packets_of(name, preset, packets)
            for kind in ("own", "8", "50", "90"):
                for every in (1, EVERY) if (kind, preset) == ("90", "backbone") else (EVERY,):
                    with EvolvingRules(rules, classes_of(rules, kind), tries=32) as evolving:
                        start = time.thread_time()
                        place = evolving.replay(headers, cache=20, every=every, publish=max(1, 64 // every))
                        seconds, stats = time.thread_time() - start, evolving.statistics()
                    hit = place < 20
                    mean = np.convolve(hit, np.ones(1000) / 1000, "valid")
                    over = np.flatnonzero(mean >= 0.9)
                    yield {
                        "set": name, "preset": preset, "classes": kind, "every": every,
                        "hit_ratio": float(hit.mean()), "steady": float(hit[len(hit) // 2 :].mean()),
                        "packets_to_90": int(over[0]) + 1000 if len(over) else None,
                        "evolving": stats.rules, "most_evolving": stats.most_rules,
                        "ns_of_all": seconds / len(headers) * 1e9,
                        "entries": (np.bincount(place, minlength=21) / len(place)).tolist(),
                    }  # fmt: skip


def cache_sizes(packets: int) -> Iterator[Row]:
    """Table 5, on R3: hit ratio by entries, and ns of a look-up in each form (of 100,000 packets)."""
    for name, rules in sets(("R3",)):
        headers = packets_of(name, "backbone", packets)
        for entries in CACHES:
            with EvolvingRules(rules, classes_of(rules, "90"), tries=32) as evolving:
                ratio = float(
                    (evolving.replay(headers, cache=entries, every=EVERY, publish=4) < entries).mean()
                )
                row: Row = {"cache": entries, "hit_ratio": ratio}
                for form in ("columns", "rows", "list"):
                    start = time.thread_time()
                    evolving.look_up(headers[-100_000:], cache=entries, times=5, form=form)
                    row[f"{form}_ns"] = (time.thread_time() - start) / 5 / min(len(headers), 100_000) * 1e9
            yield row


def windows(packets: int) -> Iterator[Row]:
    """Evolving rules by window, and what a sample costs: pruned, and as algorithm 1 has it."""
    for name, rules in sets(("R3", "R7")):
        headers = packets_of(name, "backbone", packets)
        for window in WINDOWS:
            for kind in ("90", "own"):
                for prune, tries, cuts in (
                    (True, 32, "copies"),
                    (True, 0, "copies"),
                    (False, 0, "published"),
                ):
                    if not prune and window > 1024:
                        continue
                    samples = headers[::EVERY][: 20_000 if prune else 1024]
                    chosen = classes_of(rules, kind)
                    with EvolvingRules(
                        rules, chosen, window=window, tries=tries, prune=prune, cuts=cuts
                    ) as evolving:
                        start = time.thread_time()
                        evolving.sample(samples)
                        seconds, stats = time.thread_time() - start, evolving.statistics()
                    yield {
                        "set": name, "window": window, "classes": kind, "prune": prune, "tries": tries,
                        "cuts": cuts, "evolving": stats.rules, "sample_ns": seconds / len(samples) * 1e9,
                        "leaves": stats.leaves / stats.tried if stats.tried else 0.0,
                    }  # fmt: skip


def worth(names: tuple[str, ...], packets: int) -> Iterator[Row]:
    """storm(A) beside A, one thread, in batches."""
    for name, rules in sets(names):
        for preset in ("backbone", "edge"):
            for inner in INNER:
                headers = packets_of(name, preset, packets)[: 50_000 if inner == "linear" else packets]
                row: Row = {"set": name, "preset": preset, "inner": inner}
                for plan in (inner, f"storm({inner})"):
                    try:
                        database = engine.open(plan, rules)
                    except DatabaseError as error:
                        print(f"left out: {error}")
                        break
                    with database as db:
                        spent = []
                        for _ in range(3):
                            start = time.thread_time()
                            db.search(headers)
                            spent.append(time.thread_time() - start)
                        row["alone_per_s" if plan == inner else "storm_per_s"] = len(headers) / min(spent)
                        if plan != inner:
                            row["hit_ratio"] = db.cache_statistics().hit_ratio
                if "storm_per_s" in row:
                    yield row


def long_run(name: str, packets: int) -> Headers:
    """The traffic for threads: runs of some tenths of a second, of packets of which nearly all can hit."""
    return np.tile(packets_of(name, "edge, s 2.2", packets), (REPEATED, 1))


def lossless(storm: Storm, headers: Headers, most: float) -> float:
    """The largest rate, to 5 %, at which no packet of the second half is lost; the first half warms up.

    0 where packets are lost at a 32nd of *most*.  A run takes half a second at most.
    """
    low, high = 0.0, most
    while high - low > 0.05 * high and high > most / 32:
        rate = (low + high) / 2
        sent = headers[: max(1000, int(rate / 2))]
        run = storm.run(sent, rate)
        if (run.by[len(sent) // 2 :] >= 2).any():
            high = rate
        else:
            low = rate
    return low


def threads(names: tuple[str, ...], packets: int) -> Iterator[Row]:
    """Figure 6: Storm by partition, and HyperCuts in as many threads, without loss and saturated."""
    cores = len(os.sched_getaffinity(0))
    partitions = ["1-0-0", "2-0-0", "1-1-1", "2-1-1", "1-2-1", "4-2-1", "2-4-1", "3-3-1", "dynamic", "8-0-0"]
    for name, rules in sets(names):
        headers = long_run(name, packets)
        for partition in partitions:
            options: Row = {"partition": partition, "publish": 4, "tries": 32}
            with Storm("hypercuts", rules, classes_of(rules, "90"), full="wait", **options) as storm:
                runs = [storm.run(headers) for _ in range(3)]
                best = max(runs, key=lambda run: run.packets_per_s)
            with Storm("hypercuts", rules, classes_of(rules, "90"), full="lose", **options) as storm:
                rate = lossless(storm, headers, 1.1 * best.packets_per_s)
            yield {
                "set": name, "partition": partition, "threads": best.threads, "cores": cores,
                "shares_cores": best.shares_cores, "saturated_per_s": best.packets_per_s,
                "lossless_per_s": rate, "gigabits": rate * 1024 / 1e9, "hit_ratio": best.hit_ratio,
                "samples": best.samples, "switches": best.to_caches + best.to_classifiers,
            }  # fmt: skip


def lessons(names: tuple[str, ...], packets: int) -> Iterator[Row]:
    """Section 4: what each choice of the implementation is worth, saturated; figure 3; two updaters."""
    base: Row = {"partition": "1-1-1", "publish": 4, "tries": 32}
    ways: tuple[tuple[str, Row], ...] = (
        ("two copies, mailbox, columns, rings without locks", {}),
        ("one copy under a lock", {"copies": 1}),
        ("three copies", {"copies": 3}),
        ("a queue of 1,000 samples", {"queue": 1000}),
        ("an array, one header at a time", {"form": "rows"}),
        ("a list", {"form": "list"}),
        ("a list, one copy under a lock", {"form": "list", "copies": 1}),
        ("rings under locks", {"ring_locks": True}),
        ("two updaters", {"partition": "1-1-2"}),
        ("one thread with everything (figure 3)", {"partition": "1-0-0", "own": True}),
        ("two threads with everything (figure 3)", {"partition": "2-0-0", "own": True}),
    )
    for name, rules in sets(names):
        headers = long_run(name, packets)
        for way, options in ways:
            with Storm("hypercuts", rules, classes_of(rules, "90"), **(base | options)) as storm:
                runs = [storm.run(headers) for _ in range(5)]
            yield {
                "set": name, "way": way, "threads": runs[0].threads, "shares_cores": runs[0].shares_cores,
                "per_s": float(np.median([run.packets_per_s for run in runs])),
                "hit_ratio": float(np.median([run.hit_ratio for run in runs])),
                "samples": runs[0].samples,
            }  # fmt: skip


def hit_table(rows: list[Row]) -> str:
    """Steady hit ratios, 90 % permit, a sample of EVERY packets; in brackets each rule its own class."""
    lines = []
    for name, _, count in SETS:
        cells = []
        for preset in PRESETS:
            there = {
                row["classes"]: row["steady"]
                for row in rows
                if (row["set"], row["preset"], row["every"]) == (name, preset, EVERY)
            }
            cells.append(f"{there['90']:.1%} ({there['own']:.1%})" if there else "–")
        if any(cell != "–" for cell in cells):
            lines.append([f"{name}, {count:,} rules", *cells])
    return markdown(("rules", *PRESETS), lines)


def worth_table(rows: list[Row]) -> str:
    """Million lookups a second: A, and storm(A)."""
    names = list(dict.fromkeys((row["set"], row["preset"]) for row in rows))
    lines = []
    for inner in INNER:
        cells = []
        for which in names:
            there = [row for row in rows if (row["set"], row["preset"]) == which and row["inner"] == inner]
            cells += [
                " / ".join(f"{there[0][way] / 1e6:.2g}" for way in ("alone_per_s", "storm_per_s"))
                if there
                else "–"
            ]
        lines.append([inner, *cells])
    return markdown(("A", *(f"{name}, {preset}" for name, preset in names)), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packets", type=int, default=1_000_000, help="of each preset")
    parser.add_argument("--short", action="store_true", help="fewer packets and rule sets")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure these, and keep the other figures")
    parser.add_argument("-o", "--output", type=Path, help="write the figures here, and no tables")
    args = parser.parse_args()
    packets = 200_000 if args.short else args.packets
    names = SHORT_SETS if args.short else tuple(name for name, _, _ in SETS)
    few = ("R3", "R7")
    data: dict[str, Any] = {"machine": machine(), "packets": packets, "seed": 1}
    path = args.output or OUTPUT
    if args.only:
        data = json.loads(path.read_text())
    for name, rows in (
        ("locality", locality(names, packets)),
        ("hits", hits(names, packets)),
        ("cache", cache_sizes(packets)),
        ("windows", windows(packets)),
        ("worth", worth(few, packets)),
        ("threads", threads(few, packets)),
        ("lessons", lessons(few, packets)),
    ):
        if args.only and name not in args.only:
            continue
        data[name] = []
        for row in rows:
            data[name].append(row)
            print(name, row, flush=True)
        path.write_text(json.dumps(data, indent=1) + "\n")
    if not args.output:
        fill(DOCS / "classifiers.md", "storm-hits", hit_table(data["hits"]))
        fill(DOCS / "classifiers.md", "storm-worth", worth_table(data["worth"]))


if __name__ == "__main__":
    main()
