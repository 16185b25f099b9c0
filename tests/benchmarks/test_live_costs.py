"""The benchmark of the commands of a live host: each is run, the boot too, and the table has all of them."""

from __future__ import annotations

import pytest

import hitables
from benchmarks.live_costs import COMMANDS, cost_table, measured, rules_of, with_one_more
from hitables.errors import HitablesError
from hitables.ir.packet import Backend

_RULES = "*nat\nCOMMIT\n*filter\n:FORWARD DROP [0:0]\n-A FORWARD -p tcp --dport 22 -j ACCEPT\nCOMMIT\n"


@pytest.mark.needs_kernel
def test_each_command_is_measured() -> None:
    row = {"set": "small", "backend": "nft", "rules": 1, **measured(_RULES, Backend.NFT)}
    assert all(row["commands"][words]["cpu_s"] > 0 for words in COMMANDS)
    assert row["largest_mb"] > 10 and row["state_mb"] > 0
    assert cost_table([row]).splitlines()[2].startswith("| small, nft | 1 | ")


@pytest.mark.needs_kernel
def test_a_command_that_fails_is_told_with_its_message() -> None:
    with pytest.raises(HitablesError, match="unknown option"):
        measured(_RULES.replace("--dport", "--doprt"), Backend.NFT)


def test_the_rule_more_is_in_table_filter() -> None:
    text = rules_of("campus")
    before, after = (hitables.read(each).table("filter") for each in (text, with_one_more(text)))
    assert before is not None and after is not None
    assert after.rule_count() == before.rule_count() + 1 > 1000
