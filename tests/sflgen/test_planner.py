"""The law of sflgen: what is loaded does, after every update, what the rule list says."""

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
from sflgen.edits import apply, read_commands, sync
from sflgen.layout import Settings
from sflgen.planner import Plan, Strategy, fold, plan, start
from sflgen.state import State, bare, verify


@settings(max_examples=examples(16))
@given(
    seed=st.integers(0, 1 << 32),
    family=st.sampled_from(Family),
    backend=st.sampled_from(["any", "nft", "legacy"]),
    malformed=st.sampled_from(["stricter", "exact"]),
    delta=st.sampled_from([3, 8, 32]),
)
def test_after_every_update_what_is_loaded_is_equal_to_the_list(
    seed: int, family: Family, backend: str, malformed: str, delta: int
) -> None:
    rng = random.Random(seed)
    program = hitables.read(make_text(rng, family, rules=rng.randrange(10, 90), memory=0.15), family=family)
    made = start(program, Settings(backend, malformed, delta, min_length=3))
    check(made)
    state = made.after
    for _ in range(8):
        _, updates, master = make_updates(rng, state.master, rng.choice([1, 1, 1, 2, 5]), favoured(state))
        try:
            made = plan(state, updates, rng.choice([None, None, None, Strategy.OVERLAY, Strategy.FOLD]))
        except Unsupported:
            continue  # nested too deep, and said so
        check(made)
        assert made.after.master == master
        state = made.after


@settings(max_examples=examples(8))
@given(seed=st.integers(0, 1 << 32))
def test_what_is_kept_between_plans_says_nothing_new(seed: int) -> None:
    """A plan is the same when the state comes from a file, without what was kept."""
    rng = random.Random(seed)
    state = start(hitables.read(make_text(rng, rules=70, memory=0.1)), Settings(min_length=3)).after
    for _ in range(10):
        _, updates, _ = make_updates(rng, state.master, 1, favoured(state))
        fresh = replace(state, listings={}, levels={}, regions={})
        try:
            made = plan(state, updates)
        except Unsupported:
            with pytest.raises(Unsupported):
                plan(fresh, updates)
            continue
        assert made.text == plan(fresh, updates).text
        state = made.after


@settings(max_examples=examples(12))
@given(seed=st.integers(0, 1 << 32))
def test_sync_makes_one_list_of_another(seed: int) -> None:
    rng = random.Random(seed)
    old, new = (hitables.read(make_text(rng, rules=40, chains=rng.randrange(4))) for _ in "ab")
    edits = sync(old, new)
    after = keys(apply(old, edits))
    assert after == keys(new)
    made = plan(start(old, Settings(min_length=3)).after, edits)
    check(made)
    assert sync(new, new) == []


def after(state: State, *commands: str, strategy: Strategy | None = None) -> Plan:
    made = plan(state, read_commands("\n".join(commands), state.master), strategy)
    check(made)
    return made


@pytest.fixture(scope="module")
def compiled() -> State:
    made = start(prefixes(300), Settings(backend="nft"))
    check(made)
    assert ("filter", "INPUT") in made.after.served
    return made.after


def chosen(made: Plan) -> list[Strategy]:
    return [strategy for _, _, strategy in made.chosen]


def test_a_ban_is_one_line(compiled: State) -> None:
    made = after(compiled, "-I INPUT 1 -s 192.0.2.7 -j DROP")
    assert made.text == "*filter\n-I INPUT -s 192.0.2.7 -j DROP\nCOMMIT\n"


def test_a_rule_in_the_middle_is_a_few_lines_of_its_region(compiled: State) -> None:
    made = after(compiled, "-I INPUT 150 -s 10.0.0.0/13 -p tcp --dport 1:100 -j DROP")
    assert chosen(made) == [Strategy.GRAFT]
    assert len(made.edits) < 20
    made = after(
        compiled, "-I INPUT 150 -s 10.0.0.0/13 -p tcp --dport 1:100 -j DROP", strategy=Strategy.OVERLAY
    )
    assert chosen(made) == [Strategy.OVERLAY]
    assert len(made.edits) < 20


def test_a_ban_that_is_lifted_leaves_nothing(compiled: State) -> None:
    banned = after(compiled, "-I INPUT 1 -s 192.0.2.7 -j DROP", "-I INPUT 1 -s 192.0.2.8 -j DROP").after
    made = after(banned, "-D INPUT -s 192.0.2.7 -j DROP")
    assert chosen(made) == [Strategy.CANCEL]
    assert len(made.edits) == 1
    assert keys(after(made.after, "-D INPUT -s 192.0.2.8 -j DROP").after.loaded) == keys(compiled.loaded)


def test_a_rule_that_comes_and_goes_takes_one_place_in_front(compiled: State) -> None:
    state = compiled
    rules = [line for line in hitables.write(state.master).splitlines() if line.startswith("-A INPUT")]
    said = rules[6].replace("-A INPUT", "-I INPUT 7")
    for _ in range(5):
        state = after(state, "-D INPUT 7").after
        assert state.pending() == 1
        state = after(state, said).after
        assert state.pending() == 1


def test_deleting_the_widest_rule_is_right_and_folds() -> None:
    program = prefixes(200)
    wide = read_commands("-I INPUT 60 -s 10.0.0.0/8 -p tcp -j DROP", program)
    state = start(apply(program, wide), Settings(backend="nft")).after
    made = after(state, "-D INPUT 60")
    assert Strategy.FOLD in chosen(made)
    assert len(made.edits) < 4 * 200
    after(state, "-D INPUT 60", strategy=Strategy.OVERLAY)


def test_a_rule_that_covers_everything_in_first_place_is_one_line(compiled: State) -> None:
    for rule in ("-j DROP", "-j LOG", "-m limit --limit 5/min -j ACCEPT"):
        made = after(compiled, f"-I INPUT 1 {rule}")
        assert len([edit for edit in made.edits if edit.chain == "INPUT"]) == 1
        assert len(made.edits) <= 3


def test_a_thousand_updates_of_one_leaf_stay_bounded_in_cost() -> None:
    state = start(prefixes(100), Settings(backend="nft", delta=8)).after
    rng = random.Random(1)
    most = 0
    for number in range(1000):
        count = len(state.master.table("filter")["INPUT"].rules)
        command = f"-I INPUT {rng.randint(2, count)} -s 10.9.9.9 -p tcp --dport {1 + number % 50} -j DROP"
        if number % 2:
            command = f"-D INPUT {rng.randint(1, count)}"
        made = plan(state, read_commands(command, state.master))
        state = made.after
        most = max(most, state.pending())
        if number % 100 == 0:
            check(made)
    assert isinstance(verify(state), Equal)
    assert 1 <= most <= 8 * 8
    assert state.loaded.rule_count() < 6 * state.master.rule_count()


def test_a_chain_that_has_no_tree_is_edited_in_place(compiled: State) -> None:
    made = after(compiled, "-A plain -s 10.0.0.2 -j DROP", "-D plain 1")
    assert made.text == "*filter\n-A plain -s 10.0.0.2 -j DROP\n-D plain 1\nCOMMIT\n"


def test_two_chains_at_once_are_one_patch(compiled: State) -> None:
    made = after(compiled, "-A plain -s 10.0.0.2 -j DROP", "-I INPUT 1 -s 192.0.2.1 -j DROP", "-P INPUT DROP")
    assert len(made.edits) == 3


def test_a_new_chain_and_its_end(compiled: State) -> None:
    made = after(compiled, "-N bans", "-A bans -s 192.0.2.1 -j DROP", "-I INPUT 1 -j bans")
    after(made.after, "-D INPUT 1", "-F bans", "-X bans")
    lower = after(compiled, "-N bans", "-I INPUT 200 -s 10.1.0.0/16 -j bans").after
    folded = fold(lower)
    check(folded)
    gone = after(folded.after, "-D INPUT -s 10.1.0.0/16 -j bans", "-X bans")
    assert Strategy.FOLD in chosen(gone), "the tree still named the chain"


def test_trees_are_built_anew_when_a_chain_they_call_begins_to_write() -> None:
    rules = "".join(f"-A INPUT -m conntrack --ctstate NEW -s 10.0.{n}.0/24 -j ACCEPT\n" for n in range(40))
    said = f"*raw\n:PREROUTING ACCEPT\n:mark -\n-A PREROUTING -j mark\n{rules.replace('INPUT', 'PREROUTING')}COMMIT\n"
    state = start(hitables.read(said), Settings()).after
    assert ("raw", "PREROUTING") in state.served
    made = after(state, "-t raw -A mark -j CT --notrack")
    assert ("raw", "PREROUTING", Strategy.FOLD) in made.chosen


def test_memory_stays_in_its_chain_through_patches_and_folds(compiled: State) -> None:
    limited = after(compiled, "-I INPUT 100 -s 10.0.0.0/12 -m limit --limit 5/min -j LOG").after
    (shared,) = (name for _, name in limited.served["filter", "INPUT"].once)
    state = after(limited, "-I INPUT 90 -s 10.0.0.0/14 -p tcp --dport 5 -j DROP").after
    made = fold(state)
    check(made)
    assert state.pending() and not made.after.pending()
    assert all(edit.chain != shared for edit in made.edits), "the chain of the rule with memory is left alone"


def test_a_fold_says_only_what_changed(compiled: State) -> None:
    state = after(compiled, "-I INPUT 100 -s 10.3.0.0/16 -p tcp --dport 5 -j DROP").after
    made = fold(state)
    check(made)
    assert len(made.edits) < compiled.loaded.rule_count() / 2
    assert fold(made.after).edits == ()


def test_chains_of_others_are_never_touched() -> None:
    program = prefixes(60)
    others = read_commands("-N DOCKER\n-I INPUT 20 -s 10.0.0.0/9 -j DOCKER", program)
    rules = "\n".join(f"-A DOCKER -s 10.0.0.{n} -j ACCEPT" for n in range(30))
    program = apply(program, others)
    program = apply(program, read_commands(rules, program))
    made = start(program, Settings(left=("DOCKER*",)))
    check(made)
    assert made.after.loaded.table("filter")["DOCKER"] == program.table("filter")["DOCKER"]
    assert all(edit.chain != "DOCKER" for edit in made.edits)
    with pytest.raises(HitablesError, match="left to others"):
        plan(made.after, read_commands("-A DOCKER -j DROP", program))
    empty = hitables.read("*filter\n:DOCKER -\nCOMMIT\n")
    assert all(
        edit.chain != "DOCKER" for edit in sync(made.after.master, empty, keep=lambda name: name == "DOCKER")
    )


def test_a_loop_of_jumps_is_refused(compiled: State) -> None:
    updates = read_commands("-N a\n-N b\n-A a -j b\n-A b -j a\n-A INPUT -j a", compiled.master)
    with pytest.raises(ParseError, match="circle"):
        plan(compiled, updates)


def test_names_of_ours_are_refused(compiled: State) -> None:
    with pytest.raises(HitablesError, match="are ours"):
        plan(compiled, read_commands("-N sf5", compiled.master))
    taken = hitables.read("*filter\n:sf1 -\nCOMMIT\n")
    assert bare(taken, Settings()).settings.prefix == "sf_"


def test_chains_nest_no_deeper_than_nft_takes() -> None:
    chains = "".join(f":c{n} -\n" for n in range(16))
    jumps = "".join(f"-A c{n} -j c{n + 1}\n" for n in range(14))
    rules = "".join(f"-A INPUT -s 10.0.{n}.0/24 -j ACCEPT\n" for n in range(40))
    program = hitables.read(f"*filter\n{chains}{jumps}{rules}-A INPUT -j c0\nCOMMIT\n")
    state = start(program, Settings(backend="nft")).after
    after(state, "-I INPUT 20 -s 10.0.0.0/8 -m mark --mark 1 -j c1")
    with pytest.raises(Unsupported, match="nest deeper than the 15"):
        plan(state, read_commands("-A c14 -j c15", state.master))
