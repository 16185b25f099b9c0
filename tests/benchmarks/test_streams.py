"""Sets and updates of the benchmark of streams, and trees grown from what they become."""

from __future__ import annotations

import pytest

import sflgen
from benchmarks.public_sets import SHARED
from benchmarks.streams import CHAIN, OwnUpdates, processor_times, public_set
from hitables.compiler.compile import compile_rules
from hitables.ir.packet import Backend
from hitables.simulate.boundary_packets import BoundarySampler
from hitables.simulate.interpreter import Interpreter
from sflgen.edits import apply

pytestmark = pytest.mark.skipif(not SHARED.exists(), reason="the public sets are missing")


def test_a_decorated_list_keeps_its_groups_when_its_sample_has_many_wide_rules() -> None:
    case = public_set("fw1_10K", "est+log", 1)
    updates, program = OwnUpdates(case, 1), case.program
    for _ in range(288):  # now the groups of the sample exceed its budget, and those of the list keep theirs
        program = apply(program, sflgen.read_commands(updates.next(), program))
    options = sflgen.Settings(backend="nft").options("filter", {CHAIN})
    compiled = compile_rules(program, options).program
    batch = BoundarySampler(Interpreter(program, Backend.NFT), "filter", CHAIN, seed=1).draw(1000)
    assert Interpreter(compiled, Backend.NFT).run("filter", CHAIN, batch).reads.mean() < 60


def test_processor_times_are_of_proved_updates() -> None:
    row = processor_times(public_set("acl1_1K", "plain", 1), 5, 1)
    times = row["processor_ms"]
    assert 0 < times["median"] <= times["p95"] <= times["max"]
    assert len(row["longest"]) == 5 and row["longest"][0][0] == round(times["max"], 1)
    assert 0 < row["reads"]["folded"] <= 1.2 * row["reads"]["reads"]
