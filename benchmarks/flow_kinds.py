"""Which traffic a flow table helps (section 5 of the flow state paper): classes of flows, and burst lengths.

Flows of one class at a time, at the rate that they have in their preset; then the packets of `uplink` with
bursts some times as long, so that only k differs.  A table that is small for the traffic: chains are purged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables.generate.traffic import traffic
from hitables.generate.traffic_presets import PRESETS, Preset

from .doc_tables import markdown

BUCKETS = 1 << 10
# Times the mean length of a burst.
STRETCHED = (0.25, 0.5, 1, 2, 4, 8)

Headers = npt.NDArray[np.uint32]
Row = dict[str, Any]
Measure = Callable[..., Row]


def alone(preset: Preset, name: str) -> Preset:
    """The flows of one class, as many a second as the preset has."""
    (flow,) = (each for each in preset.classes if each.name == name)
    return replace(preset, name=name, rate=preset.rate * flow.share, classes=(replace(flow, share=1.0),))


def stretched(preset: Preset, times: float) -> Preset:
    """The same flows in bursts *times* as long, one packet at least."""
    classes = tuple(replace(each, burst=max(1.0, times * each.burst)) for each in preset.classes)
    return replace(preset, name=f"{preset.name}, bursts x {times:g}", classes=classes)


def headers_of(preset: Preset, packets: int) -> Headers:
    return np.concatenate([block.headers for block in traffic(preset, packets, seed=1)])


def kinds(
    packets: int, schemes: tuple[str, ...], bursts: Callable[[Headers], dict[int, float]],
    counts: Measure, timed: Measure, runs: int,
) -> Iterator[Row]:  # fmt: skip
    """Comparisons and ns of each scheme; *bursts*, *counts* and *timed* are those of flow_tables."""
    department, uplink = PRESETS["department"], PRESETS["uplink"]
    chosen: list[tuple[str, Preset, float | None]] = [
        ("class", alone(department, each.name), None) for each in department.classes
    ]
    chosen += [("bursts", stretched(uplink, times), times) for times in STRETCHED]
    for part, preset, times in chosen:
        headers = headers_of(preset, packets)
        k = bursts(headers)[BUCKETS]
        for scheme in schemes:
            options: Row = {"scheme": scheme, "buckets": BUCKETS, "hash": "zobel"}
            row = {"part": part, "preset": preset.name, "times": times, "k": k, **options}
            yield row | counts(headers, **options) | timed(headers, runs, **options)


def table(rows: list[Row]) -> str:
    """Keys compared beyond the first of hits, and ns, per packet, by class and by length of bursts."""
    lines = []
    for preset in dict.fromkeys(row["preset"] for row in rows):
        there = [row for row in rows if row["preset"] == preset]
        inserts = there[0]["inserts"] / there[0]["packets"]
        cells = [f"{row['beyond_first'] / row['packets']:.2f} / {row['ns']:.0f}" for row in there]
        lines.append([preset, f"{there[0]['k']:.1f}", f"{inserts:.0%}", *cells])
    schemes = dict.fromkeys(row["scheme"] for row in rows)
    return markdown(("packets", "k", "new flows", *schemes), lines)
