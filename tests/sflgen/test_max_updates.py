"""A tree is grown anew by the update after `max_updates` updates, whatever these cost."""

from __future__ import annotations

import random
import select
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands import make_updates
from support.planned_updates import check, favoured, prefixes
from support.rule_texts import make_text
from support.scale import examples
from support.sflgen_command import both, sflgen
from support.small_namespace import Namespace

import hitables
from hitables.errors import HitablesError, Unsupported
from hitables.ir.fields import Family
from hitables.kernel.namespace import run
from hitables.verify.question import Equal
from sflgen.background import BackgroundFold
from sflgen.commands import read_commands
from sflgen.kernel import Kernel
from sflgen.planner import due, plan_unproved, start_unproved
from sflgen.proof import verify
from sflgen.session import Session
from sflgen.settings import Settings, Strategy
from sflgen.state import State
from sflgen.store import Store

# Entries may cost as much as they like.
UNBOUNDED = 1 << 20
PLACE = ("filter", "INPUT")


def ban(number: int) -> str:
    return f"-I INPUT {5 + number} -s 192.0.2.{number} -j DROP"


def counting(most: int | None) -> State:
    return start_unproved(prefixes(20), Settings(delta=UNBOUNDED, max_updates=most)).after


@settings(max_examples=examples(8))
@given(seed=st.integers(0, 1 << 32), most=st.integers(0, 6))
def test_the_law_holds_and_no_more_updates_are_pending_than_allowed(seed: int, most: int) -> None:
    rng = random.Random(seed)
    program = hitables.read(make_text(rng, rules=rng.randrange(10, 60), memory=0.15))
    state = start_unproved(program, Settings("nft", min_length=3, max_updates=most)).after
    for _ in range(10):
        _, updates, master = make_updates(rng, state.master, rng.choice([1, 1, 2, 5]), favoured(state))
        try:
            plan = plan_unproved(state, updates)
        except Unsupported:
            continue
        check(plan)
        assert plan.after.master == master
        assert all(layout.updates <= most for layout in plan.after.layouts.values())
        state = plan.after


@pytest.mark.parametrize("most", [0, 1, 4])
def test_every_update_after_the_last_one_allowed_folds_and_no_other_does(most: int) -> None:
    state, folds = counting(most), []
    for number in range(1, 11):
        # Deletions leave no entry, and count.
        command = "-D INPUT 7" if number % 3 == 0 else ban(number)
        plan = plan_unproved(state, read_commands(command, state.master))
        state = plan.after
        if plan.folds:
            folds.append(number)
            assert not state.pending()
    assert folds == list(range(most + 1, 11, most + 1))
    assert isinstance(verify(state), Equal)


def test_a_batch_of_more_updates_than_allowed_is_one_fold_without_entries() -> None:
    state = counting(3)
    commands = "\n".join(ban(number) for number in range(4))
    plan = plan_unproved(state, read_commands(commands, state.master))
    assert plan.folds and not plan.after.pending()
    check(plan)


def test_updates_are_not_counted_without_the_setting_nor_where_the_caller_forbids_folds() -> None:
    state = counting(None)
    for number in range(12):
        state = plan_unproved(state, read_commands(ban(number), state.master)).after
    assert state.layouts[PLACE].updates == 0 and not due(state)
    state = counting(2)
    for number in range(4):
        plan = plan_unproved(state, read_commands(ban(number), state.master), Strategy.GRAFT)
        assert not plan.folds
        state = plan.after
        assert due(state) == ([PLACE] if number >= 2 else [])


def test_the_number_may_not_be_negative() -> None:
    with pytest.raises(HitablesError, match="max_updates must be at least 0"):
        Settings(max_updates=-1)


def test_a_state_remembers_the_number_and_the_updates_so_far(tmp_path: Path) -> None:
    with Store.create(tmp_path / "st", counting(3)) as store:
        for number in range(2):
            store.commit(plan_unproved(store.state, read_commands(ban(number), store.state.master)))
    with Store.open(tmp_path / "st") as store:
        assert store.state.settings.max_updates == 3 and store.state.layouts[PLACE].updates == 2
        store.compact()
    folded = []
    with Store.open(tmp_path / "st") as store:
        for number in range(2, 4):
            plan = plan_unproved(store.state, read_commands(ban(number), store.state.master))
            store.commit(plan)
            folded.append(plan.folds)
        assert folded == [False, True]
    assert (tmp_path / "st" / "state").read_text().startswith("sflgen-state 3\n")


def test_a_state_without_the_setting_has_the_text_that_older_versions_read(tmp_path: Path) -> None:
    with Store.create(tmp_path / "st", counting(None)) as store:
        store.commit(plan_unproved(store.state, read_commands(ban(1), store.state.master)))
        store.compact()
    texts = [path.read_text() for path in (tmp_path / "st").iterdir() if path.name != "lock"]
    assert any(text.startswith("sflgen-state 2\n") for text in texts)
    assert not any("max_updates" in text or "updates=" in text for text in texts)
    with Store.open(tmp_path / "st") as store:
        assert store.state.settings.max_updates is None


def test_a_stream_begins_a_fold_with_each_update_after_the_last_one_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    class Noted(BackgroundFold):
        def __init__(self, state: State, *others: object) -> None:
            begun.append(state.version)
            super().__init__(state, *others)  # type: ignore[arg-type]

    monkeypatch.setattr("sflgen.fold_scheduler.BackgroundFold", Noted)
    with Store.create(tmp_path / "st", counting(3)) as store:
        first = store.state.version
        session = Session(store, None)
        for number in range(12):
            assert session.answer(ban(number)).splitlines()[-1].startswith("ok ")
            fold = session.folds.running
            while fold is not None and not fold.is_done():
                select.select([fold.socket], [], [])
        session.close()
        state = store.state
    assert begun[0] == first + 4 and len(begun) >= 2
    assert state.layouts[PLACE].updates <= 5
    assert isinstance(verify(state), Equal)


def test_the_command_line_sets_it_and_the_status_shows_it(tmp_path: Path) -> None:
    rules, folder = tmp_path / "plain.rules", str(tmp_path / "st")
    rules.write_text(hitables.write(prefixes(20)))
    assert sflgen("init", str(rules), "--max-updates", "2", "--state", folder).exit_code == 0
    said = [sflgen("insert", "--state", folder, *ban(number).split()[1:]).stderr for number in (1, 2)]
    assert not any("fold" in each for each in said)
    shown = sflgen("status", "--state", folder).stdout
    assert "filter INPUT: 2 updates since its trees were grown (folded by update 3)" in shown
    assert "INPUT: fold" in sflgen("insert", "--state", folder, *ban(3).split()[1:]).stderr
    assert "since its trees" not in sflgen("status", "--state", folder).stdout
    refused = sflgen("init", str(rules), "--max-updates", "-1", "--state", str(tmp_path / "other"))
    assert refused.exit_code == 2 and "--max-updates" in refused.stderr


def streamed(folder: str, backend: str, updates: int) -> list[int]:
    """Run inside: a session on the kernel takes *updates*, and waits for each fold; before which ones trees
    were new.
    """
    settings = Settings(backend, delta=UNBOUNDED, max_updates=3)
    state = start_unproved(prefixes(20), settings).after
    run([f"iptables-{backend}-restore"], hitables.write(state.loaded))
    new_trees = []
    with Store.create(Path(folder), state) as store:
        kernel = Kernel(Family.IPV4, settings, stays=True)
        session = Session(store, kernel)
        for number in range(updates):
            name_range = store.state.name_range
            assert session.answer(ban(number)).splitlines()[-1].startswith("ok ")
            while session.folds.is_busy:
                select.select([session], [], [], 0.01)
                session.attend()
            session.finish()
            if store.state.name_range != name_range:
                new_trees.append(number + 1)
        session.close()
        kernel.check(store.state)
        assert isinstance(verify(store.state), Equal)
        assert len(store.state.master.table("filter")["INPUT"].rules) == 20 + updates
    return new_trees


@pytest.mark.needs_kernel
@both
def test_a_live_stream_folds_in_the_background_for_each_update_after_the_last_one_allowed(
    backend: str, tmp_path: Path
) -> None:
    with Namespace() as namespace:
        assert namespace.call(streamed, str(tmp_path / "st"), backend, 13) == [4, 8, 12]
