"""Parameters change what a search costs, never what it finds."""

from __future__ import annotations

import numpy as np
import pytest

from hitables import engine
from hitables.engine import FIVE_TUPLE, Layout, Rules

VARIANTS = ["tss(step=1)", "tss(step=5)", "tss(step=16)", "tss(vector=0)", "tss(step=1, vector=0)"]
FORMS = [(1, 0), (2, 1), (3, 2), (4, 1), (8, 0), (8, 2)]
VARIANTS += [
    f"{name}(stride={stride}, form={form})"
    for name in ("tss_tries", "grid_of_tries")
    for stride, form in FORMS
]
VARIANTS += [
    f"pacars(stride={stride}, form={form}, cascade={cascade})"
    for stride, form in FORMS[:4]
    for cascade in (0, 1)
]
LISTS = [f"pacars(list={form}{more})" for form in (1, 2) for more in ("", ", cascade=0", ", stride=1")]
VARIANTS += [*LISTS, "tss_tries(table=1)", "tss_tries(stride=3, table=1)"]


def crowded(rng: np.random.Generator, layout: Layout, count: int) -> np.ndarray:
    """[count][dims][2]: few prefixes, many ranges of ports below each, so keys are shared."""
    boxes = np.zeros((count, layout.dims, 2), np.uint32)
    for d, bits in enumerate(layout.bits):
        top = (1 << bits) - 1
        if d < 2:
            free = rng.choice([0, 1, 3, bits // 2, bits], count).astype(np.uint64)
            start = rng.integers(0, 6, count).astype(np.uint64) << np.uint64(bits // 2 - 1)
            low = start >> free << free
            high = low | (np.uint64(1) << free) - np.uint64(1)
        else:
            ends = np.sort(rng.integers(0, min(top, 40) + 1, (count, 2)), axis=1)
            low, high = ends[:, 0], np.where(rng.integers(0, 3, count) == 0, top, ends[:, 1])
        boxes[:, d, 0], boxes[:, d, 1] = low & top, high & top
    return boxes


@pytest.mark.parametrize("layout", [FIVE_TUPLE, Layout((8, 8)), Layout((32, 32))], ids=str)
@pytest.mark.parametrize("plan", VARIANTS)
def test_answers_do_not_depend_on_parameters(plan: str, layout: Layout) -> None:
    least, most = engine.AlgorithmSpec.read(plan).algorithm.dims
    if not least <= layout.dims <= most:
        pytest.skip(f"{plan} takes {least} to {most} dimensions")
    rng = np.random.default_rng(7)
    boxes = crowded(rng, layout, 600)
    corners = boxes[
        rng.integers(0, 600, 1000)[:, None], np.arange(layout.dims), rng.integers(0, 2, (1000, layout.dims))
    ]
    packets = np.ascontiguousarray(corners)
    priorities = np.arange(600, dtype=np.uint32)
    first = Rules(layout, boxes[:300], priorities[:300])
    with engine.open("linear", first) as linear, engine.open(plan, first) as db:
        present = np.arange(600) < 300
        for _ in range(12 if db.spec.algorithm.updates else 3):
            assert (db.search(packets) == linear.search(packets)).all()
            chosen = rng.permutation(600)[: 100 if db.spec.algorithm.updates else 3]
            for database in (linear, db):
                database.update(~present[chosen], np.ascontiguousarray(boxes[chosen]), priorities[chosen])
            present[chosen] ^= True
        assert len(db) == present.sum()
        assert (db.search(packets) == linear.search(packets)).all()


@pytest.mark.parametrize(
    "plan", ["tss", "tss(vector=0)", "tss_tries", "tss_tries(table=1)", "grid_of_tries", "pacars", *LISTS[:4]]
)
def test_a_header_beyond_its_field_matches_nothing(plan: str) -> None:
    rng, layout = np.random.default_rng(5), Layout((7, 5, 9))
    everything = [(0, (1 << width) - 1) for width in layout.widths]
    rules = Rules.of_ranges([[(3, 3), (0, 31), (8, 9)], everything], layout)
    packets = rng.integers(0, 1 << 10, (3000, 3), np.uint32)
    packets[::50] = 0xFFFFFFFF
    with engine.open("linear", rules) as linear, engine.open(plan, rules) as db:
        assert (db.search(packets) == linear.search(packets)).all()


# Lists long enough to be woven, tables large enough to grow and shrink.
@pytest.mark.parametrize(
    "plan",
    [
        "tss",
        "tss_tries(stride=3)",
        "tss_tries(table=1)",
        "pacars(stride=1)",
        "pacars",
        "pacars(stride=4, form=1)",
    ]
    + LISTS,
)
def test_long_lists_of_prefixes_come_and_go(plan: str) -> None:
    rng, layout, count = np.random.default_rng(11), Layout((32, 32)), 4000
    free = np.minimum(
        rng.choice([0, 0, 0, 8, 12, 20, 32], (count, 2)) + rng.integers(0, 6, (count, 2)), 32
    ).astype(np.uint64)
    low = rng.integers(0, 1 << 32, (count, 2), np.uint64) >> free << free
    boxes = np.stack([low, low | (np.uint64(1) << free) - np.uint64(1)], axis=2).astype(np.uint32)
    priorities = np.arange(count, dtype=np.uint32)
    packets = np.ascontiguousarray(
        boxes[rng.integers(0, count, 2000), :, 0] + rng.integers(0, 3, (2000, 2), np.uint32)
    )
    present = rng.integers(0, 4, count) > 0
    first = Rules(layout, np.ascontiguousarray(boxes[present]), priorities[present])
    with engine.open("linear", first) as linear, engine.open(plan, first) as db:
        for left in (2, 2, 9, 9, 0):
            assert (db.search(packets) == linear.search(packets)).all()
            wanted = rng.integers(0, 10, count) < left
            chosen = rng.permutation(np.flatnonzero(wanted != present))
            for database in (linear, db):
                database.update(wanted[chosen], np.ascontiguousarray(boxes[chosen]), priorities[chosen])
            present = wanted
        assert (db.search(packets) == -1).all()
        with engine.open(plan, Rules(layout, boxes[:0], priorities[:0])) as empty:
            assert db.bytes <= empty.bytes + 20_000, "removals give memory back"


@pytest.mark.parametrize("form", [0, 1, 2])
def test_a_list_of_prefixes_is_searched_in_few_steps_whatever_came_and_went(form: int) -> None:
    rng, layout, count = np.random.default_rng(13), Layout((32, 32)), 4000
    boxes = np.zeros((count, 2, 2), np.uint32)
    boxes[:, 0, 1] = 0xFFFFFFFF
    boxes[:, 1] = (np.arange(count, dtype=np.uint32) << np.uint32(20))[:, None]
    priorities, ones = np.arange(count, dtype=np.uint32), np.ones(count, bool)
    headers = np.stack([priorities, boxes[:, 1, 0]], axis=1).astype(np.uint32)
    turn = rng.permutation(count)
    with engine.open(f"pacars(cascade=0, list={form})", Rules(layout, boxes[:0], priorities[:0])) as db:
        db.update(ones, boxes[turn], priorities[turn])
        answers, work = db.work(headers)
        assert (answers == priorities).all()
        assert work["keys"].mean() < 3 * np.log2(count), "most steps halve what is left, or more"
        gone = rng.permutation(count)[count // 20 :]
        db.update(~ones[gone], boxes[gone], priorities[gone])
        answers, work = db.work(headers)
        assert ((answers >= 0) == ~np.isin(priorities, gone)).all()
        assert work["keys"].mean() < 3 * np.log2(count // 20)
