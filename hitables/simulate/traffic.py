"""How much each rule weighs: from the counters of a saved rule set, a ClassBench trace, or a capture.

A weight is how many packets matched the rule.  A source that says nothing about the rule set is refused:
weights of nothing would look like weights.
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
    """From packets that go through built-in *chain*; HitablesError when they match no rule."""
    from .interpreter import Machine

    if batch.family is not program.family:
        raise HitablesError(
            f"{source}: the packets are IPv{int(batch.family)}, {program.name} is IPv{int(program.family)}"
        )
    hits = Machine(program, backend).run(table, chain, batch, hits=True).hits
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
    """The packets of *family* in a capture; *interfaces*: where they came in and go out."""
    from ..parse.pcap import parse
    from .five_tuple import set_interface

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
    capture = parse(data, family, path)
    if not capture.packets:
        told = f"; {capture.others} are of the other family" if capture.others else ""
        raise HitablesError(f"{path}: there is no IPv{int(family)} packet in the capture{told}")
    rows = np.repeat(np.arange(len(capture.packets)), capture.counts)
    batch = PacketBatch.of(family, capture.packets).pick(rows)
    for field, name in zip((Field.IIF, Field.OIF), interfaces, strict=True):
        if name:
            set_interface(batch, field, name)
    return batch


def busiest_chain(program: Program, chain: str | None = None, table: str = "filter") -> str:
    """*chain*, which must be a built-in one of *table*; when left out, the one that has most rules."""
    try:
        found = program.table(table)
    except KeyError:
        raise UnknownName(f"{program.name}: there is no table {table} for the packets") from None
    built_in = [name for name in BUILT_IN[table] if name in found]
    if chain is None:
        if not built_in:
            raise UnknownName(f"{program.name}: table {table} has no built-in chain")
        return max(built_in, key=lambda name: len(found[name].rules))
    if chain not in built_in:
        raise UnknownName(f"{program.name}: table {table} has no built-in chain {chain}")
    return chain
