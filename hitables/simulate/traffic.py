"""The weights of rules from packets: a ClassBench trace, or a capture (from counters: analyse/weights.py).

A weight is the number of packets that matched the rule.  Packets of which none matches a rule are an error,
because their weights would all be equal without a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hitables.analyse.weights import Weights

from ..errors import FileError, HitablesError, UnknownName, Unsupported
from ..files import read_text
from ..ir.fields import Family, Field
from ..ir.packet import Backend
from ..ir.program import BUILT_IN, Program
from .batch import PacketBatch


def from_packets(
    program: Program, table: str, chain: str, batch: PacketBatch, backend: Backend, source: str
) -> Weights:
    """The weights by the packets of *batch* in built-in *chain*; HitablesError when they match no rule."""
    from .interpreter import Interpreter

    if batch.family is not program.family:
        raise HitablesError(
            f"{source}: the packets are IPv{int(batch.family)}, {program.name} is IPv{int(program.family)}"
        )
    hits = Interpreter(program, backend).run(table, chain, batch, hits=True).hits
    assert hits is not None
    if not hits.any():
        raise HitablesError(
            f"{source}: none of {len(batch)} packets matches a rule of {table} {chain} in {program.name}; "
            "was it captured there?"
        )
    counts, at = {}, 0
    for each in program.table(table).chains:
        counts[table, each.name] = tuple(map(float, hits[at : at + len(each.rules)].tolist()))
        at += len(each.rules)
    return Weights(source, counts)


def trace_batch(path: str, family: Family) -> PacketBatch:
    """The packets of a ClassBench trace, for a rule set of *family*."""
    from ..parse.trace import parse
    from .five_tuple import batch_of

    if family is not Family.IPV4:
        raise Unsupported(f"{path}: the trace is IPv4, the rule set is not")
    return batch_of(parse(read_text(path), path).headers)


def pcap_batch(path: str, family: Family, interfaces: Sequence[str] = ("", "")) -> PacketBatch:
    """The packets of *family* in a capture; *interfaces*: by which they entered and will leave."""
    from ..parse.pcap import parse
    from .five_tuple import set_interface

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
    capture = parse(data, family, path)
    if not capture.packets:
        others = f"; {capture.others} are of the other family" if capture.others else ""
        raise HitablesError(f"{path}: there is no IPv{int(family)} packet in the capture{others}")
    rows = np.repeat(np.arange(len(capture.packets)), capture.counts)
    batch = PacketBatch.of(family, capture.packets).pick(rows)
    for field, name in zip((Field.IIF, Field.OIF), interfaces, strict=True):
        if name:
            set_interface(batch, field, name)
    return batch


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
