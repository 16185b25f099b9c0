"""Classifiers that are built again for each update, as the SFL paper drives them (section V)."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from hitables import engine
from hitables.engine import Layout, Rules
from hitables.errors import DatabaseError, OutOfMemory

LAYOUT = Layout((16, 16))
# Both let searches go on while A is built, and updates wait.
WAITING = [
    "classic(rfc)", "sfl(rfc, delta=0, background=2)", "sfl(rfc, delta=0, background=2, vector=0)",
    "checked(classic(rfc))", "storm(classic(rfc))",
]  # fmt: skip


def made(count: int, seed: int = 1) -> Rules:
    """Rules with priorities 0, 2, 4, …"""
    lows = np.random.default_rng(seed).integers(0, 60_000, (count, 2)).tolist()
    return Rules.of_ranges([[(x, x + 3000), (y, y + 3000)] for x, y in lows], LAYOUT, range(0, 2 * count, 2))


def headers(count: int, seed: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 65_536, (count, 2)).astype(np.uint32)


@pytest.mark.parametrize("plan", WAITING)
def test_each_update_is_one_build(plan: str) -> None:
    with engine.open(plan, made(50)) as db:
        assert db.rebuilds == 0
        for number in range(6):
            db.insert([(number, 9), (0, 9)], 2 * number + 1)
        db.remove(1)
        db.settle()
        assert db.rebuilds == 7


def test_a_rule_of_many_boxes_is_one_build() -> None:
    wide = Layout((48,))
    with engine.open("classic(tss)", Rules.of_ranges([[(0, 9)]], wide)) as db:
        db.insert([(5, 2**40 + 7)], 7)
        db.settle()
        assert db.rebuilds == 1
        assert db.search(wide.headers([[3], [2**40 + 7], [2**40 + 8]])).tolist() == [0, 7, -1]


@pytest.mark.parametrize("plan", [*WAITING, "classic(hypersplit)", "classic(bit_vector)"])
def test_an_update_is_in_force_when_its_call_returns_whatever_is_being_built(plan: str) -> None:
    packets = headers(300)
    with engine.open(plan, made(400)) as db, engine.open("linear", made(400)) as linear:
        for number in range(12):
            for each in (db, linear):
                each.insert([(1000 * number, 65_535), (0, 65_535)], 40 * number + 1)
            assert (db.search(packets) == linear.search(packets)).all()
        for number in range(12):
            for each in (db, linear):
                each.remove(40 * number + 1)
            assert (db.search(packets) == linear.search(packets)).all()
        db.settle()
        assert (db.search(packets) == linear.search(packets)).all()


@pytest.mark.parametrize("plan", WAITING)
def test_searches_go_on_while_updates_of_two_threads_wait_for_builds(plan: str) -> None:
    """Each search answers for the rules of a moment: a rule that goes in and out is there, or is not."""
    packets, rules, wrong, stop = headers(500), made(300), [], threading.Event()
    with engine.open("linear", rules) as linear:
        before = linear.search(packets)
    searches = 0
    with engine.open(plan, rules) as db:

        def search() -> None:
            nonlocal searches
            while not stop.is_set():
                found = db.search(packets)
                searches += 1
                if not ((found == before) | (before == -1) & (found >= 10_000)).all():
                    wrong.append(found)

        def update(priority: int) -> None:
            for _ in range(10):
                db.insert([(0, 65_535), (0, 65_535)], priority)
                db.remove(priority)

        searcher = threading.Thread(target=search)
        updaters = [threading.Thread(target=update, args=(priority,)) for priority in (10_000, 10_001)]
        for thread in (searcher, *updaters):
            thread.start()
        for thread in updaters:
            thread.join()
        stop.set()
        searcher.join()
        db.settle()
        assert (db.search(packets) == before).all() and db.rebuilds == 40
    assert not wrong and searches


def test_the_published_form_waits_as_long_as_it_builds_and_then_flushes_its_buffer() -> None:
    with engine.open("sfl(hypersplit, delta=4, background=2)", made(200)) as db:
        for number in range(15):
            db.insert([(0, number), (0, 3)], 2 * number + 1)
        db.settle()
        assert db.rebuilds == 3  # at the 5th, 10th and 15th


def test_what_wraps_tells_the_rebuilds_of_what_it_wraps() -> None:
    for plan in ("checked(classic(tss))", "flows(classic(tss))", "storm(classic(tss))"):
        with engine.open(plan, made(20)) as db:
            db.insert([(0, 1), (0, 1)], 1)
            db.settle()
            assert db.rebuilds == 1
    with engine.open("hypersplit", made(20)) as db:
        db.insert([(0, 1), (0, 1)], 1)
        assert db.rebuilds == 1
    with engine.open("tss", made(20)) as db:
        db.insert([(0, 1), (0, 1)], 1)
        assert db.rebuilds == 0


def test_a_build_that_does_not_fit_leaves_the_list_to_answer() -> None:
    packets = headers(500)
    with engine.open("classic(rfc)", made(10)) as db:
        limit = db.peak_bytes + 10_000
    with engine.open("classic(rfc)", made(10), limit=limit) as db, engine.open("linear", made(10)) as linear:
        for number, box in enumerate(made(100, 3).boxes.tolist()):
            for each in (db, linear):
                each.insert([(low, high) for low, high in box], 2 * number + 1)
        assert (db.search(packets) == linear.search(packets)).all()
        with pytest.raises(OutOfMemory):
            db.settle()
        for number in range(100):
            for each in (db, linear):
                each.remove(2 * number + 1)
        db.settle()  # what fits again is built again
        assert (db.search(packets) == linear.search(packets)).all()


def test_updates_that_are_refused_build_nothing() -> None:
    with engine.open("classic(tss)", made(5)) as db:
        with pytest.raises(DatabaseError, match="there already"):
            db.insert([(0, 1), (0, 1)], 0)
        with pytest.raises(DatabaseError, match="no rule of priority"):
            db.remove(1)
        db.settle()
        assert db.rebuilds == 0 and len(db) == 5
