"""Levels of chains, kept while chains get trees, are those that a count of all chains gives."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from hitables.analyse.levels import Levels, levels, shares


@given(st.randoms(use_true_random=False), st.integers(2, 20))
def test_kept_levels_are_the_counted_ones(rng: random.Random, most: int) -> None:
    names = [f"c{at}" for at in range(rng.randint(1, 12))]
    callees = {
        name: tuple(each for each in names[at + 1 :] if rng.random() < 0.3) for at, name in enumerate(names)
    }
    nesting = {name: rng.choice((0, 1, 3)) for name in names if rng.random() < 0.5}
    kept = Levels(callees, most, nesting)
    for _ in range(15):
        name = rng.choice(names)
        nesting[name] = rng.choice((0, 1, 2, 5))
        kept.nest(name, nesting[name])
        above, below = levels(callees, nesting)
        assert kept.above == {each: min(most, level) for each, level in above.items()}
        assert kept.below == {each: min(most, level) for each, level in below.items()}


def test_a_table_of_many_chains_is_not_counted_anew_for_each() -> None:
    work = []
    for size in (200, 800):
        callees = {"FORWARD": tuple(f"c{at}" for at in range(size))} | {f"c{at}": () for at in range(size)}
        kept = Levels(callees, 16)
        for name in callees:
            kept.nest(name, 2)
        work.append(kept.visited)
    assert work[1] <= 4.1 * work[0]


def test_chains_that_want_nothing_get_nothing_where_their_jumps_exceed_the_limit() -> None:
    assert shares({"a": ["b"], "b": []}, {"a": 0, "b": 0}, 0) == {"a": 0, "b": 0}


@given(st.randoms(use_true_random=False), st.integers(0, 20))
def test_the_shares_of_chains_on_a_path_are_together_within_the_limit(rng: random.Random, limit: int) -> None:
    names = [f"c{at}" for at in range(rng.randint(1, 8))]
    callees = {
        name: tuple(each for each in names[at + 1 :] if rng.random() < 0.4) for at, name in enumerate(names)
    }
    wanted = {name: rng.choice((0, 1, 2, 5)) for name in names if rng.random() < 0.7}
    given_each = shares(callees, wanted, limit)
    assert all(0 <= given_each[name] <= wanted[name] for name in wanted)

    def paths(name: str) -> list[list[str]]:
        return [[name], *([name, *path] for callee in callees[name] for path in paths(callee))]

    every = [path for name in names for path in paths(name)]
    for path in every:
        nested = sum(given_each.get(name, 0) for name in path)
        assert nested == 0 or nested + len(path) - 1 <= limit
    of_each = {name: [path for path in every if name in path] for name in names}
    for name in wanted:
        if all(sum(wanted.get(n, 0) for n in path) + len(path) - 1 <= limit for path in of_each[name]):
            assert given_each[name] == wanted[name]
