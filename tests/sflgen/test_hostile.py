"""The law of sflgen under updates that are meant to be hard for it, in long sequences and through files.

SFLGEN_RUNS sequences beginning with SFLGEN_SEED are tried; a handful by default.
"""

from __future__ import annotations

import functools
import os
import random
import re
import shlex
from pathlib import Path

import pytest
from support.hostile_updates import hostile_command, hostile_text, hostile_updates
from support.planned_updates import check, keys
from support.small_namespace import Namespace

import hitables
from hitables.analyse.levels import levels_above
from hitables.build.grow import grow
from hitables.compiler.options import NESTING
from hitables.errors import LiveError, ParseError, Unsupported
from hitables.ir.fields import Family
from hitables.ir.program import Program
from hitables.kernel.namespace import run as run_tool
from sflgen.commands import CommandReader
from sflgen.edits import Edit
from sflgen.kernel import Kernel
from sflgen.least_edits import sync
from sflgen.planner import Plan, fold_unproved, plan_unproved, start_unproved
from sflgen.proof import plan, prove_plan
from sflgen.settings import Settings, Strategy
from sflgen.state import State
from sflgen.store import Store

RUNS = int(os.environ.get("SFLGEN_RUNS", "6"))
SEED = int(os.environ.get("SFLGEN_SEED", "0"))
STRATEGIES = [None, None, None, Strategy.GRAFT, Strategy.GRAFT, Strategy.OVERLAY, Strategy.FOLD]


def chosen_settings(rng: random.Random) -> Settings:
    return Settings(
        backend=rng.choice(["any", "nft", "legacy"]),
        malformed=rng.choice(["stricter", "exact"]),
        delta=rng.choice([1, 3, 8, 32]),
        min_length=rng.choice([2, 3, 8]),
        max_expansion=rng.choice([4.0, 20.0]),
    )


def nests_too_deep(program: Program, settings: Settings) -> bool:
    """Whether the list nests too deep itself, with the chains that a tree may add."""
    limit = NESTING["nft" if settings.backend == "any" else settings.backend]
    return any(max(levels_above(table).values(), default=0) > limit for table in program)


def can_be_read(program: Program) -> bool:
    """Whether no chain reaches a rule that the kernel does not take below it."""
    try:
        hitables.read(hitables.write(program), family=program.family)
    except ParseError:
        return False
    return True


def checked_plan(rng: random.Random, state: State, updates: list[Edit], master: Program) -> Plan | None:
    """A plan that is checked against the law; None if the list nests too deep for the backend."""
    strategy = rng.choice(STRATEGIES)
    try:
        if rng.random() < 0.7:
            checked = plan(state, updates, strategy)
        else:
            checked = plan_unproved(state, updates, strategy)
            prove_plan(checked)
    except Unsupported:
        refused = nests_too_deep(master, state.settings) or not can_be_read(master)
        assert refused, "a legal update is refused"
        return None
    listed, wanted = keys(checked.after.master), keys(master)
    assert all(listed[each] == wanted.get(each, ["ACCEPT"]) for each in listed.keys() | wanted.keys())
    check(checked)
    return checked


def reopened(store: Store, folder: Path) -> Store:
    """The same state out of its files."""
    before = store.state
    store.close()
    store = Store.open(folder)
    now = store.state
    assert keys(now.master) == keys(before.master) and keys(now.loaded) == keys(before.loaded)
    assert dict(now.layouts) == dict(before.layouts) and dict(now.entry_chains) == dict(before.entry_chains)
    assert now.version == before.version
    return store


def run(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    family = rng.choice(list(Family))
    program = hitables.read(hostile_text(rng, family), family=family)
    first = start_unproved(program, chosen_settings(rng))
    check(first)
    store = Store.create(folder, first.before)
    store.commit(first)
    for _ in range(rng.choice([6, 6, 20])):
        state = store.state
        kind = rng.random()
        if kind < 0.04:
            master = hitables.read(hostile_text(rng, family), family=family)
            checked = checked_plan(rng, state, sync(state.master, master), master)
        elif kind < 0.07:
            checked = fold_unproved(state, rng.choice([None, list(state.layouts)[:1]]))
            check(checked)
        else:
            count = rng.choice([1, 1, 1, 1, 2, 4, 12])
            _, updates, master = hostile_updates(rng, state.master, count, list(state.layouts))
            checked = checked_plan(rng, state, updates, master)
        if checked is not None:
            store.commit(checked)
        if rng.random() < 0.3:
            store = reopened(store, folder)
    store.close()


@pytest.mark.parametrize("seed", range(SEED, SEED + RUNS))
def test_the_law_holds_after_any_sequence_of_updates(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grouping = [None, None, 1, 2][seed % 4]
    if grouping is not None:
        monkeypatch.setattr("hitables.compiler.run_trees.grow", functools.partial(grow, grouping=grouping))
    run(seed, tmp_path / "st")


def disagreements(seed: int, backend: str) -> list[str]:
    """Commands that are given to iptables in the namespace that this runs in, and to us: what one takes and the
    other refuses (rules that this kernel has no module for apart), and lists that are not the same then."""
    rng = random.Random(seed)
    family = rng.choice(list(Family))
    tool = ("iptables-" if family is Family.IPV4 else "ip6tables-") + backend
    kernel = Kernel(family, Settings(backend))
    lines = hostile_text(rng, family).splitlines(keepends=True)
    text = "".join(line for line in lines if not re.search(r"-m (mac|ttl)\b", line))
    run_tool([f"{tool}-restore"], text)
    program, found = hitables.read(text, family=family), []
    for _ in range(40):
        command = hostile_command(rng, program, [("filter", "INPUT"), ("filter", "user0")])
        reader = CommandReader(program)
        try:
            reader.line(command)
            refused = ""
        except ParseError as error:
            refused = error.reason
        try:
            run_tool([tool, *shlex.split(command)])
        except LiveError as error:
            found += [f"{command}: {error}"] if not refused and "-m" not in command else []
            continue
        if refused:
            found.append(f"{command}: {refused}")
            continue
        program = reader.program
    loaded, stored = keys(kernel.contents()), keys(kernel.as_stored(program))
    return found + [
        str(place)
        for place in loaded.keys() | stored.keys()
        if loaded.get(place, ["ACCEPT"]) != stored.get(place)
    ]


@pytest.mark.needs_kernel
@pytest.mark.parametrize("seed", range(SEED, SEED + min(RUNS, 4)))
def test_commands_have_the_effect_that_they_have_in_iptables(seed: int) -> None:
    with Namespace() as namespace:
        assert namespace.call(disagreements, seed, ["legacy", "nft"][seed % 2]) == []
