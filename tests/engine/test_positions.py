"""Rules by position, as SFL defines updates (section III-B): a database is a list."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples

from hitables import engine
from hitables.engine import Layout, Rules
from hitables.engine.layout import Range
from hitables.errors import DatabaseError, OutOfMemory

LAYOUT = Layout((3, 3))
ALL = LAYOUT.headers([[x, y] for x in range(8) for y in range(8)])
PLANS = [
    "linear", "tss", "hypersplit", "pacars", "best", "best(updates=1000000)", "sfl(bit_vector, delta=3)",
    "sfl(rfc, delta=3, background=2)", "classic(hypersplit)", "checked(tss)", "flows(tss)", "storm(tss)",
]  # fmt: skip

Sides = list[Range]
ANY: Sides = [(0, 7), (0, 7)]


def reading(rules: list[Sides], packets: np.ndarray) -> np.ndarray:
    """The position of the first rule that holds each packet, by the definition; -1 for none."""
    found = np.full(len(packets), -1, np.int32)
    for position in reversed(range(len(rules))):
        inside = [
            (low <= packets[:, d]) & (packets[:, d] <= high) for d, (low, high) in enumerate(rules[position])
        ]
        found[np.all(inside, axis=0)] = position
    return found


def of_list(plan: str, rules: list[Sides], priorities: list[int] | None = None) -> engine.Database:
    return engine.open(plan, Rules.of_ranges(rules, LAYOUT, priorities))


def sides() -> st.SearchStrategy[Sides]:
    side = st.tuples(st.integers(0, 7), st.integers(0, 7)).map(lambda ends: (min(ends), max(ends)))
    return st.lists(side, min_size=2, max_size=2)


@pytest.mark.parametrize("plan", PLANS)
@given(data=st.data())
@settings(max_examples=examples(12))
def test_updates_by_position_are_those_of_a_python_list(plan: str, data: st.DataObject) -> None:
    rules = data.draw(st.lists(sides(), max_size=8))
    first = data.draw(st.sampled_from([0, 5, 2**31 - 2 - len(rules)]))  # at the front, in between, at the end
    with of_list(plan, list(rules), list(range(first, first + len(rules)))) as db:
        for _ in range(data.draw(st.integers(1, 14))):
            if rules and data.draw(st.integers(0, 2)) == 0:
                position = data.draw(st.integers(0, len(rules) - 1))
                db.remove_at(position)
                del rules[position]
            else:
                position = data.draw(st.integers(0, len(rules)))
                added = data.draw(sides())
                db.insert_at(position, added)
                rules.insert(position, added)
            assert (db.search_positions(ALL) == reading(rules, ALL)).all()
            assert len(db) == len(rules)


@pytest.mark.parametrize("plan", ["linear", "tss", "sfl(tss, delta=5)", "hypersplit"])
def test_hundreds_of_rules_may_go_in_at_one_place(plan: str) -> None:
    """Between two rules of adjacent priorities, at the front and behind the last: labels are made anew."""
    rng = np.random.default_rng(1)
    rules: list[Sides] = [ANY] * 3
    with of_list(plan, list(rules)) as db:
        for number in range(300):
            position = {0: 0, 1: len(rules), 2: min(5, len(rules))}[number % 3]
            lows = rng.integers(0, 8, 2)
            added = [(int(low), min(7, int(low) + int(rng.integers(0, 3)))) for low in lows]
            db.insert_at(position, added)
            rules.insert(position, added)
        assert (db.search_positions(ALL) == reading(rules, ALL)).all()
        while rules:
            position = int(rng.integers(0, len(rules)))
            db.remove_at(position)
            del rules[position]
            if len(rules) % 50 == 0:
                assert (db.search_positions(ALL) == reading(rules, ALL)).all()


def test_what_updates_in_place_is_seldom_built_again() -> None:
    """The first insertion into rules 0, 1, 2, … makes room between all of them; later ones move a few mostly."""
    rules = [ANY] * 2000
    with of_list("tss", rules) as db:
        for _ in range(500):
            db.insert_at(1000, ANY)
        assert 1 <= db.rebuilds <= 3
        assert db.search_positions(ALL[:1]).tolist() == [0]


def test_priorities_and_positions_may_be_mixed() -> None:
    with of_list("tss", [[(0, 3), (0, 7)], [(0, 7), (0, 7)]], [10, 20]) as db:
        assert db.search_positions(ALL)[[0, 63]].tolist() == [0, 1]
        db.insert([(0, 0), (0, 0)], 5)
        assert db.search_positions(ALL)[[0, 1, 63]].tolist() == [0, 1, 2]
        db.insert_at(0, [(7, 7), (7, 7)])
        assert db.search_positions(ALL)[[0, 1, 63]].tolist() == [1, 2, 0]
        db.remove(10)
        assert db.search_positions(ALL)[[0, 1, 63]].tolist() == [1, 2, 0]
        assert db.search_positions(ALL)[[1]].tolist() == [2]
        db.remove_at(2)
        assert db.search_positions(ALL)[[0, 1, 63]].tolist() == [1, -1, 0]


def test_a_rule_of_several_boxes_is_one_position() -> None:
    wide = Layout((48,))
    with engine.open("tss", Rules.of_ranges([[(5, 2**40 + 3)], [(0, 2**48 - 1)]], wide)) as db:
        db.insert_at(1, [(2**33 + 1, 2**41 + 7)])
        headers = wide.headers([[5], [2**40 + 4], [0]])
        assert db.search_positions(headers).tolist() == [0, 1, 2]
        db.remove_at(0)
        assert db.search_positions(headers).tolist() == [1, 0, 1]


def test_positions_that_are_not_there_are_refused_and_nothing_changes() -> None:
    with of_list("linear", [ANY] * 3) as db:
        for position in (-1, 4, 2**40):
            with pytest.raises(DatabaseError, match=f"position (must lie in .*, not )?{position}"):
                db.insert_at(position, ANY)
        for position in (-1, 3, 2**31 - 1):
            with pytest.raises(DatabaseError, match=f"position (must lie in .*, not )?{position}"):
                db.remove_at(position)
        with pytest.raises(DatabaseError, match="is empty"):
            db.insert_at(1, [(3, 2), (0, 7)])
        with pytest.raises(DatabaseError, match="must be uint32"):
            db.search_positions(ALL.astype(np.int64))
        assert len(db) == 3 and db.rebuilds == 0
    with pytest.raises(DatabaseError, match="closed"):
        db.insert_at(0, ANY)


@pytest.mark.parametrize("plan", ["linear", "tss", "hypersplit", "sfl(tss, delta=1)"])
def test_what_does_not_fit_leaves_the_positions_as_they_were(plan: str) -> None:
    rng = np.random.default_rng(7)
    rules: list[Sides] = [[(low % 8, 7), (0, low % 5)] for low in range(40)]
    with of_list(plan, rules) as db:
        limit = db.peak_bytes + 3000
    refused = 0
    with engine.open(plan, Rules.of_ranges(rules, LAYOUT), limit=limit) as db:
        for _ in range(400):
            position = int(rng.integers(0, len(rules) + 1))
            added: Sides = [(int(rng.integers(0, 4)), 7), (2, 6)]
            try:
                db.insert_at(position, added)
            except OutOfMemory:
                refused += 1
            else:
                rules.insert(position, added)
        assert refused and (db.search_positions(ALL) == reading(rules, ALL)).all()


def test_a_search_has_the_positions_of_one_moment() -> None:
    """While a rule goes in and out in front, what all packets match is at 0 or 1, never elsewhere."""
    wrong, stop = [], threading.Event()
    with of_list("tss", [ANY]) as db:

        def search() -> None:
            while not stop.is_set():
                found = db.search_positions(ALL)
                if not ((found == 0).all() or (found == np.where(ALL.sum(1) == 0, 0, 1)).all()):
                    wrong.append(found)

        threads = [threading.Thread(target=search) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(300):
            db.insert_at(0, [(0, 0), (0, 0)])
            db.remove_at(0)
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
