"""Folds in the background: what was updated meanwhile stands over the new trees, and nothing is lost."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands import make_updates
from support.planned_updates import check, favoured, keys, prefixes, with_pending
from support.rule_texts import make_text
from support.scale import examples

import hitables
from hitables.errors import HitablesError, Unsupported
from hitables.verify.question import Equal
from sflgen.background import Folding, Stale, cleared_away, put_aside
from sflgen.edits import Op, apply, jumps_to, read_commands, read_edits
from sflgen.layout import Settings, Strategy
from sflgen.planner import due, pending, plan, start
from sflgen.session import Session
from sflgen.state import State, verify
from sflgen.store import Store


def wait(folding: Folding) -> None:
    """However long it takes."""
    while not folding.is_done():
        select.select([folding.socket], [], [])


@settings(max_examples=examples(8))
@given(seed=st.integers(0, 1 << 32), backend=st.sampled_from(["any", "nft", "legacy"]))
def test_a_fold_with_updates_meanwhile_keeps_the_law(seed: int, backend: str) -> None:
    rng = random.Random(seed)
    state = start(hitables.read(make_text(rng, rules=80, memory=0.15)), Settings(backend, min_length=3)).after
    for _ in range(3):
        _, updates, _ = make_updates(rng, state.master, 1, favoured(state))
        try:
            state = plan(state, updates, Strategy.GRAFT).after
        except Unsupported:
            continue
    folding = Folding(state, list(state.served), proving=True)
    for _ in range(4):
        _, updates, _ = make_updates(rng, state.master, rng.choice([1, 2]), favoured(state))
        try:
            made = plan(state, updates, Strategy.GRAFT)
        except Unsupported:
            continue
        folding.note(made)
        state = made.after
    wait(folding)
    try:
        made = folding.plan(state, proving=True)
    except (Stale, Unsupported):
        return  # one of the updates folds by itself
    finally:
        folding.stop()
    check(made)
    assert made.after.master == state.master and made.after.version == state.version + 1
    for place in state.served.keys() & made.after.served.keys():
        assert made.after.served[place].once == state.served[place].once, "memory stays in its chain"
    _, updates, _ = make_updates(rng, made.after.master, 1, favoured(made.after))
    check(plan(made.after, updates))


def test_a_fold_takes_entries_away_and_leaves_those_that_came_meanwhile() -> None:
    state = with_pending(delta=3)
    assert due(state) == [("filter", "INPUT")]
    folding = Folding(state, due(state), proving=False)
    limited = "-I INPUT 50 -s 10.0.0.0/12 -m limit --limit 5/min -j LOG"
    for command in (limited, "-I INPUT 70 -s 10.9.0.0/16 -j DROP", "-D INPUT 3"):
        made = plan(state, read_commands(command, state.master), Strategy.GRAFT)
        folding.note(made)
        state = made.after
    (shared,) = (name for _, name in state.served["filter", "INPUT"].once)
    (before,) = pending(state)
    wait(folding)
    made = folding.plan(state, proving=True)
    folding.stop()
    check(made)
    (left,) = pending(made.after)
    assert left.entries > 0 and left.cost < before.cost / 3
    assert not due(made.after)
    assert all(edit.chain != shared for edit in made.edits), (
        "the rule with memory keeps its chain and its counter"
    )


def test_the_process_that_folds_holds_no_file_of_ours() -> None:
    """A tool that is started at the same time has pipes, and waits until nobody holds their other ends."""
    state = with_pending(delta=32)
    end, ours = os.pipe()
    folding = Folding(state, [("filter", "INPUT")], proving=False)
    try:
        os.close(ours)
        assert os.read(end, 1) == b""
        assert not folding.is_done(), "it waits for updates"
    finally:
        folding.stop()
        os.close(end)


INTERRUPTED = """
import os, signal
from sflgen.background import Folding
from support.planned_updates import with_pending
for number in (signal.SIGINT, signal.SIGTERM):  # whatever they do where the tests run
    signal.signal(number, signal.default_int_handler)
state = with_pending(32)
for number in (signal.SIGINT, signal.SIGTERM):
    os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), number))
    try:
        Folding(state, [("filter", "INPUT")], False)
    except KeyboardInterrupt:
        print(number.name)
"""


def test_an_interrupt_that_comes_while_python_forks_is_not_lost() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("SIGINT\nSIGTERM\n", "")


def test_a_fold_that_another_one_overtook_is_not_taken_over() -> None:
    state = with_pending(delta=32)
    folding = Folding(state, [("filter", "INPUT")], proving=False)
    made = plan(state, read_commands("-D INPUT 3", state.master), Strategy.FOLD)
    folding.note(made)
    wait(folding)
    with pytest.raises(Stale):
        folding.plan(made.after, proving=True)
    folding.stop()


def test_a_fold_that_fails_says_why_and_one_that_is_not_needed_is_stopped() -> None:
    state = with_pending(delta=32)
    folding = Folding(state, [("filter", "INPUT")], proving=False)
    folding.stop()
    folding = Folding(state, [("mangle", "INPUT")], proving=True)  # there is no such chain to fold
    wait(folding)
    assert folding.plan(state, proving=True).edits == ()
    folding.stop()
    other = apply(state.master, read_commands("-P INPUT DROP", state.master))  # not what is loaded
    broken = State(state.settings, other, state.loaded, state.served, state.hosts)
    folding = Folding(broken, [("filter", "INPUT")], proving=True)
    wait(folding)
    with pytest.raises(HitablesError, match="treats a packet differently"):
        folding.plan(broken, proving=True)
    folding.stop()


@settings(max_examples=examples(6))
@given(seed=st.integers(0, 1 << 32))
def test_trees_that_are_grown_aside_serve_nobody_until_they_are_taken_over(seed: int) -> None:
    rng = random.Random(seed)
    program = hitables.read(make_text(rng, rules=60, memory=0.15))
    state = start(program, Settings("nft", min_length=3)).after
    folding = Folding(state, list(state.served), proving=True, aside=True)
    while True:
        done = folding.is_done()
        made = None
        if folding.pieces:
            made = put_aside(state, folding.pieces.popleft())
            assert not made.updates
            used = {edit.chain for edit in made.edits}
            assert all(edit.op is Op.NEW or edit.op is Op.APPEND for edit in made.edits)
            assert not used & reached(state), "no packet comes there"
        elif done:
            break
        elif len(folding.since) < 4:
            _, updates, _ = make_updates(rng, state.master, 1, favoured(state))
            if any(edit.op is Op.REMOVE for edit in updates):
                continue  # a stream clears away first
            try:
                made = plan(state, updates, Strategy.GRAFT)
            except Unsupported:
                continue
            folding.note(made)
        else:
            select.select([folding.socket], [], [])
        if made is not None:
            state = made.after
    try:
        made = folding.plan(state, proving=True)
    except (Stale, Unsupported):
        return  # one of the updates folds by itself
    finally:
        folding.stop()
    check(made)
    assert made.after.master == state.master and made.after.half != state.half
    old = {chain.name for table in state.loaded for chain in table.chains} - reached(made.after)
    assert not {edit.chain for edit in made.edits if edit.op is not Op.NEW} & old, "old trees are left alone"
    state = made.after
    for piece in cleared_away(state):
        state = put_aside(state, piece).after
    assert not cleared_away(state)
    assert verify(state) and {c.name for t in state.loaded for c in t.chains} == reached(state)
    _, updates, _ = make_updates(rng, state.master, 1, favoured(state))
    check(plan(state, updates))


def reached(state: State) -> set[str]:
    """The chains that packets may come to, and those of the list."""
    found = {chain.name for table in state.master for chain in table.chains}
    for where, how in state.served.items():
        found |= how.names() | {section.name for section in how.sections if where}
    todo = list(found)
    while todo:
        name = todo.pop()
        for table in state.loaded:
            for rule in table[name].rules if name in table else ():
                below = jumps_to(rule)
                if below and below not in found:
                    found.add(below)
                    todo.append(below)
    return found


@pytest.mark.parametrize("behind", ["", "fold", "-I INPUT 1 -s 192.0.2.1 -j DROP", "-F NOWHERE"])
def test_what_is_printed_leads_to_what_the_state_says(behind: str, tmp_path: Path) -> None:
    """New trees are told with an answer, whatever is asked for next, or nothing is."""
    state = start(prefixes(60), Settings(backend="nft", delta=3)).after
    said: list[str] = []
    with Store.create(tmp_path / "st", state) as store:
        session = Session(store, None)
        for number in range(25):
            session.take([f"-I INPUT {2 * number + 1} -s 10.{4 * number}.0.0/13 -j DROP"], said.append)
            if session.folding is not None:
                break
        assert session.folding is not None
        wait(session.folding)
        session.attend()
        session.finish()
        session.take([behind, "-A INPUT -j ACCEPT"] if behind else [], said.append)
        session.settle()
        session.close()
    held = state.loaded
    for answer in said:
        patch = "".join(
            line for line in answer.splitlines(keepends=True) if not line.startswith(("ok ", "error "))
        )
        held = apply(held, read_edits(patch, held))
    with Store.open(tmp_path / "st") as store:
        assert keys(held) == keys(store.state.loaded)
        assert isinstance(verify(store.state), Equal)
        assert store.state.pending() < 5 or not behind, "the new trees were told, and are there"
