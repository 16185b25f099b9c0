"""Lint reports the rules that do nothing, and only those."""

from __future__ import annotations

import random
from dataclasses import astuple, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lint_flaws import WHOLE, flaws, summary
from support.programs import programs
from support.scale import examples
from support.small_programs import small_program

import hitables
from hitables.errors import HitablesError
from hitables.ir.fields import Family
from hitables.ir.hooks import hook_box
from hitables.ir.packet import Backend
from hitables.ir.program import Program, Table
from hitables.ir.rule import Match, Metadata, Role, Rule
from hitables.verify import altered, exact
from hitables.verify.encoding import Encoding
from hitables.verify.lint import DROPS, EMPTY, NEVER, NOTHING, UNREACHED, Flaw, lint
from hitables.verify.match_box import MatchBox, PacketSet, written_by
from hitables.verify.packet_classes import PacketClass
from hitables.verify.question import Answer, Equal, Question
from hitables.verify.region_words import RegionWords

pytestmark = pytest.mark.engine


def test_the_rule_by_which_a_chain_surely_ends_is_no_useless_rule() -> None:
    rules = (
        "-A INPUT -s 10.0.0.0/8 -j ends\n-A INPUT -s 10.1.0.0/16 -j REJECT\n-A INPUT -j ACCEPT\n"
        "-A ends -p tcp -j LOG\n-A ends -j DROP\n"
    )
    found = summary(rules, chains=":ends - [0:0]\n")
    assert [line for _, line, _ in found] == [7]


def test_a_rule_behind_one_that_covers_it_never_matches() -> None:
    rules = "-A INPUT -s 10.0.0.0/8 -j ACCEPT\n-A INPUT -s 10.1.0.0/16 -p tcp --dport 22 -j REJECT\n"
    assert summary(rules) == [(NEVER, 6, (5,))]


@pytest.mark.parametrize("backends", [(Backend.LEGACY,), (Backend.NFT,), tuple(Backend)])
@pytest.mark.parametrize(
    ("chain", "listed"), [("INPUT", {Backend.LEGACY, Backend.NFT}), ("FORWARD", {Backend.LEGACY})]
)
def test_a_rule_for_a_port_behind_multiport_never_matches_where_no_fragment_comes(
    chain: str, listed: set[Backend], backends: tuple[Backend, ...]
) -> None:
    """In nft a later fragment may have what looks like the port, and multiport matches none."""
    rules = (
        f"-A {chain} -p tcp -m multiport --dports 22,80,443 -j ACCEPT\n-A {chain} -p tcp --dport 80 -j DROP\n"
    )
    found = [(flaw.kind, flaw.line, flaw.covering) for flaw in flaws(rules, question=Question(backends))]
    assert found == ([(NEVER, 6, (5,))] if listed.issuperset(backends) else [])


def test_a_rule_for_fragments_never_matches_in_input_nor_in_a_chain_that_only_input_enters() -> None:
    chains = ":u - [0:0]\n:v - [0:0]\n"
    rules = (
        "-A INPUT -f -j DROP\n-A INPUT -j u\n-A INPUT -j v\n-A FORWARD -j v\n"
        "-A u -f -j ACCEPT\n-A v -p udp -f -j DROP\n-A v -i eth0 -f -j LOG\n"
    )
    found = [(flaw.line, flaw.why) for flaw in flaws(rules, chains=chains) if flaw.kind == NEVER]
    because = "as the kernel puts fragments together before"
    assert found == [
        (7, f"no fragment comes to INPUT, {because} it"),
        (11, f"no fragment comes to u, {because} INPUT"),
    ]


def test_a_rule_that_asks_the_same_mark_covers_it_alone() -> None:
    marked = "-m mark --mark 5 -j ACCEPT\n"
    rules = f"-A INPUT -s 11.0.0.0/8 -j DROP\n-A INPUT {marked}-A INPUT -s 10.0.0.0/7 {marked}"
    assert summary(rules) == [(NEVER, 7, (6,))]


def test_rules_that_cover_together_are_all_listed() -> None:
    rules = "-A INPUT -s 10.0.0.0/9 -j ACCEPT\n-A INPUT -s 10.128.0.0/9 -j REJECT\n-A INPUT -s 10.0.0.0/8 -j LOG\n"
    assert summary(rules) == [(NEVER, 7, (5, 6))]


def test_a_rule_that_contradicts_itself() -> None:
    (flaw,) = flaws("-A FORWARD -s 10.0.0.0/8 -m iprange --src-range 11.0.0.1-11.0.0.9 -j DROP\n")
    assert (flaw.kind, flaw.line, flaw.why) == (NEVER, 5, "its matches exclude each other")


def test_the_packets_that_callers_let_through_decide() -> None:
    rules = (
        "-A INPUT -p tcp -j services\n-A services -p udp -j ACCEPT\n-A services -p tcp --dport 22 -j ACCEPT\n"
    )
    (flaw,) = flaws(rules, chains=":services - [0:0]\n")
    assert (flaw.kind, flaw.line, flaw.covering) == (NEVER, 7, ())
    assert flaw.why == "no packet that reaches services can match it"


def test_a_chain_that_decides_nothing_covers_nothing() -> None:
    chains = ":empty - [0:0]\n:logs - [0:0]\n:calls - [0:0]\n:drops - [0:0]\n"
    rules = (
        "-A INPUT -s 10.0.0.0/9 -j empty\n-A INPUT -s 10.0.0.0/9 -j logs\n-A INPUT -s 10.0.0.0/9 -j calls\n"
        "-A INPUT -s 10.128.0.0/9 -j DROP\n-A INPUT -s 10.0.0.0/8 -p tcp -j ACCEPT\n"
        "-A logs -p tcp -j RETURN\n-A logs -j LOG\n-A calls -j drops\n-A drops -j ACCEPT\n"
    )
    never = [flaw.covering for flaw in flaws(rules, chains=chains) if flaw.kind == NEVER]
    assert never == [(11, 12)]


def test_a_chain_that_only_logs_does_not_the_same_as_another() -> None:
    rules = (
        "-A INPUT -s 10.0.0.0/8 -j none\n-A INPUT -j logs\n-A none -s 11.0.0.0/8 -j DROP\n-A logs -j LOG\n"
    )
    found = summary(rules, chains=":none - [0:0]\n:logs - [0:0]\n")
    assert (NOTHING, 7, ()) in found


def test_a_rule_behind_one_that_covers_it_may_still_drop_malformed_packets() -> None:
    rules = (
        "-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n"
        "-A INPUT -p udp --sport 53 -m state --state ESTABLISHED -j ACCEPT\n"
    )
    for last, why in (("-A INPUT -j DROP\n", ""), ("-A INPUT -j REJECT\n", DROPS)):
        found = [flaw for flaw in flaws(rules + last) if flaw.line == 6]
        assert [(flaw.kind, flaw.covering, flaw.why) for flaw in found] == [(NEVER, (5,), why)]


def test_a_protocol_match_drops_packets_that_hide_it_in_legacy_ipv6() -> None:
    text = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s ::/1 -j DROP\n-A INPUT -p udp -j ACCEPT\nCOMMIT\n"
    program = hitables.read(text, family=Family.IPV6)
    for backend, why in ((Backend.LEGACY, DROPS), (Backend.NFT, "")):
        (flaw,) = lint(program, Question((backend,)), tell=lambda stage: None).flaws
        assert (flaw.kind, flaw.line, flaw.why) == (NOTHING, 4, why)
    behind = text.replace("-p udp", "-s ::1 -p udp")
    (flaw,) = lint(
        hitables.read(behind, family=Family.IPV6), Question((Backend.LEGACY,)), tell=lambda stage: None
    ).flaws
    assert (flaw.kind, flaw.line) == (NEVER, 4)


def test_a_jump_that_no_packet_takes_is_reported_as_such_and_not_for_its_empty_chain() -> None:
    rules = "-A INPUT -j DROP\n-A INPUT -m recent --set -j none\n-A INPUT -j none\n"
    assert summary(rules, chains=":none - [0:0]\n") == [(NOTHING, 6, ()), (NEVER, 7, (6,)), (NEVER, 8, (6,))]
    assert summary("-A INPUT -p udp -j none\n", chains=":none - [0:0]\n") == [(EMPTY, 6, ())]


def test_a_jump_to_a_memory_that_others_share_is_not_replaced_by_a_memory_of_its_own() -> None:
    rules = (
        "-A INPUT -i eth0 -g few\n-A INPUT -s 10.0.0.0/8 -g few\n-A INPUT -m limit -j LOG\n"
        "-A few -m limit -j LOG\n"
    )
    assert summary(rules, chains=":few - [0:0]\n") == []
    named = rules.replace("limit", "recent --set")  # whose memory all rules share
    assert [flaw[:2] for flaw in summary(named, chains=":few - [0:0]\n")] == [(NOTHING, 6), (NOTHING, 7)]


def test_a_rule_whose_packets_get_the_same_from_the_next() -> None:
    rules = "-A INPUT -s 10.1.0.0/16 -j ACCEPT\n-A INPUT -s 10.0.0.0/8 -j ACCEPT\n"
    assert summary(rules) == [(NOTHING, 5, (6,))]
    assert summary("-A INPUT -p tcp -j DROP\n") == [(NOTHING, 5, ())]  # the policy does


def test_a_rule_that_only_kept_packets_from_a_removed_rule_is_needless() -> None:
    rules = (
        "-A INPUT -i eth0 -g ten\n-A INPUT -s 10.0.0.0/8 -j RETURN\n-A INPUT -j ten\n"
        "-A ten -s 10.0.0.0/8 -j ACCEPT\n"
    )
    assert [flaw[:2] for flaw in summary(rules, chains=":ten - [0:0]\n")] == [(NOTHING, 7), (NOTHING, 8)]


def test_a_rule_that_is_needed_while_another_useless_one_stays_says_so() -> None:
    rules = (
        "-A INPUT -s 10.0.0.0/8 -j DROP\n-A INPUT -s 10.1.2.3 -j ACCEPT\n-A INPUT -s 10.9.0.0/16 -j DROP\n"
    )
    together = {flaw.line: flaw.together for flaw in flaws(rules)}
    assert together == {5: (6,), 6: (), 7: ()}


def test_one_of_two_equal_rules_is_reported() -> None:
    rules = "-A INPUT -s 10.1.0.0/16 -j ACCEPT\n-A INPUT -s 10.1.0.0/16 -j ACCEPT\n"
    assert summary(rules) == [(NEVER, 6, (5,))]


@pytest.mark.parametrize(
    "ports", [("tcp --dport 22", "tcp --dport 80", "udp --dport 53"), ("udp --dport 53",)]
)
def test_a_rule_that_only_drops_packets_with_broken_headers_is_listed_with_this_caveat(
    ports: tuple[str, ...],
) -> None:
    """Of rules that drop the same packets one has the caveat."""
    rules = "".join(f"-A INPUT -p {each} -j ACCEPT\n" for each in ports)
    program = hitables.read(f"*filter\n:INPUT ACCEPT [0:0]\n{rules}COMMIT\n")
    legacy, nft = (lint(program, Question((backend,)), tell=lambda stage: None).flaws for backend in Backend)
    lines = [line for line, _ in enumerate(ports, 3)]
    assert [(flaw.kind, flaw.line) for flaw in legacy] == [(NOTHING, line) for line in lines]
    assert [(flaw.kind, flaw.line, flaw.why) for flaw in nft] == [(NOTHING, line, "") for line in lines]
    assert [flaw.why for flaw in legacy] == ([DROPS, "", DROPS] if len(ports) > 1 else [DROPS])


def test_a_rule_whose_target_decides_packets_with_broken_headers_is_not_listed() -> None:
    """Without it they would be accepted, or dropped by the match of the next."""
    rules = "-A FORWARD -s 10.0.0.0/8 -j ACCEPT\n-A FORWARD -p tcp --dport 22 -j ACCEPT\n"
    found = {flaw.line: flaw.why for flaw in flaws(rules, question=Question((Backend.LEGACY,)))}
    assert found == {6: DROPS}


def test_rules_that_count_log_or_remember_do_something() -> None:
    rules = (
        "-A INPUT -s 10.1.0.0/16\n-A INPUT -s 10.1.0.0/16 -j LOG\n-A INPUT -m recent --set -j DROP\n"
        "-A FORWARD -m limit --limit 1/sec -j ACCEPT\n"
    )
    assert summary(rules) == []


def test_a_rule_whose_memory_answers_each_packet_alike_covers_the_rules_behind_it_and_stays() -> None:
    rules = (
        "-A INPUT -p tcp -m recent --set --name S -j {}\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n"
        "-A INPUT -p tcp -m tcp --dport 23 -j REJECT\n-A INPUT -p udp -j ACCEPT\n"
    )
    covered = [(NEVER, 6, (5,)), (NEVER, 7, (5,))]
    assert summary(rules.format("DROP")) == covered
    assert summary(rules.format("few") + "-A few -p tcp -j REJECT\n", chains=":few - [0:0]\n") == [
        (NEVER, line + 1, (5 + 1,)) for _, line, _ in covered
    ]
    assert summary(rules.format("LOG")) == []
    assert summary(rules.format("DROP").replace("--set", "! --set")) == []
    assert summary(rules.format("DROP").replace("--set", "--update")) == []
    assert summary(rules.format("DROP").replace("-p tcp -m recent", "-s 10.0.0.0/8 -m recent")) == []


def test_jumps_to_empty_chains_and_unreachable_chains_are_reported() -> None:
    rules = "-A INPUT -p tcp -j nothing\n-A alone -j DROP\n"
    reported = flaws(rules, chains=":nothing - [0:0]\n:alone - [0:0]\n")
    assert [(flaw.kind, flaw.chain, flaw.line, flaw.why) for flaw in reported] == [
        (UNREACHED, "alone", 6, ""),
        (EMPTY, "INPUT", 7, "nothing"),
    ]


@pytest.mark.parametrize(
    "rule",
    [
        "-g none",
        "-m recent --set -j none",
        "-m connlabel --label 5 --set -j none",
        "-m limit --limit 1/s -j none",
        "-m quota --quota 9 -j none",
        "-m set --match-set few src --packets-gt 5 -j none",
        "-m hashlimit --hashlimit-upto 1/s --hashlimit-name few -j none",
    ],
)
def test_a_jump_to_an_empty_chain_that_does_something_is_not_reported(rule: str) -> None:
    assert summary(f"-A INPUT -p udp {rule}\n-A INPUT -j ACCEPT\n", chains=":none - [0:0]\n") == []


def test_a_goto_to_an_empty_chain_is_reported_where_its_chain_ends_anyway() -> None:
    assert summary("-A INPUT -p udp -g none\n", chains=":none - [0:0]\n") == [(NOTHING, 6, ())]
    emptied = "-A INPUT -p udp -g one\n-A INPUT -j ACCEPT\n-A one -s 10.0.0.1 -j RETURN\n"
    assert summary(emptied, chains=":one - [0:0]\n") == [(NOTHING, 8, ())]


def test_a_jump_to_an_empty_chain_whose_matches_drop_packets_says_so() -> None:
    rule, chains = "-A INPUT -p tcp -m tcp --dport 22 -j none\n-A INPUT -j ACCEPT\n", ":none - [0:0]\n"
    (flaw,) = flaws(rule, chains=chains)
    assert (flaw.kind, flaw.why) == (EMPTY, f"none; {DROPS}")
    (flaw,) = flaws(rule, chains=chains, question=Question((Backend.NFT,)))
    assert (flaw.kind, flaw.why) == (EMPTY, "none")


LEFT = ":left - [0:0]\n:own - [0:0]\n"


@pytest.mark.parametrize(
    ("rules", "listed"),
    [
        # A jump that stays, as the kernel tracks connections for it: without the rule of own the left chain
        # may accept packets.
        (
            "-A INPUT -j own\n-A INPUT -m conntrack --ctstate NEW -j left\n-A own -j DROP\n-A left -j ACCEPT\n",
            set(),
        ),
        # The left chain sends packets to own that the jump of INPUT does not.
        ("-A INPUT -i lo -j own\n-A INPUT -j left\n-A own -i eth0 -j ACCEPT\n-A left -j own\n", {7}),
    ],
)
def test_rules_of_left_chains_stay(rules: str, listed: set[int]) -> None:
    text = f"*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{LEFT}{rules}COMMIT\n"
    found = hitables.lint(text, leave="left").flaws
    assert {flaw.line for flaw in found} == listed
    assert all(line > 0 for flaw in found for line in flaw.together)


def test_rules_outside_the_chains_in_question_stay() -> None:
    rules, chains = "-A INPUT -j own\n-A INPUT -j ACCEPT\n-A own -j DROP\n", ":own - [0:0]\n"
    assert [flaw.line for flaw in flaws(rules, chains=chains)] == [6, 7, 8]
    assert flaws(rules, chains=chains, question=Question(chains=frozenset({"own"}))) == []


def test_an_unknown_table_or_chain_is_refused() -> None:
    for question, message in (
        (Question(tables=frozenset({"raw"})), "no table raw"),
        (Question(chains=frozenset({"X"})), "no chain X"),
    ):
        with pytest.raises(HitablesError, match=message):
            flaws("", question=question)


def test_an_exhausted_budget_is_reported() -> None:
    program = hitables.read("*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp -j ACCEPT\nCOMMIT\n")
    assert (
        "out of time in table filter"
        in lint(program, Question(timeout=1e-9), tell=lambda stage: None).undecided
    )


def without(program: Program, indices: dict[str, set[int]]) -> Program:
    """*program* without the rules at these indices, by chain."""
    (table,) = program.tables
    chains = tuple(
        replace(
            chain,
            rules=tuple(rule for at, rule in enumerate(chain.rules) if at not in indices.get(chain.name, ())),
        )
        for chain in table.chains
    )
    return Program(program.family, (Table(table.name, chains),))


def without_lines(program: Program, lines: set[int]) -> Program:
    at = {
        chain.name: {at for at, rule in enumerate(chain.rules) if rule.line in lines}
        for chain in program.tables[0].chains
    }
    return without(program, at)


@settings(max_examples=examples(60))
@given(st.randoms(use_true_random=False))
def test_exactly_the_removable_rules_are_reported(rng: random.Random) -> None:
    check_removable(small_program(rng))


@settings(max_examples=examples(40))
@given(programs(tiny=True))
def test_the_packets_that_a_rule_is_examined_for_change_no_answer(drawn: Program) -> None:
    """All packets for each rule; those that it may affect; single packets, chains and short runs first."""

    def all_packets(box: MatchBox, packets: PacketClass, backend: Backend, root: str) -> PacketSet | None:
        narrow = of(box, packets, backend, root)
        at_hook, of_class = hook_box(root, box.family), packets.sets()
        region = {field: values.intersect(of_class.get(field, values)) for field, values in at_hook.items()}
        widened = box.may_act and not box.only_acts and all(region.values())
        return PacketSet(region) if widened else narrow

    of = MatchBox.of

    program = numbered(drawn)
    found = [[flaw[:4] for flaw in map(astuple, found_by(program))]]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(altered, "FEW", 0)
        found.append([flaw[:4] for flaw in map(astuple, found_by(program))])
        patched.setattr(altered, "FEW_ITEMS", 1)
        found.append([flaw[:4] for flaw in map(astuple, found_by(program))])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(altered, "FEW", 0)
        patched.setattr(RegionWords, "near", lambda region, other, random: None)
        found.append([flaw[:4] for flaw in map(astuple, found_by(program))])
        patched.setattr(altered, "FEW", 1 << 30)
        patched.setattr(MatchBox, "of", all_packets)
        found.append([flaw[:4] for flaw in map(astuple, found_by(program))])
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize(
    ("rule", "asked"),
    [
        ("-s 10.0.0.0/8 -m mark --mark 1", set()),
        ("-p tcp -m tcp --dport 22", {True}),  # a header that is cut off
        ("-m limit --limit 1/s -p udp", {False}),
    ],
)
def test_what_else_a_rule_does_is_asked_for_packets_of_which_a_match_does_anything_else(
    rule: str, asked: set[bool]
) -> None:
    program = hitables.read(f"*filter\n-A INPUT {rule} -j LOG\nCOMMIT\n")
    (table,) = program.tables
    encoding = Encoding((table, table), program.family, Backend.LEGACY, False)
    box = MatchBox(table["INPUT"].rules[0].matches, written_by(table), program.family, only_acts=True)
    found = [each for each in encoding.classes() if box.of(each, Backend.LEGACY, "INPUT") is not None]
    assert {each.malformed for each in found} == asked


def found_by(program: Program) -> list[Flaw]:
    return lint(program, Question(), tell=lambda stage: None).flaws


@pytest.mark.parametrize("seed", [58, 2022])
def test_a_rule_that_becomes_needless_by_a_removal_is_reported(seed: int) -> None:
    """In both, a jump is removed, and then a rule of the chain that it entered changes nothing."""
    check_removable(small_program(random.Random(seed)))


@pytest.mark.parametrize("seed", [31, 1264])
def test_the_lines_with_which_a_rule_is_needless_are_named_in_full(seed: int) -> None:
    check_removable(small_program(random.Random(seed)))


REMEMBERS = Match("recent", ("--set",), Role.NAMED, "recent --set", writes=frozenset({Metadata.MARK}))


@settings(max_examples=examples(90))
@given(
    st.randoms(use_true_random=False),
    st.sampled_from([("", ""), ("", "A"), ("", "B"), ("A", ""), ("A", "B"), ("B", ""), ("B", "A")]),
)
def test_removing_all_that_is_reported_changes_nothing(rng: random.Random, chains: tuple[str, str]) -> None:
    """With empty chains, matches that write, a chain of another program, and a question about one chain."""
    left, asked = chains
    program = numbered(varied(small_program(rng), rng))
    found = hitables.lint(program, leave=left or (), chains=asked or ()).flaws
    unreached = {flaw.chain for flaw in found if flaw.kind == UNREACHED}
    assert all(asked in ("", flaw.chain) and left != flaw.chain for flaw in found)
    for for_all_packets in (True, False):
        lines = {flaw.line for flaw in found if not (for_all_packets and flaw.is_for_broken)}
        without_listed = without_lines(program, lines)
        (table,) = without_listed.tables
        rest = table.of({chain.name: chain for chain in table.chains if chain.name not in unreached})
        after = Program(program.family, (rest,))
        answer = (
            exact.check(program, after, Question(malformed="exact", sure_answers=True))
            if for_all_packets
            else well_formed(program, after)
        )
        assert isinstance(answer, Equal)


def well_formed(before: Program, after: Program) -> Answer:
    """Compare the programs for packets without broken headers alone."""
    with pytest.MonkeyPatch.context() as patched:
        classes = Encoding.classes
        patched.setattr(
            Encoding, "classes", lambda self: [each for each in classes(self) if not each.malformed]
        )
        return exact.check(before, after, Question(malformed="exact", sure_answers=True))


def varied(program: Program, rng: random.Random) -> Program:
    """*program* with user chains emptied, and with matches that write added, both at random."""

    def changed(rule: Rule) -> Rule:
        return rule._replace(matches=(*rule.matches, REMEMBERS)) if rng.random() < 0.15 else rule

    (table,) = program.tables
    chains = tuple(
        chain.with_rules(tuple(map(changed, chain.rules)) if chain.policy or rng.random() < 0.7 else ())
        for chain in table.chains
    )
    return Program(program.family, (Table(table.name, chains),))


def numbered(drawn: Program) -> Program:
    """*drawn* as one table, each rule with a line of its own."""
    number = 0
    chains = []
    for chain in drawn.tables[0].chains:
        rules: list[Rule] = []
        for rule in chain.rules:
            number += 1
            rules.append(rule._replace(line=number))
        chains.append(replace(chain, rules=tuple(rules)))
    return Program(drawn.family, (Table("filter", tuple(chains)),))


def check_removable(drawn: Program) -> None:
    program = numbered(drawn)
    (table,) = program.tables
    chains = table.chains
    reported = lint(program, Question(), tell=lambda stage: None).flaws
    named = {flaw.line for flaw in reported if flaw.kind in (NEVER, NOTHING) and not flaw.is_for_broken}
    kept = {flaw.line for flaw in reported if flaw.is_for_broken}
    removed = {
        chain.name: {at for at, rule in enumerate(chain.rules) if rule.line in named} for chain in chains
    }
    left = without(program, removed)
    exactly = Question(malformed="exact")
    assert isinstance(exact.check(program, left, exactly), Equal)
    for flaw in reported:
        if flaw.line in named:
            others, both = (
                without_lines(program, lines) for lines in ({*flaw.together}, {flaw.line, *flaw.together})
            )
            assert isinstance(exact.check(others, both, exactly), Equal), flaw
            alone = exact.check(program, without_lines(program, {flaw.line}), exactly)
            assert isinstance(alone, Equal) != bool(flaw.together), flaw
    no_empty = {flaw.line for flaw in reported if flaw.kind in (NEVER, NOTHING)}
    assert isinstance(well_formed(program, without_lines(program, no_empty)), Equal)
    for flaw in reported:
        if flaw.line in kept and flaw.kind == NOTHING:
            others, both = (
                without_lines(program, lines) for lines in ({*flaw.together}, {flaw.line, *flaw.together})
            )
            assert isinstance(well_formed(others, both), Equal), flaw
            alone = well_formed(program, without_lines(program, {flaw.line}))
            assert isinstance(alone, Equal) != bool(flaw.together), flaw
    entered = reached(left)
    for chain in left.tables[0].chains:
        for at, rule in enumerate(chain.rules):
            effect = rule.target is None or rule.target.key in ("LOG", "MARK 1")
            empty = enters(rule) is not None and not table[str(enters(rule))].rules
            if chain.name in entered and not effect and not empty and rule.line not in kept:
                assert not isinstance(exact.check(left, without(left, {chain.name: {at}}), exactly), Equal)


def reached(program: Program) -> set[str]:
    (table,) = program.tables
    rest = [chain.name for chain in table.chains if chain.policy is not None]
    seen = set(rest)
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


TRACKED = "*filter\n:INPUT DROP\n-A INPUT -p udp --dport 53 -j ACCEPT\n-A INPUT -j DROP\n{}COMMIT\n"
DEAD = "-A INPUT -m conntrack --ctstate {} -j DROP\n"
NEW = "-m conntrack --ctstate NEW -j ACCEPT\n"


@pytest.mark.parametrize(
    ("behind", "listed", "kept"),
    [
        (DEAD.format("INVALID"), {4}, [5]),
        (DEAD.format("INVALID") + DEAD.format("NEW"), {4, 5}, [6]),
        (DEAD.format("NEW") + "-A INPUT -m state --state NEW -j DROP\n", {4, 5}, [6]),
        ("-A INPUT -m socket -j DROP\n" + DEAD.format("NEW"), {4, 5}, [6]),  # conntrack reassembles, too
        (":unused - [0:0]\n-A unused -m conntrack --ctstate NEW\n", {4}, [5]),
        (DEAD.format("NEW") + "COMMIT\n*raw\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p udp -j CT --zone 1\n", {4, 5}, []),
        (DEAD.format("NEW") + "COMMIT\n*raw\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p udp -j CT --notrack\n", {4}, [5]),
        (DEAD.format("NEW") + "COMMIT\n*raw\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p udp -j NOTRACK\n", {4}, [5]),
    ],
)  # fmt: skip
def test_the_last_rule_for_which_the_kernel_tracks_connections_is_not_listed(
    behind: str, listed: set[int], kept: list[int]
) -> None:
    found = hitables.lint(TRACKED.format(behind))
    assert {flaw.line for flaw in found.flaws} == listed
    assert [each.line for each in found.kept] == kept


LIMIT = "-m hashlimit --hashlimit-upto 1/hour --hashlimit-name R --hashlimit-mode srcip"
RATE = "-j RATEEST --rateest-name {} --rateest-interval 1s --rateest-ewmalog 2s\n"


@pytest.mark.parametrize(
    ("behind", "listed", "kept"),
    [
        (f"{LIMIT} --hashlimit-srcmask 24 -j DROP\n-A OUTPUT {LIMIT} -j DROP\n", set(), [4]),
        (f"{LIMIT} -j DROP\n-A OUTPUT {LIMIT} -j DROP\n", {4}, []),
        ("-m recent --set --name R --mask 255.255.255.0\n-A OUTPUT -m recent --set --name R\n", set(), [4]),
        (RATE.format("x") + "-A OUTPUT -m rateest --rateest x --rateest-gt --rateest-pps 5 -j DROP\n", set(), [4]),
        (RATE.format("x") + "-A OUTPUT -m rateest --rateest x --rateest-gt --rateest-pps 5 -j DROP\n"
         "-A OUTPUT " + RATE.format("x"), {4}, []),
        (RATE.format("y") + "-A OUTPUT -m rateest --rateest-delta --rateest1 x --rateest2 y --rateest-gt -j DROP\n"
         "-A OUTPUT " + RATE.format("x"), set(), [4]),
        (RATE.format("x"), {4}, []),
    ],
)  # fmt: skip
def test_a_rule_that_configures_what_others_read_by_being_loaded_is_not_listed(
    behind: str, listed: set[int], kept: list[int]
) -> None:
    text = f"*mangle\n:OUTPUT ACCEPT\n-A INPUT -p udp -j DROP\n-A INPUT -p udp {behind}COMMIT\n"
    found = hitables.lint(text)
    assert {flaw.line for flaw in found.flaws} == listed
    assert [each.line for each in found.kept] == kept
    assert all(each.configures for each in found.kept)


@pytest.mark.parametrize(
    ("chains", "kept"),
    [
        (f"-A a -j b\n-A b -j c\n-A c -s 10.0.0.1 -j DROP\n-A a {NEW}", {"a": "", "b": "a", "c": "a"}),
        (f"-A c -g b\n-A c {NEW}-A b -s 10.0.0.1 -j a\n", {"c": "", "b": "c", "a": "c"}),
        (f"-A a -j b\n-A b {NEW}-A b -j a\n", {"a": "b", "b": ""}),  # a and b enter each other
        (f"-A a -j b\n-A b {NEW}", {"b": ""}),
    ],
)
def test_chains_that_a_kept_chain_enters_are_kept(chains: str, kept: dict[str, str]) -> None:
    text = f"*filter\n:INPUT DROP\n:a -\n:b -\n:c -\n-A INPUT -s 10.0.0.1 -j ACCEPT\n{chains}COMMIT\n"
    found = hitables.lint(text)
    assert {each.chain: each.entered_by for each in found.kept} == kept
    unreached = {flaw.chain for flaw in found.flaws if flaw.kind == UNREACHED}
    assert unreached == {"a", "b", "c"} - kept.keys()


def test_each_rule_of_a_line_is_listed_once() -> None:
    text = "*filter\n:INPUT ACCEPT\n:E -\n-A INPUT -s 3.3.3.3,4.4.4.4 -j E\nCOMMIT\n"
    assert [flaw.line for flaw in hitables.lint(text).flaws] == [4, 4]


def test_many_chains_that_all_packets_enter_are_looked_through_for_a_difference() -> None:
    """More than the engine enters while it looks for packets that few rules decide."""
    names = [f"c{at}" for at in range(20)]
    rules = "".join(f"-A INPUT -j {name}\n" for name in names)
    for at, name in enumerate(names):
        hosts = (f"-s 10.{at}.{host}.0/24 -p tcp --dport {host}" for host in range(1, 16))
        rules += "".join(f"-A {name} {host} -j ACCEPT\n" for host in hosts)
    assert flaws(rules, chains="".join(f":{name} - [0:0]\n" for name in names)) == []


def test_an_accept_is_needed_where_a_later_rule_drops_some_of_its_packets() -> None:
    """All other packets are accepted, however they go on behind the chain."""
    chains = "".join(f":c{at} - [0:0]\n" for at in range(70))
    rules = ""
    for at in range(70):
        rules += f"-A FORWARD -s 10.0.0.{at} -j c{at}\n-A FORWARD -d 10.0.0.{at} -j c{at}\n"
        rules += f"-A c{at} -p udp --dport {at + 1} -j ACCEPT\n-A c{at} -p tcp -j ACCEPT\n"
    rules += "-A FORWARD -p udp --dport 8 -j DROP\n"
    needless = {flaw.line for flaw in flaws(rules, chains=chains)}
    lines = f"*filter\n:INPUT\n:FORWARD\n:OUTPUT\n{chains}{rules}".splitlines()
    kept = [
        line for number, line in enumerate(lines, 1) if number not in needless and line.startswith("-A c")
    ]
    assert kept == ["-A c7 -p udp --dport 8 -j ACCEPT"]


@pytest.mark.parametrize(
    "ways",
    [
        "-A FORWARD -j user|-A FORWARD -s 12.0.0.0/8 -j DROP",
        "-A FORWARD -j user|-A FORWARD -s 12.0.0.0/8 -j DROP|-A FORWARD -j user",
        "-A FORWARD -j outer|-A outer -j user|-A outer -s 12.0.0.0/8 -j DROP",
        "-A FORWARD -j outer|-A FORWARD -j user|-A outer -j user|-A outer -s 12.0.0.0/8 -j DROP",
        "-A FORWARD -j outer|-A FORWARD -s 12.0.0.0/8 -j DROP|-A outer -g user",
        "-A FORWARD -j outer|-A FORWARD -j other|-A outer -g user|-A other -s 12.0.0.0/8 -j DROP",
    ],
)
def test_an_accept_is_needed_where_its_packets_would_come_to_a_drop_behind_any_way_to_its_chain(
    ways: str,
) -> None:
    front = "".join(f"-A FORWARD -s 10.0.{at // 250}.{at % 250} -j DROP\n" for at in range(300))
    rules = front + ways.replace("|", "\n") + "\n-A user -m mark --mark 4 -j ACCEPT\n"
    chains = ":outer - [0:0]\n:other - [0:0]\n:user - [0:0]\n"
    lines = f"*filter\n:INPUT\n:FORWARD\n:OUTPUT\n{chains}{rules}".splitlines()
    found = {flaw.line for flaw in flaws(rules, chains=chains)}
    assert lines.index("-A user -m mark --mark 4 -j ACCEPT") + 1 not in found


def test_a_rule_behind_a_mark_is_needed_where_the_packet_had_another_mark_before() -> None:
    rules = (
        "-A FORWARD ! -d 10.9.0.77 -j ACCEPT\n-A FORWARD ! -s 10.8.0.77 -j ACCEPT\n"
        "-A FORWARD -m mark --mark 1 -j MID\n-A MID -j MARK --set-mark 2\n-A MID -j CH\n-A MID -j DROP\n"
        "-A CH -m mark --mark 2 -j ACCEPT\n"
    )
    rules += "".join(f"-A INPUT -s 10.0.{at}.1 -d 10.1.{at}.1 -j ACCEPT\n" for at in range(256))
    text = "*mangle\n:INPUT DROP\n:FORWARD ACCEPT\n:MID -\n:CH -\n"
    text += f"-A FORWARD -m mark --mark 2 -j CH\n{rules}COMMIT\n"
    assert "-A CH -m mark --mark 2 -j ACCEPT" in text.splitlines()[12]
    assert 13 not in {flaw.line for flaw in lint(hitables.read(text), WHOLE, tell=lambda stage: None).flaws}
