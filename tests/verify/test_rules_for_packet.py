"""A walk through the rules near a packet is the walk through all; diff reads few rules of long chains."""

from __future__ import annotations

import pytest

import hitables
from benchmarks.cliffs_inputs import AXES
from hitables.ir import semantics
from hitables.ir.packet import Backend
from hitables.ir.rule import Rule
from hitables.simulate.boundary_packets import BoundarySampler
from hitables.simulate.interpreter import Interpreter
from hitables.verify.rules_for_packet import LongChains

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("axis", ["rules", "ipv6", "interfaces", "returns", "tables", "states", "decorated"])
@pytest.mark.parametrize("backend", list(Backend))
def test_a_packet_meets_the_same_through_the_rules_near_it(axis: str, backend: Backend) -> None:
    program = hitables.read(AXES[axis](250))
    matched = 0
    for table in program:
        chains = LongChains(table)
        for chain in table.chains:
            if chain.policy is None or len(chain.rules) < 2:
                continue
            batch = BoundarySampler(Interpreter(program, backend), table.name, chain.name).draw(200)
            for packet in (batch.packet(at) for at in range(len(batch))):
                whole = semantics.run(table, chain.name, packet, backend)
                near = semantics.run(chains.of(packet), chain.name, packet, backend)
                assert (near.verdict, near.effects) == (whole.verdict, whole.effects)
                met = [step.rule for step in whole.steps if step.outcome]
                assert [step.rule for step in near.steps if step.outcome] == met
                matched += len(met)
    assert matched


def _read(size: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Rules read by the walks of a diff in which every rule is new."""
    text = AXES["ipv6"](size)
    empty = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("-A"))
    count = 0
    original = semantics._Walker.read

    def counted(walker: semantics._Walker, rule: Rule) -> object:
        nonlocal count
        count += 1
        return original(walker, rule)

    with monkeypatch.context() as patched:
        patched.setattr(semantics._Walker, "read", counted)
        assert hitables.diff(empty, text, family=6).complete
    return count


def test_diff_of_all_rules_reads_few_rules_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (_read(size, monkeypatch) for size in (200, 800))
    assert 0 < many < few * 4**1.3
