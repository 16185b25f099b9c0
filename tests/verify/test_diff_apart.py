"""Diff tells the verdicts of each packet, also where the two programs had other effects before."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples

import hitables
from hitables.ir import semantics
from hitables.ir.answers import ANY, Answers
from hitables.ir.fields import STATES, Field
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend, Outcome, Packet
from hitables.ir.packet_reader import read_packet
from hitables.ir.program import Family, Program
from hitables.ir.rule import Role
from hitables.verify.diff import WHOLE, Change, changes
from hitables.verify.question import Question

pytestmark = pytest.mark.engine

CONDITIONS = (
    "", "-p tcp -m tcp --dport 1", "-p tcp -m tcp --dport 2", "-p tcp -m tcp --dport 1:3", "-s 10.0.0.1/32",
    "-m mark --mark 0x1", "-m mark --mark 0x0/0x2", "-m mark ! --mark 0x3/0x3", "-m limit --limit 1/sec --limit-burst {}",
    "-m limit --limit 1/sec --limit-burst {}", "-m recent --name a --rcheck", "-m statistic --mode random --probability 0.5",
)  # fmt: skip
TARGETS = (
    "-j ACCEPT", "-j ACCEPT", "-j DROP", "-j DROP", "-j MARK --set-xmark 0x1/0x1", "-j MARK --set-xmark 0x2/0xffffffff",
    "-j MARK --set-xmark 0x1/0x0", "-j LOG", "-j RETURN", "-j C", "-g C", "",
)  # fmt: skip


def make_rules(
    rng: random.Random, chain: str, conditions: tuple[str, ...], targets: tuple[str, ...]
) -> list[str]:
    """Up to five rules; no two of a program have a limit of one text, as no packet shows which is asked."""
    rules = (f"-A {chain} {rng.choice(conditions)} {rng.choice(targets)}" for _ in range(rng.randrange(1, 6)))
    return [rule.format(rng.randrange(1, 10_000)) for rule in rules]


def read(rules: list[str], policy: str) -> Program:
    head = f"*mangle\n:FORWARD {policy} [0:0]\n:C - [0:0]\n"
    return hitables.read(head + "\n".join(rules) + "\nCOMMIT\n")


def changed(rng: random.Random, rules: list[str], conditions: tuple[str, ...]) -> list[str]:
    rules = list(rules)
    at = rng.randrange(len(rules))
    if rng.random() < 0.4:
        del rules[at]
    elif rng.random() < 0.5:
        rules.insert(at, make_rules(rng, "FORWARD", conditions, TARGETS)[0])
    else:
        other = rng.randrange(len(rules))
        rules[at], rules[other] = rules[other], rules[at]
    return rules


def keys_of(*programs: Program) -> list[str]:
    """The matches with memory or chance of the programs."""
    rules = (rule for each in programs for chain in each.tables[0].chains for rule in chain.rules)
    keys = (match.key for rule in rules for match in rule.matches if match.role in (Role.NAMED, Role.ONCE))
    return sorted(set(keys))


def is_marked(key: str, mark: int) -> bool:
    """Whether a test of the mark holds; some are of the mark that rules would make of it."""
    number = r"0x[0-9a-f]+"
    words = re.fullmatch(
        rf"(! )?mark (! )?(?:--mark )?({number})(?:/({number}))?(?: of \(mark & ({number}) \^ ({number})\))?",
        key,
    )
    assert words is not None, key
    value, mask = int(words[3], 16), int(words[4] or "0xffffffff", 16)
    made = mark if words[5] is None else mark & int(words[5], 16) ^ int(words[6], 16)
    return (made & mask == value) is (words[1] is words[2])


def holds(change: Change, packet: Packet, mark: int, truths: dict[str, bool]) -> bool:
    fields = all(field in packet.values and packet.values[field] in box for field, box in change.box.items())
    facts = all(is_marked(key, mark) is wanted for key, wanted in change.facts)
    return fields and facts and all(truths[key] is wanted for key, wanted in change.asked)


@settings(max_examples=examples(150))
@given(st.randoms(use_true_random=False))
def test_each_packet_has_the_verdicts_and_effects_of_its_region(rng: random.Random) -> None:
    conditions = rng.choice([CONDITIONS, CONDITIONS[:8]])
    rules = make_rules(rng, "FORWARD", conditions, TARGETS) + make_rules(rng, "C", conditions, TARGETS[:9])
    policy = rng.choice(["ACCEPT", "DROP"])
    before, after = (
        read(rules, policy),
        read(changed(rng, rules, conditions), rng.choice([policy, policy, "DROP"])),
    )
    diff = changes(before, after, Question((Backend.LEGACY,), "exact"), tell=lambda stage: None)
    assert not diff.undecided
    if diff.cut_off:  # each match with memory doubles the regions
        return
    keys = keys_of(before, after)
    whole = [change for change in diff.regions if change.packets == WHOLE]
    for text in ("tcp sport=5 dport=1", "tcp sport=5 dport=2", "tcp sport=5 dport=4", "udp sport=5 dport=1"):
        for source in ("10.0.0.1", "10.0.0.9"):
            packet = read_packet(
                f"chain=FORWARD in=eth0 out=eth1 src={source} dst=10.9.9.9 proto={text}", Family.IPV4
            ).packet
            mark = rng.randrange(4)
            truths = {key: rng.random() < 0.5 for key in keys}
            answers = Answers(
                numbers={("mark", 0): mark},
                outcomes={(key, ANY): Outcome.YES for key, truth in truths.items() if truth},
                closed=True,
            )
            asked = answers.given_by(packet)
            walks = [
                semantics.run(each.tables[0], "FORWARD", asked, Backend.LEGACY) for each in (before, after)
            ]
            regions = [change for change in whole if holds(change, packet, mark, truths)]
            same = walks[0].verdict == walks[1].verdict and walks[0].effects == walks[1].effects
            assert len(regions) == (not same), (text, source, mark, truths, regions)
            for change in regions:
                told = change.before.verdict, change.after.verdict
                if told == (None, None):
                    assert walks[0].verdict == walks[1].verdict
                else:
                    assert told == (walks[0].verdict, walks[1].verdict)
                if not keys:  # a rule with a memory is told to act, whatever that answers
                    assert_effects_are_told(change, *(effects_of(walk) for walk in walks))


def effects_of(walk: semantics.Walk) -> list[str]:
    return [effect.removeprefix("fires ") for effect in walk.effects]


def assert_effects_are_told(change: Change, before: list[str], after: list[str]) -> None:
    """*before*, *after*: the effects of the two programs on a packet of the region."""
    if change.reordered:
        assert sorted(before) == sorted(after) and before != after
        (was, _), (now, _) = change.before.effects[0], change.after.effects[0]
        assert (was, now) == next((one, two) for one, two in zip(before, after, strict=True) if one != two)
        return
    for outcome, own, other in ((change.before, before, after), (change.after, after, before)):
        surplus = Counter(own) - Counter(other)
        assert bool(outcome.effects) == bool(surplus) and outcome.more == (surplus.total() > 1)
        assert all(effect in surplus for effect, _ in outcome.effects)


def test_a_memory_that_both_ask_answers_both_alike() -> None:
    """A rule that logs in front of rules that ask a memory changes no verdict."""
    recent = "-A INPUT -p tcp -m tcp --dport 22 -m recent --{} --name a -j {}\n"
    rules = "-A INPUT -i lo -j ACCEPT\n" + recent.format("rcheck", "ACCEPT") + recent.format("set", "DROP")
    log = "-A INPUT -m limit --limit 5/min -j LOG\n"
    texts = [f"*filter\n:INPUT ACCEPT [0:0]\n{front}{rules}COMMIT\n" for front in ("", log)]
    for first, second in (texts, reversed(texts)):
        regions = hitables.diff(first, second).regions
        assert regions and all(region.before.verdict is None for region in regions)


HOST = """*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:logdrop - [0:0]
-A INPUT -m conntrack --ctstate INVALID -j logdrop
-A INPUT -p tcp -m tcp --dport 22 -m recent --name ssh --update --seconds 60 --hitcount 5 -j logdrop
-A INPUT -m limit --limit 5/min -j LOG --log-prefix in
-A FORWARD -m mark --mark 0x1/0x1 -j ACCEPT
-A logdrop -m limit --limit 5/min -j LOG --log-prefix drop
-A logdrop -j DROP
COMMIT
"""


def test_rules_that_log_under_one_limit_are_told_apart_by_what_they_log() -> None:
    """Without the rule for INVALID, such packets meet another rule of the same limit; no others are concerned."""
    without = "".join(line for line in HOST.splitlines(keepends=True) if "INVALID" not in line)
    # A mark that is set and read makes the prover run twice.
    without = without.replace("-A FORWARD", "-A FORWARD -i eth1 -j MARK --set-xmark 0x1/0x1\n-A FORWARD", 1)
    for first, second in ((HOST, without), (without, HOST)):
        regions = [region for region in hitables.diff(first, second).regions if region.chain == "INPUT"]
        invalid = Values.only(STATES.index("INVALID"))
        assert regions and {region.box.get(Field.STATE) for region in regions} == {invalid}
