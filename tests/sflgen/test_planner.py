"""The law of sflgen: after every update the loaded rule set has the effect of the rule list."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands import make_updates
from support.planned_updates import check, favoured, keys, prefixes
from support.rule_texts import make_text
from support.scale import examples

import hitables
from hitables.errors import HitablesError, ParseError, Unsupported
from hitables.ir.fields import Family
from hitables.verify.question import Equal
from sflgen.cache import Cache
from sflgen.chain_names import ChainNames
from sflgen.commands import read_commands
from sflgen.edits import apply
from sflgen.least_edits import sync
from sflgen.planner import Plan, fold_unproved, plan_unproved, start_unproved
from sflgen.proof import verify
from sflgen.settings import Settings, Strategy
from sflgen.state import State, bare


@settings(max_examples=examples(16))
@given(
    seed=st.integers(0, 1 << 32),
    family=st.sampled_from(Family),
    backend=st.sampled_from(["any", "nft", "legacy"]),
    malformed=st.sampled_from(["stricter", "exact"]),
    delta=st.sampled_from([3, 8, 32]),
)
def test_after_every_update_the_loaded_rule_set_is_equal_to_the_list(
    seed: int, family: Family, backend: str, malformed: str, delta: int
) -> None:
    rng = random.Random(seed)
    program = hitables.read(make_text(rng, family, rules=rng.randrange(10, 90), memory=0.15), family=family)
    plan = start_unproved(program, Settings(backend, malformed, delta, min_length=3))
    check(plan)
    state = plan.after
    for _ in range(8):
        _, updates, master = make_updates(rng, state.master, rng.choice([1, 1, 1, 2, 5]), favoured(state))
        try:
            plan = plan_unproved(
                state, updates, rng.choice([None, None, None, Strategy.OVERLAY, Strategy.FOLD])
            )
        except Unsupported:
            continue  # chains would nest too deep
        check(plan)
        assert plan.after.master == master
        state = plan.after


@settings(max_examples=examples(8))
@given(seed=st.integers(0, 1 << 32))
def test_the_cache_does_not_change_plans(seed: int) -> None:
    """A plan is the same for a state read from a file, with an empty cache."""
    rng = random.Random(seed)
    state = start_unproved(hitables.read(make_text(rng, rules=70, memory=0.1)), Settings(min_length=3)).after
    for _ in range(10):
        _, updates, _ = make_updates(rng, state.master, 1, favoured(state))
        fresh = replace(state, cache=Cache())
        try:
            plan = plan_unproved(state, updates)
        except Unsupported:
            with pytest.raises(Unsupported):
                plan_unproved(fresh, updates)
            continue
        assert plan.text == plan_unproved(fresh, updates).text
        state = plan.after


@settings(max_examples=examples(12))
@given(seed=st.integers(0, 1 << 32))
def test_sync_turns_one_list_into_another(seed: int) -> None:
    rng = random.Random(seed)
    old, new = (hitables.read(make_text(rng, rules=40, chains=rng.randrange(4))) for _ in "ab")
    edits = sync(old, new)
    after = keys(apply(old, edits))
    assert after == keys(new)
    plan = plan_unproved(start_unproved(old, Settings(min_length=3)).after, edits)
    check(plan)
    assert sync(new, new) == []


def after(state: State, *commands: str, strategy: Strategy | None = None) -> Plan:
    plan = plan_unproved(state, read_commands("\n".join(commands), state.master), strategy)
    check(plan)
    return plan


@pytest.fixture(scope="module")
def compiled() -> State:
    plan = start_unproved(prefixes(300), Settings(backend="nft"))
    check(plan)
    assert ("filter", "INPUT") in plan.after.layouts
    return plan.after


def chosen(plan: Plan) -> list[Strategy]:
    return [strategy for _, _, strategy in plan.chosen]


def test_a_ban_is_one_line(compiled: State) -> None:
    plan = after(compiled, "-I INPUT 1 -s 192.0.2.7 -j DROP")
    assert plan.text == "*filter\n-I INPUT -s 192.0.2.7 -j DROP\nCOMMIT\n"


def test_a_rule_in_the_middle_is_a_few_lines_of_its_region(compiled: State) -> None:
    plan = after(compiled, "-I INPUT 150 -s 10.0.0.0/13 -p tcp --dport 1:100 -j DROP")
    assert chosen(plan) == [Strategy.GRAFT]
    assert len(plan.edits) < 20
    plan = after(
        compiled, "-I INPUT 150 -s 10.0.0.0/13 -p tcp --dport 1:100 -j DROP", strategy=Strategy.OVERLAY
    )
    assert chosen(plan) == [Strategy.OVERLAY]
    assert len(plan.edits) < 20


def test_a_lifted_ban_leaves_nothing(compiled: State) -> None:
    banned = after(compiled, "-I INPUT 1 -s 192.0.2.7 -j DROP", "-I INPUT 1 -s 192.0.2.8 -j DROP").after
    plan = after(banned, "-D INPUT -s 192.0.2.7 -j DROP")
    assert chosen(plan) == [Strategy.CANCEL]
    assert len(plan.edits) == 1
    assert keys(after(plan.after, "-D INPUT -s 192.0.2.8 -j DROP").after.loaded) == keys(compiled.loaded)


def test_a_rule_inserted_and_deleted_repeatedly_has_one_entry(compiled: State) -> None:
    state = compiled
    rules = [line for line in hitables.write(state.master).splitlines() if line.startswith("-A INPUT")]
    command = rules[6].replace("-A INPUT", "-I INPUT 7")
    for _ in range(5):
        state = after(state, "-D INPUT 7").after
        assert state.pending() == 1
        state = after(state, command).after
        assert state.pending() == 1


def test_deleting_the_widest_rule_folds() -> None:
    program = prefixes(200)
    wide = read_commands("-I INPUT 60 -s 10.0.0.0/8 -p tcp -j DROP", program)
    state = start_unproved(apply(program, wide), Settings(backend="nft")).after
    plan = after(state, "-D INPUT 60")
    assert Strategy.FOLD in chosen(plan)
    assert len(plan.edits) < 4 * 200
    after(state, "-D INPUT 60", strategy=Strategy.OVERLAY)


def test_a_first_rule_that_covers_everything_is_one_line(compiled: State) -> None:
    for rule in ("-j DROP", "-j LOG", "-m limit --limit 5/min -j ACCEPT"):
        plan = after(compiled, f"-I INPUT 1 {rule}")
        assert len([edit for edit in plan.edits if edit.chain == "INPUT"]) == 1
        assert len(plan.edits) <= 3


def test_a_thousand_updates_of_one_leaf_stay_bounded_in_cost() -> None:
    state = start_unproved(prefixes(100), Settings(backend="nft", delta=8)).after
    rng = random.Random(1)
    most = 0
    for number in range(1000):
        count = len(state.master.table("filter")["INPUT"].rules)
        command = f"-I INPUT {rng.randint(2, count)} -s 10.9.9.9 -p tcp --dport {1 + number % 50} -j DROP"
        if number % 2:
            command = f"-D INPUT {rng.randint(1, count)}"
        plan = plan_unproved(state, read_commands(command, state.master))
        state = plan.after
        most = max(most, state.pending())
        if number % 100 == 0:
            check(plan)
    assert isinstance(verify(state), Equal)
    assert 1 <= most <= 8 * 8
    assert state.loaded.rule_count() < 6 * state.master.rule_count()


def test_a_chain_without_a_tree_is_edited_in_place(compiled: State) -> None:
    plan = after(compiled, "-A plain -s 10.0.0.2 -j DROP", "-D plain 1")
    assert plan.text == "*filter\n-A plain -s 10.0.0.2 -j DROP\n-D plain 1\nCOMMIT\n"


def test_two_chains_at_once_are_one_patch(compiled: State) -> None:
    plan = after(compiled, "-A plain -s 10.0.0.2 -j DROP", "-I INPUT 1 -s 192.0.2.1 -j DROP", "-P INPUT DROP")
    assert len(plan.edits) == 3


def test_a_new_chain_is_added_and_removed(compiled: State) -> None:
    plan = after(compiled, "-N bans", "-A bans -s 192.0.2.1 -j DROP", "-I INPUT 1 -j bans")
    after(plan.after, "-D INPUT 1", "-F bans", "-X bans")
    lower = after(compiled, "-N bans", "-I INPUT 200 -s 10.1.0.0/16 -j bans").after
    folded = fold_unproved(lower)
    check(folded)
    removed = after(folded.after, "-D INPUT -s 10.1.0.0/16 -j bans", "-X bans")
    assert Strategy.FOLD in chosen(removed), "the tree still jumped to the chain"


def test_trees_are_grown_anew_when_a_callee_begins_to_write() -> None:
    rules = "".join(f"-A INPUT -m conntrack --ctstate NEW -s 10.0.{n}.0/24 -j ACCEPT\n" for n in range(40))
    text = f"*raw\n:PREROUTING ACCEPT\n:mark -\n-A PREROUTING -j mark\n{rules.replace('INPUT', 'PREROUTING')}COMMIT\n"
    state = start_unproved(hitables.read(text), Settings()).after
    assert ("raw", "PREROUTING") in state.layouts
    plan = after(state, "-t raw -A mark -j CT --notrack")
    assert ("raw", "PREROUTING", Strategy.FOLD) in plan.chosen


def test_memory_stays_in_its_chain_through_patches_and_folds(compiled: State) -> None:
    limited = after(compiled, "-I INPUT 100 -s 10.0.0.0/12 -m limit --limit 5/min -j LOG").after
    (shared,) = (name for _, name in limited.layouts["filter", "INPUT"].shared)
    state = after(limited, "-I INPUT 90 -s 10.0.0.0/14 -p tcp --dport 5 -j DROP").after
    plan = fold_unproved(state)
    check(plan)
    assert state.pending() and not plan.after.pending()
    assert all(edit.chain != shared for edit in plan.edits), "the shared chain is not changed"


def test_a_fold_edits_only_the_differences(compiled: State) -> None:
    state = after(compiled, "-I INPUT 100 -s 10.3.0.0/16 -p tcp --dport 5 -j DROP").after
    plan = fold_unproved(state)
    check(plan)
    assert len(plan.edits) < compiled.loaded.rule_count() / 2
    assert fold_unproved(plan.after).edits == ()


def test_a_fold_takes_the_chains_from_an_iterator() -> None:
    listed = prefixes(20)
    table = listed.table("filter")
    forward = replace(table["FORWARD"], rules=table["INPUT"].rules)
    master = replace(listed, tables=(table.of({**table.by_name(), "FORWARD": forward}),))
    state = bare(master, Settings())
    folded = fold_unproved(state, iter([("filter", "FORWARD"), ("filter", "INPUT")])).after
    assert folded.layouts.keys() == {("filter", "INPUT"), ("filter", "FORWARD")}


def test_a_fold_tells_a_rule_for_a_mask_with_gaps_from_one_for_all_packets() -> None:
    rules = "".join(f"-A FORWARD -s 10.0.{n}.0/24 -j DROP\n" for n in range(20))
    gaps = "-A FORWARD -d 0.0.0.0/0.0.0.1\n"
    program = hitables.read(f"*filter\n:FORWARD ACCEPT [0:0]\n{gaps}{rules}-A FORWARD\nCOMMIT\n")
    state = after(start_unproved(program, Settings()).after, "-I FORWARD 2").after
    check(fold_unproved(state))


def test_foreign_chains_are_never_changed() -> None:
    program = prefixes(60)
    others = read_commands("-N DOCKER\n-I INPUT 20 -s 10.0.0.0/9 -j DOCKER", program)
    rules = "\n".join(f"-A DOCKER -s 10.0.0.{n} -j ACCEPT" for n in range(30))
    program = apply(program, others)
    program = apply(program, read_commands(rules, program))
    plan = start_unproved(program, Settings(foreign=("DOCKER*",)))
    check(plan)
    assert plan.after.loaded.table("filter")["DOCKER"] == program.table("filter")["DOCKER"]
    assert all(edit.chain != "DOCKER" for edit in plan.edits)
    with pytest.raises(HitablesError, match="left alone"):
        plan_unproved(plan.after, read_commands("-A DOCKER -j DROP", program))
    empty = hitables.read("*filter\n:DOCKER -\nCOMMIT\n")
    assert all(
        edit.chain != "DOCKER" for edit in sync(plan.after.master, empty, keep=lambda name: name == "DOCKER")
    )


def test_a_loop_of_jumps_is_refused(compiled: State) -> None:
    updates = read_commands("-N a\n-N b\n-A a -j b\n-A b -j a\n-A INPUT -j a", compiled.master)
    with pytest.raises(ParseError, match="circle"):
        plan_unproved(compiled, updates)


def test_names_of_generated_chains_are_refused(compiled: State) -> None:
    with pytest.raises(HitablesError, match="are reserved"):
        plan_unproved(compiled, read_commands("-N sf5", compiled.master))
    taken = hitables.read("*filter\n:sf1 -\nCOMMIT\n")
    assert bare(taken, Settings()).settings.prefix == "sf_"


def test_chains_nest_no_deeper_than_nft_accepts() -> None:
    chains = "".join(f":c{n} -\n" for n in range(16))
    jumps = "".join(f"-A c{n} -j c{n + 1}\n" for n in range(14))
    rules = "".join(f"-A INPUT -s 10.0.{n}.0/24 -j ACCEPT\n" for n in range(40))
    program = hitables.read(f"*filter\n{chains}{jumps}{rules}-A INPUT -j c0\nCOMMIT\n")
    state = start_unproved(program, Settings(backend="nft")).after
    after(state, "-I INPUT 20 -s 10.0.0.0/8 -m mark --mark 1 -j c1")
    with pytest.raises(Unsupported, match="nest deeper than the 15"):
        plan_unproved(state, read_commands("-A c14 -j c15", state.master))


def test_a_jump_that_its_chain_has_already_does_not_read_the_list_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = ["-A FORWARD -s 10.0.0.1 -j U", "-A FORWARD -s 10.0.0.2 -j DROP", "-A U -j DROP"]
    text = "\n".join(["*filter", ":FORWARD ACCEPT", ":U -", ":V -", *lines, "COMMIT", ""])
    state = start_unproved(hitables.read(text), Settings("nft")).after

    def refuse(*args: object) -> str:
        raise AssertionError("the list is written")

    monkeypatch.setattr("sflgen.planner.write", refuse)
    monkeypatch.setattr("sflgen.planner.check_loops", refuse)
    known = read_commands("-I FORWARD 2 -s 10.0.0.3 -j U", state.master)
    assert plan_unproved(state, known).edits
    for command in ("-I FORWARD 2 -s 10.0.0.3 -j V", "-I INPUT -j U", "-A U -s 10.0.0.9 -j V"):
        with pytest.raises(AssertionError, match="the list is written"):
            plan_unproved(state, read_commands(command, state.master))


def test_a_new_name_is_never_that_of_a_chain() -> None:
    used = {"sf4", "sf5", "sf7"}
    names = ChainNames("sf", used, last=2)
    drawn = [names.next() for _ in range(5)]
    assert drawn[0] == "sf3"
    assert not used & set(drawn) and len(set(drawn)) == 5


@pytest.mark.parametrize("strategy", [Strategy.OVERLAY, Strategy.GRAFT])
def test_an_entry_for_a_deleted_rule_has_the_comment_of_the_rule_that_it_stands_for(
    strategy: Strategy,
) -> None:
    hosts = [f"-A FORWARD -s 10.9.{host}.1/32 -d 10.7.{host}.2/32 -j DROP" for host in range(30)]
    commented = [
        "-A FORWARD -d 10.1.0.0/16 -i ppp0 -m comment --comment gone -j DROP",
        "-A FORWARD -d 10.1.0.0/16 -m comment --comment stays -j ACCEPT",
    ]
    text = "\n".join(["*filter", ":FORWARD DROP [0:0]", *commented, *hosts, "COMMIT", ""])
    state = start_unproved(hitables.read(text), Settings("nft")).after
    plan = plan_unproved(state, read_commands("-D FORWARD 1", state.master), strategy)
    check(plan)
    assert "gone" not in plan.text
    assert "-d 10.1.0.0/16 -i ppp0 -m comment --comment stays -j ACCEPT" in plan.text
