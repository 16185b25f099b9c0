"""A jump to a chain that is left stays in its chain, through updates and folds: its program looks there for it."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.planned_updates import check

import hitables
from sflgen import repair
from sflgen.commands import read_commands
from sflgen.edits import jumps_to, rule_key
from sflgen.kernel import Drift
from sflgen.planner import fold_unproved, plan_unproved, start_unproved
from sflgen.settings import Settings, Strategy
from sflgen.state import State

SETTINGS = Settings(backend="nft", foreign=("f2b-*",), delta=6)
MEMORY = "-m limit --limit 5/min"


def master(seed: int, jumps: int) -> hitables.Program:
    """A list of 60 rules with *jumps* to foreign chains at random places, some of them with memory."""
    rng = random.Random(seed)
    rules = [
        f"-A INPUT -s 10.{rng.randrange(256)}.{n}.0/24 -p tcp --dport {rng.randrange(1, 9999)} "
        f"-j {rng.choice(['ACCEPT', 'DROP', 'RETURN'])}\n"
        for n in range(60)
    ]
    for number in range(jumps):
        memory = rng.choice(["", MEMORY])
        rules.insert(rng.randrange(50), f"-A INPUT -p tcp --dport {number} {memory} -j f2b-{number % 2}\n")
    rules.insert(rng.randrange(60), f"-A INPUT -p udp {MEMORY} -j RETURN\n")
    chains = ":f2b-0 -\n:f2b-1 -\n-A f2b-1 -s 192.0.2.1 -j DROP\n"
    return hitables.read(f"*filter\n:INPUT DROP\n{chains}{''.join(rules)}COMMIT\n")


def stays(state: State) -> None:
    """The loaded chain has the jumps of the list, with all rules up to the last of them, and no other has any."""
    listed, loaded = state.master.table("filter"), state.loaded.table("filter")
    rules = listed["INPUT"].rules
    jumps = [at for at, rule in enumerate(rules) if SETTINGS.is_foreign(jumps_to(rule))]
    for chain in loaded.chains:
        found = [rule_key(rule) for rule in chain.rules if SETTINGS.is_foreign(jumps_to(rule))]
        assert found == [rule_key(rules[at]) for at in jumps if chain.name == "INPUT"]


@pytest.mark.parametrize("seed", range(4))
def test_jumps_stay_through_updates_and_folds(seed: int) -> None:
    rng = random.Random(seed)
    plan = start_unproved(master(seed, 3), SETTINGS)
    for number in range(14):
        check(plan)
        state = plan.after
        stays(state)
        if number == 7:
            plan = fold_unproved(state)
            continue
        count = len(state.master.table("filter")["INPUT"].rules)
        at = rng.randint(1, count)
        rule = rng.choice([f"-s 10.0.{number}.0/24 -j DROP", "-j f2b-0", f"-p tcp {MEMORY} -j f2b-1"])
        command = rng.choice([f"-D INPUT {at}", f"-I INPUT {at} {rule}", f"-R INPUT {at} {rule}"])
        plan = plan_unproved(state, read_commands(command, state.master))


def test_a_list_has_its_tree_behind_the_last_jump() -> None:
    state = start_unproved(master(1, 1), SETTINGS).after
    (layout,) = state.layouts.values()
    assert not layout.sections[0].tree
    assert any(section.tree for section in layout.sections[1:])


def test_rules_that_are_inserted_just_behind_the_last_jump_become_entries_of_the_tree() -> None:
    """Else every ban behind the jump would make each packet read one more rule, for ever."""
    jump = "-A INPUT -p tcp --dport 22 -j f2b-0\n"
    lines = hitables.write(master(1, 0)).splitlines(keepends=True)
    text = "".join(line for line in lines if "limit" not in line).replace("-A INPUT", f"{jump}-A INPUT", 1)
    state = start_unproved(hitables.read(text), SETTINGS).after
    plan = plan_unproved(state, read_commands("-I INPUT 2 -s 192.0.2.9 -j DROP", state.master))
    check(plan)
    assert len(plan.after.loaded.table("filter")["INPUT"].rules) == 2  # the jump, and the way to the tree
    assert [strategy for *_, strategy in plan.chosen] == [Strategy.OVERLAY]


def test_a_list_that_ends_with_a_jump_is_loaded_as_it_is() -> None:
    text = hitables.write(master(1, 0)).replace("COMMIT", "-A INPUT -j f2b-0\nCOMMIT")
    plan = start_unproved(hitables.read(text), SETTINGS)
    assert not plan.edits and not plan.after.layouts


@pytest.mark.parametrize(("table", "foreign", "has_tree"), [
    ("nat", "DOCKER*", False), ("nat", "f2b-*", True), ("mangle", "DOCKER*", True),
])  # fmt: skip
def test_a_chain_to_which_docker_appends_has_no_tree(table: str, foreign: str, has_tree: bool) -> None:
    """Packets would not come back from it to the jump, which may come at any time."""
    rules = "".join(f"-A OUTPUT -s 10.{each}.0.0/16 -p udp --dport {each} -j ACCEPT\n" for each in range(60))
    program = hitables.read(f"*{table}\n:OUTPUT ACCEPT\n{rules}COMMIT\n")
    state = start_unproved(program, Settings(backend="nft", foreign=(foreign,))).after
    assert any(state.layouts.values()) == has_tree


def test_jumps_are_taken_again_where_another_program_was_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """It changed them before the first commit, and once more behind the second."""
    drift = Drift("the kernel does not hold it")
    state = SimpleNamespace(version=1)
    answers = iter([drift, drift, drift, None])
    tries = iter([(False, drift), (True, drift), (True, None)])

    def kernel_check(state: object) -> None:
        if error := next(answers):
            raise error

    def take(*_: object) -> None:
        commits, error = next(tries)
        state.version += commits
        if error:
            raise error

    for name, value in (("find", None), ("_changes_foreign_jumps_only", True), ("updates_of", ["update"])):
        monkeypatch.setattr(repair, name, lambda *_, value=value: value)
    monkeypatch.setattr(repair, "shown", lambda _: ["-I INPUT -j f2b-0"])
    monkeypatch.setattr(repair, "planner", lambda _: lambda *_: None)
    monkeypatch.setattr(repair, "take", take)
    kernel, store = SimpleNamespace(check=kernel_check), SimpleNamespace(state=state)
    taken: list[Any] = []
    told: list[str] = []
    repair.check(cast(Any, kernel), cast(Any, store), told.append, taken)
    assert taken == ["update", "update"] and told == ["taken from the kernel: -I INPUT -j f2b-0"] * 2
