"""Boxes that are joined have the points of those that were given, and no two could still be one."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples

from hitables.verify.join_boxes import Box, join

SIZE = 4  # of each dimension
SPAN = (0, SIZE - 1)
Ends = tuple[int, ...]


@st.composite
def disjoint_boxes(draw: st.DrawFn) -> tuple[int, set[int], list[dict[int, Ends]]]:
    """The number of dimensions, those of which a whole side is left out, and boxes: some of a universe cut often."""
    count = draw(st.integers(1, 4))
    free = draw(st.sets(st.integers(0, count - 1)))
    boxes: list[dict[int, tuple[int, int]]] = [dict.fromkeys(range(count), SPAN)]
    for _ in range(draw(st.integers(0, 20))):
        box, dim = draw(st.sampled_from(boxes)), draw(st.integers(0, count - 1))
        low, high = box[dim]
        if low < high:
            cut = draw(st.integers(low, high - 1))
            boxes.remove(box)
            boxes += [{**box, dim: (low, cut)}, {**box, dim: (cut + 1, high)}]
    kept = draw(st.permutations(boxes))[: draw(st.integers(1, len(boxes)))]
    bare = [{dim: side for dim, side in box.items() if not (dim in free and side == SPAN)} for box in kept]
    return count, free, [dict(box) for box in bare]


def points(box: Box, count: int) -> set[tuple[int, ...]]:
    sides = (box.get(dim, SPAN) for dim in range(count))
    return set(
        product(*({at for low, high in zip(side[::2], side[1::2], strict=True) for at in range(low, high + 1)}
                  for side in sides))
    )  # fmt: skip


@settings(max_examples=examples(300))
@given(drawn=disjoint_boxes())
def test_the_points_stay_and_no_two_boxes_differ_in_one_dimension_only(
    drawn: tuple[int, set[int], list[dict[int, Ends]]],
) -> None:
    count, free, boxes = drawn
    joined = join(boxes, dict.fromkeys(free, SPAN))
    each = [points(box, count) for box in joined]
    assert sum(map(len, each)) == len(set().union(*each)), "disjoint"
    assert set().union(*each) == set().union(*(points(box, count) for box in boxes))
    for one, other in combinations(joined, 2):
        differing = {dim for dim in range(count) if one.get(dim, SPAN) != other.get(dim, SPAN)}
        assert len(differing) > 1, (one, other)
    assert not any(box.get(dim) == SPAN for box in joined for dim in free)


def test_the_first_of_joined_boxes_keeps_its_place() -> None:
    boxes: list[Box] = [{0: (0, 0), 1: (1, 1)}, {0: (2, 2)}, {0: (1, 1), 1: (1, 1)}, {5: (0, 0)}, {5: (1, 3)}]
    assert join(boxes, {5: SPAN}) == [{0: (0, 1), 1: (1, 1)}, {0: (2, 2)}, {}]
