"""Rules that do nothing are named, and only those."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples
from support.small_programs import small_program

import hitables
from hitables.errors import HitablesError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import Program, Table
from hitables.ir.rule import Rule
from hitables.verify import exact
from hitables.verify.lint import DROPS, EMPTY, NEVER, NOTHING, UNREACHED, Flaw, lint
from hitables.verify.question import Equal, Question

pytestmark = pytest.mark.engine
WHOLE = Question()


def flaws(rules: str, *, chains: str = "", question: Question = WHOLE) -> list[Flaw]:
    text = f"*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{chains}{rules}COMMIT\n"
    found = lint(hitables.read(text), question, tell=lambda stage: None)
    assert found.undecided == ""
    return found.flaws


def told(rules: str, **more: str) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(flaw.kind, flaw.line, flaw.covering) for flaw in flaws(rules, **more)]


def test_a_rule_behind_one_that_covers_it_never_matches() -> None:
    rules = "-A INPUT -s 10.0.0.0/8 -j ACCEPT\n-A INPUT -s 10.1.0.0/16 -p tcp --dport 22 -j REJECT\n"
    assert told(rules) == [(NEVER, 6, (5,))]


def test_rules_that_cover_together_are_all_named() -> None:
    rules = "-A INPUT -s 10.0.0.0/9 -j ACCEPT\n-A INPUT -s 10.128.0.0/9 -j REJECT\n-A INPUT -s 10.0.0.0/8 -j LOG\n"
    assert told(rules) == [(NEVER, 7, (5, 6))]


def test_a_rule_that_contradicts_itself() -> None:
    (flaw,) = flaws("-A FORWARD -s 10.0.0.0/8 -m iprange --src-range 11.0.0.1-11.0.0.9 -j DROP\n")
    assert (flaw.kind, flaw.line, flaw.why) == (NEVER, 5, "its matches exclude each other")


def test_what_callers_let_through_decides() -> None:
    rules = (
        "-A INPUT -p tcp -j services\n-A services -p udp -j ACCEPT\n-A services -p tcp --dport 22 -j ACCEPT\n"
    )
    (flaw,) = flaws(rules, chains=":services - [0:0]\n")
    assert (flaw.kind, flaw.line, flaw.covering) == (NEVER, 7, ())
    assert flaw.why == "no packet that comes to services can match it"


def test_a_protocol_drops_what_hides_it_in_legacy_ipv6() -> None:
    text = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s ::/1 -j DROP\n-A INPUT -p udp -j ACCEPT\nCOMMIT\n"
    program = hitables.read(text, family=Family.IPV6)
    assert lint(program, Question((Backend.LEGACY,)), tell=lambda stage: None).flaws == []
    (flaw,) = lint(program, Question((Backend.NFT,)), tell=lambda stage: None).flaws
    assert (flaw.kind, flaw.line) == (NOTHING, 4)
    behind = text.replace("-p udp", "-s ::1 -p udp")
    (flaw,) = lint(
        hitables.read(behind, family=Family.IPV6), Question((Backend.LEGACY,)), tell=lambda stage: None
    ).flaws
    assert (flaw.kind, flaw.line) == (NEVER, 4)


def test_a_jump_that_no_packet_takes_is_named_for_that_and_not_for_its_empty_chain() -> None:
    rules = "-A INPUT -j DROP\n-A INPUT -m recent --set -j none\n-A INPUT -j none\n"
    assert told(rules, chains=":none - [0:0]\n") == [(NOTHING, 6, ()), (NEVER, 7, (6,)), (NEVER, 8, (6,))]
    assert told("-A INPUT -m recent --set -j none\n", chains=":none - [0:0]\n") == [(EMPTY, 6, ())]


def test_a_jump_to_a_memory_that_others_share_is_not_replaced_by_a_memory_of_its_own() -> None:
    rules = (
        "-A INPUT -i eth0 -g few\n-A INPUT -s 10.0.0.0/8 -g few\n-A INPUT -m limit -j LOG\n"
        "-A few -m limit -j LOG\n"
    )
    assert told(rules, chains=":few - [0:0]\n") == []
    named = rules.replace("limit", "recent --set")  # whose memory all rules share
    assert [flaw[:2] for flaw in told(named, chains=":few - [0:0]\n")] == [(NOTHING, 6), (NOTHING, 7)]


def test_a_rule_whose_packets_get_the_same_from_the_next() -> None:
    rules = "-A INPUT -s 10.1.0.0/16 -j ACCEPT\n-A INPUT -s 10.0.0.0/8 -j ACCEPT\n"
    assert told(rules) == [(NOTHING, 5, (6,))]
    assert told("-A INPUT -p tcp -j DROP\n") == [(NOTHING, 5, ())]  # the policy does


def test_a_rule_that_only_kept_packets_from_one_that_went_goes_too() -> None:
    rules = (
        "-A INPUT -i eth0 -g ten\n-A INPUT -s 10.0.0.0/8 -j RETURN\n-A INPUT -j ten\n"
        "-A ten -s 10.0.0.0/8 -j ACCEPT\n"
    )
    assert [flaw[:2] for flaw in told(rules, chains=":ten - [0:0]\n")] == [(NOTHING, 7), (NOTHING, 8)]


def test_of_two_equal_rules_one_is_named() -> None:
    rules = "-A INPUT -s 10.1.0.0/16 -j ACCEPT\n-A INPUT -s 10.1.0.0/16 -j ACCEPT\n"
    assert told(rules) == [(NEVER, 6, (5,))]


def test_rules_that_count_log_or_remember_do_something() -> None:
    rules = (
        "-A INPUT -s 10.1.0.0/16\n-A INPUT -s 10.1.0.0/16 -j LOG\n-A INPUT -m recent --set -j DROP\n"
        "-A FORWARD -m limit --limit 1/sec -j ACCEPT\n"
    )
    assert told(rules) == []


def test_jumps_to_empty_chains_and_chains_that_nobody_reaches() -> None:
    rules = "-A INPUT -p tcp -j nothing\n-A alone -j DROP\n"
    found = flaws(rules, chains=":nothing - [0:0]\n:alone - [0:0]\n")
    assert [(flaw.kind, flaw.chain, flaw.line, flaw.why) for flaw in found] == [
        (UNREACHED, "alone", 6, ""),
        (EMPTY, "INPUT", 7, "nothing"),
    ]


def test_a_table_or_chain_that_is_not_there_is_refused() -> None:
    for question, said in (
        (Question(tables=frozenset({"raw"})), "no table raw"),
        (Question(chains=frozenset({"X"})), "no chain X"),
    ):
        with pytest.raises(HitablesError, match=said):
            flaws("", question=question)


def test_a_budget_that_runs_out_is_said() -> None:
    program = hitables.read("*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp -j ACCEPT\nCOMMIT\n")
    assert (
        "out of time in table filter"
        in lint(program, Question(timeout=1e-9), tell=lambda stage: None).undecided
    )


def without(program: Program, lines: dict[str, set[int]]) -> Program:
    """*program* less the rules at these places."""
    (table,) = program.tables
    chains = tuple(
        replace(
            chain,
            rules=tuple(rule for at, rule in enumerate(chain.rules) if at not in lines.get(chain.name, ())),
        )
        for chain in table.chains
    )
    return Program(program.family, (Table(table.name, chains),))


@settings(max_examples=examples(60))
@given(st.randoms(use_true_random=False))
def test_what_is_named_can_go_and_what_can_go_is_named(rng: random.Random) -> None:
    check_what_can_go(small_program(rng))


@pytest.mark.parametrize("seed", [58, 2022])
def test_a_rule_that_another_ones_going_makes_needless_is_named(seed: int) -> None:
    """In both, a jump goes, and then a rule of the chain that it entered changes nothing."""
    check_what_can_go(small_program(random.Random(seed)))


def check_what_can_go(made: Program) -> None:
    (table,) = made.tables
    number = 0
    chains = []
    for chain in table.chains:
        rules: list[Rule] = []
        for rule in chain.rules:
            number += 1
            rules.append(rule._replace(line=number))
        chains.append(replace(chain, rules=tuple(rules)))
    program = Program(made.family, (Table("filter", tuple(chains)),))
    found = lint(program, Question(), tell=lambda stage: None).flaws
    named = {flaw.line for flaw in found if flaw.kind in (NEVER, NOTHING) and DROPS not in flaw.why}
    kept = {flaw.line for flaw in found if DROPS in flaw.why}
    places = {
        chain.name: {at for at, rule in enumerate(chain.rules) if rule.line in named} for chain in chains
    }
    left = without(program, places)
    exactly = Question(malformed="exact")
    assert isinstance(exact.check(program, left, exactly), Equal)
    entered = reached(left)
    for chain in left.tables[0].chains:
        for at, rule in enumerate(chain.rules):
            effect = rule.target is None or rule.target.key in ("LOG", "MARK 1")
            empty = enters(rule) is not None and not table[str(enters(rule))].rules
            if chain.name in entered and not effect and not empty and rule.line not in kept:
                assert not isinstance(exact.check(left, without(left, {chain.name: {at}}), exactly), Equal)


def reached(program: Program) -> set[str]:
    (table,) = program.tables
    seen, rest = {"INPUT"}, ["INPUT"]
    while rest:
        for rule in table[rest.pop()].rules:
            name = enters(rule)
            if name is not None and name not in seen:
                seen.add(name)
                rest.append(name)
    return seen


def enters(rule: Rule) -> str | None:
    target = rule.target
    return target.name if target is not None and target.enters else None
