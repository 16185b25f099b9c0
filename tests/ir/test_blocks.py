"""Blocks of rules that limit the same field."""

from __future__ import annotations

from hitables.ir.blocks import LONG, blocks
from hitables.ir.narrow_fields import BOUND

A, B, C = 1, 2, 4


def test_a_block_ends_where_no_field_is_common() -> None:
    assert blocks([A] * LONG + [B] * LONG) == [(0, LONG), (LONG, 2 * LONG)]
    assert blocks([A | B] * LONG + [B] * LONG) == [(0, 2 * LONG)]
    assert blocks([A | B] * LONG + [B] * LONG + [A] * LONG) == [(0, 2 * LONG), (2 * LONG, 3 * LONG)]


def test_short_blocks_and_rules_without_fields_are_left_out() -> None:
    assert blocks([A] * (LONG - 1) + [0] + [B] * LONG) == [(LONG, 2 * LONG)]
    assert blocks([0, *[C] * LONG, 0, *[C] * LONG, 0]) == [(1, 1 + LONG), (2 + LONG, 2 + 2 * LONG)]
    assert not blocks([]) and not blocks([0] * LONG)


def test_a_bound_rule_stays_in_the_block_around_it() -> None:
    assert blocks([A, BOUND] * LONG) == [(0, 2 * LONG)]
    assert not blocks([BOUND] * LONG)
