"""The C interpreter of programs means what ir/semantics.py means."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.programs import backends, make_program, packets, programs

from hitables.core import interpreter as core
from hitables.ir import semantics
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.simulate.batch import PACKET, PacketBatch, draw, drawn_fact, drawn_facts, effects_hash, mix
from hitables.simulate.boundary_packets import draw_packets
from hitables.simulate.interpreter import OPEN_FACT, RESULT, Interpreter


def assert_agrees(program: Program, batch: PacketBatch, backend: Backend) -> None:
    interpreter = Interpreter(program, backend)
    for table in program:
        numbers = {}
        for chain in table.chains:
            for at in range(len(chain.rules)):
                numbers[chain.name, at] = len(numbers)
        for chain in table.chains:
            result = interpreter.run(table.name, chain.name, batch, hits=True, matched=3)
            hits = np.zeros(len(numbers), np.uint64)
            for at, packet in enumerate(batch):
                walk = semantics.run(table, chain.name, packet, backend)
                assert result.verdict_text(at) == walk.verdict
                assert (result.effects[at], result.count[at]) == (
                    effects_hash(walk.effects),
                    len(walk.effects),
                )
                assert result.reads[at] == len(walk.steps)
                assert bool(result.open[at] & OPEN_FACT) == bool(walk.open)
                matched = [numbers[step.chain, step.index] for step in walk.steps if step.outcome == 1]
                np.add.at(hits, matched, 1)
                assert result.matched[at].tolist() == [*matched, -1, -1, -1][:3]
                decided = result.rule[at]
                if decided >= 0:
                    last = walk.steps[-1]
                    assert numbers[last.chain, last.index] == decided
                    assert interpreter.rule(table.name, decided) == (last.chain, last.index, last.rule)
                else:
                    assert walk.verdict in ("ACCEPT", "DROP", "returns")
            assert result.hits is not None and (result.hits == hits).all()


@given(data=st.data(), backend=backends, tiny=st.booleans(), seeded=st.booleans())
def test_the_interpreter_agrees_with_semantics_on_any_packet(data, backend, tiny, seeded):
    program = data.draw(programs(tiny=tiny))
    chosen = data.draw(st.lists(packets(program.family, tiny=tiny), min_size=1, max_size=12))
    seeds = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=12, max_size=12))
    batch = PacketBatch.of(program.family, chosen, seeds[: len(chosen)] if seeded else None)
    assert_agrees(program, batch, backend)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("backend", Backend)
def test_the_interpreter_agrees_with_semantics_on_boundary_packets(seed: int, backend: Backend) -> None:
    program = make_program(random.Random(seed))
    for table in program:
        for chain in table.chains:
            batch = draw_packets(program, table.name, chain.name, 40, seed)
            assert_agrees(Program(program.family, (table,)), batch, backend)


def test_packets_and_results_have_one_layout_in_python_and_c() -> None:
    for dtype, name in ((PACKET, "interp_packet"), (RESULT, "interp_result")):
        layout = core.layout(name)
        assert layout.pop("") == (0, dtype.itemsize)
        assert dtype.fields is not None
        assert {field: (at, kind.itemsize) for field, (kind, at, *_) in dtype.fields.items()} == layout


@given(seed=st.integers(0, 2**64 - 1), what=st.integers(0, 2**64 - 1), ordinal=st.integers(0, 2**32 - 1))
def test_python_and_c_draw_alike(seed: int, what: int, ordinal: int) -> None:
    assert mix(seed) == core.mix(seed)
    assert draw(seed, what, ordinal) == core.draw(seed, what, ordinal)


@given(seeds=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8), key=st.text(max_size=8))
def test_predicates_drawn_at_once_equal_those_drawn_one_by_one(seeds: list[int], key: str) -> None:
    assert drawn_facts(np.array(seeds, np.uint64), key).tolist() == [drawn_fact(s, key, 0) for s in seeds]
