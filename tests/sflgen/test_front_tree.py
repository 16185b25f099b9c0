"""Trees of the entries in front of a tree: they change no answer, and packets read fewer rules."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.crossing_rules import crossing_command, crossing_text
from support.planned_updates import check
from support.scale import examples

import hitables
from hitables.emit.chain_writer import goto
from hitables.errors import HitablesError
from hitables.ir.fields import Family
from hitables.ir.rule import Rule
from sflgen import front_tree
from sflgen.cache import Cache
from sflgen.commands import read_commands
from sflgen.edits import Edit, Op, apply, jumps_to
from sflgen.front_tree import due, is_call, plan_front_tree
from sflgen.planner import Plan, plan_unproved, start_unproved
from sflgen.proof import plan as plan_updates
from sflgen.settings import Settings, Strategy
from sflgen.state import State

FAMILIES = st.sampled_from(Family)


def updated(seed: int, family: Family, backend: str, count: int) -> Iterator[tuple[State, Plan | None]]:
    """States after random updates in front of the tree, and the plans of trees of their entries."""
    rng = random.Random(seed)
    text = crossing_text(rng, family, "FORWARD", 50, 0.1)
    state = start_unproved(hitables.read(text, family=family), Settings(backend, min_length=3)).after
    for _ in range(count):
        try:
            updates = read_commands(crossing_command(rng, state.master, "FORWARD", 0.1), state.master)
            plan = plan_updates(state, updates, rng.choice([Strategy.OVERLAY, Strategy.GRAFT]))
        except HitablesError:
            continue
        state = plan.after
        chain_id = due(state)
        tree = plan_front_tree(state, chain_id) if chain_id else None
        yield state, tree
        state = tree.after if tree is not None else state


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_tree, "ENTRIES_WORTH_A_TREE", 5)


@settings(max_examples=examples(10))
@given(seed=st.integers(0, 1 << 32), family=FAMILIES, backend=st.sampled_from(["any", "nft", "legacy"]))
def test_a_tree_of_entries_changes_no_answer(seed: int, family: Family, backend: str) -> None:
    for _, tree in updated(seed, family, backend, 25):
        if tree is not None:
            check(tree)


@settings(max_examples=examples(10))
@given(seed=st.integers(0, 1 << 32))
def test_every_entry_behind_a_new_tree_is_where_the_state_says(seed: int) -> None:
    for _, tree in updated(seed, Family.IPV4, "nft", 25):
        if tree is None:
            continue
        for (table, chain), entry_chain in tree.after.entry_chains.items():
            rules = tree.after.loaded.table(table)[chain].rules
            for entry in entry_chain.entries:
                assert jumps_to(rules[entry.row]) == entry.overlay
        assert apply(tree.before.loaded, tree.edits) == tree.after.loaded


@settings(max_examples=examples(6))
@given(seed=st.integers(0, 1 << 32))
def test_a_tree_of_entries_does_not_depend_on_the_cache(seed: int) -> None:
    for state, tree in updated(seed, Family.IPV4, "nft", 20):
        chain_id = due(state)
        if chain_id is not None:
            again = plan_front_tree(replace(state, cache=Cache()), chain_id)
            assert (again and again.text) == (tree and tree.text)


def test_trees_grow_and_take_in_older_ones() -> None:
    grown = joined = 0
    for seed in range(6):
        for state, tree in updated(seed, Family.IPV4, "nft", 40):
            if tree is None:
                continue
            grown += 1
            calls = [
                [
                    is_call(each.loaded.table(table)[chain].rules[entry.row], entry)
                    for (table, chain), entry_chain in each.entry_chains.items()
                    for entry in entry_chain.entries
                ].count(True)
                for each in (state, tree.after)
            ]
            joined += calls[0] == calls[1] > 0
    assert grown > 5 and joined > 2


@pytest.mark.parametrize("last", ["DROP", "RETURN"])
def test_a_listed_jump_for_all_packets_is_no_call_of_a_tree_of_entries(last: str) -> None:
    """The user chain, which decides or comes back, has a tree of its own, whose chains have numbers."""
    lists = "".join(
        f"-A {chain} {option} 10.{n}.0.0/16 -j {'ACCEPT' if n % 2 else other}\n"
        for chain, option, other in (("FORWARD", "-s", "DROP"), ("USER", "-d", "REJECT"))
        for n in range(30)
    )
    text = f"*filter\n:FORWARD ACCEPT\n:USER -\n{lists}-A USER -j {last}\nCOMMIT\n"
    state = start_unproved(hitables.read(text), Settings("nft")).after
    for command in ["-j USER", *(f"-s 10.{n}.7.0/24 -j DROP" for n in range(0, 24, 2))]:
        following = plan_updates(
            state, read_commands(f"-I FORWARD 1 {command}", state.master), Strategy.OVERLAY
        )
        check(following)
        state = following.after
    chain_id = due(state)
    assert chain_id is not None
    tree = plan_front_tree(state, chain_id)
    assert tree is not None
    check(tree)


def test_an_overlay_stays_while_a_tree_of_entries_enters_it() -> None:
    """Of an entry with several spots, a tree of entries may have taken the one in front."""
    rng = random.Random(1)
    state = start_unproved(
        hitables.read(crossing_text(rng, Family.IPV4, "FORWARD", 50, 0.0)), Settings("nft", min_length=3)
    ).after
    plan = plan_updates(state, read_commands("-I FORWARD 40 -j DROP", state.master), Strategy.OVERLAY)
    before, after = (each.loaded.table("filter") for each in (state, plan.after))
    (overlay,) = (chain.name for chain in after.chains if chain.name not in before)
    copy = Rule((), goto(overlay))
    in_tree = apply(
        plan.after.loaded,
        [Edit(Op.NEW, "filter", "sf999"), Edit(Op.APPEND, "filter", "sf999", 0, copy)],
    )
    copied = replace(plan.after, loaded=in_tree)
    for each, stays in ((plan.after, False), (copied, True)):
        last = plan_unproved(each, read_commands("-D FORWARD 40", each.master), Strategy.OVERLAY)
        assert (overlay in last.after.loaded.table("filter")) is stays
