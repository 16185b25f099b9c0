"""The weights of rules from packets: a ClassBench trace, or a capture (from counters: analyse/weights.py).

A weight is the number of packets that matched the rule.  Packets of which none matches a rule are an error,
because their weights would all be equal without a reason.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hitables.analyse.weights import Packets, Weights

from ..errors import HitablesError, UnknownName, Unsupported
from ..files import read_text
from ..ir.fields import Family, Field
from ..ir.packet import Backend
from ..ir.program import BUILT_IN, Program
from .batch import HALF, PacketBatch

# Packets of a chain of which the headers are kept, about (twice as many at most).
KEPT = 16_384


def from_packets(
    program: Program, table: str, chain: str, batch: PacketBatch, backend: Backend, source: str
) -> Weights:
    """The weights by the packets of *batch* in built-in *chain*; HitablesError when they match no rule."""
    from .interpreter import Interpreter

    if batch.family is not program.family:
        raise HitablesError(
            f"{source}: the packets are IPv{int(batch.family)}, {program.name} is IPv{int(program.family)}"
        )
    interpreter = Interpreter(program, backend)
    result = interpreter.run(table, chain, batch, hits=True)
    hits = result.hits
    assert hits is not None
    if not hits.any():
        raise HitablesError(
            f"{source}: none of {len(batch)} packets matches a rule of {table} {chain} in {program.name}; "
            "was it captured there?"
        )
    counts, packets, at = {}, {}, 0
    for each in program.table(table).chains:
        end = at + len(each.rules)
        counts[table, each.name] = tuple(map(float, hits[at:end].tolist()))
        came = (result.rule >= at) & (result.rule < end) | (each.name == chain)
        if each.rules and came.any():
            packets[table, each.name] = _headers(batch, np.flatnonzero(came))
        at = end
    return Weights(source, counts, packets)


def _headers(batch: PacketBatch, which: npt.NDArray[np.intp]) -> Packets:
    """The headers of the packets *which* of *batch*; of many, some at equal distances."""
    rows = batch.rows[which[:: max(1, len(which) // KEPT)]]
    words = np.zeros((len(rows), len(Field), 2), np.uint64)
    words[:, :, 1] = rows["low"]
    for field, at in HALF.items():
        words[:, field, 0] = rows["high"][:, at]
    return Packets(words, rows["present"].copy())


def trace_batch(path: str, family: Family) -> PacketBatch:
    """The packets of a ClassBench trace, for a rule set of *family*."""
    from ..parse.trace import parse
    from .five_tuple import batch_of

    if family is not Family.IPV4:
        raise Unsupported(f"{path}: the trace is IPv4, the rule set is not")
    return batch_of(parse(read_text(path), path).headers)


def pcap_batch(path: str, family: Family) -> tuple[PacketBatch, str]:
    """The packets of *family* in a capture ("-": standard input), and what was left out ("": nothing)."""
    from ..parse.captured_packets import count_packets
    from ..parse.packet_stream import open_capture

    capture = count_packets(open_capture(path), family)
    losses = capture.losses()
    if not capture.packets:
        reasons = f": {losses}" if losses else ""
        raise HitablesError(f"{capture.source}: there is no IPv{int(family)} packet in the capture{reasons}")
    rows = np.repeat(np.arange(len(capture.packets)), capture.counts)
    return PacketBatch.of(family, capture.packets).pick(rows), losses


def busiest_chain(program: Program, chain: str | None = None, table: str = "filter") -> str:
    """*chain*, which must be a built-in chain of *table*; without it, the built-in chain of most rules."""
    try:
        chains = program.table(table)
    except KeyError:
        raise UnknownName(f"{program.name}: there is no table {table} for the packets") from None
    built_in = [name for name in BUILT_IN[table] if name in chains]
    if chain is None:
        if not built_in:
            raise UnknownName(f"{program.name}: table {table} has no built-in chain")
        return max(built_in, key=lambda name: len(chains[name].rules))
    if chain not in built_in:
        raise UnknownName(f"{program.name}: table {table} has no built-in chain {chain}")
    return chain
