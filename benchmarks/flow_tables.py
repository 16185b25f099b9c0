"""Flow state tables (Peng, Leckie and Ramamohanarao), measured again: `make papers-flows`.

Figures 4 to 11: comparisons and processor time of the four schemes over the size of the table, for all
packets and for TCP, of two presets of traffic; figure 12: without purging; section 4.1: the ring; at the
paper's sizes in `flow_day`, and here with fewer packets, more sizes and more runs.  Table 2: the predictions
of its model (`flow_model`).  Then what the paper leaves open: hash functions, batches, what a flow table is
worth in front of a classifier, and the kernel's own in front of a chain (`flow_kernel`).

As in the paper a packet is searched when the last one is done, and the hash is Zobel's.  Times are processor
time of a whole replay from memory, mean and deviation of several; counts are of another replay.  The
paper's traces are not public: the packets are those of the presets `uplink` and `department`, which have the
traits that the paper states of them (docs/traffic.md).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables import engine
from hitables.core.locality import TABLES, Locality
from hitables.engine import FlowTable, Rules
from hitables.errors import DatabaseError, HitablesError
from hitables.generate import trace
from hitables.generate.traffic import traffic
from hitables.generate.traffic_presets import TCP
from hitables.kernel.machine import machine

from . import command_line, flow_day, flow_kernel, flow_kinds, flow_model
from .doc_tables import DOCS, fill, markdown
from .figures.flows import draw
from .made_sets import missing, public_or_made

OUTPUT = DOCS / "evaluation" / "flows.json"
PRESETS = ("uplink", "department")
SCHEMES = flow_day.SCHEMES
HASHES = ("zobel", "crc32c", "multiply_shift", "siphash", "folded")
PARTS = ("batches", "hashes", "worth", "schemes", "unpurged", "kinds", "model", "kernel", "day")
RUNS = 5
SET, SET_RULES = "wustl/acl1_10K", 9603
INNER = ("linear", "hypercuts", "tss", "best")
HIT_RATIOS = (0.5, 0.8, 0.95, 0.99, 0.999)
FLOWS = (4_000, 100_000, 1_000_000)

Headers = npt.NDArray[np.uint32]
Row = dict[str, Any]


def packets_of(preset: str, packets: int, tcp: bool = False) -> Headers:
    """The first *packets* headers of a preset, or those of them that are TCP."""
    headers = np.concatenate([block.headers for block in traffic(preset, packets, seed=1)])
    return np.ascontiguousarray(headers[headers[:, 4] == TCP]) if tcp else headers


def burst_lengths(headers: Headers) -> dict[int, float]:
    """k of the paper by the number of buckets, under an even hash: the mean run of a flow in a bucket."""
    locality = Locality(headers.shape[1], len(headers))
    locality.add(headers)
    return {1 << bits: len(headers) / runs for bits, runs in zip(TABLES, locality.totals().runs, strict=True)}


def timed(headers: Headers, runs: int, warm: bool = False, **options: Any) -> Row:
    """ns per packet, mean and deviation of *runs* replays, each into an empty table (*warm*: a full one)."""
    group, times = options.pop("group", 1), []
    with FlowTable(**options) as table:
        if warm:
            table.replay(headers, group=0, counted=False)
        for _ in range(runs):
            if not warm:
                table.clear()
            start = time.thread_time()
            table.replay(headers, group=group, counted=False)
            times.append((time.thread_time() - start) / len(headers) * 1e9)
        return {"ns": float(np.mean(times)), "ns_deviation": float(np.std(times)), "bytes": table.bytes}


def counts(headers: Headers, **options: Any) -> Row:
    """The statistics of one replay into an empty table, per packet where that is what counts."""
    with FlowTable(history=True, **options) as table:
        stats, chains = table.replay(headers), table.chains()
    return {
        "packets": stats.packets,
        "inserts": stats.inserts,
        "returned": stats.returned,
        "comparisons": stats.comparisons,
        "hit_comparisons": stats.hit_comparisons,
        "miss_comparisons": stats.miss_comparisons,
        "beyond_first": stats.beyond_first,
        "moves": stats.moves,
        "move_writes": stats.move_writes,
        "load": chains.flows / options["buckets"],
        "mean_chain": chains.mean,
        "longest_chain": stats.longest,
    }


def schemes(packets: int, sizes: list[int], runs: int) -> Iterator[Row]:
    """Figures 4 to 11, the ring of section 4.1, and the quantities of table 2."""
    for preset in PRESETS:
        for kind in ("ip", "tcp"):
            headers = packets_of(preset, packets, tcp=kind == "tcp")
            bursts = burst_lengths(headers)
            for buckets in sizes:
                for scheme in (*SCHEMES, "ring"):
                    options: Row = {"scheme": scheme, "buckets": buckets, "hash": "zobel"}
                    row: Row = {"preset": preset, "kind": kind, **options, "k": bursts[buckets]}
                    yield row | counts(headers, **options) | timed(headers, runs, **options)


def kinds(packets: int, runs: int) -> Iterator[Row]:
    """Section 5: which traffic helps."""
    return flow_kinds.kinds(packets, (*SCHEMES, "ring"), burst_lengths, counts, timed, runs)


def model(data: dict[str, Any], runs: int) -> Iterator[Row]:
    """Table 2: its predictions beside the rows of `schemes`, measured before."""
    data["units"] = flow_model.unit_costs(runs)
    yield from flow_model.predictions(data["schemes"], data["units"])


def unpurged(packets: int, sizes: list[int], runs: int) -> Iterator[Row]:
    """Figure 12: TCP of the department, no flow purged."""
    headers = packets_of("department", 2 * packets, tcp=True)
    for buckets in sizes:
        for scheme in SCHEMES:
            options: Row = {"scheme": scheme, "buckets": buckets, "hash": "zobel", "purge": 0}
            row = {"buckets": buckets, "scheme": scheme}
            yield row | counts(headers, **options) | timed(headers, runs, **options)


def mixed(
    flows: Headers, fresh: Iterator[Headers], ratio: float, packets: int, rng: np.random.Generator
) -> Headers:
    """Packets of *flows*, each drawn evenly, and a share of 1 - *ratio* of flows that were never seen."""
    headers = flows[rng.integers(0, len(flows), packets)]
    new = np.flatnonzero(rng.random(packets) >= ratio)
    headers[new] = next(fresh)[: len(new)]
    return headers


def any_flows(rng: np.random.Generator, count: int) -> Headers:
    headers = rng.integers(0, 1 << 32, (count, 5), dtype=np.uint64).astype(np.uint32)
    headers[:, 2:4] &= 0xFFFF
    headers[:, 4] = TCP
    return headers


def batches(runs: int, short: bool) -> Iterator[Row]:
    """The paper's loop and ours, in the caches and beyond: 95 % of the packets are of known flows."""
    rng = np.random.default_rng(1)
    packets = 1 << 18

    def fresh() -> Iterator[Headers]:
        while True:
            yield any_flows(rng, packets)

    tables = (
        (1_000, 4_096, 4, 2), (4_000, 16_384, 10, 5), (100_000, 65_536, 10, 5), (3_000_000, 1 << 20, 10, 5),
    )  # fmt: skip
    for flows, buckets, purge_at, purge in tables[:3] if short else tables:
        known = any_flows(rng, flows)
        ways: tuple[tuple[str, Row, int], ...] = (
            ("the paper's normal", {"scheme": "normal", "hash": "zobel"}, 1),
            ("the paper's insert and move to front", {"scheme": "insert_move_front", "hash": "zobel"}, 1),
            ("normal in groups", {"scheme": "normal"}, 0),
            ("insert and move to front in groups", {"scheme": "insert_move_front"}, 0),
            ("ring in groups", {"scheme": "ring"}, 0),
        )
        for name, options, group in ways:
            with FlowTable(buckets=buckets, purge_at=purge_at, purge=purge, **options) as table:
                for at in range(0, flows, packets):
                    table.replay(known[at : at + packets], group=0, counted=False)
                before, spent = table.statistics(), []
                for number in range(6 * runs):
                    headers = mixed(known, fresh(), 0.95, packets, rng)
                    start = time.thread_time()
                    table.replay(headers, group=group, counted=False)
                    # The first third fills the chains.
                    spent.extend([time.thread_time() - start] if number >= 2 * runs else [])
                after = table.statistics()
                yield {
                    "table": name,
                    "flows": flows,
                    "buckets": buckets,
                    "purge_at": purge_at,
                    "bytes": table.bytes,
                    "hit_ratio": (after.hits - before.hits) / (after.packets - before.packets),
                    "lookups_per_s": packets / float(np.median(spent)),
                    "lookups_per_s_best": packets / min(spent),
                }


def hashes(packets: int, runs: int) -> Iterator[Row]:
    """Time of a lookup and evenness of the chains, by hash; no flow is purged."""
    headers = packets_of("uplink", packets)
    for name in HASHES:
        with FlowTable("normal", 1 << 14, purge=0, hash=name) as table:
            table.replay(headers, counted=False)
            chains = table.chains()
        mean = chains.flows / (1 << 14)
        # The variance of the lengths over that of chance; 1 is even.
        squares = sum(count * (length - mean) ** 2 for length, count in enumerate(chains.lengths[:-1]))
        in_caches = timed(headers[: 1 << 16], 4 * runs, warm=True, hash=name, group=0)
        yield {
            "hash": name,
            "ns": in_caches["ns"],
            "ns_one_at_a_time": timed(headers[: 1 << 16], 4 * runs, warm=True, hash=name, group=1)["ns"],
            "variance": squares / (1 << 14) / mean,
            "longest": chains.longest,
        }


def worth(runs: int, short: bool) -> Iterator[Row]:
    """flows(A) beside A, by the share of packets of known flows and by their number."""
    rules = public_or_made(SET, SET_RULES)
    for flows in FLOWS[:1] if short else FLOWS:
        known = np.ascontiguousarray(trace.headers(rules, flows, 1), np.uint32)
        for inner in INNER:
            yield from worth_of(inner, rules, known, runs)


def worth_of(inner: str, rules: Rules, known: Headers, runs: int) -> Iterator[Row]:
    rng = np.random.default_rng(2)
    packets = 1 << 15 if inner == "linear" else 1 << 17
    numbers = iter(range(2, 1 << 30))

    def fresh() -> Iterator[Headers]:
        while True:
            yield np.ascontiguousarray(trace.headers(rules, packets, next(numbers)), np.uint32)

    plan = f"flows({inner}, buckets={max(65536, len(known))})"
    for ratio in HIT_RATIOS:
        row: Row = {"inner": inner, "flows": len(known), "wanted_ratio": ratio}
        for name in (inner, plan):
            try:
                database = engine.open(name, rules)
            except DatabaseError as error:
                print(f"left out: {error}")
                return
            with database as db:
                if name == plan:
                    db.search(known)
                    before = db.flow_statistics()
                spent: list[float] = []
                for _ in range(2 if name == "linear" else 2 * runs):
                    headers = mixed(known, fresh(), ratio, 1 << 12 if name == "linear" else packets, rng)
                    start = time.thread_time()
                    db.search(headers)
                    spent.append((time.thread_time() - start) / len(headers))
                row["alone_per_s" if name == inner else "flows_per_s"] = 1 / float(np.median(spent))
                if name == plan:
                    after = db.flow_statistics()
                    row["hit_ratio"] = (after.hits - before.hits) / (after.packets - before.packets)
                    row["bytes"] = db.bytes
        yield row


def worth_table(rows: list[Row]) -> str:
    """Million lookups a second of A, and of flows(A) by the share of known flows."""
    lines = []
    for inner in INNER:
        for flows in FLOWS:
            there = [row for row in rows if row["inner"] == inner and row["flows"] == flows]
            if there:
                alone = float(np.median([row["alone_per_s"] for row in there])) / 1e6
                cells = [f"{row['flows_per_s'] / 1e6:.1f}" for row in there]
                lines.append([inner, f"{flows:,}", f"{alone:.2f}" if alone < 1 else f"{alone:.1f}", *cells])
    return markdown(("A", "flows", "A alone", *(f"{ratio:.1%}" for ratio in HIT_RATIOS)), lines)


def batch_table(rows: list[Row]) -> str:
    names = list(dict.fromkeys(row["table"] for row in rows))
    sizes = list(dict.fromkeys((row["flows"], row["purge_at"]) for row in rows))
    rates = {(row["table"], row["flows"], row["purge_at"]): row for row in rows}
    head = ("table", *(f"{flows:,} flows, {purge_at} in a chain" for flows, purge_at in sizes))
    return markdown(
        head,
        [[name, *(f"{rates[name, *size]['lookups_per_s'] / 1e6:.1f}" for size in sizes)] for name in names],
    )


def scheme_table(rows: list[Row]) -> str:
    """Keys compared beyond the first of hits, and ns, per packet, of the largest tables."""
    lines = []
    for preset in PRESETS:
        for kind in ("ip", "tcp"):
            for buckets in (1 << 12, 1 << 16):
                there = [
                    row for row in rows
                    if (row["preset"], row["kind"], row["buckets"]) == (preset, kind, buckets)
                ]  # fmt: skip
                cells = [f"{row['beyond_first'] / row['packets']:.2f} / {row['ns']:.0f}" for row in there]
                if cells:
                    lines.append([f"{preset}, {kind}", f"{buckets:,}", *cells])
    return markdown(("packets", "buckets", *SCHEMES, "ring"), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packets", type=int, default=4_000_000, help="of each preset")
    parser.add_argument("--runs", type=int, default=RUNS, help="of each time")
    parser.add_argument("--short", action="store_true", help="fewer packets, sizes and runs; into out/ or -o")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure these, and keep the other figures")
    parser.add_argument("--trace", help="figures 4 to 12 for the packets of a capture, into out/ or -o")
    parser.add_argument("--draw", action="store_true", help="tables and figures from the data that is there")
    parser.add_argument("-o", "--output", type=Path, help="write the figures here, and no tables")
    args = parser.parse_args()
    if args.draw:
        write_pages(json.loads((args.output or OUTPUT).read_text()))
        return
    if args.trace:
        args.only = ["day"]
    made = missing([(SET, SET_RULES)])
    for line in made:
        print(line)
    if args.trace or args.short or made:  # the figures of the docs are of the whole run, with the public set
        args.output = args.output or Path("out/flows.json")
        args.output.parent.mkdir(parents=True, exist_ok=True)
    packets, runs = (300_000, 2) if args.short else (args.packets, args.runs)
    sizes = [1 << size for size in ((12, 16) if args.short else (10, 12, 14, 16, 18, 20))]
    wide = [1 << size for size in ((10, 16) if args.short else (8, 10, 12, 14, 16, 18, 20, 22))]
    data: dict[str, Any] = {"machine": machine(), "packets": packets, "runs": runs}
    if made:
        data["sets"] = made
    path = args.output or OUTPUT
    if args.only and path.exists():
        data = json.loads(path.read_text()) | data
    for name, rows in (
        ("batches", batches(runs, args.short)),
        ("hashes", hashes(min(packets, 1_000_000), runs)),
        ("worth", worth(runs, args.short)),
        ("schemes", schemes(packets, sizes, runs)),
        ("unpurged", unpurged(packets, wide, runs)),
        ("kinds", kinds(packets // 4, runs)),
        ("model", model(data, runs)),
        ("kernel", flow_kernel.kernel(args.short, runs)),
        ("day", flow_day.day(args.short, args.trace)),
    ):
        if args.only and name not in args.only:
            continue
        data[name] = []
        try:
            for row in rows:
                data[name].append(row)
                print(name, row, flush=True)
        except HitablesError as error:
            raise SystemExit(f"{name}: {error}") from error
        path.write_text(json.dumps(data, indent=1) + "\n")
    if not args.output:
        write_pages(data)
    elif args.trace:
        draw(data, path.parent)
        print(f"figures and data: {path.parent}/")
    else:
        print(f"data: {path}")


def write_pages(data: dict[str, Any]) -> None:
    """The tables and figures of the docs, from the data alone."""
    draw(data, OUTPUT.parent)
    page = DOCS / "classifiers.md"
    for name, part, show in (
        ("flow-batches", "batches", batch_table),
        ("flow-schemes", "schemes", scheme_table),
        ("flow-worth", "worth", worth_table),
        ("flow-kinds", "kinds", flow_kinds.table),
        ("flow-model", "model", flow_model.table),
        ("flow-kernel", "kernel", flow_kernel.table),
    ):
        if data.get(part):
            fill(page, name, show(data[part]))


if __name__ == "__main__":
    command_line.run(main)
