"""The law of sflgen where rules jump to user chains that decide, and these chains are updated."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import replace

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
from sflgen import front_tree
from sflgen.chain_names import GeneratedNames
from sflgen.commands import read_commands
from sflgen.deciding import Deciding
from sflgen.layout import fixed_chains, unreachable_chains
from sflgen.local_proof import holds_locally
from sflgen.planner import fold_unproved, plan_unproved, start_unproved
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
        patch.setattr("hitables.compiler.run_trees.grow", functools.partial(grow, grouping=1))
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


def with_marks_behind_a_deciding_chain(seed: int) -> hitables.Program:
    """Rules that cross; some read a mark that MARKS writes.  OUTER enters MARKS, and may come back."""
    rng = random.Random(seed)
    lines = crossing_text(rng, Family.IPV4, "FORWARD", 90, 0.0).replace("-j REJECT", "-j ACCEPT").splitlines()
    own = [at for at, line in enumerate(lines) if line.startswith("-A FORWARD")]
    for at in own[40:]:
        if rng.random() < 0.4:
            lines[at] = lines[at].replace(" -j", " -m mark --mark 0x1 -j")
    lines.insert(own[10], "-A FORWARD -j OUTER")
    text = "\n".join(lines).replace(":cross", ":MARKS -\n:OUTER -\n:cross")
    chains = "-A MARKS -j MARK --set-xmark 0x1/0xffffffff\n-A MARKS -j DROP\n-A OUTER -p udp -j MARKS\n"
    return hitables.read(text.replace("COMMIT", f"{chains}COMMIT\n"))


@pytest.mark.parametrize(
    "command", ["-D MARKS 2", "-I MARKS 2 -p udp -j RETURN", "-R MARKS 2 -p tcp -j DROP"]
)
def test_what_a_chain_writes_comes_back_to_callers_of_its_callers_when_it_ceases_to_decide(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OUTER decides neither before nor after; but a packet comes back from it with the mark of MARKS."""
    state = start(with_marks_behind_a_deciding_chain(1), Settings("nft", max_expansion=20.0)).after
    assert calls_trees(state.loaded, "FORWARD")
    edits = read_commands(command, state.master)
    following = plan_unproved(state, edits, Strategy.GRAFT)
    assert ("filter", "FORWARD", Strategy.FOLD) in following.chosen
    check(following)
    monkeypatch.setattr("sflgen.planner.relying", lambda *_: ())
    wrong = plan_unproved(state, edits, Strategy.GRAFT)
    assert not wrong.folds and not holds_locally(wrong)
    with pytest.raises(hitables.NotEquivalent):
        prove_plan(wrong)


def test_a_chain_that_writes_nothing_folds_no_callers_of_its_callers_when_it_ceases_to_decide() -> None:
    before = with_marks_behind_a_deciding_chain(1)
    table = before.table("filter")
    silent = table.of({"MARKS": table["MARKS"].with_rules(table["MARKS"].rules[1:])})
    state = start(replace(before, tables=(silent,)), Settings("nft", max_expansion=20.0)).after
    following = plan_unproved(state, read_commands("-D MARKS 1", state.master), Strategy.GRAFT)
    assert not following.folds
    check(following)


def test_chains_that_a_deletion_in_place_leaves_without_a_caller_go_with_the_next_fold_or_removal() -> None:
    """They may jump to chains of the old tree, and to the user chain that is removed."""

    def stale(state: State) -> list[str]:
        table, names = state.loaded.table("filter"), GeneratedNames(state.settings.prefix)
        return unreachable_chains(table, fixed_chains(state.layouts.values()), names)

    state = start_unproved(with_deciding_chains(250), Settings("nft", max_expansion=20.0)).after
    state = updated(updated(state, "-D FORWARD 43"), "-N spare")
    assert stale(state)
    for following in (
        fold_unproved(state),
        plan_unproved(state, read_commands("-X spare", state.master), Strategy.GRAFT),
    ):
        check(following)
        assert not stale(following.after)


def overlay_of(state: State, command: str) -> tuple[State, list[str | None]]:
    """The state after *command*, and what the rules of its overlay enter."""
    following = plan_unproved(state, read_commands(command, state.master), Strategy.OVERLAY)
    check(following)
    (entry,) = following.after.entry_chains["filter", "FORWARD"].entries
    rules = following.after.loaded.table("filter")[entry.overlay].rules if entry.overlay else ()
    return following.after, [rule.enters for rule in rules]


def services(targets: str, count: int) -> str:
    return "".join(
        f"-A FORWARD -d 10.0.{n}.0/24 -p tcp -m tcp --dport {n + 1} -j {targets.split()[n % len(targets.split())]}\n"
        for n in range(count)
    )


def read(rules: str) -> State:
    heads = ":FORWARD ACCEPT\n:LOGDROP -\n:OUTER -\n"
    program = hitables.read(f"*filter\n{heads}{rules}{CHAINS}COMMIT\n")
    return start_unproved(program, Settings("nft", min_length=4)).after


def test_an_overlay_ends_with_a_jump_to_a_chain_that_decides() -> None:
    state = read(services("ACCEPT", 20) + "-A FORWARD -s 10.1.0.0/16 -j OUTER\n" + services("ACCEPT", 40))
    _, entered = overlay_of(state, "-I FORWARD 50 -s 10.1.7.0/24 -p tcp -j LOGDROP")
    assert entered == [None] * 20 + ["OUTER"]
    returning = plan(state, read_commands("-I LOGDROP 1 -p udp -j RETURN", state.master)).after
    _, entered = overlay_of(returning, "-I FORWARD 50 -s 10.1.7.0/24 -p tcp -j LOGDROP")
    assert entered.count(None) == 60 and {"OUTER", "LOGDROP"} <= set(entered)


def test_an_overlay_has_no_rule_whose_packets_another_one_treats_alike() -> None:
    wide = "".join(f"-A FORWARD -d 10.0.{n}.0/24 -p tcp -j LOGDROP\n" for n in range(0, 60, 2))
    state = read(services("LOGDROP ACCEPT", 60) + wide + "-A FORWARD -p udp -j DROP\n")
    # Each accepting rule must stay; the others are said again by those of *wide*.
    _, entered = overlay_of(state, "-I FORWARD 91 -s 10.1.7.0/24 -p tcp -j LOGDROP")
    assert entered == [None] * 30 + ["LOGDROP"]
    _, entered = overlay_of(state, "-I FORWARD 91 -s 10.1.7.0/24 -p tcp -j REJECT")
    assert entered.count(None) == 31 and entered.count("LOGDROP") == 60


@pytest.mark.parametrize("seed", range(3))
def test_an_overlay_of_many_alike_rules_decides_as_the_list(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sflgen.overlay_rules.MANY_ALIKE", 0)
    rng = random.Random(seed)
    state = start_unproved(with_deciding_chains(seed, 100), Settings("nft")).after
    for _ in range(12):
        command = crossing_command(rng, state.master, "FORWARD", 0.0).replace("-j DROP", "-j LOGDROP")
        following = plan_unproved(state, read_commands(command, state.master), Strategy.OVERLAY)
        check(following)
        state = following.after


def test_entries_that_enter_a_chain_which_decides_are_moved_to_a_tree() -> None:
    state = read(services("ACCEPT", 60) + "-A FORWARD -p udp -j DROP\n")
    for number in range(front_tree.ENTRIES_WORTH_A_TREE):
        updates = read_commands(f"-I FORWARD 1 -s 10.{number}.0.0/16 -j LOGDROP", state.master)
        state = plan_unproved(state, updates, Strategy.OVERLAY).after
    chain_id = front_tree.due(state)
    assert chain_id is not None
    tree = front_tree.plan_front_tree(state, chain_id)
    assert tree is not None
    check(tree)
    # The rules of LOGDROP are not those of the tree.
    assert all("LOGDROP" not in chains for chains in tree.after.cache.copy_indexes.get(chain_id, {}).values())
    deletion = plan(tree.after, read_commands("-D FORWARD 3", state.master))
    check(deletion)


def test_an_overlay_keeps_a_rule_that_only_counts() -> None:
    wide = "".join(f"-A FORWARD -d 10.0.{n}.0/24 -p tcp -j LOGDROP\n" for n in range(0, 60, 2))
    counts = "-A FORWARD -d 10.0.0.0/16 -p tcp\n"
    state = read(services("LOGDROP ACCEPT", 60) + counts + wide + "-A FORWARD -p udp -j DROP\n")
    # It counts what the jumps behind it get: those in front of it must keep their packets from it.
    _, entered = overlay_of(state, "-I FORWARD 92 -s 10.1.7.0/24 -p tcp -j LOGDROP")
    assert entered == [*["LOGDROP", None] * 30, None, "LOGDROP"]


@pytest.mark.parametrize(
    "asking",
    [
        "-m statistic --mode random --probability 0.5 -j ACCEPT",
        "-m recent --name seen --set -m tcp --dport 22 -j ACCEPT",
        "-m recent --name seen --set -m tcp --dport 22 -j LOG",
    ],
)
def test_an_overlay_keeps_rules_whose_packets_must_not_ask_a_memory_behind_them(asking: str) -> None:
    one = "-A FORWARD -s 10.1.7.0/25 -p tcp -m tcp --dport 80 -j ACCEPT\n"
    state = read(f"{one}-A FORWARD -p tcp {asking}\n{services('DROP', 20)}-A FORWARD -p tcp -j ACCEPT\n")
    _, entered = overlay_of(state, "-I FORWARD 3 -s 10.1.7.0/24 -p tcp -j ACCEPT")
    assert len(entered) == 3


@pytest.mark.parametrize("way", ["A", "by way of OUT"])
def test_trees_are_grown_anew_when_a_chain_does_more_than_count(way: str) -> None:
    """Jumps to chains that only count are printed by source, and then by destination."""
    jumps = "".join(f"-A FORWARD -d 10.1.0.{n} -j B\n-A FORWARD -s 10.0.0.{n} -j OUT\n" for n in range(16))
    jumps = jumps if way == "by way of OUT" else jumps.replace("OUT", "A")
    text = f"*filter\n:A - [0:0]\n:B - [0:0]\n:OUT - [0:0]\n-A OUT -j A\n-A A -p tcp\n-A B -p tcp\n{jumps}COMMIT\n"
    state = start(hitables.read(text), Settings(backend="nft")).after
    order = [rule.enters for rule in state.master.table("filter")["FORWARD"].rules]
    assert order[:2] == ["B", "OUT" if way == "by way of OUT" else "A"]
    for command in ("-I A 1 -j DROP", "-I B 1 -j ACCEPT", "-D A 1", "-D B 1", "-I A 2 -j LOG"):
        found = plan(state, read_commands(command, state.master))
        check(found)
        state = found.after
