"""Trees of grids as they are searched in memory (hitables.engine): laws tried on every point of a small space."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hitables.engine._engine import ffi, lib
from hypothesis import given, settings
from hypothesis import strategies as st

from hitables.build.tree import Axis, Boxes, Cut, _Given
from hitables.ir.fields import Field

BUILDERS = ("hicuts", "hypercuts")
AXES = (
    Axis(Field.SRC, 4, False, Cut.RANGE),
    Axis(Field.DST, 3, False, Cut.PREFIX),
    Axis(Field.PROTO, 2, False, Cut.RANGE),
)
POINTS = np.array(list(itertools.product(*(range(axis.top + 1) for axis in AXES))))
WORDS = np.ascontiguousarray(np.stack([np.zeros_like(POINTS), POINTS], axis=-1), np.uint64)


@contextmanager
def grown(builder: str, boxes: Boxes, leaf_size: int = 2, spfac: float = 4.0, memory: int = 0) -> Iterator[Any]:
    given_boxes = _Given(boxes)
    status = ffi.new("enum tree_status *")
    grids = lib.grids_grow(
        builder.encode(), given_boxes.boxes, ffi.new("struct grids_options *", [leaf_size, spfac, memory]), status
    )
    try:
        yield status[0] if grids == ffi.NULL else (grids, given_boxes.boxes)
    finally:
        lib.grids_free(grids)


def search(grids: Any, boxes: Any) -> tuple[np.ndarray, np.ndarray]:
    found, reads = np.empty(len(WORDS), np.int32), np.empty(len(WORDS), np.uint32)
    assert lib.grids_search(
        grids, boxes, ffi.from_buffer("uint64_t *", WORDS), len(WORDS),
        ffi.from_buffer("int32_t *", found), ffi.from_buffer("uint32_t *", reads),
    ) == lib.TREE_OK  # fmt: skip
    return found, reads


@st.composite
def rulesets(draw: st.DrawFn) -> Boxes:
    def side(axis: Axis) -> tuple[int, int]:
        low = draw(st.integers(0, axis.top))
        return low, draw(st.integers(low, axis.top))

    rules = [
        [{axis.field: side(axis) for axis in AXES if draw(st.integers(0, 3))} for _ in range(draw(st.sampled_from([1, 1, 2])))]
        for _ in range(draw(st.integers(0, 24)))
    ]  # fmt: skip
    return Boxes.of(AXES, rules, [True] * len(rules))


def first_of(boxes: Boxes) -> np.ndarray:
    low, high = boxes.low[:, :, 1], boxes.high[:, :, 1]
    inside = ((POINTS[:, None] >= low) & (POINTS[:, None] <= high)).all(axis=2)
    return np.array([boxes.rule[held.argmax()] if held.any() else -1 for held in inside])


@pytest.mark.parametrize("builder", BUILDERS)
@given(boxes=rulesets(), leaf_size=st.integers(1, 5), spfac=st.sampled_from([1.0, 2.0, 4.0, 8.0]))
def test_searching_grids_gives_what_reading_the_list_gives(
    builder: str, boxes: Boxes, leaf_size: int, spfac: float
) -> None:
    with grown(builder, boxes, leaf_size, spfac) as (grids, given_boxes):
        found, _ = search(grids, given_boxes)
        assert found.tolist() == first_of(boxes).tolist()


@pytest.mark.parametrize("builder", BUILDERS)
@given(boxes=rulesets())
@settings(max_examples=25)
def test_the_same_rules_give_the_same_grids(builder: str, boxes: Boxes) -> None:
    with grown(builder, boxes) as (one, _), grown(builder, boxes) as (two, _):
        for name, count in (("node", "nodes"), ("side", "sides"), ("child", "children"), ("entry", "entries")):
            size = getattr(one, count)
            assert size == getattr(two, count)
            cells = [np.array(ffi.unpack(ffi.cast("uint32_t *", getattr(each, name)), size)) for each in (one, two)]
            assert np.array_equal(*cells)


def chequered() -> Boxes:
    """One rule per point of two axes, and a last one for the rest."""
    rules = [[{Field.SRC: (2 * s, 2 * s + 1), Field.DST: (d, d)}] for s in range(8) for d in range(8)]
    return Boxes.of(AXES, [*rules, [{}]], [True] * 65)


def test_hypercuts_cuts_several_axes_at_once_and_hicuts_one() -> None:
    with grown("hypercuts", chequered()) as (grids, _):
        assert grids.node[0].sides == 2
        assert grids.node[0].entries == 1  # the last rule is common to all parts
    with grown("hicuts", chequered()) as (grids, _):
        assert max(grids.node[n].sides for n in range(grids.nodes)) == 1


def test_hypercuts_compacts_regions_and_shares_equal_lists() -> None:
    """Rules in a corner are found by one grid of that corner; a rule that spans an axis makes its parts one node."""
    corner = [[{Field.SRC: (8 + s, 8 + s), Field.DST: (4 + d, 4 + d)}] for s in range(4) for d in range(4)]
    with grown("hypercuts", Boxes.of(AXES, corner, [True] * 16), leaf_size=1) as (grids, given_boxes):
        assert {int(grids.side[i].low[1]) for i in range(grids.node[0].sides)} == {8, 4}
        assert search(grids, given_boxes)[1].max() <= 3
    bands = [[{Field.SRC: (0, 7), Field.DST: (d, d)}] for d in range(8)]
    bands += [[{Field.SRC: (s, s)}] for s in range(8, 16)]
    with grown("hypercuts", Boxes.of(AXES, bands, [True] * 16), leaf_size=1) as (grids, _):
        places = [grids.child[i] for i in range(grids.children) if grids.child[i] != lib.GRIDS_NOTHING]
        assert len(set(places)) < len(places)


@pytest.mark.parametrize("builder", BUILDERS)
def test_what_cannot_be_built_is_told(builder: str) -> None:
    with grown(builder, chequered(), memory=4096) as status:
        assert status == lib.TREE_NO_MEMORY
    lacking = (Axis(Field.DPORT, 4, True, Cut.RANGE),)
    with grown(builder, Boxes.of(lacking, [[{}]], [True])) as status:
        assert status == lib.TREE_BAD_AXIS
    with grown("oak", chequered()) as status:
        assert status == lib.TREE_BAD_OPTION
