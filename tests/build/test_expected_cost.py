"""Expected reads and costs, by packets that reach their rule."""

from __future__ import annotations

import numpy as np
import pytest

from hitables.analyse.boxes import Axis, Boxes, Cut
from hitables.build.expected_cost import draw_counted, passing, points_in, rules_read
from hitables.build.grow import grow
from hitables.ir.fields import Field

AXES = (
    Axis(Field.SRC, 128, False, Cut.PREFIX),
    Axis(Field.PROTO, 8, False, Cut.POINT),
    Axis(Field.DPORT, 16, True, Cut.RANGE, (Field.PROTO, (6, 17))),
    Axis(Field.STATE, 4, False, Cut.NONE),
)
NETS = [{Field.SRC: (n << 96, (n + 1 << 96) - 1)} for n in range(200)]


def test_points_lie_in_their_boxes() -> None:
    rng = np.random.default_rng(1)
    rules = [
        [{}],
        [{Field.SRC: (5, 5)}],
        [{Field.SRC: (2**64 - 3, 2**64 + 3)}],
        [{Field.DPORT: (0, 0)}],
        [{Field.SRC: (2**127, 2**128 - 1), Field.PROTO: (255, 255), Field.STATE: (0, 1)}],
    ]
    boxes = Boxes.of(AXES, rules, [True] * len(rules))

    def values(words: np.ndarray) -> list[int]:
        return [int(high) << 64 | int(low) for high, low in words.reshape(-1, 2)]

    seen = set()
    for _ in range(100):
        points = values(points_in(boxes, np.arange(len(rules)), rng))
        for point, low, high in zip(points, values(boxes.low), values(boxes.high), strict=True):
            assert low <= point <= high
        seen.add(tuple(points))
    assert len(seen) == 100


def test_counts_are_no_evidence_for_single_values_of_a_rule() -> None:
    boxes = Boxes.of(AXES, [[{Field.SRC: (0, 255)}], [{Field.SRC: (0, 1 << 100)}]], [True] * 2)
    points = draw_counted(boxes, grow(boxes), [3.0, 1.0], 20_000)
    _, often = np.unique(points[:, 0], axis=0, return_counts=True)
    assert 250 < np.sum(often > 20) <= 256, "the values of the first rule"
    assert often.max() < 120


@pytest.mark.parametrize(
    "first",
    [{Field.STATE: (0, 0)}, {Field.PROTO: (0, 5)}, {Field.SRC: (0, 0)}, {Field.DPORT: (0, 0)}],
)
def test_a_rule_that_matches_the_low_corners_does_not_hide_the_savings_of_a_tree(
    first: dict[Field, tuple[int, int]],
) -> None:
    """`--state INVALID -j DROP` in front took every packet that trees were weighed by."""
    boxes = Boxes.of(AXES, [[first], *([net] for net in NETS)], [True] * 201)
    before, after = rules_read(boxes, grow(boxes))
    assert 80 < before < 120
    assert after < 15


def test_a_rule_that_no_packet_reaches_has_no_weight() -> None:
    hidden = [[{}], *([net] for net in NETS)]
    boxes = Boxes.of(AXES, hidden, [True] * len(hidden))
    assert rules_read(boxes, grow(boxes)) == (1.0, 1.0)
    assert rules_read(Boxes.of(AXES, [], []), grow(Boxes.of(AXES, [], []))) == (0.0, 0.0)


def test_a_rule_that_is_not_final_ends_no_search() -> None:
    boxes = Boxes.of(AXES, [[{}], *([net] for net in NETS)], [False, *[True] * 200])
    before, _ = rules_read(boxes, grow(boxes))
    assert 80 < before < 125


def test_means_follow_the_weights() -> None:
    heavy_last = Boxes.of(AXES, [[net] for net in NETS], [True] * 200, [*[0.0] * 199, 1.0])
    before, after = rules_read(heavy_last, grow(heavy_last))
    assert before == 200.0 and after < 15


def test_packets_that_no_rule_decides_read_the_whole_list_and_little_of_the_tree() -> None:
    boxes = Boxes.of(AXES, [[net] for net in NETS], [True] * len(NETS))
    tree = grow(boxes)
    found = passing(boxes, tree, ())
    assert found is not None
    (in_list, in_tree) = found[0].tolist()
    assert in_list == len(NETS) and 0 < in_tree < 20


def test_where_a_rule_matches_every_packet_those_that_none_decides_pass() -> None:
    rules = [[{}], *([net] for net in NETS)]
    logs_first = Boxes.of(AXES, rules, [False] + [True] * len(NETS))
    found = passing(logs_first, grow(logs_first), ())
    assert found is not None and found[0, 0] == len(rules)
    assert passing(Boxes.of(AXES, rules, [True] * len(rules)), grow(logs_first), ()) is None
