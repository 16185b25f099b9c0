"""Rows of chains, which follow a table from version to version, are those of its rules."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from support.crossing_rules import crossing_text

import hitables
from hitables.ir.fields import Family
from hitables.ir.program import Chain, Table
from hitables.ir.rule import Rule
from sflgen.chain_names import GeneratedNames
from sflgen.chain_rows import Ints, rows_after
from sflgen.rule_rows import RuleRows


def check(rows: RuleRows, table: Table) -> None:
    numbers = [rows.chain(chain.name) for chain in table.chains]
    found, sizes = rows.of_table(table).of(np.array(numbers, np.int64))
    assert [rows.rules[row] for row in found.tolist()] == [
        rule for chain in table.chains for rule in chain.rules
    ]
    assert sizes.tolist() == [len(chain.rules) for chain in table.chains]


@pytest.mark.parametrize("most", [2_000_000, 40])
def test_rows_follow_a_table_whose_chains_change_come_and_go(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sflgen.chain_rows.MOST_ITEMS", most)
    rng = random.Random(most)
    rules: list[Rule] = list(
        hitables.read(crossing_text(rng, Family.IPV4, "FORWARD", 60, 0.1)).table("filter")["FORWARD"].rules
    )
    rows, names = RuleRows(Family.IPV4), GeneratedNames("sf")
    table = Table("filter", tuple(Chain(f"sf{at}", None, tuple(rules[at : at + 4])) for at in range(10)))
    versions = [table]
    for step in range(200):
        chains = list(versions[-1].chains)
        at = rng.randrange(len(chains) + 1)
        kind = rng.random()
        if kind < 0.2 or at == len(chains):
            chains.insert(at, Chain(f"sf{100 + step}", None, tuple(rng.choices(rules, k=rng.randrange(5)))))
        elif kind < 0.4 and len(chains) > 2:
            del chains[at]
        else:
            chains[at] = replace(chains[at], rules=tuple(rng.choices(rules, k=rng.randrange(6))))
        versions.append(Table("filter", tuple(chains)))
        check(rows, versions[-1])
        if rng.random() < 0.2:
            check(rows, rng.choice(versions))
    generated = rows.generated(names)
    assert {rows.chain_names[at] for at in range(len(generated)) if generated[at]} >= {
        chain.name for chain in versions[-1].chains
    }
    assert all(rows.chain_names[at].startswith("sf") for at in range(len(generated)) if generated[at])


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_a_changed_chain_are_those_of_its_rules(seed: int) -> None:
    """Few rules come and go, at any place; some are there twice."""
    rng = random.Random(seed)
    rules: list[Rule] = list(
        hitables.read(crossing_text(rng, Family.IPV4, "FORWARD", 30, 0.1)).table("filter")["FORWARD"].rules
    )
    numbers = {id(rule): number for number, rule in enumerate(rules)}
    asked: list[int] = []

    def rows_of(some: tuple[Rule, ...]) -> Ints:
        asked.append(len(some))
        return np.array([numbers[id(rule)] for rule in some], np.int64)

    old = tuple(rng.choice(rules) for _ in range(rng.randrange(12)))
    for _ in range(30):
        at, size, new = rng.randrange(len(old) + 1), rng.randrange(3), rng.choices(rules, k=rng.randrange(3))
        now = (*old[:at], *new, *old[at + size :])
        rows = rows_after(old, rows_of(old), now, rows_of)
        assert rows.tolist() == rows_of(now).tolist()
        assert asked[-2] <= len(new) + size
        old = now
