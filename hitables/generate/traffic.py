"""Packets of flows that begin, send in bursts and end, in the manner of a preset (traffic_presets.py).

Traffic is generated block by block, with memory for the flows in progress alone.  The same preset, seed and
rules give the same packets, however they are cut into blocks, on machines with the same C library: its
functions log1p, pow and exp may differ in the last bit from one version to another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.captures import RECORD_ROOM, pcap_head, pcap_records
from ..core.flow_traffic import FlowTraffic
from ..core.trace_lines import NUMBER_ROOM, write_lines
from ..errors import InvalidOption
from .traffic_presets import MOST_FLOWS, PRESETS, FlowClass, Preset

if TYPE_CHECKING:
    from ..engine import Rules

# Packets of a block.
BLOCK = 1 << 16
# The hosts of traffic that is not of rules: 10.0.0.0/16 inside, and how many outside.
INSIDE, INSIDE_BITS, OUTSIDE = 10 << 24, 16, 1 << 18
SECOND = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class TrafficBlock:
    """Packets in the order of their times; the arrays are the caller's.

    headers  [packets][5] source, destination, source port, destination port, protocol
    times    [packets] ns from the begin of the traffic
    lengths  [packets] bytes of the frame
    flows    [packets] the number of the directed flow, counted from 0 as flows begin
    rules    [packets] the rule that the flow was drawn from, which matches the header; an earlier rule may
             match, too.  None: the traffic is not of rules
    """

    headers: NDArray[np.uint32]
    times: NDArray[np.int64]
    lengths: NDArray[np.uint32]
    flows: NDArray[np.uint64]
    rules: NDArray[np.uint32] | None = None


def mean_packets(flow: FlowClass) -> float:
    """The mean packets of a flow: the sum of P(packets >= k) over k."""
    least, most = int(flow.least), int(flow.most)
    if flow.most <= flow.least:
        return float(least)
    tail = (flow.least / flow.most) ** flow.shape
    beyond = np.arange(least + 1, most + 1)
    return least + float((((flow.least / beyond) ** flow.shape - tail) / (1 - tail)).sum())


def traffic(
    preset: str | Preset,
    packets: int,
    *,
    seed: int = 0,
    rules: Rules | None = None,
    both: bool | None = None,
    block: int = BLOCK,
) -> Iterator[TrafficBlock]:
    """Blocks of *block* packets, the last one shorter, of *packets* altogether.

    rules  the rule set of a preset that binds flows to rules
    both   whether both directions of a flow are there; None: as the preset has it
    InvalidOption for an unknown preset, for rules that are missing or not used, and for numbers below 1.
    """
    chosen = _preset(preset)
    if packets < 1 or block < 1:
        raise InvalidOption(f"{packets} packets in blocks of {block}: ask for at least one")
    if not 0 <= seed < 1 << 64:
        raise InvalidOption(f"the seed {seed} does not lie in 0..2^64-1")
    boxes = _boxes(chosen, rules)
    if both and chosen.of_rules:
        raise InvalidOption(f"flows of rules ({chosen.name}) have one direction")
    model, classes = _model(chosen, seed, chosen.both if both is None else both)
    source = FlowTraffic(model, classes, boxes)
    return _blocks(source, packets, block, boxes is not None)


def _blocks(source: FlowTraffic, packets: int, block: int, of_rules: bool) -> Iterator[TrafficBlock]:
    for start in range(0, packets, block):
        count = min(block, packets - start)
        headers, times = np.empty((count, 5), np.uint32), np.empty(count, np.int64)
        lengths, flows = np.empty(count, np.uint32), np.empty(count, np.uint64)
        rules = np.empty(count, np.uint32) if of_rules else None
        source.fill(headers, times, lengths, flows, rules)
        yield TrafficBlock(headers, times, lengths, flows, rules)


def _preset(preset: str | Preset) -> Preset:
    if isinstance(preset, Preset):
        return preset
    if preset not in PRESETS:
        raise InvalidOption(f"unknown preset {preset!r}; there are {', '.join(PRESETS)}")
    return PRESETS[preset]


def _boxes(preset: Preset, rules: Rules | None) -> NDArray[np.uint32] | None:
    if preset.of_rules is None:
        if rules is not None:
            raise InvalidOption(f"the flows of {preset.name} are not bound to rules: give none")
        return None
    if rules is None:
        raise InvalidOption(f"the flows of {preset.name} are bound to rules: give a filter set")
    if not len(rules.boxes):
        raise InvalidOption("flows are bound to rules, and there are none")
    if rules.boxes.shape[1] != 5:
        raise InvalidOption(f"flows are of rules of 5 fields, not of {rules.boxes.shape[1]}")
    return np.ascontiguousarray(rules.boxes)


def _model(preset: Preset, seed: int, both: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The structures of include/flow_traffic.h."""
    model: dict[str, Any] = {
        "seed": seed,
        "inside": INSIDE,
        "inside_bits": INSIDE_BITS,
        "outside": OUTSIDE,
    }
    of_rules = preset.of_rules
    if of_rules:
        model |= {
            "skew": of_rules.skew, "shift": of_rules.shift,
            "shifted": of_rules.shifted, "popular": of_rules.popular,
        }  # fmt: skip
    classes = []
    for flow in preset.classes:
        kept = flow if both else flow.one_way()
        mean = mean_packets(kept)
        between = SECOND * mean / (preset.rate * flow.share)
        gap = ((kept.burst - 1) * kept.gap + kept.pause) / kept.burst
        active = of_rules.flows if of_rules else round((mean - 1) * gap / between)
        if active > MOST_FLOWS:
            raise InvalidOption(f"flows of class {kept.name}: {active} at a time are too many")
        classes.append(
            {
                "between": 0.0 if of_rules else between,
                "active": active,
                "protocol": kept.protocol,
                "port": kept.ports[0],
                "ports": kept.ports[1],
                "small_size": kept.sizes[0],
                "large_size": kept.sizes[1],
                "scan": kept.scan,
            }
            | {
                name: getattr(kept, name)
                for name in ("shape", "least", "most", "burst", "gap", "pause", "spread", "reply", "inbound")
                + ("large", "reply_large")
            }
        )
    return model, classes


def to_pcap(blocks: Iterator[TrafficBlock]) -> Iterator[bytes | memoryview]:
    """The bytes of a pcap file with time stamps in ns: frames cut off behind the headers.

    A chunk is overwritten when the next one is made.
    """
    yield pcap_head()
    out = np.empty(0, np.uint8)
    for block in blocks:
        if len(out) < RECORD_ROOM * len(block.times):
            out = np.empty(RECORD_ROOM * len(block.times), np.uint8)
        size = pcap_records(block.headers, block.times, block.lengths, out)
        yield out.data[:size]


def to_trace(blocks: Iterator[TrafficBlock]) -> Iterator[bytes | memoryview]:
    """The lines of a trace: five columns, or, for flows of rules, seven with flags 0 and the rule from 0.

    A chunk is overwritten when the next one is made.
    """
    out = np.empty(0, np.uint8)
    for block in blocks:
        rows = block.headers
        if block.rules is not None:
            rows = np.column_stack([rows, np.zeros_like(block.rules), block.rules])
        if len(out) < rows.size * NUMBER_ROOM:
            out = np.empty(rows.size * NUMBER_ROOM, np.uint8)
        yield out.data[: write_lines(np.ascontiguousarray(rows), out)]
