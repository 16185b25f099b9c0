"""Rules deleted in place: one line per copy, proved; entries for rules that hid others."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from pathlib import Path

import pytest
from support.crossing_rules import crossing_text
from support.planned_updates import check, keys, prefixes

import hitables
from hitables.build.grow import grow
from hitables.ir.fields import Family
from hitables.ir.rule import Kind
from sflgen.commands import read_commands
from sflgen.edits import Op, rule_key
from sflgen.local_proof import holds_locally
from sflgen.planner import Plan, plan_unproved, start_unproved
from sflgen.proof import plan, prove_plan
from sflgen.settings import Settings, Strategy
from sflgen.state import State
from sflgen.store import Store


def after(state: State, *commands: str) -> Plan:
    planned = plan(state, read_commands("\n".join(commands), state.master))
    check(planned)
    return planned


def is_deleted_in_place(planned: Plan) -> bool:
    """Whether the patch only deletes rules."""
    return all(edit.op is Op.DELETE for edit in planned.edits) and {c for _, _, c in planned.chosen} == {
        Strategy.EDIT
    }


def compiled(rules: str, **options: int) -> State:
    planned = start_unproved(
        hitables.read(f"*filter\n{rules}COMMIT\n"), Settings("nft", min_length=4, **options)
    )
    check(planned)
    assert planned.after.layouts
    return planned.after


def spread(chain: str, count: int) -> str:
    return "".join(f"-A {chain} -s 10.{n}.0.0/16 -p tcp --dport {n} -j ACCEPT\n" for n in range(count))


def test_a_rule_is_deleted_from_a_tree_by_one_line_without_an_entry() -> None:
    state = start_unproved(prefixes(300), Settings("nft")).after
    for at in (250, 100, 7):
        planned = after(state, f"-D INPUT {at}")
        assert is_deleted_in_place(planned) and len(planned.edits) == 1 and planned.after.pending() == 0
        assert planned.after.loaded.rule_count() == state.loaded.rule_count() - 1
        state = planned.after


@pytest.mark.parametrize("seed", range(3))
def test_rules_of_grouped_trees_are_deleted_in_place_too(seed: int) -> None:
    rng = random.Random(seed)
    program = hitables.read(crossing_text(rng, Family.IPV4, "FORWARD", 100, 0.0))
    state = start_unproved(program, Settings("nft", max_expansion=20.0)).after
    taken = 0
    for _ in range(10):
        planned = after(state, f"-D FORWARD {rng.randint(1, 90)}")
        taken += is_deleted_in_place(planned)
        state = planned.after
    assert taken >= 7


def test_the_call_of_a_version_is_deleted_with_the_copy_of_the_rule_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hitables.compiler.run_trees.grow", functools.partial(grow, grouping=1))
    lines = crossing_text(random.Random(0), Family.IPV4, "FORWARD", 150, 0.0).splitlines()
    first = lines.index(next(line for line in lines if line.startswith("-A FORWARD")))
    lines[first + 150 : first + 152] = ["-A FORWARD -p 47 -j ACCEPT"]
    lines.insert(first + 75, "-A FORWARD -s 10.0.0.0/14 -j LOG --log-prefix x")
    state = start_unproved(hitables.read("\n".join([*lines, ""])), Settings("nft", max_expansion=20.0)).after
    planned = after(state, "-D FORWARD -p 47 -j ACCEPT")
    deleted = [state.loaded.table("filter")[each.chain].rules[each.at] for each in planned.edits]
    # With the call left, packets would read the LOG rule in the version and again in the last group.
    assert is_deleted_in_place(planned)
    assert [rule.enters is None for rule in deleted] == [True, False]


def test_a_rule_with_many_copies_is_deleted_in_place_if_its_overlay_would_be_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sflgen.deletion.MAX_COPIES", 3)
    state = compiled(spread("INPUT", 60) + "-A INPUT -j DROP\n")
    planned = after(state, "-D INPUT 61")
    assert is_deleted_in_place(planned) and len(planned.edits) > 3


def test_a_deleted_rule_that_hid_others_gets_an_entry() -> None:
    wide = "-A INPUT -s 10.0.0.0/8 -p tcp -j DROP\n"
    state = compiled(spread("INPUT", 20) + wide + "-A INPUT -s 10.3.0.0/16 -j REJECT\n")
    assert is_deleted_in_place(after(state, "-D INPUT 21"))
    logged = after(
        state, "-I INPUT 5 -s 10.3.7.0/24 -p tcp -j LOG"
    ).after  # its overlay ends with the wide rule
    planned = after(logged, "-D INPUT 22")
    assert not is_deleted_in_place(planned) and planned.after.pending()


def test_one_of_equal_rules_is_deleted_in_place_if_all_have_copies() -> None:
    state = compiled(
        "-A INPUT -s 192.168.0.0/16 -j LOG\n".join(spread("INPUT", 30).splitlines(keepends=True))
    )
    for at in (40, 2, 20):
        planned = after(state, f"-D INPUT {at}")
        assert is_deleted_in_place(planned) and len({edit.chain for edit in planned.edits}) == len(
            planned.edits
        )
        state = planned.after


def test_none_of_equal_rules_is_deleted_in_place_if_some_are_hidden() -> None:
    state = compiled("-A INPUT -s 10.0.0.0/8 -j LOG\n".join(spread("INPUT", 30).splitlines(keepends=True)))
    assert not is_deleted_in_place(after(state, "-D INPUT 40"))


def test_an_equal_rule_of_another_chain_stays() -> None:
    planned = after(compiled(spread("INPUT", 30) + spread("FORWARD", 30)), "-D INPUT 4")
    assert is_deleted_in_place(planned) and len(planned.edits) == 1
    edited = {edit.chain for edit in planned.edits}
    planned = after(planned.after, "-D FORWARD 4")
    assert (
        is_deleted_in_place(planned)
        and len(planned.edits) == 1
        and not edited & {edit.chain for edit in planned.edits}
    )


def test_copies_in_overlays_are_deleted_too() -> None:
    state = start_unproved(prefixes(300), Settings("nft")).after
    rule = state.master.table("filter")["INPUT"].rules[99]
    source = next(match.words[1] for match in rule.matches if match.words[0] == "-s")
    inserted = after(state, f"-I INPUT 90 -s {source} -m length --length 40 -j DROP").after
    assert inserted.pending() == 1
    planned = after(inserted, "-D INPUT 101")
    assert is_deleted_in_place(planned) and len(planned.edits) == 2
    assert all(
        rule_key(each) != rule_key(rule)
        for chain in planned.after.loaded.table("filter").chains
        for each in chain.rules
    )
    lifted = after(planned.after, "-D INPUT 90")  # its rank in the overlay was corrected
    assert lifted.chosen == (("filter", "INPUT", Strategy.CANCEL),)
    assert keys(lifted.after.loaded) == keys(after(state, "-D INPUT 100").after.loaded)


def test_a_rule_in_an_entry_of_its_own_is_deleted_with_the_entry() -> None:
    state = start_unproved(prefixes(300), Settings("nft")).after
    banned = after(state, "-I INPUT 1 -s 10.0.0.0/9 -j DROP", "-I INPUT 1 -s 10.0.0.7 -j ACCEPT").after
    planned = after(banned, "-D INPUT 2")
    assert is_deleted_in_place(planned) and planned.after.pending() == 1
    assert after(planned.after, "-D INPUT 1").after.pending() == 0


def test_a_replaced_rule_is_deleted_in_place_and_the_new_one_is_an_entry() -> None:
    state = start_unproved(prefixes(300), Settings("nft")).after
    planned = after(state, "-R INPUT 100 -s 10.7.7.0/24 -j DROP")
    assert [edit.op for edit in planned.edits].count(Op.DELETE) == 1
    assert planned.after.pending() == 1


def test_rules_with_memory_and_jumps_are_deleted_in_place() -> None:
    jumps = ":user -\n-A user -s 10.1.0.0/16 -j DROP\n"
    limited = "-A INPUT -s 10.5.0.0/16 -m limit --limit 5/min -j LOG\n-A INPUT -s 10.6.0.0/15 -j user\n"
    state = compiled(jumps + spread("INPUT", 12) + limited + spread("INPUT", 40).replace("ACCEPT", "DROP"))
    for _ in range(2):
        planned = after(state, "-D INPUT 13")
        assert is_deleted_in_place(planned)
        state = planned.after
    assert after(state, "-F user", "-X user").after.pending() == 0


def test_without_a_proof_a_deletion_is_an_entry() -> None:
    state = start_unproved(prefixes(300), Settings("nft")).after
    planned = plan_unproved(state, read_commands("-D INPUT 100", state.master))
    assert not is_deleted_in_place(planned)
    check(planned)


def test_a_plan_whose_local_proof_takes_long_is_proved_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    state = start_unproved(prefixes(300), Settings("nft")).after
    planned = plan(state, read_commands("-D INPUT 100", state.master))
    # The prover reads the clock now and then, so it may finish before it notices that its time is over.
    monkeypatch.setattr("sflgen.local_proof.is_equal_in", lambda *_: None)
    assert holds_locally(planned) is None
    assert is_deleted_in_place(after(state, "-D INPUT 100"))
    assert after(state, "-I INPUT 100 -s 10.0.0.0/9 -j DROP").after.pending()


def test_a_deletion_for_which_a_long_proof_finds_a_difference_is_not_proved_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sflgen.region_encoding.RegionEncoding.is_hard", True)
    monkeypatch.setattr("sflgen.proof._compare_for_any_policy", lambda *_: pytest.fail("it is compared"))
    wide = "-A INPUT -s 10.0.0.0/8 -p tcp -j DROP\n"
    state = compiled(spread("INPUT", 20) + wide + "-A INPUT -s 10.3.0.0/16 -j REJECT\n")
    wrong = plan_unproved(state, read_commands("-D INPUT 4", state.master), delete_in_place=True)
    wrong = replace(wrong, after=replace(wrong.after, loaded=state.loaded))
    assert wrong.deleted_in_place and holds_locally(wrong) is False
    assert not prove_plan(wrong).deleted_in_place


def test_a_rule_without_copies_is_deleted_without_a_line(tmp_path: Path) -> None:
    covered = "".join(
        f"-A INPUT -s 10.{n}.0.0/16 -j ACCEPT\n-A INPUT -s 10.{n}.7.0/24 -j DROP\n" for n in range(100)
    )
    first = start_unproved(hitables.read(f"*filter\n{covered}COMMIT\n"), Settings("nft"))
    loaded = {rule_key(rule) for chain in first.after.loaded.table("filter").chains for rule in chain.rules}
    listed = first.after.master.table("filter")["INPUT"].rules
    at = next(place for place, rule in enumerate(listed, 1) if rule_key(rule) not in loaded)
    planned = after(first.after, f"-D INPUT {at}")
    assert planned.edits == () and len(planned.after.master.table("filter")["INPUT"].rules) == 199
    with Store.create(tmp_path, first.before) as store:
        store.commit(first)
        store.commit(plan(store.state, read_commands(f"-D INPUT {at}", store.state.master)))
    with Store.open(tmp_path) as store:
        assert keys(store.state.master) == keys(planned.after.master) and store.state.version == 2


def test_copies_are_found_in_a_state_read_from_files(tmp_path: Path) -> None:
    first = start_unproved(prefixes(300), Settings("nft"))
    with Store.create(tmp_path, first.before) as store:
        store.commit(first)
    for at in (200, 100):
        with Store.open(tmp_path) as store:
            planned = after(store.state, f"-D INPUT {at}")
            assert is_deleted_in_place(planned)
            store.commit(planned)


def test_a_jump_that_leads_the_packets_of_a_rule_to_others_is_deleted_in_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hitables.compiler.run_trees.grow", functools.partial(grow, grouping=1))
    jumps = 0
    for seed in range(2):
        text = crossing_text(random.Random(seed), Family.IPV4, "FORWARD", 150, 0.0)
        state = start_unproved(hitables.read(text), Settings("nft", max_expansion=20.0)).after
        loaded = state.loaded.table("filter")
        for at in range(1, 150, 7):
            planned = plan(state, read_commands(f"-D FORWARD {at}", state.master))
            if not is_deleted_in_place(planned):
                continue
            gone = [loaded[edit.chain].rules[edit.at] for edit in planned.edits]
            if gone and gone[0].target is not None and gone[0].target.kind is Kind.GOTO:
                check(planned)
                jumps += 1
    assert jumps
