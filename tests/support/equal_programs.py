"""Two programs must be equal, on every backend."""

from __future__ import annotations

from collections.abc import Iterator

from hitables.compiler.compile import Options
from hitables.ir.choices import Malformed
from hitables.ir.packet import Backend
from hitables.ir.program import Chain, Program
from hitables.simulate.boundary_packets import draw_packets
from hitables.simulate.interpreter import Interner, Machine

BACKENDS = {"any": [Backend.LEGACY, Backend.NFT], "legacy": [Backend.LEGACY], "nft": [Backend.NFT]}


def built_in(program: Program) -> Iterator[tuple[str, Chain]]:
    for table in program:
        for chain in table.chains:
            if chain.policy is not None:
                yield table.name, chain


def assert_equal(before: Program, after: Program, options: Options, count: int = 1500) -> None:
    """Both treat packets from the edges of both alike, as far as *options* promise."""
    machines = []
    for backend in BACKENDS[options.backend]:
        interner = Interner()
        both = Machine(before, backend, interner), Machine(after, backend, interner)
        machines.append((backend, *both, interner.number("DROP")))
    for table, chain in built_in(before):
        for source in (before, after):
            batch = draw_packets(source, table, chain.name, count)  # takes most of the time
            for backend, one, two, drop in machines:
                a, b = one.run(table, chain.name, batch), two.run(table, chain.name, batch)
                different = (a.verdict != b.verdict) | (a.effects != b.effects)
                if options.malformed is Malformed.STRICTER:
                    different &= ~(batch.malformed() & (b.verdict == drop))
                assert not different.any(), (
                    backend,
                    table,
                    chain.name,
                    batch.packet(int(different.argmax())),
                )
