"""The law of sflgen over lists that are told apart, or read part by part."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.crossing_rules import crossing_step
from support.lists_in_parts import drawn, text
from support.planned_updates import check
from support.scale import examples

import hitables
import sflgen
from hitables.compiler import run_trees
from hitables.ir.fields import Family
from sflgen.commands import read_commands
from sflgen.planner import start_unproved
from sflgen.settings import Settings, Strategy

pytestmark = pytest.mark.engine


@settings(max_examples=examples(10))
@given(
    seed=st.integers(0, 1 << 32),
    family=st.sampled_from(Family),
    backend=st.sampled_from(["any", "nft", "legacy"]),
    malformed=st.sampled_from(["stricter", "exact"]),
)
def test_after_every_update_the_loaded_rule_set_is_equal_to_the_list(
    seed: int, family: Family, backend: str, malformed: str
) -> None:
    rng = random.Random(seed)
    program = hitables.read(drawn(rng, family), family=family)
    chain = "list" if program.table("filter")["list"].rules else "FORWARD"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_trees.RunTrees, "FEW_READ", 0)
        plan = start_unproved(
            program, Settings(backend, malformed, delta=rng.choice([6, 32]), max_expansion=8.0)
        )
        check(plan)
        for _ in range(8):
            preferred = rng.choice([None, None, Strategy.GRAFT, Strategy.OVERLAY])
            following = crossing_step(rng, plan, chain, 0.1, preferred)
            if following is not None:
                check(following)
                plan = following


def test_a_rule_is_deleted_at_each_of_its_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_trees.RunTrees, "FEW_READ", 0)
    rng = random.Random(1)
    hosts = [".".join(str(rng.randrange(1, 224)) for _ in range(4)) for _ in range(100)]
    rules = [f"-{way} {host} -j DROP" for host in hosts for way in "sd"]
    state = start_unproved(hitables.read(text(rules)), Settings("nft")).after
    for number in (3, 60, 61):
        plan = sflgen.plan(state, read_commands(f"-D FORWARD {rules[number]}", state.master))
        check(plan)
        assert plan.deleted_in_place and 2 <= plan.text.count("\n-D ") <= 5
        state = plan.after
