"""Matches and targets that hitables does not know may rewrite a packet; lists behind them get trees all the same."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import hitables
from hitables.compiler.segments import REWRITTEN

pytestmark = pytest.mark.engine

MATCH, TARGET = "-m ndpi --http -j DROP", "-j XTFOO --bar 3"
HOSTS = [f"-s 10.1.{n}.0/24 -j ACCEPT" for n in range(200)]
PORTS = [f"-s 10.2.{n}.0/24 -p tcp --dport {n + 1} -j DROP" for n in range(150)]


def text_of(rules: Sequence[str]) -> str:
    lines = [f"-A INPUT {rule}" for rule in rules]
    return "\n".join(
        ["*filter", ":INPUT DROP [0:0]", ":own - [0:0]", *lines, f"-A own {TARGET}", "COMMIT", ""]
    )


@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
@pytest.mark.parametrize(
    ("rules", "most"),
    [
        ([MATCH, *HOSTS], 12),
        ([TARGET, *HOSTS], 12),
        (["-j own", *HOSTS], 12),
        (["-m conntrack --ctstate ESTABLISHED -j ACCEPT", MATCH, f"-p tcp {MATCH}", *HOSTS], 14),
        ([*HOSTS, MATCH, *PORTS], 18),
        ([*HOSTS, MATCH, *PORTS, TARGET, *HOSTS[:90]], 26),
        ([*HOSTS, MATCH], 12),
    ],
)
def test_rules_around_an_unknown_one_get_trees(rules: Sequence[str], most: float, backend: str) -> None:
    text = text_of(rules)
    output = hitables.compile(text, backend=backend)
    assert output.proved and not output.faults
    (report,) = (each for each in output.reports if each.chain == "INPUT")
    assert report.why == "" and report.read_after < most
    if backend != "legacy":
        assert hitables.check(text, output.text, engine="diagrams", backend="nft")
    assert output.text.count("ndpi") == text.count("ndpi")  # a match is printed once: it may have a memory


def test_trees_stand_between_many_unknown_rules() -> None:
    rules = [
        rule for n in range(20) for rule in (*(f"-s 10.{n}.{at}.0/24 -j ACCEPT" for at in range(40)), MATCH)
    ]
    output = hitables.compile(text_of(rules))
    assert output.proved and not output.faults
    (report,) = (each for each in output.reports if each.chain == "INPUT")
    assert report.why == "" and report.read_after < 120


def test_a_tree_in_front_of_an_unknown_rule_is_not_read_behind_it() -> None:
    """The rule may rewrite the source, so the same test may hold before it and not behind it."""
    rules = [f"-s 10.1.{n}.0/24 -j LOG" for n in range(60)]
    before = text_of([*rules, TARGET, *HOSTS])
    swapped = text_of([*rules, *HOSTS[:1], TARGET, *HOSTS[1:]])
    assert not hitables.check(before, swapped)
    output = hitables.compile(before)
    assert output.proved and not output.faults


def test_a_list_of_nothing_but_unknown_rules_says_why_it_stays() -> None:
    rules = [f"-s 10.1.{n}.0/24 -m ndpi --http -j XTFOO --bar {n}" for n in range(40)]
    (report,) = (each for each in hitables.compile(text_of(rules)).reports if each.chain == "INPUT")
    assert report.why == REWRITTEN
