"""Levels of chains, kept while chains get trees, are those that a count of all chains gives."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from hitables.analyse.callgraph import Levels, levels


@given(st.randoms(use_true_random=False), st.integers(2, 20))
def test_kept_levels_are_the_counted_ones(rng: random.Random, most: int) -> None:
    names = [f"c{at}" for at in range(rng.randint(1, 12))]
    callees = {
        name: tuple(each for each in names[at + 1 :] if rng.random() < 0.3) for at, name in enumerate(names)
    }
    kept, nesting = Levels(callees, most), dict[str, int]()
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
