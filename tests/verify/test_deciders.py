"""A diff names every line that decides some of the packets of a region, and no other."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.programs import mutate
from support.scale import examples
from support.small_programs import MARK, every_packet, small_program

import hitables
from hitables.ir.fields import Field
from hitables.ir.packet import Backend
from hitables.ir.program import Program, Table
from hitables.report.diff import as_json, show
from hitables.simulate.interpreter import BatchResult, Interpreter
from hitables.verify import deciders
from hitables.verify.diff import WHOLE, Change, RegionOutcome, changes
from hitables.verify.question import Question

pytestmark = pytest.mark.engine


def text(rules: str, policy: str, chains: str = "") -> str:
    return f"*filter\n:INPUT {policy} [0:0]\n{chains}-A INPUT -p tcp --dport 22 -j ACCEPT\n{rules}COMMIT\n"


def shown(before: str, after: str) -> str:
    return show(hitables.diff(before, after), ("A", "B"), None)


@pytest.mark.parametrize(
    ("after", "decided"),
    [
        (text("-A INPUT -s 198.51.100.0/24 -j DROP\n", "DROP"), "by line 4 and by policy"),
        (text("-A INPUT -m state --state INVALID -j DROP\n", "DROP"), "by line 4 and by policy"),
        (text("-A INPUT -s 10.0.0.0/8 -j DROP\n-A INPUT -j DROP\n", "ACCEPT"), "by lines 4 and 5"),
        (text("-A INPUT -s 10.0.0.0/8 -j DROP\n-A INPUT -j DROP\n", "DROP"), "by lines 4 and 5"),
        (text("-A INPUT -p tcp --dport 22 -j DROP\n", "DROP"), "by policy"),
        (
            text("-A INPUT -s 10.0.0.0/8 -j X\n-A X -d 10.1.0.0/16 -j DROP\n", "DROP", ":X - [0:0]\n"),
            "by line 6 and by policy",
        ),
    ],
)
def test_the_last_rules_are_named_that_do_what_the_policy_does(after: str, decided: str) -> None:
    assert (
        shown(text("", "ACCEPT"), after).splitlines()[-1] == f"    was ACCEPT by policy, now DROP {decided}"
    )
    back = shown(after, text("", "ACCEPT")).splitlines()
    assert f"    was DROP {decided}, now ACCEPT by policy" in back


def test_json_has_the_lines_of_each_region() -> None:
    names = "A", "B"
    after = text("-A INPUT -p udp -j DROP\n-A INPUT -s 198.51.100.0/24 -p tcp -j DROP\n", "DROP")
    regions = as_json(hitables.diff(text("", "ACCEPT"), after), names)["changes"]
    lines = {(each["after"]["line"], *each["after"]["also"]) for each in regions}
    assert lines == {(0, 4), (0, 5)}
    assert not any(each["after"]["unsure"] or each["before"]["also"] for each in regions)


def test_where_too_many_regions_would_be_looked_at_the_text_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciders, "MOST", 1)
    after = text("-A INPUT -s 198.51.100.0/24 -j DROP\n", "DROP")
    assert shown(text("", "ACCEPT"), after).endswith("now DROP by policy and perhaps by rules before")


def with_lines(program: Program) -> Program:
    """*program* with one line for each rule."""
    line, chains = 10, []
    for chain in program.tables[0].chains:
        rules = []
        for rule in chain.rules:
            line += 1
            rules.append(rule._replace(line=line))
        chains.append(replace(chain, rules=tuple(rules)))
    return Program(program.family, (Table("filter", tuple(chains)),))


def line_of(run: Interpreter, result: BatchResult, at: int) -> int:
    number = int(result.rule[at])
    if number < 0:
        return 0
    rule = run.rule("filter", number)[2]
    return 0 if rule.returns else rule.line


def decides(run: Interpreter, result: BatchResult, at: int, verdict: str | None) -> bool:
    """Whether a target or the policy gives the verdict; a match drops short packets, which no field tells."""
    number = int(result.rule[at])
    target = run.rule("filter", number)[2].target if number >= 0 else None
    return result.verdict_text(at) == verdict and (
        number < 0 or (target is not None and target.key == verdict)
    )


def lines_of(outcome: RegionOutcome) -> set[int]:
    return {outcome.line, *outcome.also}


def holds(change: Change, values: dict[Field, int], fact: bool) -> bool:
    facts = all(wanted == fact for _, wanted in change.facts)
    return facts and all(
        field in values and values[field] in allowed for field, allowed in change.box.items()
    )


@settings(max_examples=examples(25))
@given(st.randoms(use_true_random=False))
def test_the_lines_of_a_region_are_those_that_decide_its_packets(rng: random.Random) -> None:
    """In nft: a match of legacy drops short packets, which is told by the line of the match."""
    drawn = small_program(rng)
    before, after = with_lines(drawn), with_lines(mutate(rng, drawn))
    if any(
        rule.target is MARK for each in (before, after) for c in each.tables[0].chains for rule in c.rules
    ):
        return  # the fact changes on the way
    diff = changes(before, after, Question((Backend.NFT,), "exact"), tell=lambda stage: None)
    regions = [each for each in diff.regions if each.packets == WHOLE and each.before.verdict is not None]
    regions = [each for each in regions if each.before.verdict != each.after.verdict]
    if not regions:
        return
    batch = every_packet()
    runs = [Interpreter(each, Backend.NFT) for each in (before, after)]
    results = [run.run("filter", "FORWARD", batch) for run in runs]
    broken, half = batch.malformed(), len(batch) // 2
    found: list[tuple[set[int], set[int]]] = [(set(), set()) for _ in regions]
    for at in range(0, len(batch), 7):
        packet = batch.packet(at)
        if broken[at] or packet.is_later_fragment:
            continue
        for region, lines in zip(regions, found, strict=True):
            if holds(region, dict(packet.values), at >= half):
                verdicts = region.before.verdict, region.after.verdict
                for side in (0, 1):
                    if decides(runs[side], results[side], at, verdicts[side]):
                        lines[side].add(line_of(runs[side], results[side], at))
    for region, lines in zip(regions, found, strict=True):
        for seen, outcome in zip(lines, (region.before, region.after), strict=True):
            assert seen <= lines_of(outcome), region
            # Few regions are so small that one packet of seven misses a line of them.
            assert len(lines_of(outcome) - seen) <= 1, region
