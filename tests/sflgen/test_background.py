"""Folds in the background: updates made meanwhile are planned over the new trees, and none is lost."""

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
from sflgen.background import BackgroundFold, Stale, piece_plan, unreachable_pieces
from sflgen.commands import read_commands
from sflgen.edits import Op, apply, jumps_to, read_edits
from sflgen.planner import due, pending, plan_unproved, start_unproved
from sflgen.proof import verify
from sflgen.session import Session
from sflgen.settings import Settings, Strategy
from sflgen.state import State
from sflgen.store import Store


def wait(fold: BackgroundFold) -> None:
    """Wait, without a limit, until the fold has a result."""
    while not fold.is_done():
        select.select([fold.socket], [], [])


@settings(max_examples=examples(8))
@given(seed=st.integers(0, 1 << 32), backend=st.sampled_from(["any", "nft", "legacy"]))
def test_a_fold_with_updates_meanwhile_keeps_the_law(seed: int, backend: str) -> None:
    rng = random.Random(seed)
    state = start_unproved(
        hitables.read(make_text(rng, rules=80, memory=0.15)), Settings(backend, min_length=3)
    ).after
    for _ in range(3):
        _, updates, _ = make_updates(rng, state.master, 1, favoured(state))
        try:
            state = plan_unproved(state, updates, Strategy.GRAFT).after
        except Unsupported:
            continue
    fold = BackgroundFold(state, list(state.layouts), proving=True)
    for _ in range(4):
        _, updates, _ = make_updates(rng, state.master, rng.choice([1, 2]), favoured(state))
        try:
            plan = plan_unproved(state, updates, Strategy.GRAFT)
        except Unsupported:
            continue
        fold.note(plan)
        state = plan.after
    wait(fold)
    try:
        plan = fold.plan(state, proving=True)
    except (Stale, Unsupported):
        return  # an update folds a chain itself
    finally:
        fold.stop()
    check(plan)
    assert plan.after.master == state.master and plan.after.version == state.version + 1
    for place in state.layouts.keys() & plan.after.layouts.keys():
        assert plan.after.layouts[place].shared == state.layouts[place].shared, "memory stays in its chain"
    _, updates, _ = make_updates(rng, plan.after.master, 1, favoured(plan.after))
    check(plan_unproved(plan.after, updates))


def test_a_fold_removes_entries_except_those_inserted_meanwhile() -> None:
    state = with_pending(delta=3)
    assert due(state) == [("filter", "INPUT")]
    fold = BackgroundFold(state, due(state), proving=False)
    limited = "-I INPUT 50 -s 10.0.0.0/12 -m limit --limit 5/min -j LOG"
    for command in (limited, "-I INPUT 70 -s 10.9.0.0/16 -j DROP", "-D INPUT 3"):
        plan = plan_unproved(state, read_commands(command, state.master), Strategy.GRAFT)
        fold.note(plan)
        state = plan.after
    (shared,) = (name for _, name in state.layouts["filter", "INPUT"].shared)
    (before,) = pending(state)
    wait(fold)
    plan = fold.plan(state, proving=True)
    fold.stop()
    check(plan)
    (left,) = pending(plan.after)
    assert left.entries > 0 and left.cost < before.cost / 3
    assert not due(plan.after)
    assert all(edit.chain != shared for edit in plan.edits), (
        "the rule with memory keeps its chain and its counter"
    )


def test_the_folding_process_closes_inherited_files() -> None:
    """A tool started at the same time waits until no process holds the other ends of its pipes."""
    state = with_pending(delta=32)
    end, ours = os.pipe()
    fold = BackgroundFold(state, [("filter", "INPUT")], proving=False)
    try:
        os.close(ours)
        assert os.read(end, 1) == b""
        assert not fold.is_done(), "it waits for updates"
    finally:
        fold.stop()
        os.close(end)


INTERRUPTED = """
import os, signal
from sflgen.background import BackgroundFold
from support.planned_updates import with_pending
for number in (signal.SIGINT, signal.SIGTERM):  # the test runner may have set others
    signal.signal(number, signal.default_int_handler)
state = with_pending(32)
for number in (signal.SIGINT, signal.SIGTERM):
    os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), number))
    try:
        BackgroundFold(state, [("filter", "INPUT")], False)
    except KeyboardInterrupt:
        print(number.name)
"""


def test_an_interrupt_during_the_fork_is_not_lost() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("SIGINT\nSIGTERM\n", "")


def test_a_background_fold_is_stale_after_another_fold() -> None:
    state = with_pending(delta=32)
    fold = BackgroundFold(state, [("filter", "INPUT")], proving=False)
    plan = plan_unproved(state, read_commands("-D INPUT 3", state.master), Strategy.FOLD)
    fold.note(plan)
    wait(fold)
    with pytest.raises(Stale):
        fold.plan(plan.after, proving=True)
    fold.stop()


def test_a_failed_fold_has_a_reason_and_a_fold_can_be_stopped() -> None:
    state = with_pending(delta=32)
    fold = BackgroundFold(state, [("filter", "INPUT")], proving=False)
    fold.stop()
    fold = BackgroundFold(state, [("mangle", "INPUT")], proving=True)  # a chain that does not exist
    wait(fold)
    assert fold.plan(state, proving=True).edits == ()
    fold.stop()
    other = apply(state.master, read_commands("-P INPUT DROP", state.master))  # not the loaded rule set
    broken = State(state.settings, other, state.loaded, state.layouts, state.entry_chains)
    fold = BackgroundFold(broken, [("filter", "INPUT")], proving=True)
    wait(fold)
    with pytest.raises(HitablesError, match="treats a packet differently"):
        fold.plan(broken, proving=True)
    fold.stop()


@settings(max_examples=examples(6))
@given(seed=st.integers(0, 1 << 32))
def test_no_packet_reaches_staged_trees_until_they_are_taken_over(seed: int) -> None:
    rng = random.Random(seed)
    program = hitables.read(make_text(rng, rules=60, memory=0.15))
    state = start_unproved(program, Settings("nft", min_length=3)).after
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sflgen.background.PIECE", 7)
        fold = BackgroundFold(state, list(state.layouts), proving=True, staged=True)
    while True:
        done = fold.is_done()
        plan = None
        if fold.pieces:
            plan = piece_plan(state, fold.pieces.popleft())
            assert not plan.updates
            used = {edit.chain for edit in plan.edits}
            assert not used & reached(state), "no packet reaches a staged chain"
        elif done:
            break
        elif len(fold.since) < 4:
            _, updates, _ = make_updates(rng, state.master, 1, favoured(state))
            if any(edit.op is Op.REMOVE for edit in updates):
                continue  # a session removes staged chains first
            try:
                plan = plan_unproved(state, updates, Strategy.GRAFT)
            except Unsupported:
                continue
            fold.note(plan)
        else:
            select.select([fold.socket], [], [])
        if plan is not None:
            state = plan.after
    try:
        plan = fold.plan(state, proving=True)
    except (Stale, Unsupported):
        return  # an update folds a chain itself
    finally:
        fold.stop()
    check(plan)
    assert plan.after.master == state.master and plan.after.name_range != state.name_range
    old = {chain.name for table in state.loaded for chain in table.chains} - reached(plan.after)
    assert not {edit.chain for edit in plan.edits if edit.op is not Op.NEW} & old, "old trees are not changed"
    state = plan.after
    for piece in unreachable_pieces(state):
        state = piece_plan(state, piece).after
    assert not unreachable_pieces(state)
    assert verify(state) and {c.name for t in state.loaded for c in t.chains} == reached(state)
    _, updates, _ = make_updates(rng, state.master, 1, favoured(state))
    check(plan_unproved(state, updates))


def test_updates_over_staged_trees_are_staged_too() -> None:
    """The last patch has few lines, however many updates came while the trees were grown."""
    state = start_unproved(prefixes(60), Settings("nft", min_length=3)).after
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sflgen.background.PIECE", 7)
        fold = BackgroundFold(state, [("filter", "INPUT")], proving=False, staged=True)
    for number in range(20):
        command = f"-I INPUT {number + 1} -s 10.{number}.5.0/24 -p tcp -j DROP"
        plan = plan_unproved(state, read_commands(command, state.master), Strategy.GRAFT)
        fold.note(plan)
        state = plan.after
    while not fold.is_done():
        if fold.pieces:
            state = piece_plan(state, fold.pieces.popleft()).after
        else:
            select.select([fold.socket], [], [], 1)
    plan = fold.plan(state, proving=True)
    fold.stop()
    check(plan)
    assert len(plan.edits) < 20, "each update has an edit of its own"


def test_a_fold_ends_though_updates_of_two_tables_alternate() -> None:
    """The pieces of updates are as long as others, and no round after the last one makes more of them."""
    rules = "".join(f"-A INPUT -s 10.{n}.0.0/16 -p tcp --dport {n + 1} -j DROP\n" for n in range(40))
    text = "".join(f"*{table}\n:INPUT ACCEPT\n{rules}COMMIT\n" for table in ("filter", "mangle"))
    state = start_unproved(hitables.read(text), Settings("nft", min_length=3)).after
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sflgen.background.PIECE", 30)
        patch.setattr("sflgen.background.MAX_ROUNDS", 2)
        fold = BackgroundFold(state, [("filter", "INPUT"), ("mangle", "INPUT")], proving=False, staged=True)
    for cycle in range(200):
        for number in range(4):  # more updates than FEW_UPDATES for each piece that is loaded
            table = ("filter", "mangle")[number % 2]
            command = f"-t {table} -I INPUT 1 -s 10.{cycle % 40}.{number}.0/24 -j DROP"
            plan = plan_unproved(state, read_commands(command, state.master), Strategy.GRAFT)
            fold.note(plan)
            state = plan.after
        select.select([fold.socket], [], [], 1)
        if fold.is_done():
            break
        if fold.pieces:
            state = piece_plan(state, fold.pieces.popleft()).after
    assert fold.is_done()
    plan = fold.plan(state, proving=True)
    fold.stop()
    check(plan)


def reached(state: State) -> set[str]:
    """The chains that packets may reach, and those of the list."""
    chains = {chain.name for table in state.master for chain in table.chains}
    for where, layout in state.layouts.items():
        chains |= layout.fixed_chains() | {section.name for section in layout.sections if where}
    pending_chains = list(chains)
    while pending_chains:
        name = pending_chains.pop()
        for table in state.loaded:
            for rule in table[name].rules if name in table else ():
                callee = jumps_to(rule)
                if callee and callee not in chains:
                    chains.add(callee)
                    pending_chains.append(callee)
    return chains


@pytest.mark.parametrize("behind", ["", "fold", "-I INPUT 1 -s 192.0.2.1 -j DROP", "-F NOWHERE"])
def test_the_printed_patches_lead_to_the_loaded_rule_set_of_the_state(behind: str, tmp_path: Path) -> None:
    """The patch of new trees is part of an answer, if there is another request or not."""
    state = start_unproved(prefixes(60), Settings(backend="nft", delta=3)).after
    answers: list[str] = []
    with Store.create(tmp_path / "st", state) as store:
        session = Session(store, None)
        for number in range(25):
            session.take([f"-I INPUT {2 * number + 1} -s 10.{4 * number}.0.0/13 -j DROP"], answers.append)
            if session.folds.running is not None:
                break
        assert session.folds.running is not None
        wait(session.folds.running)
        session.attend()
        session.finish()
        session.take([behind, "-A INPUT -j ACCEPT"] if behind else [], answers.append)
        session.settle()
        session.close()
    loaded = state.loaded
    for answer in answers:
        patch = "".join(
            line for line in answer.splitlines(keepends=True) if not line.startswith(("ok ", "error "))
        )
        loaded = apply(loaded, read_edits(patch, loaded))
    with Store.open(tmp_path / "st") as store:
        assert keys(loaded) == keys(store.state.loaded)
        assert isinstance(verify(store.state), Equal)
        assert store.state.pending() < 5 or not behind, "the new trees are loaded"
