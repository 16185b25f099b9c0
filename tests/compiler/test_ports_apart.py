"""Rules of a few ports that lie far apart: a tree has each of their ports where it is."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

import hitables
from hitables.compiler import run_trees
from hitables.compiler.result import ChainReport

pytestmark = pytest.mark.engine


def compiled(table: str, rules: Sequence[str], backend: str, **options: Any) -> ChainReport:
    lines = [f"*{table}", ":FORWARD ACCEPT [0:0]", *(f"-A FORWARD {rule}" for rule in rules), "COMMIT", ""]
    output = hitables.compile("\n".join(lines), backend=backend, **options)
    assert output.proved and not output.faults
    (report,) = (each for each in output.reports if each.chain == "FORWARD")
    assert report.why == ""
    return report


def drawn_ports(seed: int, count: int) -> str:
    """The value of --dports: ports far apart."""
    return ",".join(map(str, sorted(Random(seed).sample(range(1, 65536), count))))


PAIRS = [f"-p tcp -m multiport --dports {3 * n + 1},{3 * n + 10000}" for n in range(250)]


@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
def test_rules_of_two_ports_each_read_as_few_as_rules_of_one(backend: str) -> None:
    pairs = compiled("filter", [f"{each} -j DROP" for each in PAIRS], backend)
    single = compiled("filter", [f"-p tcp --dport {3 * n + 1} -j DROP" for n in range(250)], backend)
    assert pairs.read_after <= single.read_after + 2


def test_a_list_whose_tree_may_not_grow_further_gets_the_tree_that_may_be_printed() -> None:
    rules = [f"-p tcp -m multiport --dports {drawn_ports(n, 4)} -j DROP" for n in range(64)]
    report = compiled("filter", rules, "any", max_expansion=2)
    # A rule of four ports counts as two.
    assert report.after <= 2 * 2 * 64 and report.read_after < 20


@pytest.mark.parametrize("with_hosts", [0.0, 0.5])
def test_rules_of_many_ports_read_as_few_as_rules_of_one(with_hosts: float) -> None:
    """Each port is printed at least once, which is more than four times the rules."""
    drawn, rules = Random(5), []
    for n in range(300):
        host = f"-s {drawn.randrange(1, 224)}.{drawn.randrange(256)}.{n % 256}.7 "
        ports = f"-p tcp -m multiport --dports {drawn_ports(n, 7)} -j ACCEPT"
        rules.append(host + ports if drawn.random() < with_hosts else ports)
    report = compiled("filter", rules, "nft")
    assert report.read_after < 20 and 4 * 300 < report.after <= 4 * 3 * 300


def test_hosts_and_then_rules_of_several_ports_are_read_one_after_the_other() -> None:
    hosts = [f"-s 10.0.{n}.0/24 -j MARK --set-mark {n}" for n in range(200)]
    ports = [f"{each} -j MARK --set-mark {n}" for n, each in enumerate(PAIRS)]
    assert compiled("mangle", hosts + ports, "any").read_after < 30


def test_the_ports_are_halved_where_only_some_rules_have_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """In nft a test of an address is cheap, but half of these rules would be on both of its sides."""
    monkeypatch.setattr(run_trees, "FEW_BOXES", 0)  # one tree is grown, as of thousands of rules
    drawn = Random(3)
    rules = [
        f"-s {drawn.randrange(1, 220)}.0.{n}.0/24 -p tcp --dport {drawn.randrange(1, 65536)} -j ACCEPT"
        if n % 2
        else f"-p tcp --dport {drawn.randrange(1, 65536)} -m limit --limit {n + 1}/sec -j ACCEPT"
        for n in range(120)
    ]
    assert compiled("filter", rules, "nft").read_after < 15
