"""Entries that wait for a fold: when a tree is due, what they hold, and how few lines an update is."""

from __future__ import annotations

import pytest
from support.hot_rules import skewed_text
from support.planned_updates import check, prefixes

import hitables
from hitables.analyse.weights import from_counters
from hitables.errors import Unsupported
from sflgen.commands import read_commands
from sflgen.hot_rules import hot_unproved
from sflgen.planner import Plan, due, fold_unproved, pending, plan_unproved, start_unproved
from sflgen.settings import Settings, Strategy
from sflgen.state import State, bare

pytestmark = pytest.mark.engine

INPUT = ("filter", "INPUT")


def begun(program: hitables.Program, delta: int = 32) -> State:
    state = start_unproved(program, Settings(backend="nft", delta=delta)).after
    assert state.layouts
    return state


def after(
    state: State, *commands: str, strategy: Strategy | None = None, delete_in_place: bool = False
) -> Plan:
    updates = read_commands("\n".join(commands), state.master)
    plan = plan_unproved(state, updates, strategy, delete_in_place=delete_in_place)
    check(plan)
    return plan


def bans(count: int) -> list[str]:
    return [f"-I INPUT 1 -s 192.0.2.{host} -j DROP" for host in range(count)]


def folds(plan: Plan) -> bool:
    return any(strategy is Strategy.FOLD for _, _, strategy in plan.chosen)


# ---- when a tree is grown ----


@pytest.mark.parametrize(("count", "grows"), [(64, False), (128, True)])
def test_a_list_that_grows_gets_a_tree_behind_64_rules(count: int, grows: bool) -> None:
    state = bare(prefixes(count - 1), Settings())
    assert folds(after(state, "-A INPUT -s 192.0.2.1 -j DROP")) is grows


@pytest.mark.parametrize(("count", "grows"), [(4, False), (5, True)])
def test_more_updates_at_once_than_delta_fold(count: int, grows: bool) -> None:
    assert folds(after(begun(prefixes(60), delta=4), *bans(count))) is grows


def test_a_tree_is_due_when_its_entries_cost_more_than_delta() -> None:
    state = begun(prefixes(60), delta=2)
    found = []
    for ban in bans(3):
        state = after(state, ban, strategy=Strategy.OVERLAY).after
        found.append(due(state))
    assert found == [[], [], [INPUT]]


def test_a_tree_is_due_when_a_leaf_has_more_than_four_entries_for_each_rule_of_delta() -> None:
    state = begun(prefixes(200), delta=2)
    found = []
    for port in range(100, 109):
        command = f"-I INPUT 150 -s 10.3.4.5 -p tcp --dport {port} -j DROP"
        state = after(state, command, strategy=Strategy.GRAFT).after
        found.append(due(state))
    assert found == [[]] * 8 + [[INPUT]]


@pytest.mark.parametrize(("least", "is_long"), [(20, True), (21, False)])
def test_a_chain_of_the_least_length_gets_a_tree(least: int, is_long: bool) -> None:
    folded = fold_unproved(bare(prefixes(20), Settings(min_length=least))).after
    assert (INPUT in folded.layouts) is is_long


def test_hot_rules_do_not_wait_for_a_fold() -> None:
    state = begun(hitables.read(skewed_text(counters=False)))
    hot = hot_unproved(state, from_counters(hitables.read(skewed_text())), 8)
    assert hot.edits and [each.entries for each in pending(hot.after)] == [0]


def test_chains_that_jump_in_a_circle_are_refused_although_no_packet_reaches_it() -> None:
    state = bare(prefixes(20), Settings())
    updates = read_commands("-N a\n-N b\n-A a -j b\n-A b -j a", state.master)
    with pytest.raises(Unsupported, match="would jump in a circle; no packet reaches it"):
        plan_unproved(state, updates)


# ---- what is loaded ----


def test_a_rule_behind_the_one_for_established_connections_is_one_line() -> None:
    head = "-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n"
    state = begun(hitables.read(hitables.write(prefixes(60)).replace("-A INPUT", f"{head}-A INPUT", 1)))
    text = after(state, "-I INPUT 2 -s 192.0.2.7 -j DROP").text
    assert text == "*filter\n-I INPUT 2 -s 192.0.2.7 -j DROP\nCOMMIT\n"


WIDE = "-s 10.0.0.0/12 -j ACCEPT"


def of_networks(*wide: str) -> hitables.Program:
    """Rules of 64 networks, of which every eighth drops; *wide* is behind the first 16."""
    rules = [f"-s 10.{net}.0.0/16 -j {'ACCEPT' if net % 8 else 'DROP'}" for net in range(64)]
    rules[16:16] = wide
    lines = [f"-A INPUT {rule}" for rule in rules]
    return hitables.read("\n".join(["*filter", ":INPUT DROP", *lines, "COMMIT", ""]))


def with_overlay() -> State:
    return after(begun(of_networks()), f"-I INPUT 17 {WIDE}", strategy=Strategy.OVERLAY).after


def test_an_overlay_holds_no_rules_that_decide_as_its_last_one_does() -> None:
    loaded = with_overlay().loaded.table("filter")
    name = loaded["INPUT"].rules[0].enters
    assert name is not None and [rule.target and rule.target.name for rule in loaded[name].rules] == [
        "DROP",
        "DROP",
        "ACCEPT",
    ]


def test_another_target_for_the_same_packets_needs_one_overlay() -> None:
    state = begun(of_networks(WIDE))
    text = after(state, f"-R INPUT 17 {WIDE.replace('ACCEPT', 'REJECT')}", strategy=Strategy.OVERLAY).text
    assert (text.count("-N "), text.count("-X "), text.count("-I INPUT ")) == (1, 0, 1)


def test_an_insertion_is_cancelled_although_a_rule_of_its_overlay_was_deleted() -> None:
    deleted = after(with_overlay(), "-D INPUT 1", delete_in_place=True)
    assert deleted.deleted_in_place and deleted.after.pending() == 1
    assert after(deleted.after, f"-D INPUT {WIDE}").after.pending() == 0
