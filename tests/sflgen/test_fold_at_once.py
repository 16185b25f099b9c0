"""An update that makes packets read as many more rules as a fold is worth is loaded as a fold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import hitables
import sflgen
from hitables.ir.packet import Backend
from hitables.simulate.boundary_packets import BoundarySampler
from hitables.simulate.interpreter import Interpreter
from sflgen.edits import Edit
from sflgen.planner import Plan, costs_a_fold, plan_unproved, start_unproved
from sflgen.session import Session
from sflgen.settings import Settings, Strategy
from sflgen.state import State

# Its first rule hides parts of all others, so that it cannot be deleted in place.
RULES = "".join(f"-A INPUT -s 10.{at}.0.0/16 -j {'DROP' if at % 2 else 'ACCEPT'}\n" for at in range(200))
LISTED = f"*filter\n:INPUT ACCEPT\n-A INPUT -s 10.0.0.0/9 -j ACCEPT\n{RULES}COMMIT\n"


@pytest.fixture
def state() -> State:
    return start_unproved(hitables.read(LISTED), Settings(backend="nft", delta=4)).after


def rules_read(state: State) -> float:
    reader = Interpreter(state.loaded, Backend.NFT)
    batch = BoundarySampler(Interpreter(state.master, Backend.NFT), "filter", "INPUT", seed=1).draw(500)
    return float(reader.run("filter", "INPUT", batch).reads.mean())


def test_a_session_folds_at_once_and_rules_read_stay_few(tmp_path: Path, state: State) -> None:
    with sflgen.create(str(tmp_path / "state"), state) as store:
        session = Session(store, None)
        for command, pending in (("-I INPUT 9 -s 10.9.1.0/24 -j DROP", 1), ("-D INPUT 1", 0)):
            assert session.answer(command).splitlines()[-1].startswith("ok ")
            assert store.state.pending() == pending
        session.close()
        sflgen.prove(store.state)
        folded = sflgen.fold_unproved(store.state).after
        assert rules_read(store.state) <= 3 * rules_read(folded)


def test_only_what_an_update_adds_counts(state: State) -> None:
    wide = plan_unproved(state, sflgen.read_commands("-D INPUT 1", state.master), Strategy.GRAFT)
    assert costs_a_fold(wide)
    assert rules_read(wide.after) > 3 * rules_read(state)
    narrow = sflgen.read_commands("-I INPUT 9 -s 10.200.1.0/24 -j DROP", wide.after.master)
    assert not costs_a_fold(plan_unproved(wide.after, narrow, Strategy.GRAFT))
    folded = plan_unproved(wide.after, narrow, Strategy.FOLD)
    assert folded.folds and not costs_a_fold(folded)


@pytest.mark.parametrize(("most", "is_planned"), [(2000, True), (1, False)])
def test_no_fold_is_planned_that_would_be_too_long_to_load(
    tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch, most: int, is_planned: bool
) -> None:
    monkeypatch.setattr("sflgen.session.MOST_AT_ONCE", most)
    wide = plan_unproved(
        state, sflgen.read_commands("-I INPUT 2 -p tcp -j DROP", state.master), Strategy.GRAFT
    )
    folds: list[Strategy | None] = []

    def noted(before: State, updates: Sequence[Edit], strategy: Strategy | None = None) -> Plan:
        folds.append(strategy)
        return plan_unproved(before, updates, strategy)

    monkeypatch.setattr("sflgen.session.plan_unproved", noted)
    with sflgen.create(str(tmp_path / "state"), state) as store:
        session = Session(store, None)
        monkeypatch.setattr(session, "kernel", object())
        assert session.folded_at_once(wide).folds == is_planned == bool(folds)
        monkeypatch.setattr(session, "kernel", None)
        session.close()
