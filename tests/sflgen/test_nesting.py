"""Depths of chains that are kept up to date: never less than the depths computed anew."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples

from hitables.analyse.levels import levels_above
from hitables.emit.chain_writer import jump
from hitables.ir.program import Chain, Table
from hitables.ir.rule import Rule
from sflgen.nesting import raised


def _with_jump(table: Table, chain: str, callee: str) -> Table:
    rules = (*table[chain].rules, Rule((), jump(callee)))
    return table.of({**table.by_name(), chain: table[chain].with_rules(rules)})


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 1 << 32))
def test_depths_raised_by_a_new_jump_are_those_computed_anew(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"C{number}" for number in range(12)]
    table = Table("filter", (Chain("FORWARD", "ACCEPT"), *(Chain(name, None) for name in names)))
    kept = levels_above(table)
    for _ in range(25):
        caller, callee = sorted(rng.sample(range(-1, 12), 2))  # jumps lead to later chains: no circles
        chain, entered = "FORWARD" if caller < 0 else names[caller], names[callee]
        limit = rng.choice([3, 16])
        deeper = raised(table, kept, [entered], kept[chain] + 1, limit)
        added = _with_jump(table, chain, entered)
        anew = levels_above(added)
        if deeper is None:
            assert max(anew.values()) > limit
        else:
            table, kept = added, deeper
            assert kept == anew


def test_a_circle_of_jumps_is_too_deep() -> None:
    table = Table("filter", (Chain("FORWARD", "ACCEPT"), Chain("A", None), Chain("B", None)))
    for caller, callee in (("A", "B"), ("B", "A")):
        table = _with_jump(table, caller, callee)
    assert raised(table, {}, ["A"], 1, 16) is None
