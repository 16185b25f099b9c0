"""What holds for one policy holds for any: `-P` changes it while the trees stay.  And for any foreign rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.planned_updates import check

import hitables
from hitables.errors import NotEquivalent
from hitables.verify import exact
from hitables.verify.question import Difference, Equal
from sflgen.cli.updates import sync
from sflgen.commands import read_commands
from sflgen.planner import plan_unproved
from sflgen.proof import plan, prove, prove_plan, start, verify
from sflgen.settings import Settings
from sflgen.state import State
from sflgen.store import Store

pytestmark = pytest.mark.engine
HIDING = "10.50.0.0/16"


def hidden_rules(policy: str, verdict: str, backend: str) -> State:
    """A tree without twenty rules of *verdict*, which a rule of the other verdict hides."""
    other = "DROP" if verdict == "ACCEPT" else "ACCEPT"
    rules = [
        f"-A FORWARD -s 10.{n}.1.0/24 -p tcp --dport {n} -j {verdict if n % 2 else other}\n"
        for n in range(1, 120)
    ]
    rules.append(f"-A FORWARD -s {HIDING} -j {other}\n")
    rules += [f"-A FORWARD -s 10.50.{n}.0/24 -j {verdict}\n" for n in range(1, 20)]
    text = f"*filter\n:FORWARD {policy}\n{''.join(rules)}COMMIT\n"
    return start(hitables.read(text), Settings(backend=backend)).after


@pytest.mark.parametrize("backend", ["legacy", "nft"])
@pytest.mark.parametrize(("policy", "verdict"), [("ACCEPT", "ACCEPT"), ("DROP", "DROP"), ("-", "ACCEPT")])
def test_rules_that_a_deletion_reveals_are_not_replaced_by_the_policy(
    policy: str, verdict: str, backend: str
) -> None:
    """The tree lacks them.  While the policy decides as they do, no packet shows that; after `-P` packets do."""
    state = hidden_rules(policy, verdict, backend)
    other = "DROP" if verdict == "ACCEPT" else "ACCEPT"
    for command in (f"-D FORWARD -s {HIDING} -j {other}", f"-P FORWARD {other}"):
        planned = plan(state, read_commands(command, state.master))
        check(planned)
        state = planned.after
    assert state.master.table("filter")["FORWARD"].policy == other


def without_entry(state: State) -> State:
    """The state after a deletion in place as earlier versions proved it: the tree relies on the policy."""
    command = read_commands(f"-D FORWARD -s {HIDING} -j DROP", state.master)
    planned = plan(state, command)
    tables = []
    for table in planned.before.loaded:
        chains = {
            chain.name: chain.with_rules(
                tuple(rule for rule in chain.rules if HIDING not in str(rule.matches) or rule.enters)
            )
            for chain in table.chains
        }
        tables.append(table.of(chains))
    return replace(state, master=planned.after.master, loaded=replace(state.loaded, tables=tuple(tables)))


def test_a_change_of_policy_grows_a_tree_anew_that_relies_on_the_policy() -> None:
    state = without_entry(hidden_rules("ACCEPT", "ACCEPT", "nft"))
    assert isinstance(verify(state), Equal)
    with pytest.raises(NotEquivalent):
        prove(state)
    updates = read_commands("-P FORWARD DROP", state.master)
    with pytest.raises(NotEquivalent):
        prove_plan(plan_unproved(state, updates))
    changed = plan(state, updates)
    assert changed.folds and isinstance(verify(changed.after), Equal)


def with_calls(calls: str) -> State:
    """A tree over chain user, which *calls* may enter."""
    rules = "".join(
        f"-A user -s 10.{n}.0.0/16 -p tcp --dport {n} -j {'ACCEPT' if n % 3 else 'DROP'}\n"
        for n in range(1, 99)
    )
    text = f"*filter\n:FORWARD ACCEPT\n:user -\n:DOCKER -\n-A FORWARD -j DOCKER\n{calls}{rules}COMMIT\n"
    return start(hitables.read(text), Settings(backend="nft", foreign=("DOCKER",))).after


def with_a_rule_left_out(state: State) -> State:
    table = state.loaded.table("filter")
    chains = {
        chain.name: chain.with_rules(
            tuple(rule for rule in chain.rules if "10.50.0.0/16" not in str(rule.matches))
        )
        for chain in table.chains
    }
    return replace(state, loaded=replace(state.loaded, tables=(table.of(chains),)))


@pytest.mark.parametrize("calls", ["", "-A DOCKER -s 192.0.2.1 -j user\n"], ids=["none", "foreign"])
def test_a_tree_is_proved_that_only_a_later_rule_of_others_may_enter(calls: str) -> None:
    state = with_calls(calls)
    assert ("filter", "user") in state.layouts
    assert isinstance(verify(state), Equal)
    wrong = with_a_rule_left_out(state)
    assert wrong.loaded.rule_count() < state.loaded.rule_count()
    answer = verify(wrong)
    assert isinstance(answer, Difference) and answer.chain == "user"


def test_what_a_foreign_chain_has_now_is_not_relied_on() -> None:
    """DOCKER drops all packets today, so no packet shows today what is wrong behind its call."""
    text = "*filter\n:FORWARD ACCEPT\n:DOCKER -\n-A DOCKER -j DROP\n-A FORWARD -j DOCKER\n-A FORWARD -p tcp -j DROP\nCOMMIT\n"
    state = start(hitables.read(text), Settings(backend="nft", foreign=("DOCKER",))).after
    wrong = replace(state, loaded=hitables.read(text.replace("-p tcp", "-p udp")))
    assert isinstance(exact.check(wrong.master, wrong.loaded, wrong.question()), Equal)
    assert isinstance(verify(wrong), Difference)
    with pytest.raises(NotEquivalent):
        prove(wrong)


@pytest.mark.parametrize(("declared", "patch"), [
    (":INPUT DROP [0:0]\n", ""),
    (":INPUT - [0:0]\n", ""),
    ("", ""),
    (":INPUT ACCEPT [0:0]\n", "*filter\n-P INPUT ACCEPT\nCOMMIT\n"),
])  # fmt: skip
def test_sync_leaves_a_policy_that_the_file_does_not_declare(
    declared: str, patch: str, tmp_path: Path
) -> None:
    """As `hitables apply`, and as iptables-restore of legacy."""
    heads, rule = ":FORWARD ACCEPT\n:OUTPUT ACCEPT\n", "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n"
    listed = hitables.read(f"*filter\n:INPUT DROP\n{heads}{rule}COMMIT\n")
    Store.create(tmp_path / "state", start(listed, Settings()).after).close()
    (tmp_path / "new.rules").write_text(f"*filter\n{declared}{heads}{rule}COMMIT\n")
    done = CliRunner().invoke(sync, ["--state", str(tmp_path / "state"), str(tmp_path / "new.rules")])
    assert done.exit_code == 0 and done.stdout == patch
