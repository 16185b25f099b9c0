"""Rules of a few ports that lie far apart: a tree has each of their ports where it is."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

import hitables
from hitables.compiler import run_trees
from hitables.compiler.result import ChainReport

pytestmark = pytest.mark.engine


def compiled(table: str, rules: Sequence[str], backend: str) -> ChainReport:
    lines = [f"*{table}", ":FORWARD ACCEPT [0:0]", *(f"-A FORWARD {rule}" for rule in rules), "COMMIT", ""]
    output = hitables.compile("\n".join(lines), backend=backend)
    assert output.proved and not output.faults
    (report,) = (each for each in output.reports if each.chain == "FORWARD")
    assert report.why == ""
    return report


PAIRS = [f"-p tcp -m multiport --dports {3 * n + 1},{3 * n + 10000}" for n in range(250)]


@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
def test_rules_of_two_ports_each_read_as_few_as_rules_of_one(backend: str) -> None:
    pairs = compiled("filter", [f"{each} -j DROP" for each in PAIRS], backend)
    single = compiled("filter", [f"-p tcp --dport {3 * n + 1} -j DROP" for n in range(250)], backend)
    assert pairs.read_after <= single.read_after + 2


def test_a_list_whose_tree_may_not_grow_further_gets_the_tree_that_may_be_printed() -> None:
    drawn = Random(1)
    ports = [",".join(map(str, sorted(drawn.sample(range(1, 65536), 4)))) for _ in range(64)]
    report = compiled("filter", [f"-p tcp -m multiport --dports {each} -j DROP" for each in ports], "any")
    assert report.after <= 4 * 64 + 8 and report.read_after < 20


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
