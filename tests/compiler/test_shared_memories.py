"""Rules that share a memory: which is loaded first counts, and so does that one reads the counters of an ipset."""

from __future__ import annotations

import pytest
from support.small_namespace import Namespace

import hitables
from hitables.compiler.result import MIXED
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.load_save import load

pytestmark = pytest.mark.engine

# Not in the order of the chains: the mask of the first line counts in nft.
WRITTEN_FIRST = """\
*filter
:FORWARD DROP [0:0]
:a - [0:0]
-A a -m recent --set --name r --mask 255.255.255.0 -j ACCEPT
-A FORWARD -j a
-A FORWARD -s 11.0.0.0/8 -m recent --rcheck --name r -j ACCEPT
COMMIT
"""

RATES = "\n".join(
    [
        "*filter",
        ":FORWARD DROP [0:0]",
        ":a - [0:0]",
        ":b - [0:0]",
        "-A FORWARD -j a",
        "-A FORWARD -j b",
        "-A a -s 10.0.0.0/16 -m hashlimit --hashlimit-name h --hashlimit-upto 5/sec -j ACCEPT",
        *(f"-A a -s 10.{each}.0.0/16 -p tcp -m tcp --dport {each} -j ACCEPT" for each in range(1, 41)),
        "-A b -m hashlimit --hashlimit-name h --hashlimit-upto 100/sec -j ACCEPT",
        "COMMIT",
        "",
    ]
)


@pytest.mark.parametrize("backend", ["any", "legacy", "nft"])
def test_the_rule_that_nft_loads_first_is_printed_first(backend: str) -> None:
    output = hitables.compile(WRITTEN_FIRST, backend=backend)
    assert output.proved and not output.faults
    assert hitables.check(WRITTEN_FIRST, output.text)
    assert not hitables.check(WRITTEN_FIRST, WRITTEN_FIRST.replace("255.255.255.0", "255.255.0.0"))


@pytest.mark.parametrize("chain", ["INPUT", "FORWARD"])
def test_a_built_in_chain_is_loaded_before_chains_of_any_name(chain: str) -> None:
    """iptables-legacy sorts the others by name, behind all built-in ones."""
    first, last = (
        f"*filter\n:{name} - [0:0]\n-A {name} -m recent --set --mask 255.0.0.0 -j DROP\n"
        f"-A {chain} -m recent --rcheck -j ACCEPT\n-A {chain} -j {name}\nCOMMIT\n"
        for name in ("A", "z")
    )
    assert hitables.check(first, last, backend="legacy")


@pytest.mark.needs_kernel
def test_nft_takes_rules_of_chains_by_turns() -> None:
    text = hitables.compile(WRITTEN_FIRST).text
    with Namespace() as namespace:
        load(text, Family.IPV4, Backend.NFT, namespace)


@pytest.mark.parametrize("backend", ["any", "legacy", "nft"])
def test_a_tree_that_would_load_another_rule_first_is_no_fault(backend: str) -> None:
    output = hitables.compile(RATES, backend=backend)
    assert output.proved and not output.faults
    report = next(each for each in output.reports if each.chain == "a")
    assert report.why == (MIXED if backend == "nft" else "")
    same = hitables.compile(RATES.replace("100/sec", "5/sec"), backend=backend)
    assert next(each for each in same.reports if each.chain == "a").why == ""


@pytest.mark.parametrize("backend", ["any", "legacy", "nft"])
@pytest.mark.parametrize("name", ["U", "zz"])
def test_a_chain_that_enters_such_a_chain_keeps_its_tree(name: str, backend: str) -> None:
    """Legacy loads chains by their names: U before the chains of trees, zz behind them."""
    lines = ["*filter", ":FORWARD DROP [0:0]", f":{name} - [0:0]", f"-A FORWARD -i eth0 -p udp -j {name}"]
    tests = [f"-s 10.{each}.0.0/16 -p tcp -m tcp --dport {each}" for each in range(1, 41)]
    lines += [f"-A FORWARD {test} -j ACCEPT" for test in tests]
    limit = "-m hashlimit --hashlimit-name h --hashlimit-upto"
    lines.append(f"-A {name} -s 10.0.0.0/16 -p tcp {limit} 5/sec -j ACCEPT")
    lines += [f"-A {name} {test} -j ACCEPT" for test in tests]
    lines.append(f"-A {name} -p udp -m udp --dport 80 {limit} 100/sec -j ACCEPT")
    lines += [f"-A {name} {test.replace('tcp', 'udp')} -j ACCEPT" for test in tests]
    output = hitables.compile("\n".join([*lines, "COMMIT", ""]), backend=backend)
    assert output.proved and not output.faults
    why = {report.chain: report.why for report in output.reports}
    assert why["FORWARD"] == "" and why[name] in ("", MIXED)


@pytest.mark.parametrize("backend", ["any", "legacy", "nft"])
@pytest.mark.parametrize("trees", [1, 3])
def test_packets_that_never_come_to_the_tree_find_that_another_rule_is_first(
    trees: int, backend: str
) -> None:
    """Legacy loads the chains of trees, which begin with ht, behind `b`, as nft does."""
    chains = [f"a{at}" for at in range(trees)]
    limit = "-m hashlimit --hashlimit-mode dstip --hashlimit-name h --hashlimit-upto 1/minute"
    lines = ["*filter", ":INPUT ACCEPT [0:0]", *(f":{name} - [0:0]" for name in [*chains, "b"])]
    lines += [f"-A INPUT -s 10.0.0.{at}/32 -j {name}" for at, name in enumerate([*chains, "b"])]
    for name in chains:
        tests = [f"-A {name} -s 10.0.1.{at}/32 -p tcp -m tcp --dport 1 -j" for at in range(1, 9)]
        lines += [f"{test} {('DROP', 'ACCEPT')[at % 2]}" for at, test in enumerate(tests)]
        lines.append(f"-A {name} -s 10.0.1.9/32 {limit} --hashlimit-burst 4 -j DROP")
        lines += [f"-A {name} -s 10.0.1.{at}/32 -p tcp -m tcp --dport 1 -j DROP" for at in (11, 12)]
    lines.append(f"-A b {limit} --hashlimit-burst 2 -j ACCEPT")
    output = hitables.compile("\n".join([*lines, "COMMIT", ""]), backend=backend)
    assert output.proved and not output.faults
    why = {report.chain: report.why for report in output.reports}
    assert [why[name] for name in chains] == [MIXED, *[""] * (trees - 1)]


@pytest.mark.parametrize(
    "rules",
    [
        """-A FORWARD -p tcp -m set --match-set s1 src -j ACCEPT
-A FORWARD -p udp -m set ! --match-set s1 src -j ACCEPT
-A FORWARD -j DROP
-A a -j DROP
-A a -m set --match-set s1 src --packets-gt 10 -j ACCEPT
""",
        """-A FORWARD -s 10.0.0.0/8 -m set --match-set s1 src -j ACCEPT
-A FORWARD -j DROP
-A FORWARD -m set --match-set s1 src --packets-gt 10 -j ACCEPT
""",
    ],
)
def test_the_rule_by_which_sets_count_stays_where_only_verdicts_are_kept(rules: str) -> None:
    text = f"*filter\n:FORWARD DROP [0:0]\n:a - [0:0]\n{rules}COMMIT\n"
    output = hitables.compile(text, equivalence="verdict")
    assert output.proved and not output.faults
    assert "--packets-gt 10" in output.text


def test_sets_are_counted_in_both_rule_sets_where_a_rule_that_is_not_compared_reads_the_counters() -> None:
    head = "*filter\n:FORWARD ACCEPT [0:0]\n:others - [0:0]\n"
    rules = "-A FORWARD -p udp -m set --match-set L src -m udp --dport 7 -j DROP\n-A FORWARD -j others\n"
    moved = rules.replace(
        "-m set --match-set L src -m udp --dport 7", "-m udp --dport 7 -m set --match-set L src"
    )
    reads = "-A others -m set --match-set L src --packets-gt 5 -j DROP\n"
    assert hitables.check(f"{head}{rules}{reads}COMMIT\n", f"{head}{rules}COMMIT\n", leave=["others"])
    assert not hitables.check(f"{head}{rules}{reads}COMMIT\n", f"{head}{moved}COMMIT\n", leave=["others"])
    assert hitables.check(f"{head}{rules}COMMIT\n", f"{head}{moved}COMMIT\n", leave=["others"])
