"""The lists of `make bench-kinds` are what they say."""

from __future__ import annotations

import pytest

from benchmarks.kinds import KINDS, READ_THROUGH, measure, text_of
from hitables.parse.iptables import read


@pytest.mark.parametrize("kind", KINDS)
def test_each_list_has_its_rules_in_one_chain(kind: str) -> None:
    table, chain, _ = KINDS[kind]
    rules = read(text_of(kind, 60)).table(table)[chain].rules
    assert len(rules) == 60 and len({rule.line for rule in rules}) == 60


@pytest.mark.engine
def test_a_row_tells_what_packets_read() -> None:
    row = measure("strings of DNS", "nft", 60)
    assert row.kind in READ_THROUGH and not row.missed()
    assert row.rules == 60 and row.printed <= 63 and row.passing == 60 and row.passing_reads < 10
    row = measure("SNAT of hosts", "legacy", 60)
    assert row.read > 25 and row.reads < 12 and row.passing_reads < 12
