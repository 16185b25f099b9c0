"""Boxes of whole lists made by columns, beside those made rule by rule."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hitables.analyse.boxes import Boxes
from hitables.analyse.rule_boxes import BoxReader, as_boxes
from hitables.ir.choices import Malformed
from hitables.ir.fields import Family
from hitables.ir.rule import Rule
from hitables.parse.iptables import read

ADDRESSES = {Family.IPV4: ("10.1.{}.0/24", "10.{}.0.0/16"), Family.IPV6: ("2001:{}::/32", "2001:db8::{}")}
# Matches with a plain box in IPv4, and matches without.
PLAIN = ("-p tcp -m tcp --dport {}", "-p udp -m udp --sport {}:90", "-p 47", "-i eth{}", "")
OTHER = ("! -i eth{}", "-p tcp -m multiport --dports {},90", "-m mark --mark {}")
# Plain matches that together are no plain rule: an address or a port of a bridge after a match that drops, one
# field twice.
TOGETHER = (
    "-p tcp -m tcp --dport {} -m iprange --src-range 10.0.0.1-10.0.0.{}",
    "-p tcp -m tcp --dport {} -m multiport --dports 1:{}",
    "-p tcp -m tcp --dport {} -m physdev --physdev-in tap{}",
)


def rules_of(rng: random.Random, family: Family, others: int) -> tuple[Rule, ...]:
    """Rules of plain matches, and of this many others."""
    shapes = [rng.choice(PLAIN) for _ in range(40)]
    shapes += rng.choices(OTHER, k=others)
    if others and family is Family.IPV4:
        shapes[-1] = rng.choice((shapes[-1], *TOGETHER))
    rng.shuffle(shapes)
    lines = []
    for shape in shapes:
        address = rng.choice(["", "-s ", "-d "])
        where = address and address + rng.choice(ADDRESSES[family]).format(rng.randrange(1, 9))
        target = rng.choice(["-j ACCEPT", "-j DROP", "-j user", ""])
        match = shape.format(rng.randrange(1, 80), rng.randrange(1, 80))
        lines.append(f"-A FORWARD {where} {match} {target}")
    text = "*filter\n:FORWARD ACCEPT\n:user -\n" + "\n".join(lines) + "\nCOMMIT\n"
    return read(text, family=family).tables[0]["FORWARD"].rules


def assert_same(one: Boxes, other: Boxes) -> None:
    assert one.axes == other.axes
    for name in ("low", "high", "rule", "final", "weight", "reorder"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("nft", [False, True])
@pytest.mark.parametrize("others", [0, 1])
def test_boxes_by_columns_are_those_of_the_rules(family: Family, nft: bool, others: int) -> None:
    rng = random.Random(f"{family} {nft} {others}")
    columns = 0
    for _ in range(20):
        rules = rules_of(rng, family, others)
        one, other = (BoxReader(family, nft=nft, malformed=Malformed.STRICTER) for _ in range(2))
        assert_same(one.boxes(rules, {}), as_boxes(other.read(rules, {}), family))
        assert one.dirty == other.dirty and one.guards == other.guards
        columns += one.plain_boxes(rules, {}, None) is not None
    # Every list of plain IPv4 rules is made by columns, and no list with another rule is.
    assert columns == (20 if not others and family is Family.IPV4 else 0)


@pytest.mark.parametrize("rules", [0, 1])
def test_lists_without_tests_have_boxes_without_axes(rules: int) -> None:
    listed = read("*filter\n-A FORWARD -j DROP\nCOMMIT\n").tables[0]["FORWARD"].rules[:rules]
    boxes = BoxReader(Family.IPV4, nft=True, malformed=Malformed.STRICTER).boxes(listed, {})
    assert boxes.low.shape == (rules, 0, 2) and boxes.final.tolist() == [1] * rules
