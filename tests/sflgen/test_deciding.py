"""The law of sflgen where rules jump to user chains that decide, and these chains are updated."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.crossing_rules import calls_trees, crossing_command, crossing_text
from support.planned_updates import check
from support.scale import examples

import hitables
from hitables.build.grow import grow
from hitables.errors import HitablesError
from hitables.ir.fields import Family
from sflgen.commands import read_commands
from sflgen.deciding import Deciding
from sflgen.local_proof import holds_locally
from sflgen.planner import plan_unproved, start_unproved
from sflgen.proof import plan, prove_plan, start
from sflgen.settings import Settings, Strategy
from sflgen.state import State

CHAINS = (
    "-A LOGDROP -m limit --limit 5/min -j LOG --log-prefix x\n-A LOGDROP -j DROP\n-A OUTER -p udp -g LOGDROP\n"
    "-A OUTER -j LOGDROP\n"
)

# What makes a chain cease to decide, or decide again.
OF_CHAINS = (
    "-D LOGDROP 2",
    "-R LOGDROP 2 -p tcp -j DROP",
    "-I LOGDROP 1 -p tcp -m tcp --dport 22 -j RETURN",
    "-F LOGDROP",
    "-A LOGDROP -j DROP",
    "-D OUTER 2",
    "-D OUTER 1",
    "-A OUTER -j LOGDROP",
)


@pytest.fixture(autouse=True)
def grouped() -> Iterator[None]:
    """Force groups where one tree may be cheaper."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hitables.compiler.tables.grow", functools.partial(grow, grouping=1))
        yield


def with_deciding_chains(seed: int, count: int = 60) -> hitables.Program:
    """Rules that cross; those that would drop a packet jump to LOGDROP, or by way of OUTER."""
    rng = random.Random(seed)
    text = crossing_text(rng, Family.IPV4, "FORWARD", count, 0.0).replace("-j REJECT", "-j OUTER")
    text = text.replace("-j DROP", "-j LOGDROP").replace(":cross", ":LOGDROP -\n:OUTER -\n:cross")
    return hitables.read(text.replace("COMMIT", f"{CHAINS}COMMIT"))


def updated(state: State, *commands: str) -> State:
    return plan(state, read_commands("\n".join(commands), state.master)).after


@settings(max_examples=examples(8))
@given(seed=st.integers(0, 1 << 32))
def test_trees_stay_equal_to_the_list_while_chains_that_they_enter_decide_and_cease_to(seed: int) -> None:
    rng = random.Random(seed)
    state = start_unproved(with_deciding_chains(seed), Settings("nft", max_expansion=20.0)).after
    for _ in range(8):
        command = rng.choice(OF_CHAINS)
        if rng.random() < 0.5:
            command = crossing_command(rng, state.master, "FORWARD", 0.0).replace("-j DROP", "-j LOGDROP")
        strategy = rng.choice([None, Strategy.GRAFT])
        try:
            updates = read_commands(command, state.master)
            following = plan(state, updates, strategy)
        except HitablesError:
            continue  # the chain has no such rule
        check(following)
        state = following.after


def test_a_chain_that_ceases_to_decide_folds_the_trees_that_enter_it() -> None:
    state = start(with_deciding_chains(1, 150), Settings("nft", max_expansion=20.0)).after
    assert calls_trees(state.loaded, "FORWARD")
    for command in ("-D LOGDROP 2", "-I LOGDROP 1 -p tcp -j RETURN", "-F LOGDROP"):
        edits = read_commands(command, state.master)
        following = plan_unproved(state, edits, Strategy.GRAFT, delete_in_place=True)
        assert ("filter", "FORWARD", Strategy.FOLD) in following.chosen
        check(following)
    for command in ("-D LOGDROP 1", "-I LOGDROP 1 -p tcp -j ACCEPT", "-A LOGDROP -j RETURN"):
        following = plan_unproved(state, read_commands(command, state.master), Strategy.GRAFT)
        assert not following.folds
        check(following)


def test_the_local_proof_refuses_a_patch_by_which_a_chain_ceases_to_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = start(with_deciding_chains(1, 150), Settings("nft", max_expansion=20.0)).after
    edits = read_commands("-D LOGDROP 2", state.master)
    monkeypatch.setattr("sflgen.planner.relying", lambda *_: ())
    wrong = plan_unproved(state, edits, Strategy.GRAFT)
    assert not wrong.folds and not holds_locally(wrong)
    with pytest.raises(hitables.NotEquivalent):
        prove_plan(wrong)


def test_a_chain_decides_if_no_packet_leaves_it_without_a_verdict() -> None:
    text = "*filter\n:FORWARD ACCEPT\n:a -\n:b -\n:c -\n:d -\n:e -\n:mine -\n" + "\n".join(
        (
            "-A a -p tcp -j ACCEPT\n-A a -j DROP",
            "-A b -p udp -j RETURN\n-A b -j DROP",
            "-A c -p udp -g a\n-A c -j LOG\n-A c -g a",
            "-A d -p udp -g b\n-A d -j DROP",
            "-A e -p udp -j DROP",
            "-A mine -j DROP",
            "COMMIT\n",
        )
    )
    table = hitables.read(text).table("filter")
    deciding = Deciding(table, Settings(foreign=("mine",)))
    assert [name for name in "abcde" if name in deciding] == ["a", "c"]
    assert "mine" not in deciding and "FORWARD" not in deciding and "absent" not in deciding
