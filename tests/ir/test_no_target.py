"""Rules that only count in chains that decide packets."""

from __future__ import annotations

import pytest

import hitables
from hitables.ir.no_target import NoTarget, no_targets

FLAGS = "-A INPUT -p tcp -m tcp --tcp-flags SYN,FIN SYN,FIN"


def found(rules: str, chains: str = "") -> list[NoTarget]:
    (table,) = hitables.read(f"*filter\n:INPUT DROP\n{chains}{rules}COMMIT\n").tables
    return list(no_targets(table))


def test_the_rules_of_a_chain_that_only_count_are_named_together() -> None:
    rules = f"{FLAGS}\n-A INPUT -s 10.0.0.1,10.0.0.2\n-A INPUT -p udp -j ACCEPT\n-A INPUT -p icmp\n"
    assert found(rules) == [NoTarget("filter", "INPUT", (3, 4, 6))]


@pytest.mark.parametrize(
    "rule",
    [
        "-p tcp -m recent --set",
        "-m limit --limit 1/s",
        "-m quota --quota 9",
        "-s 10.0.0.1 -m comment --comment host",
        "-m set --match-set few src --packets-gt 5",
        "-m account --addr 10.0.0.0/8 --name few",
        "",
    ],
)
def test_a_rule_that_has_another_use_is_not_named(rule: str) -> None:
    assert found(f"-A INPUT {rule}\n-A INPUT -p udp -j ACCEPT\n") == []


def test_chains_that_account_are_not_named() -> None:
    rules = (
        "-A INPUT -j all\n-A INPUT -p udp -j ACCEPT\n-A all -s 10.0.0.1\n-A all -j part\n-A all -j LOG\n"
        "-A part -s 10.0.0.2\n-A part -j RETURN\n"
    )
    chains = ":all -\n:part -\n"
    assert found(rules, chains) == []
    assert found(f"{rules}-A part -p tcp -j DROP\n", chains) == [
        NoTarget("filter", "all", (7,)),
        NoTarget("filter", "part", (10,)),
    ]
