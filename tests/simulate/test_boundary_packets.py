"""Boundary packets are possible, reach all rules, and are the same for equal seeds."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plain_packets import plain_packet, points_of
from support.programs import make_program

from hitables.ir.fields import INTERFACES, STATES, TCP, UDP, Family, Field, Fragment, interface_number, top
from hitables.ir.headers import inconsistency, is_malformed
from hitables.ir.hooks import NO_IIF, NO_OIF
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend
from hitables.ir.program import Chain, Program, Table
from hitables.ir.rule import Kind, Match, Role, Rule, Target
from hitables.ir.rule import Test as FieldTest
from hitables.simulate.batch import PacketBatch
from hitables.simulate.boundary_packets import BoundarySampler, draw_packets
from hitables.simulate.boundary_values import Catalog
from hitables.simulate.interpreter import Interpreter

pytestmark = pytest.mark.engine
ACCEPT = Target("ACCEPT", Kind.VERDICT, "ACCEPT")


def match(*tests: tuple[Field, Values], **more: bool) -> Match:
    return Match("", (), Role.SPACE, "k", tuple(FieldTest(*test) for test in tests), **more)


def chain_of(*rules: Rule, name: str = "INPUT", family: Family = Family.IPV4) -> Program:
    return Program(family, (Table("filter", (Chain(name, "DROP", rules),)),))


@pytest.mark.parametrize("seed", range(20))
def test_every_packet_is_possible_at_its_hook(seed: int) -> None:
    program = make_program(random.Random(seed))
    for table in program:
        for chain in table.chains:
            for packet in draw_packets(program, table.name, chain.name, 60, seed):
                assert inconsistency(packet) is None
                values = packet.values
                if chain.policy is not None:
                    if chain.name != "POSTROUTING":  # there forwarded packets have both
                        assert (values[Field.IIF] == 0) == (chain.name in NO_IIF)
                    assert (values[Field.OIF] == 0) == (chain.name in NO_OIF)
                    if chain.name == "INPUT" and program.family is Family.IPV4:
                        assert values[Field.FRAG] == Fragment.WHOLE
                assert values[Field.IIF] or values[Field.OIF]
                assert values[Field.IIF] or Field.MAC not in values
                assert all(value <= top(field, program.family) for field, value in values.items())


@pytest.mark.parametrize("family", Family)
def test_all_classes_of_packets_occur(family: Family) -> None:
    port = match((Field.PROTO, Values.only(TCP)), (Field.DPORT, Values.of((100, 200))))
    program = chain_of(Rule((port,), ACCEPT), name="FORWARD", family=family)
    packets = list(draw_packets(program, "filter", "FORWARD", 4000))
    assert {packet.values[Field.FRAG] for packet in packets} == set(Fragment)
    assert {packet.values[Field.STATE] for packet in packets} == set(range(len(STATES)))
    assert {packet.l4_bytes for packet in packets} >= {0, 2, 5, 10, 30, 64}
    assert {99, 100, 200, 201} <= {packet.values.get(Field.DPORT) for packet in packets}
    assert {99, 100, 200, 201} <= {packet.raw.get(Field.DPORT) for packet in packets}
    assert {UDP, 47, 253} <= {packet.values.get(Field.PROTO) for packet in packets}
    assert any(packet.bad_offset for packet in packets) and any(packet.offset_one for packet in packets)
    assert any(packet.cut_short for packet in packets) == (family is Family.IPV6)
    assert any(Field.MAC in packet.values for packet in packets)
    assert any(Field.MAC not in packet.values for packet in packets)


def test_the_same_seed_draws_the_same_packets_and_another_does_not() -> None:
    program = make_program(random.Random(5))
    table = program.tables[0]
    first, again, other = (draw_packets(program, table.name, table.chains[0].name, 200, s) for s in (1, 1, 2))
    assert (first.rows == again.rows).all() and not (first.rows == other.rows).all()
    assert len(first) == 200


def test_few_packets_for_many_rules_and_none_at_all() -> None:
    rules = [Rule((match((Field.SRC, Values.only(n))),), ACCEPT) for n in range(0, 2000, 2)]
    for count in (0, 1, 2, 7):
        assert len(draw_packets(chain_of(*rules), "filter", "INPUT", count)) == count
    assert len(draw_packets(chain_of(), "filter", "INPUT", 5)) == 5


def test_a_rule_after_many_that_match_its_packets_is_reached() -> None:
    """Only ports that no rule before takes reach the last rule, and only from one address."""
    ports = [
        match((Field.PROTO, Values.only(TCP)), (Field.DPORT, Values.of((n, n + 999))))
        for n in range(0, 65000, 1000)
    ]
    rules = [Rule((each,), ACCEPT) for each in ports]
    rules.append(Rule((match((Field.SRC, Values.of((0, (1 << 31) - 1)))),), ACCEPT))
    last = match((Field.PROTO, Values.only(TCP)), (Field.SRC, Values.of((1 << 30, 3 << 30))))
    sampler = BoundarySampler(
        Interpreter(chain_of(*rules, Rule((last,), ACCEPT)), Backend.LEGACY), "filter", "INPUT"
    )
    sampler.draw(600)
    assert sampler.reached == set(range(len(rules) + 1))


def test_predicates_on_the_path_to_a_rule_are_true_and_those_before_it_false() -> None:
    facts = [Match("set", (), Role.CONSTANT, f"set {n}") for n in range(12)]
    rules = [Rule((each,), ACCEPT) for each in facts[:10]] + [Rule((facts[10], facts[11]), ACCEPT)]
    sampler = BoundarySampler(Interpreter(chain_of(*rules), Backend.NFT), "filter", "INPUT")
    sampler.draw(400)
    assert sampler.reached == set(range(11))


def test_nearly_every_rule_is_reached_that_plain_packets_reach() -> None:
    """Plain packets are drawn by other code; many more of them."""
    plain = reached = 0
    for seed in range(12):
        rng = random.Random(seed)
        program = make_program(rng)
        points = points_of(program)
        interpreter = Interpreter(program, Backend.LEGACY)
        for table in program:
            for chain in table.chains:
                if chain.policy is None:
                    continue
                drawn = [plain_packet(rng, points, program.family, chain.name) for _ in range(600)]
                batch = PacketBatch.of(program.family, drawn, [rng.getrandbits(64) for _ in drawn])
                hits = interpreter.run(table.name, chain.name, batch, hits=True).hits
                assert hits is not None
                sampler = BoundarySampler(interpreter, table.name, chain.name, seed)
                sampler.draw(max(50, 8 * len(sampler.numbers)))
                matched = set(np.flatnonzero(hits).tolist())
                plain += len(matched)
                reached += len(matched & sampler.reached)
    assert plain > 90
    assert reached >= 0.97 * plain


@given(data=st.data(), family=st.sampled_from(Family), field=st.sampled_from(Field), seed=st.integers(0, 99))
def test_values_are_inside_or_just_outside(
    data: st.DataObject, family: Family, field: Field, seed: int
) -> None:
    limit = top(field, family)
    ends = data.draw(
        st.lists(st.tuples(st.integers(0, limit), st.integers(0, limit)), min_size=1, max_size=4)
    )
    step = 256 if field in INTERFACES else 1
    pairs = [(min(pair) // step * step, max(pair) // step * step + step - 1) for pair in ends]
    values = Values.of(*pairs)
    catalog = Catalog(field, family)
    number = catalog.number(values)
    outside = np.arange(40) % 2 == 0
    high, low = catalog.draw(np.random.default_rng(seed), np.full(40, number), outside)
    for point, out in zip(
        ((int(h) << 64) + int(lo) for h, lo in zip(high, low, strict=True)), outside, strict=True
    ):
        if not out or values.pairs == ((0, limit),):
            assert point in values
        else:
            assert point in Values.of(*((max(0, a - step), b + step) for a, b in values.pairs))
            assert point <= limit


def test_interfaces_drawn_are_names() -> None:
    prefix = Values.of((interface_number("eth"), interface_number("eth") | (1 << 104) - 1))
    rules = [Rule((match((Field.IIF, prefix)),), ACCEPT)]
    names = {packet.values[Field.IIF] for packet in draw_packets(chain_of(*rules), "filter", "INPUT", 300)}
    assert all(name & 0xFF == 0 for name in names)  # 15 bytes and a zero
    assert interface_number("eth") in names
    assert any(interface_number(f"eth{digit}") in names for digit in range(10))


def test_malformed_is_the_same_in_batches_and_packets() -> None:
    for seed in range(6):
        program = make_program(random.Random(seed))
        table = program.tables[0]
        batch = draw_packets(program, table.name, table.chains[0].name, 300, seed)
        assert batch.malformed().tolist() == [is_malformed(packet) for packet in batch]
