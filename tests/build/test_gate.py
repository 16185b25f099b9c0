"""Lists behind tests that turn away packets of no rule."""

from __future__ import annotations

import numpy as np
import pytest

from hitables.analyse.boxes import Axis, Boxes, Cut
from hitables.build.expected_cost import points_in
from hitables.build.gate import gated
from hitables.build.tree import unsplit
from hitables.ir.fields import Field

AXES = (
    Axis(Field.SRC, 32, False, Cut.PREFIX),
    Axis(Field.PROTO, 8, False, Cut.POINT),
    Axis(Field.DPORT, 16, True, Cut.RANGE, (Field.PROTO, (6, 17))),
    Axis(Field.IIF, 128, False, Cut.NAME),
    Axis(Field.STATE, 4, False, Cut.NONE),
)
NAME = int.from_bytes(b"eth0".ljust(16, b"\0"), "big")
DNS = {Field.PROTO: (17, 17), Field.DPORT: (53, 53)}

Box = dict[Field, tuple[int, int]]


def fields_tested(rules: list[Box], nesting: int = 9) -> dict[Field, tuple[int, int]]:
    tree = gated(Boxes.of(AXES, [[rule] for rule in rules], [True] * len(rules)), nesting)
    if tree is None:
        return {}
    edges = {}
    for node in tree.nodes():
        if node.axis is not None:
            edge = node.edges[0]
            edges[node.axis.field] = edge.low, edge.high
    return edges


@pytest.mark.parametrize(
    ("rules", "tests"),
    [
        ([DNS, DNS], DNS),
        ([DNS, {Field.PROTO: (17, 17), Field.DPORT: (60, 80)}], {**DNS, Field.DPORT: (53, 80)}),
        ([DNS, {Field.PROTO: (6, 6), Field.DPORT: (53, 53)}], {}),  # -p cannot name both
        ([{Field.DPORT: (53, 53)}], {}),  # ports need a protocol
        ([{Field.PROTO: (0, 0)}], {}),  # -p 0 is any protocol
        ([{Field.SRC: (0x0A000000, 0x0A0000FF)}, {Field.SRC: (0x0A010000, 0x0A0100FF)}], {Field.SRC: (0x0A000000, 0x0A01FFFF)}),
        ([{Field.SRC: (0, 5)}, {Field.SRC: (2**31, 2**31)}], {}),
        ([{Field.IIF: (NAME, NAME)}] * 2, {Field.IIF: (NAME, NAME)}),
        ([{Field.IIF: (NAME, NAME)}, {Field.IIF: (NAME + 1, NAME + 1)}], {}),
        ([{Field.STATE: (1, 1)}], {}),
        ([DNS, {}], {}),
    ],
)  # fmt: skip
def test_each_field_that_all_rules_limit_is_tested(rules: list[Box], tests: Box) -> None:
    assert fields_tested(rules) == tests


def test_tests_that_nest_too_deep_are_left_out() -> None:
    assert fields_tested([DNS], 2) == DNS
    assert fields_tested([DNS], 1) == {Field.PROTO: (17, 17)}


def test_a_gated_list_decides_each_packet_as_the_list_does() -> None:
    rng = np.random.default_rng(1)
    rules = [{**DNS, Field.SRC: (n, n + 300), Field.IIF: (NAME, NAME)} for n in range(0, 900, 7)]
    boxes = Boxes.of(AXES, [[rule] for rule in rules], [True] * len(rules))
    tree = gated(boxes, 9)
    assert tree is not None and tree.nesting() <= 3
    wide = Boxes.of(
        AXES, [[rule] for rule in rules] + [[{}], [{Field.PROTO: (17, 17)}], [DNS]], [True] * (len(rules) + 3)
    )
    which = np.concatenate([np.arange(len(rules)), np.full(300, len(rules)), np.full(300, len(rules) + 2)])
    points = points_in(wide, which, rng)
    (listed, _), (found, reads) = unsplit(boxes).search(points), tree.search(points)
    assert (listed == found).all() and (found >= 0).any()
    assert reads[found < 0].mean() < 20 < len(rules)
