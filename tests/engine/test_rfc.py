"""Recursive flow classification: what the contract of every classifier does not see."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples

from hitables import engine
from hitables.engine import Layout, Rules
from hitables.engine.layout import Range
from hitables.errors import DatabaseError


def crossing(count: int) -> Rules:
    """Rules of which any two meet, and no two agree: a table of all pairs, nearly."""
    sides: list[list[Range]] = [[(i, i + count), (count - i, 2 * count - i)] for i in range(count)]
    return Rules.of_ranges(sides, Layout((16, 16)))


def test_tables_beyond_the_bound_are_refused() -> None:
    with engine.open("rfc", crossing(100)) as db:
        assert db.search(np.array([[50, 100], [0, 0], [199, 1]], np.uint32)).tolist() == [0, -1, 99]
    with pytest.raises(DatabaseError, match="too interwoven, for rfc\\(entries=140000\\)"):
        engine.open("rfc(entries=140000)", crossing(100))


def test_rules_that_can_never_win_make_no_classes() -> None:
    everything: list[Range] = [(0, 65535), (0, 65535)]
    rules = [everything, *([(i, i), (7 * i, 7 * i + 3)] for i in range(200))]
    with engine.open("rfc", Rules.of_ranges(rules, Layout((16, 16)))) as db:
        assert db.bytes < 200_000


@given(data=st.data())
@settings(max_examples=examples(60))
def test_both_chunks_of_a_wide_dimension_are_told_apart(data: st.DataObject) -> None:
    # Few values of either chunk, so that the chunks' classes repeat, and edges fall into both.
    layout = Layout((32, 20))
    values = [(upper << 16) + lower for upper in (0, 1, 2, 15) for lower in (0, 1, 2, 0xFFFE, 0xFFFF)]
    ends = st.tuples(*[st.sampled_from(values)] * 2).map(sorted)
    drawn = data.draw(st.lists(st.tuples(ends, ends), max_size=8))
    rules = Rules.of_ranges([[(a[0], a[1]), (b[0], b[1])] for a, b in drawn], layout)
    packets = np.array(list(itertools.product([*values, 0xFFFFFFFF, 0x7FFF0001], values)), np.uint32)
    with engine.open("rfc", rules) as db, engine.open("linear", rules) as linear:
        assert (db.search(packets) == linear.search(packets)).all()


def test_tables_beyond_the_cache_find_the_same_rules() -> None:
    rules = crossing(600)
    headers = np.random.default_rng(1).integers(0, 1300, (3000, 2), np.uint32)
    with engine.open("rfc", rules) as db, engine.open("linear", rules) as linear:
        assert db.bytes > 3 * 2**20
        assert (db.search(headers) == linear.search(headers)).all()
