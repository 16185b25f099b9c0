"""The locality of traffic: how the flows of packets, and the rules that they match, repeat themselves.

Packets are read once, block by block.  Memory holds the flows up to a limit, beyond which flows are sampled
by their hash (core/c/traffic/locality.c): figures are exact up to the limit, and those of a random sample of
flows beyond it.  A flow is the packets of one header: source, destination, ports and protocol, one direction.
The burst length of a table of n buckets is k of Peng and others (section 4.4): the mean run of packets of one
flow among the packets that fall into one bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .core.locality import RECENT_BINS, TABLES, Locality, Totals
from .core.locality import TOPS as TOPS
from .core.locality import WINDOW as WINDOW
from .errors import HitablesError, InvalidOption
from .parse.packet_stream import REASONS as REASONS
from .parse.packet_stream import CaptureStream, TraceStream

# Flows that are followed at most: some 200 MB.
FLOWS = 1 << 21
# Intervals of the trace for which active flows are counted.
INTERVALS = 12
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999)
# What a capture counts as skipped, and the other counts that are reported.
SKIPPED = ("not_ip", "other_family", "ports_cut", "malformed", "other_link")
NOTED = ("later_fragments", "untimed", "shortened")

Classify = Callable[[NDArray[np.uint32]], NDArray[np.int32]]


@dataclass(frozen=True, slots=True)
class FlowSize:
    """Flows with from *least* to *most* packets, and the packets of all of them."""

    least: int
    most: int
    keys: float
    packets: float


@dataclass(frozen=True, slots=True)
class Repetition:
    """How a sequence of flows, or of rules, repeats itself.

    keys       how many there are: exact, or estimated from the sample
    followed   how many are in the sample; *sample*: one of so many, 1: all
    mean, quantiles, most   packets of a key; quantiles at QUANTILES
    sizes      keys by packets, in powers of two
    shares     of packets of the 1, 5, 20, 100 most popular keys, at least
    shares_error   by how much each of them may be too low; 0 if the keys are no sample
    window_keys, window_shares   the mean of windows of 1,024 packets; None: there is no whole window
    first      share of packets that are the first of their key
    distances  share of packets whose stack distance is below 1, 2, 4, 8 …; the last one is 1 - first
    """

    keys: int
    followed: int
    sample: int
    mean: float
    quantiles: tuple[float, ...]
    most: int
    sizes: tuple[FlowSize, ...]
    shares: tuple[float, ...]
    shares_error: tuple[float, ...]
    windows: int
    window_keys: float | None
    window_shares: tuple[float, ...] | None
    first: float
    distances: tuple[float, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Interval:
    """*flows* that sent a packet before the end of the interval, and one at its begin or later; s."""

    begin: float
    end: float
    flows: int


@dataclass(frozen=True, slots=True)
class TrafficReport:
    """The result of `measure`.

    form       of the file: a key of parse.packet_stream.FORMATS, or "trace"
    seconds    from the first packet to the last; None: the file has no times
    bytes      of all frames; None: the file has no lengths
    skipped    records that gave no packet, by reason; None: a trace
    noted      packets or records with a peculiarity; None: a trace
    cut_off    bytes of a last record that the end of the file cut off
    active     INTERVALS equal parts of the trace (fewer of a very short one), by packets if it has no times
    bursts     of each size of table: buckets and burst length
    rules      how rules repeat; None: no rule set was given
    unmatched  packets that match no rule; they count as a rule of their own
    """

    source: str
    form: str
    packets: int
    seconds: float | None
    bytes: int | None
    skipped: dict[str, int] | None
    noted: dict[str, int] | None
    cut_off: int
    flows: Repetition
    active: tuple[Interval, ...]
    bursts: tuple[tuple[int, float], ...]
    rules: Repetition | None = None
    unmatched: int = 0


def measure(
    stream: CaptureStream | TraceStream,
    classify: Classify | None = None,
    *,
    limit: int = FLOWS,
) -> TrafficReport:
    """Read *stream* to its end.

    classify  the rule of each header [packets][5], -1 for none
    limit     flows that are followed at most; beyond it they are sampled
    HitablesError if there is no packet; InvalidOption for a limit below 2; what the stream raises.
    """
    if not 2 <= limit < 1 << 31:
        raise InvalidOption(f"a limit of {limit} flows: it must lie in 2..2^31-1")
    flows = Locality(stream.words, limit)
    rules = Locality(1, limit) if classify else None
    packets = unmatched = size = 0
    earliest, latest = 1 << 63, -(1 << 63)
    timed = False
    for block in stream:
        flows.add(block.headers, block.times)
        if classify and rules:
            numbers = np.ascontiguousarray(classify(block.headers))
            unmatched += int((numbers < 0).sum())
            rules.add(numbers.view(np.uint32).reshape(-1, 1))
        if block.times is not None and block.lengths is not None:
            timed = True
            size += int(block.lengths.sum(dtype=np.uint64))
            earliest, latest = min(earliest, int(block.times.min())), max(latest, int(block.times.max()))
        packets += len(block.headers)
    capture = stream if isinstance(stream, CaptureStream) else None
    skipped, noted = _counts(capture, SKIPPED), _counts(capture, NOTED)
    if not packets:
        reasons = ", ".join(f"{count:,} {REASONS[name]}" for name, count in (skipped or {}).items() if count)
        raise HitablesError(
            f"{stream.source}: there is no packet to count" + (f": {reasons}" if reasons else "")
        )
    totals = flows.totals()
    return TrafficReport(
        stream.source,
        stream.form,
        packets,
        (latest - earliest) / 1e9 if timed else None,
        size if timed else None,
        skipped,
        noted,
        capture.cut_off if capture else 0,
        _repetition(flows, totals),
        _active(flows, totals, (earliest, latest) if timed else (0, packets - 1), timed),
        tuple((1 << bits, packets / runs) for bits, runs in zip(TABLES, totals.runs, strict=True)),
        _repetition(rules, rules.totals()) if rules else None,
        unmatched,
    )


def _counts(capture: CaptureStream | None, names: Sequence[str]) -> dict[str, int] | None:
    if capture is None:
        return None
    counts = capture.counts
    return {name: getattr(counts, name) for name in names}


def _repetition(locality: Locality, totals: Totals) -> Repetition:
    packets, _, _ = locality.keys()
    scale = 1 << totals.level
    first, distances = _distances(totals)
    sizes = []
    for power in range(int(packets.max()).bit_length() if len(packets) else 0):
        of_size = packets[(packets >= 1 << power) & (packets < 2 << power)]
        sizes.append(
            FlowSize(1 << power, (2 << power) - 1, len(of_size) * scale, float(of_size.sum()) * scale)
        )
    window = totals.windows * WINDOW
    return Repetition(
        keys=totals.keys * scale,
        followed=totals.keys,
        sample=scale,
        mean=float(packets.mean()) if len(packets) else 0.0,
        quantiles=tuple(map(float, np.quantile(packets, QUANTILES, method="inverted_cdf")))
        if len(packets)
        else (),
        most=int(packets.max()) if len(packets) else 0,
        sizes=tuple(sizes),
        shares=_shares(locality.popular(), totals.packets),
        shares_error=tuple(min(1.0, top * totals.popular_missed / max(1, totals.packets)) for top in TOPS),
        windows=totals.windows,
        window_keys=totals.window_keys / totals.windows if totals.windows else None,
        window_shares=tuple(count / window for count in totals.window_top) if window else None,
        first=first,
        distances=distances,
        bytes=totals.bytes,
    )


def _distances(totals: Totals) -> tuple[float, tuple[float, ...]]:
    """The share of packets that are the first of their key, and those with distances below 1, 2, 4 …

    Of a sample, the long distances and the first packets share what the short ones, all counted, leave.
    """
    near, far = list(totals.distance[:RECENT_BINS]), list(totals.distance[RECENT_BINS:])
    sampled = sum(far) + totals.first
    rest = totals.packets - sum(near)
    unit = rest / sampled if sampled else 0.0
    within = np.cumsum([*near, *(count * unit for count in far)]) / max(1, totals.packets)
    last = max((number for number, count in enumerate(totals.distance) if count), default=0)
    return totals.first * unit / max(1, totals.packets), tuple(map(float, within[: last + 1]))


def _shares(packets: NDArray[np.uint64], total: int) -> tuple[float, ...]:
    falling = np.sort(packets)[::-1]
    return tuple(float(falling[:top].sum()) / max(1, total) for top in TOPS)


def _active(flows: Locality, totals: Totals, span: tuple[int, int], timed: bool) -> tuple[Interval, ...]:
    """The flows of each interval; without times the unit is a packet."""
    _, first, last = flows.keys()
    unit = 1e9 if timed else 1.0
    parts = min(INTERVALS, span[1] - span[0] + 1)
    edges = [span[0] + (span[1] - span[0] + 1) * number // parts for number in range(parts)]
    begins = np.sort(np.searchsorted(edges, first, side="right") - 1)
    ends = np.sort(np.searchsorted(edges, last, side="right") - 1)
    intervals = []
    for number, edge in enumerate(edges):
        end = edges[number + 1] if number + 1 < parts else span[1]
        begun = int(np.searchsorted(begins, number, side="right"))
        ended = int(np.searchsorted(ends, number, side="left"))
        count = (begun - ended) << totals.level
        intervals.append(Interval((edge - span[0]) / unit, (end - span[0]) / unit, count))
    return tuple(intervals)


def as_data(report: TrafficReport) -> dict[str, Any]:
    """The report for JSON: hitables/schema/traffic.json."""
    return {
        "source": report.source,
        "form": report.form,
        "packets": report.packets,
        "seconds": report.seconds,
        "bytes": report.bytes,
        "skipped": report.skipped,
        "noted": report.noted,
        "cut_off_bytes": report.cut_off,
        "flows": _repetition_data(report.flows),
        "active": [{"begin": each.begin, "end": each.end, "flows": each.flows} for each in report.active],
        "bursts": [{"buckets": buckets, "length": length} for buckets, length in report.bursts],
        "rules": _repetition_data(report.rules) if report.rules else None,
        "unmatched": report.unmatched if report.rules else None,
    }


def _repetition_data(of: Repetition) -> dict[str, Any]:
    tops = [str(top) for top in TOPS]
    return {
        "count": of.keys,
        "followed": of.followed,
        "sample": of.sample,
        "packets_each": {
            "mean": of.mean,
            "most": of.most,
            "quantiles": [
                {"at": at, "packets": value} for at, value in zip(QUANTILES, of.quantiles, strict=True)
            ],
            "sizes": [
                {"least": each.least, "most": each.most, "count": each.keys, "packets": each.packets}
                for each in of.sizes
            ],
        },
        "shares": dict(zip(tops, of.shares, strict=True)),
        "shares_error": dict(zip(tops, of.shares_error, strict=True)),
        "windows": {
            "packets": WINDOW,
            "count": of.windows,
            "mean_keys": of.window_keys,
            "shares": dict(zip(tops, of.window_shares, strict=True)) if of.window_shares else None,
        },
        "stack_distance": {
            "first": of.first,
            "below": [{"distance": 1 << power, "share": share} for power, share in enumerate(of.distances)],
        },
    }
