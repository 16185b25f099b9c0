"""Lint notes what is no flaw: in the order of the lines, each once, and not beside a flaw of the same line."""

from __future__ import annotations

import pytest

import hitables
from hitables.report.lint import report
from hitables.verify.lint import NEVER, UNREACHED

pytestmark = pytest.mark.engine

HEAD = "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
ASKS_A_LIST_NEVER_FILLED = "-A INPUT -m recent --rcheck --name nobody -j ACCEPT\n"
TRACKS = "-m conntrack --ctstate NEW -j {}\n"


def test_rules_and_chains_that_are_kept_are_told_in_the_order_of_their_lines() -> None:
    names = ("fifth", "fourth", "third", "second", "first")
    declared = "".join(f":{name} - [0:0]\n" for name in names)
    jumps = "".join(f"-A first -s 192.0.2.{at} -j {name}\n" for at, name in enumerate(names[:-1]))
    filled = "".join(f"-A {name} -s 192.0.2.9 -j DROP\n" for name in names[:-1])
    text = f"{HEAD}{declared}-A first {TRACKS.format('DROP')}{jumps}{filled}COMMIT\n"
    assert [each.line for each in hitables.lint(text).kept] == [5, 6, 7, 8, 9]


def test_a_chain_that_enters_another_is_listed_where_one_of_the_two_has_to_stay() -> None:
    text = (
        f"{HEAD}:callee - [0:0]\n:caller - [0:0]\n-A caller {TRACKS.format('callee')}"
        f"-A callee {TRACKS.format('DROP')}COMMIT\n"
    )
    found = hitables.lint(text)
    assert [(flaw.kind, flaw.chain) for flaw in found.flaws] == [(UNREACHED, "caller")]
    assert [each.chain for each in found.kept] == ["callee"]


def test_a_limit_of_a_rule_that_never_matches_is_not_noted() -> None:
    accepts = "-A INPUT -s 11.0.0.0/8 {}-j ACCEPT\n"
    text = f"{HEAD}{accepts.format('')}{accepts.format('-m limit ')}{accepts.format('')}COMMIT\n"
    found = hitables.lint(text)
    assert (NEVER, 6) in [(flaw.kind, flaw.line) for flaw in found.flaws]
    assert not found.idle_limits


def test_a_rule_that_matches_no_packet_is_noted_in_its_table_alone() -> None:
    text = f"{HEAD}{ASKS_A_LIST_NEVER_FILLED}COMMIT\n*mangle\n:INPUT ACCEPT [0:0]\nCOMMIT\n"
    assert [(each.table, each.line) for each in hitables.lint(text).unmatched] == [("filter", 5)]


def test_rules_that_match_no_packet_are_noted_in_the_order_of_their_lines() -> None:
    alias = "-A INPUT -i eth0:{} -j ACCEPT\n"
    text = f"{HEAD}{ASKS_A_LIST_NEVER_FILLED}{alias.format(1)}{ASKS_A_LIST_NEVER_FILLED}{alias.format(2)}COMMIT\n"
    found = hitables.lint(text)
    assert [each.line for each in found.unmatched] == [5, 6, 7, 8]


def test_rules_that_only_count_are_noted_in_one_line_if_they_are_no_flaws() -> None:
    flags = "-A INPUT -p tcp -m tcp --tcp-flags"
    text = (
        "*filter\n:INPUT DROP\n"
        f"{flags} SYN,FIN SYN,FIN\n{flags} SYN,RST SYN,RST\n{flags} ALL NONE\n"
        "-A INPUT -s 10.0.0.0/8 -j ACCEPT\n-A INPUT -s 10.0.0.1\n-A INPUT -p udp -j ACCEPT\nCOMMIT\n"
    )
    program = hitables.read(text)
    found = report(hitables.lint(program), program, 0.0)
    assert [each.places[0].line for each in found.findings] == [7]
    assert found.facts["notes"] == [
        "lines 3, 4, 5 (table filter, chain INPUT) have no target (-j): they only count"
    ]
