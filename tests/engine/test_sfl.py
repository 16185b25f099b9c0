"""SFL(A) after the paper: its example, when A is built again, and what happens meanwhile."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from hitables import engine
from hitables.core import classifiers
from hitables.engine import Layout, Rules
from hitables.errors import DatabaseError, OutOfMemory

LAYOUT = Layout((5,))
ALL = np.arange(32, dtype=np.uint32).reshape(-1, 1)


def database(plan: str, *ranges: tuple[int, int]) -> engine.Database:
    """Rules with priorities 10, 20, 30, …"""
    return engine.open(
        plan, Rules.of_ranges([[side] for side in ranges], LAYOUT, range(10, 10 * len(ranges) + 1, 10))
    )


def test_the_example_of_section_iv() -> None:
    """Figures 2 to 4: a rule goes in between, then the second one goes; 13 falls through to what is behind."""
    with database("sfl(linear, delta=20)", (0, 7), (8, 15), (16, 23), (8, 31)) as db:
        assert db.search(ALL)[[3, 13, 20, 30]].tolist() == [10, 20, 30, 40]
        db.insert([(14, 20)], 25)
        assert db.search(ALL)[[13, 14, 18, 22]].tolist() == [20, 20, 25, 30]
        db.remove(20)
        assert db.search(ALL)[[3, 13, 14, 18, 22]].tolist() == [10, 40, 25, 25, 30]


def test_rules_around_a_deleted_one_keep_their_order() -> None:
    """Algorithm 1 to the letter would put 15 into the node of rule 30, behind 18."""
    with database("sfl(linear)", (0, 0), (1, 9), (31, 31)) as db:
        db.insert([(1, 9)], 18)
        db.remove(20)
        db.insert([(1, 9)], 15)
        assert db.search(ALL)[5] == 15


def test_a_build_that_does_not_fit_leaves_the_buffer_to_answer() -> None:
    rules = [(low, low + 1) for low in range(0, 30, 2)]
    with database("sfl(linear, delta=3, background=0)", *rules) as db:
        limit = db.bytes + 1500  # room for the buffer, not for the snapshot and a second list
    plan = "sfl(linear, delta=3, background=0)"
    with engine.open(
        plan, Rules.of_ranges([[side] for side in rules], LAYOUT, range(10, 151, 10)), limit=limit
    ) as db:
        for priority in range(5):
            db.insert([(priority, priority)], priority)
        assert db.search(ALL)[:6].tolist() == [0, 1, 2, 3, 4, 30]
        with pytest.raises(OutOfMemory):
            db.settle()


def test_updates_go_on_while_it_is_built() -> None:
    layout = Layout((16, 16))
    rng = np.random.default_rng(1)
    lows = rng.integers(0, 60000, (3000, 2))
    sides = [[(int(low), int(low) + 4000) for low in row] for row in lows]
    rules = Rules.of_ranges(sides[:2000], layout)
    packets = rng.integers(0, 65536, (2000, 2)).astype(np.uint32)
    with engine.open("sfl(linear, delta=10)", rules) as db, engine.open("linear", rules) as linear:
        for number in range(2000, 3000):
            for each in (db, linear):
                each.insert(sides[number], number)
                each.remove(number - 1500)
            if number % 100 == 0:
                assert (db.search(packets) == linear.search(packets)).all()
        db.settle()
        assert (db.search(packets) == linear.search(packets)).all()


def test_checked_is_around_any_plan() -> None:
    with database("checked(sfl(linear))", (0, 7), (8, 15)) as db:
        db.insert([(3, 30)], 5)
        assert db.search(ALL)[[0, 3, 31]].tolist() == [10, 5, -1]
        db.remove(5)
        with pytest.raises(DatabaseError, match="no rule of priority 5"):
            db.remove(5)


@pytest.mark.parametrize("vector", [0, 1])
@pytest.mark.parametrize("dims", [2, 5])
def test_a_long_buffer_corrects_as_the_list_says(dims: int, vector: int) -> None:
    """Hundreds of inserted and deleted rules, several to an index."""
    layout = Layout((8,) * dims)
    rng = np.random.default_rng(5)
    lows, widths = rng.integers(0, 200, (700, dims)), [40, 40, 250, 250, 250]
    sides = [
        [
            (int(low), min(255, int(low) + int(rng.integers(1, width))))
            for low, width in zip(row, widths, strict=False)
        ]
        for row in lows
    ]
    order = rng.permutation(700)
    start = sorted(order[:300].tolist())
    rules = Rules.of_ranges([sides[each] for each in start], layout, start)
    packets = rng.integers(0, 256, (20_003, dims)).astype(np.uint32)
    with (
        engine.open(f"sfl(linear, delta=100000, vector={vector})", rules) as db,
        engine.open("linear", rules) as linear,
    ):
        for each in (db, linear):
            for number in order[300:].tolist():
                each.insert(sides[number], number)
            for number in order[100:500].tolist():
                each.remove(number)
        assert (db.search(packets) == linear.search(packets)).all()


def test_a_plan_lives_until_its_database_has_been_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build in the background reads it until then; a program need not call `close`."""
    plans: list[weakref.ref[object]] = []
    alive: list[bool] = []
    close = classifiers.lib.vfdb_close

    class Noted(classifiers.EnginePlan):
        def __init__(self, composition: classifiers.Composition) -> None:
            super().__init__(composition)
            plans.append(weakref.ref(self))

    class Lib:
        def __getattr__(self, name: str) -> object:
            return getattr(lib, name)

        def vfdb_close(self, db: object) -> None:
            alive.extend(plan() is not None for plan in plans)
            close(db)

    lib = classifiers.lib
    monkeypatch.setattr(classifiers, "EnginePlan", Noted)
    monkeypatch.setattr(classifiers, "lib", Lib())
    db = engine.open("sfl(tss)", Rules.of_ranges([[(0, 7), (0, 7)]], Layout((3, 3))))
    del db
    gc.collect()
    assert alive and all(alive)
