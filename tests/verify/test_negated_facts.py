"""A match with "!" and the match without it are one fact: for engines, drawn packets, lint, diff, witnesses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hitables
from hitables.ir import semantics
from hitables.ir.answers import Answers
from hitables.ir.packet import Backend
from hitables.ir.packet_reader import read_packet
from hitables.ir.rule import Match, Role, Rule
from hitables.simulate.batch import PacketBatch, drawn_numbers
from hitables.simulate.interpreter import Interpreter
from hitables.simulate.number_pools import number_pools
from hitables.verify.lint import NEVER

ENGINES = ("exact", "diagrams", "sample")
PAIRS = [
    ("mark --mark 0x1", "mark ! --mark 1/0xffffffff"),
    ("set --match-set office src", "set ! --set office src"),
    ("addrtype --src-type LOCAL", "addrtype ! --src-type LOCAL"),
    ("string --algo bm --string ab", "string ! --string ab --algo bm"),
    ("dscp --dscp-class EF", "dscp ! --dscp 0x2e"),
]
NO_PAIRS = [
    ("connmark --mark 1", "connmark ! --mark 1"),
    ("mark --mark 1", "mark ! --mark 2"),
    ("string --algo bm --string ab", "string ! --string ab --algo kmp"),
    ("addrtype --src-type LOCAL --dst-type LOCAL", "addrtype ! --src-type LOCAL --dst-type LOCAL"),
    ("addrtype --src-type LOCAL --dst-type LOCAL", "addrtype ! --src-type LOCAL ! --dst-type LOCAL"),
    ("set --match-set a src --return-nomatch", "set ! --match-set a src"),
    ("string --algo bm --string ab --from 3", "string --algo bm ! --string ab"),
    ("time --weekdays Mon", "time ! --weekdays Mon"),
    ("physdev --physdev-out a", "physdev ! --physdev-out a"),
    # A packet without a conntrack entry matches neither.
    ("conntrack --ctproto 6", "conntrack ! --ctproto 6"),
    (
        "connbytes --connbytes 5:9 --connbytes-dir both --connbytes-mode bytes",
        "connbytes ! --connbytes 5:9 --connbytes-dir both --connbytes-mode bytes",
    ),
]


def read(*rules: str, table: str = "filter") -> hitables.Program:
    lines = "".join(f"-A INPUT {rule}\n" for rule in rules)
    return hitables.read(f"*{table}\n:INPUT ACCEPT\n{lines}COMMIT\n")


def equal(before: hitables.Program, after: hitables.Program, engine: str) -> bool:
    """Whether they are equal to each backend, which must agree; no packet shown may match both of a pair."""
    found = [
        hitables.check(before, after, backend=backend, engine=engine) for backend in ("legacy", "nft", "any")
    ]
    matches = [rule.matches[0] for rule in (*input_of(before), *input_of(after)) if rule.matches]
    for difference in (difference for comparison in found for difference in comparison.differences):
        assert difference.answers is not None
        facts = difference.answers.facts
        for match in matches:
            if match.negates and (match.negates, 0) in facts and (match.key, 0) in facts:
                assert facts[match.key, 0] is not facts[match.negates, 0]
    results = {comparison.result for comparison in found}
    assert len(results) == 1
    return results == {hitables.Result.EQUAL}


def input_of(program: hitables.Program) -> tuple[Rule, ...]:
    (table,) = program
    return table["INPUT"].rules


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("plain", "negated"), PAIRS)
def test_what_one_of_a_pair_lets_through_the_other_does_not(plain: str, negated: str, engine: str) -> None:
    first = read(f"-m {plain} -j ACCEPT", "-j DROP")
    assert equal(first, read(f"-m {negated} -j DROP"), engine)
    swapped = read(f"-m {negated} -j DROP", f"-m {plain} -j ACCEPT")
    assert equal(first, swapped, engine)
    assert not equal(first, read(f"-m {negated} -j ACCEPT", "-j DROP"), engine)
    thrice = read(f"-m {plain} -j ACCEPT", f"-m {negated} -j LOG", f"-m {plain} -j LOG")
    assert equal(thrice, read(f"-m {plain} -j ACCEPT", "-j LOG"), engine)


@pytest.mark.parametrize("engine", ["exact", "diagrams"])
@pytest.mark.parametrize(("plain", "other"), NO_PAIRS)
def test_no_other_matches_are_taken_for_a_pair(plain: str, other: str, engine: str) -> None:
    listed = read(f"-m {plain} -j ACCEPT", f"-m {other} -j ACCEPT", "-j DROP")
    assert not equal(listed, read("-j ACCEPT"), engine)


@pytest.mark.parametrize("engine", ["exact", "diagrams"])
def test_a_write_forgets_the_fact_for_both(engine: str) -> None:
    log, write, log_others = (
        "-m mark --mark 1 -j LOG",
        "-j MARK --set-xmark 0x2/0x2",
        "-m mark ! --mark 1 -j LOG",
    )
    accept = "-m mark --mark 1 -j ACCEPT"
    behind = read(log, write, accept, log_others, table="mangle")
    assert equal(behind, read(log, write, accept, "-j LOG", table="mangle"), engine)
    across = read(log, write, log_others, table="mangle")
    assert not equal(across, read("-j LOG", write, table="mangle"), engine)
    together = read(log, log_others, write, table="mangle")
    assert not equal(across, together, engine)


def test_lint_names_rules_behind_both_of_a_pair_and_rules_with_both() -> None:
    program = read(
        "-m set --match-set a src -j ACCEPT",
        "-m set ! --match-set a src -p tcp -j DROP",
        "-p tcp --dport 22 -j ACCEPT",
        "-m mark --mark 1 -m mark ! --mark 1 -j DROP",
        "-m set ! --match-set a src -j DROP",
    )
    flaws = {flaw.line: flaw for flaw in hitables.lint(program).flaws if flaw.kind == NEVER}
    assert set(flaws) == {5, 6}
    assert flaws[5].covering == (3, 4)
    assert "exclude each other" in flaws[6].why


def test_diff_tells_of_the_fact_once() -> None:
    before = read("-m mark --mark 1 -j ACCEPT", "-j DROP")
    changes = hitables.diff(before, read("-m mark ! --mark 1 -j DROP", "-j LOG", "-j DROP"))
    assert {change.facts for change in changes.regions} == {(("mark --mark 0x1", True),)}


def both() -> tuple[Match, Match]:
    first, second = input_of(read("-m mark --mark 1", "-m mark ! --mark 1"))
    plain, negated = first.matches[0], second.matches[0]
    assert negated.fact == plain.fact.negation
    assert plain.role is negated.role is Role.CONSTANT
    return plain, negated


def test_answers_about_one_are_answers_about_the_other() -> None:
    plain, negated = both()
    assert Answers({(plain.key, 0): True}).fact(negated, 0) is False
    assert Answers({(plain.key, 1): False}).fact(negated, 1) is True
    assert Answers({(plain.key, 1): False}).fact(negated, 0) is None
    assert Answers(closed=True).fact(negated, 0) is True
    assert Answers(closed=True).fact(plain, 0) is False
    both_given = Answers({(plain.key, 0): True, (negated.key, 0): True})
    assert both_given.fact(negated, 0) is True, "its own is nearer"


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("truth", [True, False])
def test_an_answer_to_one_of_the_two_decides_both_in_the_interpreter(truth: bool, backend: Backend) -> None:
    plain, _ = both()
    program = read("-m mark ! --mark 1 -j DROP", "-m mark --mark 1 -j ACCEPT", "-j LOG")
    words = "table=filter chain=INPUT in=eth0 src=10.0.0.1 dst=10.0.0.2 proto=47"
    answers = {(plain.key, 0): np.array([truth], np.uint8)}
    batch = replace(
        PacketBatch.of(program.family, [read_packet(words, program.family).packet]), facts=answers
    )
    result = Interpreter(program, backend).run("filter", "INPUT", batch)
    walk = semantics.run(program.table("filter"), "INPUT", batch.packet(0), backend)
    assert result.verdict_text(0) == walk.verdict == ("ACCEPT" if truth else "DROP")
    assert not result.open[0] and not walk.open


@pytest.mark.parametrize("backend", Backend)
def test_drawn_packets_match_one_of_the_two(backend: Backend) -> None:
    plain, negated = both()
    program = read("-m mark --mark 1 -j ACCEPT", "-m mark ! --mark 1 -j DROP", "-j LOG")
    packet = read_packet(
        "table=filter chain=INPUT in=eth0 src=10.0.0.1 dst=10.0.0.2 proto=47", program.family
    ).packet
    pools = number_pools([program])
    batch = replace(PacketBatch.of(program.family, [packet] * 400, range(400)), numbers=pools)
    verdicts = Interpreter(program, backend).run("filter", "INPUT", batch).verdict.tolist()
    truths = (drawn_numbers(batch.rows["seed"], "mark", pools["mark"]) == 1).tolist()
    assert len(set(zip(verdicts, truths, strict=True))) == len(set(verdicts)) == len(set(truths)) == 2
    for at, truth in enumerate(truths):
        each = batch.packet(at)
        assert each.fact(plain, 0) is truth
        assert each.fact(negated, 0) is not truth
