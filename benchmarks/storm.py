"""Storm (Ma, Lu, Banerjee and Estan), measured again: `make papers-storm`.

Hit ratios over time (figure 8) and over the locality of the traffic (figure 9), beside a cache of rules that
do not evolve; sizes of the cache (table 5), entries searched (figure 10), evolving rules over the window
(3.2.3), what a sample costs, what a cache is worth in front of each classifier.  The threads (figures 3, 6
and 7, table 6, formula (1)) are in storm_threads.py: real as far as this machine has cores, and in a model
beyond.  Real runs with more threads than cores: `threads`, and what section 4 chooses (`lessons`).  With
--cores only what needs a core for each thread, on a machine of eight cores or more.

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
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables import engine
from hitables.engine import EvolvingRules, Rules, Storm
from hitables.engine.storm import Partition
from hitables.errors import DatabaseError
from hitables.kernel.machine import machine

from . import command_line, storm_costs, storm_threads
from .doc_tables import DOCS, fill, markdown
from .figures.storm import draw
from .storm_sets import PRESETS, SETS, Headers, classes_of, packets_of, sets, stand_ins

OUTPUT = DOCS / "evaluation" / "storm.json"
SHORT_SETS = ("R3", "R5", "R7")
CACHES = (0, 5, 10, 15, 20, 25, 30, 50, 100)
WINDOWS = (256, 512, 1024, 2048, 4096, 8192)
INNER = ("linear", "hypercuts", "hypersplit", "tss", "rfc", "best")
TOPS = (1, 5, 20, 100)
PARTS = (
    "locality", "hits", "unevolved", "ramp", "cache", "windows", "worth", "delays", "agreement", "partitions",
    "formula", "threads", "lessons",
)  # fmt: skip
# Traffic of little and of much locality.
LOCAL = ("backbone", storm_threads.TRAFFIC)
# Packets of 128 bytes in a millisecond at 10 Gb/s.
MILLISECOND = 9766
# Packets of which one is a sample, where one thread does everything.
EVERY = 16

# The paper's partition of seven threads; cores for it and its main thread.
SEVEN = "4-2-1"
ENOUGH = 8
# With --cores.
CORES_OUTPUT = OUTPUT.with_name("storm-cores.json")
SIDE_BY_SIDE = ("agreement", "threads", "lessons")
# Times that the traffic is sent in a run of threads.
REPEATED = 8

Row = dict[str, Any]


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


def allowed(rules: Rules, classes: npt.NDArray[np.uint32], number: int) -> bool:
    """Whether all packets of a rule have its class: each earlier rule that it meets has the same one."""
    box, earlier = rules.boxes[number], rules.boxes[:number]
    meets = ((earlier[:, :, 0] <= box[:, 1]) & (box[:, 0] <= earlier[:, :, 1])).all(axis=1)
    return bool((classes[:number][meets] == classes[number]).all())


def unevolved(
    names: tuple[str, ...], packets: int, presets: Iterable[str] = PRESETS, cache: int = 20
) -> Iterator[Row]:
    """A cache of the original rules with most samples, renewed after each 1,024 samples of EVERY packets.

    Only rules whose packets all have their class can stand in it.
    """
    for name, rules in sets(names):
        assert len(np.unique(rules.priority)) == len(rules.boxes), "a rule is one box"
        for kind in ("own", "90"):
            drawn = classes_of(rules, kind)
            classes = np.arange(len(rules.boxes), dtype=np.uint32) if drawn is None else drawn
            may: dict[int, bool] = {}
            for preset in presets:
                headers = packets_of(name, preset, packets)
                with engine.open("best", rules) as db:
                    found = np.searchsorted(rules.priority, db.search(headers))
                hit = np.zeros(len(headers), bool)
                span = 1024 * EVERY
                for at in range(span, len(headers), span):
                    numbers, counts = np.unique(found[at - span : at : EVERY], return_counts=True)
                    chosen: list[int] = []
                    for number in numbers[np.argsort(-counts, kind="stable")].tolist():
                        if number not in may:
                            may[number] = allowed(rules, classes, number)
                        chosen += [number] if may[number] else []
                        if len(chosen) == cache:
                            break
                    for number in chosen:
                        box, there = rules.boxes[number], headers[at : at + span]
                        hit[at : at + span] |= ((box[:, 0] <= there) & (there <= box[:, 1])).all(axis=1)
                yield {
                    "set": name, "preset": preset, "classes": kind,
                    "steady": float(hit[max(span, len(hit) // 2) :].mean()),
                }  # fmt: skip


def ramp(names: tuple[str, ...], packets: int) -> Iterator[Row]:
    """Figure 8: the hit ratio of each millisecond at 10 Gb/s, with the samples for which there is time."""
    for name, rules in sets(names):
        for preset in (storm_threads.TRAFFIC, "edge", "backbone"):
            headers = packets_of(name, preset, packets)
            classes = classes_of(rules, "90")
            sample, _ = storm_costs.updater_ns(rules, classes, headers[: 16 * 4096], cold=True)
            every = max(1, round(sample * MILLISECOND * 1e-6))
            with EvolvingRules(rules, classes, tries=32) as evolving:
                hit = evolving.replay(headers, cache=20, every=every, publish=1) < 20
            whole = len(hit) // MILLISECOND * MILLISECOND
            yield {
                "set": name, "preset": preset, "sample_ns": sample, "every": every,
                "by_ms": hit[:whole].reshape(-1, MILLISECOND).mean(axis=1).tolist(),
            }  # fmt: skip


def cache_sizes(packets: int) -> Iterator[Row]:
    """Table 5, on R3: hit ratio by entries, and ns of a look-up in each form (of 100,000 packets)."""
    for name, rules in sets(("R3",)):
        for preset in LOCAL:
            headers = packets_of(name, preset, packets)
            for entries in CACHES:
                with EvolvingRules(rules, classes_of(rules, "90"), tries=32) as evolving:
                    place = evolving.replay(headers, cache=entries, every=EVERY, publish=4)
                    row: Row = {
                        "preset": preset, "cache": entries, "hit_ratio": float((place < entries).mean()),
                    }  # fmt: skip
                    for form in ("columns", "rows", "list"):
                        ns = storm_costs.look_up_ns(evolving, headers[-100_000:], form, 5, entries)
                        row[f"{form}_ns"] = ns
                yield row


def windows(packets: int) -> Iterator[Row]:
    """Evolving rules by window, and what a sample costs: pruned, and as algorithm 1 has it."""
    chosen = [(name, rules, preset) for name, rules in sets(("R3", "R7")) for preset in LOCAL]
    for name, rules, preset in chosen:
        headers = packets_of(name, preset, packets)
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
                    classes = classes_of(rules, kind)
                    with EvolvingRules(
                        rules, classes, window=window, tries=tries, prune=prune, cuts=cuts
                    ) as evolving:
                        start = time.thread_time()
                        evolving.sample(samples)
                        seconds, stats = time.thread_time() - start, evolving.statistics()
                    yield {
                        "set": name, "preset": preset, "window": window, "classes": kind, "prune": prune,
                        "tries": tries, "cuts": cuts, "evolving": stats.rules,
                        "sample_ns": seconds / len(samples) * 1e9,
                        "leaves": stats.leaves / stats.tried if stats.tried else 0.0,
                    }  # fmt: skip


def worth(names: tuple[str, ...], packets: int) -> Iterator[Row]:
    """storm(A) beside A, one thread, in batches."""
    for name, rules in sets(names):
        for preset in ("backbone", "edge", storm_threads.TRAFFIC):
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
    """The traffic for threads: runs of some milliseconds, of packets of which nearly all can hit."""
    return np.tile(packets_of(name, storm_threads.TRAFFIC, packets), (REPEATED, 1))


def lossless(storm: Storm, headers: Headers, most: float, tries: int = 10) -> float:
    """The largest rate, to 5 %, at which no packet of the second half is lost; the first half warms up.

    A thread that other work of the machine interrupts loses packets at any rate, so one run of *tries*
    without a loss is enough.  0 where packets are lost at a 32nd of *most*.  A run takes half a second at
    most.
    """
    low, high = 0.0, most
    while high - low > 0.05 * high and high > most / 32:
        rate = (low + high) / 2
        sent = headers[: max(1000, int(rate / 2))]
        if any(not (storm.run(sent, rate).by[len(sent) // 2 :] >= 2).any() for _ in range(tries)):
            low = rate
        else:
            high = rate
    return low


def threads(names: tuple[str, ...], packets: int, runs: int) -> Iterator[Row]:
    """Figure 6, real: Storm by partition, and HyperCuts, without loss and saturated.

    Partitions for which this machine has cores, and 1-1-1.
    """
    cores = len(os.sched_getaffinity(0))
    partitions = (
        "1-0-0", "2-0-0", "7-0-0", "8-0-0", "1-1-1", "2-1-1", "1-2-1", "2-2-1", "4-2-1", "2-4-1", "3-3-1",
        "dynamic", "4-4-1", "6-1-1", "7-7-1",
    )  # fmt: skip
    for name, rules in sets(names):
        headers = long_run(name, packets)
        for partition in partitions:
            if Partition.read(partition).threads > max(3, cores):
                continue
            options: Row = {"partition": partition, "publish": 4, "tries": 32, "pin": True}
            with Storm("hypercuts", rules, classes_of(rules, "90"), full="wait", **options) as storm:
                best = max((storm.run(headers) for _ in range(runs)), key=lambda run: run.packets_per_s)
            with Storm("hypercuts", rules, classes_of(rules, "90"), full="lose", **options) as storm:
                rate = lossless(storm, headers, 1.1 * best.packets_per_s)
            yield {
                "source": "real", "set": name, "partition": partition, "threads": best.threads,
                "cores": cores, "shares_cores": best.shares_cores, "saturated_per_s": best.packets_per_s,
                "lossless_per_s": rate, "gigabits": rate * 1024 / 1e9, "hit_ratio": best.hit_ratio,
                "samples": best.samples, "switches": best.to_caches + best.to_classifiers,
            }  # fmt: skip


def lessons(names: tuple[str, ...], runs: int) -> Iterator[Row]:
    """Section 4: what each choice of the implementation is worth, saturated; figure 3; two updaters.

    A cache thread that classifies its own misses, and an updater: a core for each on a machine of two; where
    there are more, also four cache threads, two classifiers and an updater.  Best of several runs of some
    milliseconds.
    """
    base: Row = {"partition": "1-0-1", "publish": 4, "tries": 32, "pin": True}
    of_any_partition: tuple[tuple[str, Row], ...] = (
        ("two copies, mailbox, columns", {}),
        ("one copy under a lock", {"copies": 1}),
        ("three copies", {"copies": 3}),
        ("a queue of 1,000 samples", {"queue": 1000}),
        ("an array, one header at a time", {"form": "rows"}),
        ("a list", {"form": "list"}),
        ("a list, one copy under a lock", {"form": "list", "copies": 1}),
    )
    ways: tuple[tuple[str, Row], ...] = (
        *of_any_partition,
        ("two updaters", {"partition": "1-0-2"}),
        ("a classifier behind a ring, no cache", {"partition": "1-1-0"}),
        ("a classifier behind a ring under a lock, no cache", {"partition": "1-1-0", "ring_locks": True}),
        ("one thread with everything (figure 3)", {"partition": "1-0-0", "own": True}),
        ("two threads with everything (figure 3)", {"partition": "2-0-0", "own": True}),
    )
    if len(os.sched_getaffinity(0)) >= Partition.read(SEVEN).threads:
        ways += tuple(
            (f"{SEVEN}, {way}", options | {"partition": SEVEN}) for way, options in of_any_partition
        )
        ways += ((f"{SEVEN}, rings under locks", {"partition": SEVEN, "ring_locks": True}),)
    for name, rules in sets(names):
        headers = packets_of(name, storm_threads.TRAFFIC, 100_000)
        for way, options in ways:
            with Storm("hypercuts", rules, classes_of(rules, "90"), **(base | options)) as storm:
                best = max((storm.run(headers) for _ in range(runs)), key=lambda run: run.packets_per_s)
            yield {
                "source": "real", "set": name, "way": way, "threads": best.threads,
                "shares_cores": best.shares_cores, "per_s": best.packets_per_s,
                "hit_ratio": best.hit_ratio, "samples": best.samples, "runs": runs,
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
                " / ".join(f"{there[0][way] / 1e6:.3g}" for way in ("alone_per_s", "storm_per_s"))
                if there
                else "–"
            ]
        lines.append([inner, *cells])
    return markdown(("A", *(f"{name}, {preset}" for name, preset in names)), lines)


def write_pages(data: dict[str, Any]) -> None:
    """The tables and figures of the docs, from the data alone."""
    draw(data, OUTPUT.parent)
    for name, part, show in (
        ("storm-hits", "hits", hit_table),
        ("storm-worth", "worth", worth_table),
        ("storm-delays", "delays", storm_threads.delay_table),
        ("storm-rates", "partitions", storm_threads.rate_table),
        ("storm-agreement", "agreement", storm_threads.agreement_table),
    ):
        if data.get(part):
            fill(DOCS / "classifiers.md", name, show(data[part]))
    cores = json.loads(CORES_OUTPUT.read_text())
    fill(DOCS / "classifiers.md", "storm-cores", storm_threads.cores_table(cores))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packets", type=int, default=1_000_000, help="of each preset")
    parser.add_argument("--runs", type=int, help="of some milliseconds, of which the best counts (10 to 40)")
    parser.add_argument("--short", action="store_true", help="fewer packets and rule sets; into out/ or -o")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure these, and keep the other figures")
    parser.add_argument(
        "--cores", action="store_true", help=f"{', '.join(SIDE_BY_SIDE)} on {ENOUGH} cores or more"
    )
    parser.add_argument("--draw", action="store_true", help="tables and figures from the data that is there")
    parser.add_argument("-o", "--output", type=Path, help="write the figures here, and no tables")
    args = parser.parse_args()
    if args.cores:
        cores = len(os.sched_getaffinity(0))
        if cores < ENOUGH:
            parser.error(f"--cores: this machine has {cores} cores, and seven threads need {ENOUGH}")
        args.only, args.output = list(SIDE_BY_SIDE), args.output or CORES_OUTPUT
    made = [] if args.draw else stand_ins()
    for line in made:
        print(line)
    if (
        args.short or made
    ) and not args.draw:  # the figures of the docs are of the whole run, with public sets
        args.output = args.output or Path("out/storm.json")
        args.output.parent.mkdir(parents=True, exist_ok=True)
    path = args.output or OUTPUT
    if args.draw:
        write_pages(json.loads(path.read_text()))
        return
    packets = 200_000 if args.short else args.packets
    names = SHORT_SETS if args.short else tuple(name for name, _, _ in SETS)
    few, runs = ("R3", "R7"), args.runs or (10 if args.short else 40)
    data: dict[str, Any] = {"machine": machine(), "packets": packets, "seed": 1} | (
        {"sets": made} if made else {}
    )
    if args.only and path.exists():
        data = json.loads(path.read_text()) | data
    for name, rows in (
        ("locality", locality(names, packets)),
        ("hits", hits(names, packets)),
        ("unevolved", unevolved(names, packets)),
        ("ramp", ramp(few, packets)),
        ("cache", cache_sizes(packets)),
        ("windows", windows(packets)),
        ("worth", worth(few, packets)),
        ("delays", storm_threads.delay_rows(few, packets)),
        ("agreement", storm_threads.agreement(few, packets, runs)),
        ("partitions", storm_threads.partitions(names, packets, runs)),
        ("formula", storm_threads.formula(few, packets, runs)),
        ("threads", threads(few, 8_000 * max(4, len(os.sched_getaffinity(0))), runs // 2)),
        ("lessons", lessons(few, 2 * runs)),
    ):
        if args.only and name not in args.only:
            continue
        data[name] = []
        for row in rows:
            data[name].append(row)
            print(name, row, flush=True)
        path.write_text(json.dumps(data, indent=1) + "\n")
    if args.output:
        print(f"data: {path}")
    else:
        write_pages(data)


if __name__ == "__main__":
    command_line.run(main)
