"""The updates of the rule list that correspond to changes of what is loaded; no kernel is needed."""

from __future__ import annotations

import pytest

import hitables
from sflgen.edits import Edit, Op, apply
from sflgen.least_edits import sync
from sflgen.planner import start_unproved
from sflgen.repair import Foreign, Untakeable, updates_of
from sflgen.settings import Settings
from sflgen.state import State

pytestmark = pytest.mark.engine

DROPS = "".join(f"-A many -s 198.51.{net}.0/24 -j DROP\n" for net in range(60))
ACCEPTS = DROPS.replace("DROP", "ACCEPT")


def begun(rules: str) -> State:
    """A state whose chain `many` has these rules, and a tree."""
    text = f"*filter\n:INPUT ACCEPT\n:many -\n-A INPUT -j many\n{rules}COMMIT\n"
    state = start_unproved(hitables.read(text), Settings(min_length=3)).after
    assert ("filter", "many") in state.layouts
    return state


def changed(state: State, edit: Edit) -> Foreign:
    contents = apply(state.loaded, [edit])
    return Foreign(state, ["it differs"], contents, sync(state.loaded, contents))


def test_a_copy_of_one_of_two_equal_rules_that_was_deleted_is_no_update() -> None:
    log = "-A many -p tcp --dport 22 -j LOG\n"
    state = begun(DROPS + log + ACCEPTS + log)
    chain, row = next(
        (chain.name, row)
        for chain in state.loaded.table("filter").chains
        if chain.name.startswith("sf")
        for row, rule in enumerate(chain.rules)
        if rule.target is not None and rule.target.name == "LOG"
    )
    with pytest.raises(Untakeable, match="it is one of 2 equal rules"):
        updates_of(changed(state, Edit(Op.DELETE, "filter", chain, row)))


def test_a_chain_that_was_flushed_keeps_no_rule_that_its_tree_left_out() -> None:
    """The tree is a list without the rules that never match, and enters no other chain."""
    rules = (
        "-p udp -j RETURN", "-d 10.1.2.3 -p tcp -m tcp --sport 53:80 -j RETURN", "-p udp -m udp --sport 443",
        "-p 47", "-p sctp -m sctp --dport 53 -j DROP", "-s 192.168.0.0/16 -p udp -m udp --dport 22 -j LOG",
    )  # fmt: skip
    state = begun("".join(f"-A many {rule}\n" for rule in rules))
    assert len(state.loaded.table("filter")["many"].rules) < len(rules)
    updates = updates_of(changed(state, Edit(Op.FLUSH, "filter", "many")))
    assert apply(state.master, updates).table("filter")["many"].rules == ()
