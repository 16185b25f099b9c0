"""Rules taken out where they stand: a line a copy, proved; entries where others were hidden behind them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.crossing_rules import crossing_text
from support.planned_updates import check, keys, prefixes

import hitables
from hitables.ir.fields import Family
from sflgen.edits import Op, read_commands, rule_key
from sflgen.layout import Settings, Strategy
from sflgen.local_proof import proved_plan, shown
from sflgen.planner import Plan, start
from sflgen.state import State
from sflgen.store import Store


def after(state: State, *commands: str) -> Plan:
    made = proved_plan(state, read_commands("\n".join(commands), state.master))
    check(made)
    return made


def is_taken(made: Plan) -> bool:
    """Whether nothing but rules that went was edited."""
    return all(edit.op is Op.DELETE for edit in made.edits) and {c for _, _, c in made.chosen} == {
        Strategy.EDIT
    }


def compiled(rules: str, **options: int) -> State:
    made = start(hitables.read(f"*filter\n{rules}COMMIT\n"), Settings("nft", min_length=4, **options))
    check(made)
    assert made.after.served
    return made.after


def spread(chain: str, count: int) -> str:
    return "".join(f"-A {chain} -s 10.{n}.0.0/16 -p tcp --dport {n} -j ACCEPT\n" for n in range(count))


def test_a_rule_of_a_tree_is_taken_out_by_a_line_and_costs_nothing() -> None:
    state = start(prefixes(300), Settings("nft")).after
    for at in (250, 100, 7):
        made = after(state, f"-D INPUT {at}")
        assert is_taken(made) and len(made.edits) == 1 and made.after.pending() == 0
        assert made.after.loaded.rule_count() == state.loaded.rule_count() - 1
        state = made.after


@pytest.mark.parametrize("seed", range(3))
def test_rules_of_grouped_trees_are_taken_out_too(seed: int) -> None:
    rng = random.Random(seed)
    program = hitables.read(crossing_text(rng, Family.IPV4, "FORWARD", 100, 0.0))
    state = start(program, Settings("nft", max_expansion=20.0)).after
    taken = 0
    for _ in range(10):
        made = after(state, f"-D FORWARD {rng.randint(1, 90)}")
        taken += is_taken(made)
        state = made.after
    assert taken >= 7


def test_where_a_rule_hid_others_there_is_an_entry() -> None:
    wide = "-A INPUT -s 10.0.0.0/8 -p tcp -j DROP\n"
    state = compiled(spread("INPUT", 20) + wide + "-A INPUT -s 10.3.0.0/16 -j REJECT\n")
    assert is_taken(after(state, "-D INPUT 21"))
    logged = after(
        state, "-I INPUT 5 -s 10.3.7.0/24 -p tcp -j LOG"
    ).after  # what it leads to ends with the wide rule
    made = after(logged, "-D INPUT 22")
    assert not is_taken(made) and made.after.pending()


def test_of_rules_that_say_the_same_one_is_taken_out_where_all_stand() -> None:
    state = compiled(
        "-A INPUT -s 192.168.0.0/16 -j LOG\n".join(spread("INPUT", 30).splitlines(keepends=True))
    )
    for at in (40, 2, 20):
        made = after(state, f"-D INPUT {at}")
        assert is_taken(made) and len({edit.chain for edit in made.edits}) == len(made.edits)
        state = made.after


def test_of_rules_that_say_the_same_none_is_taken_out_where_some_are_hidden() -> None:
    state = compiled("-A INPUT -s 10.0.0.0/8 -j LOG\n".join(spread("INPUT", 30).splitlines(keepends=True)))
    assert not is_taken(after(state, "-D INPUT 40"))


def test_the_same_rule_of_another_chain_stays() -> None:
    made = after(compiled(spread("INPUT", 30) + spread("FORWARD", 30)), "-D INPUT 4")
    assert is_taken(made) and len(made.edits) == 1
    gone = {edit.chain for edit in made.edits}
    made = after(made.after, "-D FORWARD 4")
    assert is_taken(made) and len(made.edits) == 1 and not gone & {edit.chain for edit in made.edits}


def test_copies_in_entries_go_as_well() -> None:
    state = start(prefixes(300), Settings("nft")).after
    rule = state.master.table("filter")["INPUT"].rules[99]
    source = next(match.words[1] for match in rule.matches if match.words[0] == "-s")
    inserted = after(state, f"-I INPUT 90 -s {source} -m length --length 40 -j DROP").after
    assert inserted.pending() == 1
    made = after(inserted, "-D INPUT 101")
    assert is_taken(made) and len(made.edits) == 2
    assert all(
        rule_key(each) != rule_key(rule)
        for chain in made.after.loaded.table("filter").chains
        for each in chain.rules
    )
    lifted = after(made.after, "-D INPUT 90")  # its place in the entry moved, and is known
    assert lifted.chosen == (("filter", "INPUT", Strategy.CANCEL),)
    assert keys(lifted.after.loaded) == keys(after(state, "-D INPUT 100").after.loaded)


def test_a_rule_that_waits_in_an_entry_of_its_own_goes_with_it() -> None:
    state = start(prefixes(300), Settings("nft")).after
    banned = after(state, "-I INPUT 1 -s 10.0.0.0/9 -j DROP", "-I INPUT 1 -s 10.0.0.7 -j ACCEPT").after
    made = after(banned, "-D INPUT 2")
    assert is_taken(made) and made.after.pending() == 1
    assert after(made.after, "-D INPUT 1").after.pending() == 0


def test_a_replaced_rule_is_taken_out_and_the_new_one_is_an_entry() -> None:
    state = start(prefixes(300), Settings("nft")).after
    made = after(state, "-R INPUT 100 -s 10.7.7.0/24 -j DROP")
    assert [edit.op for edit in made.edits].count(Op.DELETE) == 1
    assert made.after.pending() == 1


def test_rules_with_memory_and_jumps_go_where_they_are_entered() -> None:
    jumps = ":user -\n-A user -s 10.1.0.0/16 -j DROP\n"
    limited = "-A INPUT -s 10.5.0.0/16 -m limit --limit 5/min -j LOG\n-A INPUT -s 10.6.0.0/15 -j user\n"
    state = compiled(jumps + spread("INPUT", 12) + limited + spread("INPUT", 40).replace("ACCEPT", "DROP"))
    for _ in range(2):
        made = after(state, "-D INPUT 13")
        assert is_taken(made)
        state = made.after
    assert after(state, "-F user", "-X user").after.pending() == 0


def test_without_a_proof_there_are_entries() -> None:
    state = start(prefixes(300), Settings("nft")).after
    made = proved_plan(state, read_commands("-D INPUT 100", state.master), proving=False)
    assert not is_taken(made)
    check(made)


def test_what_takes_long_to_show_in_its_place_is_proved_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    state = start(prefixes(300), Settings("nft")).after
    made = proved_plan(state, read_commands("-D INPUT 100", state.master))
    # The prover looks at the clock now and then, so it may well end before it sees that its time is over.
    monkeypatch.setattr("sflgen.local_proof._is_equal", lambda *_: None)
    assert shown(made) is None
    assert is_taken(after(state, "-D INPUT 100"))
    assert after(state, "-I INPUT 100 -s 10.0.0.0/9 -j DROP").after.pending()


def test_a_rule_that_stands_nowhere_goes_without_a_line(tmp_path: Path) -> None:
    covered = "".join(
        f"-A INPUT -s 10.{n}.0.0/16 -j ACCEPT\n-A INPUT -s 10.{n}.7.0/24 -j DROP\n" for n in range(100)
    )
    first = start(hitables.read(f"*filter\n{covered}COMMIT\n"), Settings("nft"))
    loaded = {rule_key(rule) for chain in first.after.loaded.table("filter").chains for rule in chain.rules}
    listed = first.after.master.table("filter")["INPUT"].rules
    at = next(place for place, rule in enumerate(listed, 1) if rule_key(rule) not in loaded)
    made = after(first.after, f"-D INPUT {at}")
    assert made.edits == () and len(made.after.master.table("filter")["INPUT"].rules) == 199
    with Store.create(tmp_path, first.before) as store:
        store.commit(first)
        store.commit(proved_plan(store.state, read_commands(f"-D INPUT {at}", store.state.master)))
    with Store.open(tmp_path) as store:
        assert keys(store.state.master) == keys(made.after.master) and store.state.version == 2


def test_copies_are_found_in_a_state_that_comes_from_files(tmp_path: Path) -> None:
    first = start(prefixes(300), Settings("nft"))
    with Store.create(tmp_path, first.before) as store:
        store.commit(first)
    for at in (200, 100):
        with Store.open(tmp_path) as store:
            made = after(store.state, f"-D INPUT {at}")
            assert is_taken(made)
            store.commit(made)
