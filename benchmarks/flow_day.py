"""Flow tables under a day of packets, at the paper's sizes: figures 4 to 12, streamed.

43,226,495 packets of the preset `uplink` and 153,399,408 of `department`, as many as the Auckland and the
Melbourne trace have, or the packets of a capture.  A block of packets is in memory at a time; each table
takes the block in turn, so a table that fits into the caches begins each block without them.

Comparisons and pointer writes are counted in a pass of their own, and need one run: the packets are the same
each time.  Times are processor time of the paper's loop, one packet after the other, several passes where
that is affordable.  Figure 12 has TCP of `department` without purging, of a quarter of the day: a chain of
the smallest table then has hundreds of flows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables.core.locality import TABLES, Locality
from hitables.engine import FlowTable
from hitables.generate.traffic import traffic
from hitables.generate.traffic_presets import TCP
from hitables.ir.fields import Family
from hitables.parse.packet_stream import open_packets

SCHEMES = ("normal", "move_front", "circular", "insert_move_front")
# Packets of the traces of the paper's table 1, and passes for times.
DAY = {"uplink": (43_226_495, 5), "department": (153_399_408, 1)}
COUNTED_SIZES = tuple(1 << bits for bits in (10, 12, 14, 16, 18, 20))
TIMED_SIZES = tuple(1 << bits for bits in (10, 12, 16, 20))
UNPURGED_SIZES = tuple(1 << bits for bits in (12, 14, 16, 18, 20, 22))
# Packets in memory at a time: 80 MB.
BLOCK = 1 << 22

Headers = npt.NDArray[np.uint32]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Packets that can be read again and again; *timed_passes*: of a measurement of times."""

    name: str
    packets: int
    timed_passes: int
    read: Callable[[], Iterable[Headers]]


def of_preset(preset: str, packets: int, timed_passes: int) -> Source:
    def read() -> Iterable[Headers]:
        return (block.headers for block in traffic(preset, packets, seed=1, block=min(BLOCK, packets)))

    return Source(preset, packets, timed_passes, read)


def of_capture(path: str) -> Source:
    """The IPv4 packets of a capture or a trace, which is read once to count them; errors are the reader's."""

    def read() -> Iterable[Headers]:
        waiting: list[Headers] = []
        for block in open_packets(path, family=Family.IPV4):
            waiting.append(block.headers.copy())
            if sum(map(len, waiting)) >= BLOCK:
                yield np.concatenate(waiting)
                waiting = []
        if waiting:
            yield np.concatenate(waiting)

    packets = sum(map(len, read()))
    return Source(path, packets, DAY["uplink"][1], read)


def of_kind(headers: Headers, kind: str) -> Headers:
    return np.ascontiguousarray(headers[headers[:, 4] == TCP]) if kind == "tcp" else headers


class Tables:
    """Tables of several schemes and sizes that take the same packets.

    counted  whether they count, with packets fetched side by side, or are timed, one packet after the other
    """

    def __init__(self, sizes: Iterable[int], schemes: Iterable[str], counted: bool, **options: Any) -> None:
        self._counted, self._open = counted, []
        self.seconds: list[float] = []
        self.packets = 0
        for buckets in sizes:
            for scheme in schemes:
                table = FlowTable(scheme, buckets, hash="zobel", **options)
                self._open.append((table, {"scheme": scheme, "buckets": buckets}))
                self.seconds.append(0.0)

    def take(self, headers: Headers) -> None:
        self.packets += len(headers)
        for number, (table, _) in enumerate(self._open):
            start = time.thread_time()
            table.replay(headers, group=0 if self._counted else 1, counted=self._counted)
            self.seconds[number] += time.thread_time() - start

    def rows(self) -> Iterator[Row]:
        for (table, row), seconds in zip(self._open, self.seconds, strict=True):
            stats, chains = table.statistics(), table.chains()
            there: Row = {"packets": stats.packets, "inserts": stats.inserts, "bytes": table.bytes}
            if self._counted:
                there |= {
                    "comparisons": stats.comparisons, "hit_comparisons": stats.hit_comparisons,
                    "miss_comparisons": stats.miss_comparisons, "beyond_first": stats.beyond_first,
                    "moves": stats.moves, "move_writes": stats.move_writes,
                    "purged": stats.purged, "mean_chain": chains.mean, "longest_chain": stats.longest,
                }  # fmt: skip
            else:
                there["ns"] = seconds / max(1, stats.packets) * 1e9
            yield row | there

    def close(self) -> None:
        for table, _ in self._open:
            table.close()


class Bursts:
    """k of the paper by the number of buckets, under an even hash: the mean run of a flow in a bucket."""

    # Flows that are followed one by one; runs are counted for all of them.
    FLOWS = 1 << 16

    def __init__(self) -> None:
        self._locality, self._packets = Locality(5, self.FLOWS), 0

    def take(self, headers: Headers) -> None:
        self._locality.add(headers)
        self._packets += len(headers)

    def lengths(self) -> dict[int, float]:
        runs = self._locality.totals().runs
        return {1 << bits: self._packets / count for bits, count in zip(TABLES, runs, strict=True)}


def one_pass(source: Source, kind: str, tables: Tables, bursts: Bursts | None = None) -> list[Row]:
    """All packets of *kind* through the tables, which are closed; *bursts* takes them, too."""
    try:
        for headers in source.read():
            chosen = of_kind(headers, kind)
            if len(chosen):
                tables.take(chosen)
                if bursts:
                    bursts.take(chosen)
        return list(tables.rows())
    finally:
        tables.close()


def merged(passes: list[list[Row]]) -> Iterator[Row]:
    """One row of several passes: mean and deviation of their times, in ns per packet."""
    for rows in zip(*passes, strict=True):
        times = [row["ns"] for row in rows]
        yield rows[0] | {"ns": float(np.mean(times)), "ns_deviation": float(np.std(times)), "ns_runs": times}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Buckets of the tables that count, of those that are timed, and of those that are not purged."""

    counted: tuple[int, ...] = COUNTED_SIZES
    timed: tuple[int, ...] = TIMED_SIZES
    unpurged: tuple[int, ...] = UNPURGED_SIZES

    def small(self) -> Sizes:
        """Each second size below 2^18: little memory, little time."""
        return Sizes(*(each[:4:2] for each in (self.counted, self.timed, self.unpurged)))


def expected_seconds(sources: Iterable[Source], sizes: Sizes) -> float:
    """Processor seconds of a measurement, by a million packets of each pass; tables beyond the caches take
    longer once they are full.
    """
    total = 0.0
    for source in sources:
        headers = next(iter(source.read()))[: 1 << 20]
        for kind in ("ip", "tcp"):
            chosen = of_kind(headers, kind)
            if not len(chosen):
                continue
            for buckets, counted, passes in (
                (sizes.counted, True, 1), (sizes.timed, False, source.timed_passes),
            ):  # fmt: skip
                tables = Tables(buckets, (*SCHEMES, "ring"), counted)
                tables.take(chosen)
                tables.close()
                total += passes * sum(tables.seconds) * source.packets / len(headers)
    return total


def schemes(sources: Iterable[Source], sizes: Sizes) -> Iterator[Row]:
    """Figures 4 to 11 and the ring: counts of one pass, times of several."""
    for source in sources:
        for kind in ("ip", "tcp"):
            common = {"preset": source.name, "kind": kind}
            began = time.process_time()
            bursts = Bursts()
            counted = one_pass(source, kind, Tables(sizes.counted, (*SCHEMES, "ring"), True), bursts)
            lengths = bursts.lengths()
            timed = list(
                merged(
                    [
                        one_pass(source, kind, Tables(sizes.timed, (*SCHEMES, "ring"), False))
                        for _ in range(source.timed_passes)
                    ]
                )
            )
            times = {(row["scheme"], row["buckets"]): row for row in timed}
            seconds = time.process_time() - began
            print(f"{source.name}, {kind}: {seconds:.0f} s of processor time", flush=True)
            for row in counted:
                at = times.get((row["scheme"], row["buckets"]), {})
                kept = {name: at[name] for name in ("ns", "ns_deviation", "ns_runs") if name in at}
                yield common | {"k": lengths[row["buckets"]]} | row | kept


def unpurged(source: Source, sizes: Sizes) -> Iterator[Row]:
    """Figure 12: TCP, no flow purged; the tables of a size at a time, for their memory."""
    for buckets in sizes.unpurged:
        for row in one_pass(source, "tcp", Tables([buckets], SCHEMES, False, purge=0)):
            yield {"preset": source.name} | row


def day(short: bool, trace: str | None = None) -> Iterator[Row]:
    """All rows, figure 12 last.  The processor time that it will take is said first.

    short  a hundredth of the day, and fewer sizes
    trace  a capture in place of the presets
    """
    part, sizes = (100, Sizes().small()) if short else (1, Sizes())
    presets = [of_preset(name, packets // part, passes) for name, (packets, passes) in DAY.items()]
    sources = [of_capture(trace)] if trace else presets
    for source in sources:
        print(f"{source.name}: {source.packets:,} packets, {source.timed_passes} passes for times")
    print(
        f"this takes at least {expected_seconds(sources, sizes) / 60:.0f} minutes of processor time",
        flush=True,
    )
    for row in schemes(sources, sizes):
        yield {"part": "purged"} | row
    quarter = sources[-1] if trace else of_preset("department", DAY["department"][0] // 4 // part, 1)
    for row in unpurged(quarter, sizes):
        yield {"part": "unpurged"} | row
