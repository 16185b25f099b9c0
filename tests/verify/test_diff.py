"""Diff lists all that two programs treat differently, in disjoint regions."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.programs import mutate
from support.scale import examples
from support.small_programs import every_packet, proto, small_program

import hitables
from hitables.ir.fields import TCP, UDP, Family, Field, interface_number
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend
from hitables.ir.program import Program, Table
from hitables.ir.rule import Rule
from hitables.report.diff import as_json, findings, show
from hitables.report.region_text import describe
from hitables.simulate.batch import PacketBatch
from hitables.simulate.interpreter import Interner, Interpreter
from hitables.verify.diff import WHOLE, Change, Changes, changes
from hitables.verify.question import Question

pytestmark = pytest.mark.engine
LEGACY = Question((Backend.LEGACY,), "exact")


def program(rules: str, policy: str = "ACCEPT", chains: str = "") -> hitables.Program:
    return hitables.read(f"*filter\n:INPUT {policy} [0:0]\n{chains}{rules}COMMIT\n")


def shown(before: str, after: str, *, limit: int | None = None) -> str:
    diff = changes(program(before), program(after), Question(), tell=lambda stage: None)
    return show(diff, ("A", "B"), limit)


def test_a_change_for_every_address_of_ipv6_is_counted() -> None:
    rules = ":OUTPUT {} [0:0]\n-A INPUT -s fd00::/8 -j DROP\nCOMMIT\n"
    texts = ["*filter\n:INPUT ACCEPT [0:0]\n" + rules.format(policy) for policy in ("ACCEPT", "DROP")]
    diff = hitables.diff(*texts, family=6)
    assert diff.regions[0].headers > 2**200


def test_a_changed_verdict_is_shown_with_both_lines() -> None:
    text = shown(
        "-A INPUT -p tcp --dport 22 -j ACCEPT\n-A INPUT -j DROP\n",
        "-A INPUT -d 10.1.0.0/16 -p tcp --dport 22 -j DROP\n-A INPUT -p tcp --dport 22 -j ACCEPT\n-A INPUT -j DROP\n",
    )
    assert text.splitlines()[:3] == [
        "table filter, chain INPUT:",
        "  tcp to 10.1.0.0/16 port 22",
        "    was ACCEPT by line 3, now DROP by line 3",
    ]


def test_equal_rule_sets_have_no_changes() -> None:
    assert shown(
        "-A INPUT -s 10.0.0.0/8 -j DROP\n",
        "-A INPUT -s 10.0.0.0/9 -j DROP\n-A INPUT -s 10.128.0.0/9 -j DROP\n",
    ) == ("A and B treat every packet the same.")


def test_a_new_log_rule_is_shown_apart_from_a_new_verdict() -> None:
    text = shown(
        "-A INPUT -p udp -j DROP\n", "-A INPUT -p udp -j LOG --log-prefix x\n-A INPUT -p udp -j DROP\n"
    )
    assert "  udp\n    now also LOG --log-level 4 --log-prefix x (line 3)" in text
    both = shown("-A INPUT -p udp -j DROP\n", "-A INPUT -p udp -j LOG\n-A INPUT -p udp -j REJECT\n")
    assert "was DROP by line 3, now REJECT" in both and "now also LOG" in both


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("MARK --set-xmark 0x1/0xffffffff", "MARK --set-xmark 0x2/0xffffffff"),
        ("CLASSIFY --set-class 0001:0001", "CLASSIFY --set-class 0001:0002"),
        ("TTL --ttl-set 5", "TTL --ttl-set 6"), ("DSCP --set-dscp 0x01", "DSCP --set-dscp 0x02"),
        ("SET --add-set a src", "SET --add-set b src"), ("MARK --set-xmark 0x1/0xffffffff", ""),
    ],
)  # fmt: skip
def test_what_one_program_writes_is_shown(one: str, other: str) -> None:
    texts = [
        f"*mangle\n:FORWARD ACCEPT [0:0]\n-A FORWARD -s 10.0.0.0/8{target and ' -j ' + target}\nCOMMIT\n"
        for target in (one, other)
    ]
    diff = changes(*map(hitables.read, texts), Question(), tell=lambda stage: None)
    lines = show(diff, ("A", "B"), None).splitlines()
    assert lines[1] == "  any protocol from 10.0.0.0/8"
    assert f"no longer {one.split()[0]} " in lines[2]
    assert not other or f"now also {other.split()[0]} " in lines[2]
    for change in diff.regions:
        assert change.before.effects and change.after.effects


RESTORED = "-A PREROUTING -j CONNMARK --restore-mark\n"
MARKED = "-A PREROUTING -m mark --mark {} -j DROP\n"


@pytest.mark.parametrize(
    ("before", "after", "facts"),
    [
        (
            RESTORED + MARKED.format("0x5"),
            RESTORED,
            [(("mark --mark 0x5 after 1 write of what it reads", True),)],
        ),
        (
            MARKED.format("0x5") + RESTORED + RESTORED + MARKED.format("0x5"),
            MARKED.format("0x5") + RESTORED + RESTORED,
            [(("mark --mark 0x5", False), ("mark --mark 0x5 after 2 writes of what it reads", True))],
        ),
        (
            "-A PREROUTING -j CT --notrack\n-A PREROUTING -m conntrack --ctstate UNTRACKED -j DROP\n",
            "-A PREROUTING -j CT --notrack\n",
            [(("state UNTRACKED after 1 write of what it reads", True),)],
        ),
        (
            "-A PREROUTING -j MARK --xor-mark 0x4\n" + RESTORED + MARKED.format("0x2/0x7"),
            "-A PREROUTING -j MARK --xor-mark 0x4\n" + RESTORED,
            [(("mark --mark 0x2/0x7 after 2 writes of what it reads", True),)],
        ),
    ],
)
def test_a_condition_that_is_read_after_writes_is_told(
    before: str, after: str, facts: list[tuple[tuple[str, bool], ...]]
) -> None:
    table = "raw" if "notrack" in before else "mangle"
    texts = (f"*{table}\n:PREROUTING ACCEPT [0:0]\n{rules}COMMIT\n" for rules in (before, after))
    diff = changes(*map(hitables.read, texts), Question(), tell=lambda stage: None)
    assert [change.facts for change in diff.regions if change.packets == WHOLE] == facts
    assert f'where "{facts[0][-1][0]}" holds' in show(diff, ("A", "B"), None)
    assert as_json(diff, ("A", "B"))["changes"][0]["facts"][-1]["key"] == facts[0][-1][0]


def test_the_largest_region_is_first_and_the_rest_is_counted() -> None:
    before = "-A INPUT -s 10.0.0.0/24 -j REJECT\n-A INPUT -s 11.0.0.0/8 -j DROP\n"
    text = shown(before, "", limit=1)
    assert "any protocol from 11.0.0.0/8" in text and "10.0.0.0/24" not in text
    assert "… and 1 more change (--limit)" in text


def test_changes_that_differ_in_one_line_are_joined_where_there_are_many() -> None:
    before = "".join(f"-A INPUT -s 10.0.{at}.0/24 -j DROP\n" for at in range(0, 40, 2))
    assert len(shown(before, "", limit=20).splitlines()) == 41
    joined = shown(before, "", limit=19).splitlines()
    assert joined[-1] == "    was DROP by lines 3, 4, 5 and 17 more, now ACCEPT by policy"
    assert joined[-2] == "  … and 17 smaller regions" and len(joined) == 6


def test_changed_verdicts_come_first() -> None:
    log = "-A FORWARD -j LOG\n"
    text = shown("-A FORWARD -s 10.0.0.1 -j DROP\n", log + "-A FORWARD -s 10.0.0.2 -j DROP\n").splitlines()
    assert text[1:5] == [
        "  any protocol from 10.0.0.1",
        "    was DROP by line 3, now ACCEPT by policy; now also LOG --log-level 4 (line 3)"
        "  (also later fragments)",
        "  any protocol from 10.0.0.2",
        "    was ACCEPT by policy, now DROP by line 4; now also LOG --log-level 4 (line 3)"
        "  (also later fragments)",
    ]


@pytest.mark.parametrize(("policy", "count"), [("ACCEPT", 0), ("DROP", 1)])
def test_a_table_that_one_program_lacks_counts_as_empty(policy: str, count: int) -> None:
    one = hitables.read("*filter\nCOMMIT\n")
    more = hitables.read(f"*filter\nCOMMIT\n*raw\n:OUTPUT {policy} [0:0]\nCOMMIT\n")
    for pair in ((one, more), (more, one)):
        diff = changes(*pair, Question(), tell=lambda stage: None)
        assert len([change for change in diff.regions if change.packets == WHOLE]) == count and diff.complete
        assert ("raw", "OUTPUT") in diff.chains


def test_backends_that_agree_are_listed_once() -> None:
    diff = changes(
        program("-A INPUT -s 10.0.0.0/8 -j DROP\n"), program(""), Question(), tell=lambda stage: None
    )
    whole = [change for change in diff.regions if change.packets == WHOLE]
    assert len(whole) == 1 and set(whole[0].backends) == set(Backend) and diff.complete
    (listed,) = [each for each in as_json(diff, ("A", "B"))["changes"] if each["packets"] == WHOLE]
    assert listed["words"] == "any protocol from 10.0.0.0/8" and listed["box"] == {
        "src": [["167772160", "184549375"]]
    }


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ({}, "any protocol"),
        ({Field.PROTO: Values.only(6, 17), Field.DPORT: Values.of((1024, 65535))}, "tcp, udp to port 1024-65535"),
        ({Field.SRC: Values.of((0x0A000000, 0x0AFFFFFF))}, "any protocol from 10.0.0.0/8"),
        ({Field.SRC: Values.of((1, 2**32 - 1))}, "any protocol from all but 0.0.0.0"),
        ({Field.DPORT: Values.of((0, 21), (23, 65535))}, "any protocol to port all but 22"),
        ({Field.STATE: Values.of((2, 5))}, "any protocol state NEW"),
        ({Field.PROTO: Values.only(1), Field.ICMP: Values.of((8 << 8, (8 << 8) + 255))}, "icmp type 8"),
        ({Field.FLAGS: Values.only(2, 34)}, "any protocol with flags SYN no-FIN no-RST no-PSH no-ACK"),
        ({Field.PROTO: Values.only(6), Field.FLAGS: Values.only(2, 34)}, "tcp with flags SYN no-FIN no-RST no-PSH no-ACK"),
        ({Field.PROTO: Values.only(50), Field.FLAGS: Values.only(2, 34)}, "esp"),
    ],
)  # fmt: skip
def test_regions_in_words(box: dict[Field, Values], words: str) -> None:
    assert describe(box, Family.IPV4) == words


def interfaces(name: str) -> Values:
    """Those of a name, or of a beginning with +."""
    stem = interface_number(name.rstrip("+"))
    return Values.interval(stem, stem | (1 << 8 * (16 - len(name) + 1)) - 1 if name.endswith("+") else stem)


def without(values: Values, *names: str) -> Values:
    for name in names:
        values = values.intersect(interfaces(name).complement(2**128 - 1))
    return values


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (without(interfaces("eth+"), "eth0"), "eth+ without eth0"),
        (without(interfaces("eth+"), "eth0", "eth1+"), "eth+ without eth0, eth1+"),
        (without(interfaces("e+"), "eth+", "e0"), "e+ without e0, eth+"),
        (without(interfaces("eth+"), "eth0").union(interfaces("br0")), "br0, eth+ without eth0"),
        (without(Values.interval(0, 2**128 - 1), "eth+", "lo"), "all but eth+, lo"),
        (without(interfaces("eth+"), "eth"), "eth+ without eth"),
        (without(interfaces("eth1+"), "eth10").union(interfaces("eth2")), "eth1+ without eth10, eth2"),
    ],
)  # fmt: skip
def test_interfaces_in_words(values: Values, words: str) -> None:
    assert describe({Field.IIF: values}, Family.IPV4) == f"any protocol in {words}"


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(st.sampled_from(["eth+", "eth0", "eth1+", "e+", "br0", "br+", "+"]), st.booleans()),
        max_size=5,
    )
)
def test_interfaces_in_words_are_printable(parts: list[tuple[str, bool]]) -> None:
    values = Values(())
    for name, adds in parts:
        these = Values.interval(0, 2**128 - 1) if name == "+" else interfaces(name)
        values = values.union(these) if adds else values.intersect(these.complement(2**128 - 1))
    assert not values or describe({Field.IIF: values}, Family.IPV4).isprintable()


def asking_for_the_protocol(program: Program) -> Program:
    """As iptables has it, so that no packet but a malformed one is too short for a match."""
    protocols = {"tcp": TCP, "udp": UDP, "multiport": TCP}
    chains = []
    for chain in program.tables[0].chains:
        rules = []
        for rule in chain.rules:
            first = tuple(proto(protocols[match.name]) for match in rule.matches if match.name in protocols)
            rules.append(rule._replace(matches=(*first, *rule.matches)))
        chains.append(replace(chain, rules=tuple(rules)))
    return Program(program.family, (Table("filter", tuple(chains)),))


def with_other_facts_after_writes(batch: PacketBatch) -> PacketBatch:
    """A fact is true after an odd number of writes where it is false before them, and after even numbers."""
    return replace(batch, facts={at: truths ^ (at[1] & 1) for at, truths in batch.facts.items()})


def writes(key: str) -> int:
    """How many writes are before the condition, as its key says."""
    after = re.search(" after ([0-9]+) writes? of what it reads$", key)
    return int(after[1]) if after else 0


def holds(change: Change, low: dict[Field, int], fact: bool) -> bool:
    facts = all(wanted == fact ^ (writes(key) & 1) for key, wanted in change.facts)
    return facts and all(field in low and low[field] in values for field, values in change.box.items())


@settings(max_examples=examples(40))
@given(st.randoms(use_true_random=False))
def test_every_whole_packet_that_differs_is_in_exactly_one_region(rng: random.Random) -> None:
    drawn = small_program(rng)
    before, after = map(asking_for_the_protocol, (drawn, mutate(rng, drawn)))
    diff: Changes = changes(before, after, LEGACY, tell=lambda stage: None)
    assert diff.complete
    batch = with_other_facts_after_writes(every_packet())
    interner = Interner()
    old, new = (
        Interpreter(each, Backend.LEGACY, interner).run("filter", "FORWARD", batch)
        for each in (before, after)
    )
    apart = (old.verdict != new.verdict) | (old.effects != new.effects)
    broken = batch.malformed()
    half = len(batch) // 2
    whole = [change for change in diff.regions if change.packets == WHOLE]
    for at in range(0, len(batch), 97):
        packet = batch.packet(at)
        if broken[at] or packet.is_later_fragment:
            continue
        regions = [change for change in whole if holds(change, dict(packet.values), at >= half)]
        # Where a value that is written and not known decides, a region stands there with each outcome.
        distinct = {(tuple(change.box.items()), change.facts) for change in regions}
        assert len(distinct) == int(apart[at]), (packet.values, regions)


def test_rules_are_placed_by_one_walk_over_their_table() -> None:
    """However many lines decide."""
    walks = 0

    class Walked(tuple[Rule, ...]):
        def __iter__(self) -> Iterator[Rule]:
            nonlocal walks
            walks += 1
            return super().__iter__()

    def rules(verdict: str) -> str:
        return "".join(f"-A INPUT -s 10.{n}.0.0/16 -j {verdict}\n" for n in range(20))

    def walked(each: Program) -> Program:
        chains = [replace(chain, rules=Walked(chain.rules)) for chain in each.table("filter").chains]
        return replace(each, tables=(replace(each.table("filter"), chains=tuple(chains)),))

    before, after = program(rules("ACCEPT")), program(rules("DROP"))
    diff = changes(before, after, Question(), tell=lambda stage: None)
    pair = walked(before), walked(after)
    walks = 0
    found = findings(diff, ("A", "B"), pair)
    assert len(found) >= 20 and walks == 2 * len(pair[0].table("filter").chains)
    for finding in found:
        now, was = finding.places
        assert now.line == was.line and now.text == was.text.replace("ACCEPT", "DROP")
        assert f"10.{now.line - 3}.0.0/16" in now.text


def test_an_effect_that_both_have_is_neither_new_nor_gone() -> None:
    """Also where a rule changes what its own match tests, and so is read alone."""
    mark = "-A INPUT -m mark --mark 1 -j MARK --set-mark 2\n"
    log, group = "-A INPUT -j LOG\n", "-A INPUT -j NFLOG --nflog-group 5\n"

    def told(before: str, after: str) -> list[str]:
        texts = [f"*mangle\n:INPUT ACCEPT [0:0]\n{rules}COMMIT\n" for rules in (before, after)]
        lines = show(hitables.diff(*texts), ("A", "B"), None).splitlines()
        return [line.strip().partition("  ")[0] for line in lines if line.startswith("    ")]

    assert told(log, mark + log) == ["now also MARK --set-xmark 0x2/0xffffffff (line 3)"]
    assert told(mark + log, log) == ["no longer MARK --set-xmark 0x2/0xffffffff (line 3)"]
    assert told(mark + log + group, group) == [
        "no longer MARK --set-xmark 0x2/0xffffffff (line 3) and more",
        "no longer LOG --log-level 4 (line 4)",
    ]
    assert told(log + group, group + log) == [
        "the same effects in another order: first LOG --log-level 4 (line 3), now first NFLOG "
        "--nflog-group 5 --nflog-threshold 0 (line 3)"
    ]
