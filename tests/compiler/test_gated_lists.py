"""Lists that no tree can divide are read by their own packets alone."""

from __future__ import annotations

import pytest

import hitables
from hitables.compiler.pipeline import Output
from hitables.compiler.result import ChainReport

pytestmark = pytest.mark.engine

LISTS = {
    "strings": "-p udp -m udp --dport 53 -m string --string d{n}.example --algo bm --to 65535 -j DROP",
    "ipsets": "-i eth0 -m set --match-set s{n} src -j DROP",
    "original destinations": "-i eth1 -m conntrack --ctorigdst 192.0.2.{n} -j ACCEPT",
    "limits": "-p tcp -m tcp --dport 22 -m limit --limit {n}/hour -j LOG",
}


def compiled(
    rule: str, count: int = 60, chain: str = "FORWARD", **options: str
) -> tuple[Output, ChainReport]:
    heads = ":INPUT ACCEPT\n:FORWARD DROP\n:OUTPUT ACCEPT\n:own -\n-A INPUT -j own\n"
    rules = "".join(f"-A {chain} {rule.format(n=n)}\n" for n in range(1, count + 1))
    output = hitables.compile(f"*filter\n{heads}{rules}COMMIT\n", **options)
    return output, next(each for each in output.reports if each.chain == chain)


@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
@pytest.mark.parametrize("chain", ["FORWARD", "own"])
@pytest.mark.parametrize("kind", LISTS)
def test_packets_of_no_rule_are_turned_away(kind: str, chain: str, backend: str) -> None:
    output, report = compiled(LISTS[kind], chain=chain, backend=backend)
    assert report.gated and not report.why and not output.faults
    # Half of the packets are of no rule: they read the tests alone.
    assert report.read_after < report.read_before / 2 + 3 and report.longest <= 63
    assert report.after <= 60 * (2 if kind == "limits" else 1) + 3


def test_a_short_list_stays() -> None:
    _, report = compiled(LISTS["strings"], 15)
    assert report.why == "a tree would not read fewer rules" and not report.gated


def test_a_list_without_a_common_test_stays() -> None:
    _, report = compiled("-m set --match-set s{n} src -j DROP")
    assert "nothing that a tree could tell packets apart by" in report.why


def test_a_list_that_a_tree_divides_has_no_gate() -> None:
    _, report = compiled("-i eth0 -s 10.0.{n}.0/24 -j DROP")
    assert not report.gated and report.read_after < 12


@pytest.mark.parametrize("malformed", ["exact", "stricter"])
def test_malformed_packets_are_treated_as_asked(malformed: str) -> None:
    """Strings come behind -m udp, which drops packets that are cut off."""
    output, _ = compiled(LISTS["strings"], malformed=malformed)
    assert not output.faults
