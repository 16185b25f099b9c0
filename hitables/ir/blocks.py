"""Blocks of a list: rules, one behind the other, that limit the same field.

A list of hosts in front of a list of ports is read fastest by a tree over hosts and then one over ports.  One
tree over both fields has their product.
"""

from __future__ import annotations

from collections.abc import Sequence

from .narrow_fields import BOUND

# Least rules of a block.
LONG = 32


def blocks(narrow: Sequence[int]) -> list[tuple[int, int]]:
    """The first rule and the end of each block.

    *narrow*: by rule, the fields that it limits to few values, as bits (narrow_fields.py).  BOUND has all
    bits; where a block begins, it stands for "no rule has limited anything yet".
    """
    found = []
    start, common = 0, BOUND
    for at, fields in enumerate([*narrow, 0]):
        if common & fields:
            common &= fields
            continue
        if at - start >= LONG and common != BOUND:
            found.append((start, at))
        start, common = (at, fields) if fields else (at + 1, BOUND)
    return found
