"""Packets of flows that come and go, for measurements of flow tables: blocks of headers [packets][5].

A flow has a class: how many packets it has, in bursts of what length, how far apart.  Times are counted in
packets of the whole link, so a gap of 1,000 means that about as many packets of others come between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

TCP, UDP = 6, 17
BLOCK = 1 << 19

Headers = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class FlowClass:
    """*share*: of all flows; the others are means.  *gap* and *pause*: between the packets of a burst, and
    between bursts, in packets of the link.
    """

    name: str
    share: float
    packets: float
    burst: float
    gap: float
    pause: float
    protocol: int = TCP
    ports: tuple[int, ...] = ()  # of destinations; none: any


WEB, BULK = (80, 443, 8080), (20, 873, 445)

# After the traits of the paper's traces: an uplink in one direction, nearly all TCP; a department in both
# directions, half of it TCP, with much ssh and many scans of UDP.
PRESETS: dict[str, tuple[tuple[FlowClass, ...], bool]] = {
    "uplink": (
        (
            FlowClass("web", 0.88, 12, 6, 30, 20_000, ports=WEB),
            FlowClass("bulk", 0.01, 600, 16, 20, 3_000, ports=BULK),
            FlowClass("ssh", 0.0003, 80, 1.2, 500, 100_000, ports=(22,)),
            FlowClass("dns", 0.1097, 1.3, 1, 1, 4_000, UDP, (53,)),
        ),
        False,
    ),
    "department": (
        (
            FlowClass("web", 0.17, 12, 4, 30, 20_000, ports=WEB),
            FlowClass("bulk", 0.003, 400, 8, 20, 3_000, ports=BULK),
            FlowClass("ssh", 0.007, 80, 1.2, 500, 100_000, ports=(22,)),
            FlowClass("dns", 0.22, 1.3, 1, 1, 4_000, UDP, (53,)),
            FlowClass("nfs", 0.005, 500, 3, 100, 4_000, UDP, (2049,)),
            FlowClass("scan", 0.595, 1, 1, 1, 1, UDP),
        ),
        True,
    ),
}


def traffic(preset: str, packets: int, seed: int = 1, block: int = BLOCK) -> Iterator[Headers]:
    """*packets* headers of a preset, in blocks of about *block*; the same for the same arguments."""
    classes, both = PRESETS[preset]
    rng = np.random.default_rng(seed)
    mean = sum(each.share * each.packets for each in classes)
    times, headers = np.empty(0), np.empty((0, 5), np.uint32)
    start = 0.0
    # Long flows need time to reach their number, so the link is watched only after a while.
    left, skipped = packets, 4
    while left:
        parts = [(times, headers)]
        for each in classes:
            flows = rng.poisson(each.share * block / mean)
            parts.append(_packets(rng, each, start + rng.random(flows) * block, both))
        times = np.concatenate([part[0] for part in parts])
        headers = np.concatenate([part[1] for part in parts])
        start += block
        now = times < start
        order = np.argsort(times[now], kind="stable")
        due = np.ascontiguousarray(headers[now][order])
        times, headers = times[~now], headers[~now]
        if skipped:
            skipped -= 1
            continue
        yield due[:left]
        left -= min(left, len(due))


def _packets(
    rng: np.random.Generator, kind: FlowClass, starts: npt.NDArray[np.float64], both: bool
) -> tuple[npt.NDArray[np.float64], Headers]:
    """Times and headers of the packets of flows that begin at *starts*."""
    flows = len(starts)
    flow = np.empty((flows, 5), np.uint32)
    flow[:, 0] = 0x0A000000 + rng.integers(0, 1 << 14, flows)
    flow[:, 1] = rng.integers(0, 1 << 32, flows, dtype=np.uint64).astype(np.uint32)
    flow[:, 2] = rng.integers(1024, 65536, flows)
    flow[:, 3] = rng.choice(kind.ports, flows) if kind.ports else rng.integers(1, 65536, flows)
    flow[:, 4] = kind.protocol
    # A heavy tail, up to a hundred times the mean.
    sizes = 1 + rng.pareto(1.5, flows) * (kind.packets - 1) / 2
    counts = np.minimum(sizes, 100 * kind.packets).astype(np.int64)
    which = np.repeat(np.arange(flows), counts)
    gaps = rng.exponential(kind.gap, len(which))
    paused = rng.random(len(which)) < 1 / kind.burst
    gaps[paused] = rng.exponential(kind.pause, int(paused.sum()))
    first = np.cumsum(counts) - counts
    gaps[first[counts > 0]] = 0
    passed = np.cumsum(gaps)
    times = starts[which] + passed - (passed[first])[which] if len(which) else np.empty(0)
    headers = flow[which]
    if both:
        back = rng.random(len(which)) < 0.5
        headers[back] = headers[back][:, [1, 0, 3, 2, 4]]
    return times, headers


def burst_length(headers: Headers, buckets: npt.NDArray[np.int64]) -> float:
    """k: how many packets of one flow follow each other within a bucket, on the average."""
    order = np.argsort(buckets, kind="stable")
    rows, places = headers[order], buckets[order]
    begins = (places[1:] != places[:-1]) | (rows[1:] != rows[:-1]).any(axis=1)
    return len(rows) / (1 + int(begins.sum()))
