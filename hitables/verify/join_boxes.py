"""Fewer boxes with the same points: boxes that differ in one dimension only become one.

Idea: a box has a sum of the hashes of its sides.  Without the hash of one side, boxes that agree in all
others have equal sums; so boxes are grouped by sum, and those of a group compared.  A side that spans its
dimension is left out, so that a box costs the sides that restrict it, of however many dimensions there are.

Invariant: the boxes are disjoint.  So a box that spans a dimension agrees in all others with no box that does
not.

Cost: for each round, the sides of all boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hitables.ir.intervals import Values

Ends = tuple[int, ...]  # low, high, low, high, ... as coordinates
Box = Mapping[int, Ends]  # by dimension
_Summed = tuple[int, dict[int, Ends]]  # the sum of the hashes of its sides, and the box


def join(boxes: Iterable[Box], spans: Mapping[int, Ends]) -> list[Box]:
    """Boxes with the points of *boxes*, which are disjoint.

    spans  sides that boxes do not have, by dimension: all of its coordinates
    """
    distinct = {frozenset(box.items()): dict(box) for box in boxes}
    current = {at: (sum(map(hash, box.items())), box) for at, box in enumerate(distinct.values())}
    having: dict[int, list[int]] = {}  # by dimension: the boxes that had a side of it once
    for at, (_, box) in current.items():
        for dim in box:
            having.setdefault(dim, []).append(at)
    while True:
        count = len(current)
        for dim in sorted(having):
            _join_along(dim, current, having[dim], spans.get(dim))
        if len(current) == count:
            return [box for _, box in current.values()]


def _join_along(dim: int, current: dict[int, _Summed], having: list[int], span: Ends | None) -> None:
    """Join boxes of *current* that differ in *dim* only: the first of them becomes all, the others go."""
    by_rest: dict[int, list[list[int]]] = {}
    for at in having:
        if at not in current or dim not in current[at][1]:
            continue
        total, box = current[at]
        alike = by_rest.setdefault(total - hash((dim, box[dim])), [])
        for group in alike:
            if _agree(current[group[0]][1], box, dim):
                group.append(at)
                break
        else:
            alike.append([at])
    for group in (group for alike in by_rest.values() for group in alike if len(group) > 1):
        joined = _as_one(dim, [current[at] for at in group], span)
        for at in group[1:]:
            del current[at]
        current[group[0]] = joined


def _agree(one: Mapping[int, Ends], other: Mapping[int, Ends], but: int) -> bool:
    """Whether both have the same sides in all dimensions but one."""
    return len(one) == len(other) and all(other.get(dim) == side for dim, side in one.items() if dim != but)


def _as_one(dim: int, group: list[_Summed], span: Ends | None) -> _Summed:
    """The box of those that agree in all dimensions but *dim*."""
    total, first = group[0]
    box = dict(first)
    total -= hash((dim, box[dim]))
    side = _union([each[dim] for _, each in group])
    if side == span:
        del box[dim]
        return total, box
    box[dim] = side
    return total + hash((dim, side)), box


def _union(sides: list[Ends]) -> Ends:
    pairs = (pair for side in sides for pair in zip(side[::2], side[1::2], strict=True))
    return tuple(end for pair in Values.of(*pairs).pairs for end in pair)
