"""Two programs must be equal, on every backend."""

from __future__ import annotations

from collections.abc import Iterator

from hitables.compiler.options import Options
from hitables.ir.choices import Malformed, backends_of
from hitables.ir.program import Chain, Program
from hitables.simulate.boundary_packets import draw_packets
from hitables.simulate.interpreter import Interner, Interpreter


def built_in(program: Program) -> Iterator[tuple[str, Chain]]:
    for table in program:
        for chain in table.chains:
            if chain.policy is not None:
                yield table.name, chain


def assert_equal(before: Program, after: Program, options: Options, count: int = 1500) -> None:
    """Both treat packets from the edges of both alike, as far as *options* promise."""
    interpreters = []
    for backend in backends_of(options.backend):
        interner = Interner()
        both = Interpreter(before, backend, interner), Interpreter(after, backend, interner)
        interpreters.append((backend, *both, interner.number("DROP")))
    for table, chain in built_in(before):
        for source in (before, after):
            batch = draw_packets(source, table, chain.name, count)  # takes most of the time
            for backend, one, two, drop in interpreters:
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
