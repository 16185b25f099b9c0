"""Updates behind the rule that decides packets of established connections stand behind it, too."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.planned_updates import check
from support.scale import examples

import hitables
import sflgen
from hitables.ir.rule import Rule
from sflgen.commands import read_commands
from sflgen.edits import rule_key
from sflgen.planner import start_unproved
from sflgen.settings import Settings
from sflgen.state import State

pytestmark = pytest.mark.engine

STATE = "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
FRONT = ["-i lo -j ACCEPT", "-m conntrack --ctstate INVALID -j DROP", '-p tcp -j LOG --log-prefix "tcp "']


def rule(rng: random.Random) -> str:
    side, target = rng.choice("sd"), rng.choice(["ACCEPT", "DROP", "REJECT", "LOG"])
    ports = rng.choice(["", f"-p tcp --dport {rng.randrange(1, 30)} "])
    return f"-{side} 10.{rng.randrange(4)}.{rng.randrange(8)}.0/{rng.choice((16, 22, 24))} {ports}-j {target}"


def begun(rng: random.Random, front: list[str], backend: str) -> State:
    lines = [*front, STATE, *(rule(rng) for _ in range(60))]
    text = "\n".join(["*filter", ":FORWARD DROP", *(f"-A FORWARD {line}" for line in lines), "COMMIT", ""])
    return start_unproved(hitables.read(text), Settings(backend)).after


def updated(state: State, command: str) -> State:
    plan = sflgen.plan(state, read_commands(command, state.master))
    check(plan)
    return plan.after


def first(state: State, count: int) -> list[object]:
    rules: tuple[Rule, ...] = state.loaded.table("filter")["FORWARD"].rules
    return [rule_key(each) for each in rules[:count]]


@settings(max_examples=examples(12))
@given(
    seed=st.integers(0, 1 << 32), front=st.integers(0, 3), backend=st.sampled_from(["any", "nft", "legacy"])
)
def test_after_every_update_the_loaded_rule_set_is_equal_to_the_list(
    seed: int, front: int, backend: str
) -> None:
    rng = random.Random(seed)
    state = begun(rng, rng.sample(FRONT, front), backend)
    for _ in range(10):
        count = len(state.master.table("filter")["FORWARD"].rules)
        at = rng.choice([rng.randrange(1, front + 3), rng.randrange(1, count)])
        command = rng.choice([f"-D FORWARD {at}", f"-I FORWARD {at} {rule(rng)}", f"-I FORWARD {at} {STATE}"])
        state = updated(state, command)


@pytest.mark.parametrize("front", range(3))
def test_updates_behind_the_rule_leave_it_in_front(front: int) -> None:
    rng = random.Random(3)
    state = begun(rng, FRONT[:front], "nft")
    before = first(state, front + 1)
    for _ in range(6):
        state = updated(state, f"-I FORWARD {rng.randrange(front + 2, 50)} {rule(rng)}")
        assert first(state, front + 1) == before
    state = updated(state, "-I FORWARD 1 -s 192.0.2.1 -j DROP")
    assert first(state, front + 2)[1:] == before
    state = updated(state, "-I FORWARD 30 -s 10.0.0.0/8 -j DROP")
    state = updated(state, "-D FORWARD 1")
