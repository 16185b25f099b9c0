"""Classifiers answer as linear search does with other parameters than the usual, and refuse what is beyond their bounds."""

from __future__ import annotations

import numpy as np
import pytest

from hitables import engine
from hitables.engine import Layout, Rules
from hitables.engine.layout import Range
from hitables.errors import DatabaseError

PLANS = [
    "rfc", "bit_vector", "bit_vector(aggregated=0)", "hypersplit", "hypersplit(leaf=1)", "hypersplit(leaf=30)",
    "hicuts", "hicuts(leaf=1)", "hicuts(spfac=1)", "hypercuts", "hypercuts(leaf=1, spfac=1)", "hypercuts(leaf=3, spfac=20)",
    "classic(hypersplit(leaf=1))", "sfl(bit_vector(aggregated=0), background=0)",
    "sfl(hypersplit, delta=0, background=2, vector=0)",
]  # fmt: skip
BOUNDED = ["bit_vector(mb=1)", "hypersplit(mb=1)", "hicuts(mb=1, leaf=1)", "hypercuts(mb=1, leaf=1)"]


def random_rules(seed: int, count: int, layout: Layout) -> Rules:
    """Prefixes, single values, ranges and wildcards, with overlap at every depth."""
    rng = np.random.default_rng(seed)
    listed = []
    for _ in range(count):
        sides: list[Range] = []
        for width in layout.widths:
            top, free = (1 << width) - 1, int(rng.integers(0, width + 1))
            low = int(rng.integers(0, top + 1)) >> free << free
            ends = sorted(int(v) for v in rng.integers(0, top + 1, 2))
            sides.append(
                [(low, low | (1 << free) - 1), (low, low), (ends[0], ends[1]), (0, top)][rng.integers(0, 4)]
            )
        listed.append(sides)
    return Rules.of_ranges(listed, layout)


@pytest.mark.parametrize(
    "layout", [Layout((32, 32, 16, 16, 8)), Layout((20, 3)), Layout((24,)), Layout((48, 5))], ids=str
)
@pytest.mark.parametrize("plan", PLANS)
def test_any_parameters_leave_the_answers_right(plan: str, layout: Layout) -> None:
    rules = random_rules(1, 50, layout)
    corners = rules.boxes.reshape(-1, 2).ravel()
    rng = np.random.default_rng(2)
    inside = rules.boxes[rng.integers(0, len(rules.boxes), 3000), :, :]
    at = rng.integers(0, 2, inside.shape[:2])
    headers = np.ascontiguousarray(np.take_along_axis(inside, at[:, :, None], 2)[:, :, 0])
    tops = np.array([(1 << bits) - 1 for bits in layout.bits], np.uint32)
    near = np.minimum(rng.choice(corners, headers.shape), tops)
    headers[::3] = np.where(rng.random(headers[::3].shape) < 0.3, near[::3], headers[::3])
    with engine.open("linear", rules) as linear, engine.open(plan, rules) as db:
        assert (db.search(headers) == linear.search(headers)).all()


@pytest.mark.parametrize("plan", BOUNDED)
def test_a_structure_beyond_its_bound_is_refused(plan: str) -> None:
    rules = random_rules(3, 2000, Layout((32, 32, 16, 16, 8)))
    with pytest.raises(DatabaseError, match="too many, or too interwoven"):
        engine.open(plan, rules)


@pytest.mark.parametrize("plan", PLANS)
def test_values_that_no_field_can_hold_do_no_harm(plan: str) -> None:
    layout = Layout((20, 16, 8, 3))
    rules = random_rules(4, 30, layout)
    headers = np.random.default_rng(5).integers(0, 8, (200, 4), np.uint32)
    headers[::2] = 0xFFFFFFFF - headers[::2]
    with engine.open("linear", rules) as linear, engine.open(plan, rules) as db:
        assert (db.search(headers)[1::2] == linear.search(headers)[1::2]).all()
