"""The distinct objects of a list."""

from __future__ import annotations

import pytest

from hitables.core.distinct import distinct


@pytest.mark.parametrize("picks", [[], [0], [2, 0, 2, 1, 1, 0, 2], [0] * 100, list(range(300)) * 2])
def test_each_object_is_listed_once_where_it_is_met_first(picks: list[int]) -> None:
    pool = [object() for _ in range(300)]
    values = [pool[pick] for pick in picks]
    objects, first, number = distinct(values)
    assert objects == list(dict.fromkeys(values))
    assert first.tolist() == [values.index(each) for each in objects]
    assert [objects[each] for each in number.tolist()] == values


def test_equal_objects_are_two() -> None:
    values = [tuple([1, 2]), tuple([1, 2])]
    assert distinct(values).number.tolist() == [0, 1]
