"""A witness through the kernel, once with each rule set: what it shows, and what it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import hitables
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.ir.rule import Rule
from hitables.kernel import replay as replaying
from hitables.kernel.load_save import load
from hitables.kernel.outcomes import FixedAnswers, executions
from hitables.kernel.replay import ReplayResult, replay
from hitables.simulate.sampling import compare
from hitables.verify.question import Difference

pytestmark = pytest.mark.usefixtures("small_namespaces")

HEAD = {
    "filter": "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n",
    "nat": "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n",
    "mangle": "*mangle\n:PREROUTING ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n",
    "raw": "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n",
}

ONE_AN_HOUR = (
    "-m hashlimit --hashlimit-upto 1/hour --hashlimit-burst 1 --hashlimit-mode srcip --hashlimit-name one"
)

# table, rules before, rules after; which differ in one thing each
PAIRS = {
    "a port": (
        "filter", "-A INPUT -p tcp -m tcp --dport 22 -j DROP", "-A INPUT -p tcp -m tcp --dport 23 -j DROP",
    ),
    "a state": (
        "filter",
        "-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A FORWARD -j DROP",
        "-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n-A FORWARD -j DROP",
    ),
    "an interface": ("filter", "-A OUTPUT -o eth0 -j DROP", "-A OUTPUT -o eth+ -j DROP"),
    "the words of a log": (
        "filter", '-A INPUT -p udp -j LOG --log-prefix "one "', '-A INPUT -p udp -j LOG --log-prefix "two "',
    ),
    "the order of log and drop": (
        "filter", "-A INPUT -j LOG\n-A INPUT -s 10.0.0.0/8 -j DROP",
        "-A INPUT -s 10.0.0.0/8 -j DROP\n-A INPUT -j LOG",
    ),
    "where a chain comes back to": (
        "filter", ":user - [0:0]\n-A INPUT -j user\n-A INPUT -p udp -j DROP\n-A user -p tcp -j DROP",
        ":user - [0:0]\n-A INPUT -g user\n-A INPUT -p udp -j DROP\n-A user -p tcp -j DROP",
    ),
    "an address of DNAT": (
        "nat", "-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1",
        "-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.2",
    ),
    "a mark that must be there": (
        "mangle", "-A FORWARD -m mark --mark 0x7 -j DROP", "-A FORWARD -m mark --mark 0x8 -j DROP",
    ),
    "a group beside others": (
        "filter", "-A OUTPUT -m owner --gid-owner 12 --suppl-groups -j DROP",
        "-A OUTPUT -m owner --gid-owner 13 --suppl-groups -j DROP",
    ),
    "a set's member": (
        "filter", "-A INPUT -m set --match-set bad src -j DROP",
        "-A INPUT -m set --match-set bad src -j ACCEPT\n-A INPUT -j DROP",
    ),
    "a list that holds the source": (
        "filter", "-A INPUT -m recent --rcheck --name seen --rsource -j DROP",
        "-A INPUT -m recent --rcheck --name seen --rsource -j ACCEPT",
    ),
    "a limit that is spent": (
        "filter", "-A INPUT -m limit --limit 1/hour --limit-burst 3 -j ACCEPT\n-A INPUT -j DROP",
        "-A INPUT -m limit --limit 1/hour --limit-burst 3 -j ACCEPT",
    ),
    "a hashlimit that a packet asks twice": (
        "filter", f"-A INPUT {ONE_AN_HOUR} -j LOG\n-A INPUT {ONE_AN_HOUR} -j ACCEPT\n-A INPUT -j DROP",
        f":user - [0:0]\n-A INPUT {ONE_AN_HOUR} -j user\n-A INPUT -j DROP\n-A user -j LOG\n-A user -j ACCEPT",
    ),
    "a hashlimit in front of a limit that is spent": (
        "filter",
        f"-A INPUT {ONE_AN_HOUR} -j LOG\n-A INPUT -m limit --limit 1/hour --limit-burst 3 -j ACCEPT\n-A INPUT -j DROP",
        f"-A INPUT {ONE_AN_HOUR} -j LOG\n-A INPUT -m limit --limit 1/hour --limit-burst 3 -j ACCEPT",
    ),
    "a throw of dice": (
        "filter", "-A INPUT -m statistic --mode random --probability 0.5 -j DROP",
        "-A INPUT -m statistic --mode random --probability 0.5 -j ACCEPT",
    ),
    "a mark that a rule adds to": (
        "mangle", "-A INPUT -j MARK --or-mark 4\n-A INPUT -m mark --mark 5 -j ACCEPT\n-A INPUT -j DROP",
        "-A INPUT -j MARK --or-mark 4\n-A INPUT -j DROP",
    ),
    "a mark that a rule turns": (
        "mangle", "-A INPUT -j MARK --xor-mark 3\n-A INPUT -m mark --mark 4/5 -j DROP",
        "-A INPUT -j MARK --xor-mark 3\n-A INPUT -m mark --mark 4/7 -j DROP",
    ),
    "a byte of tos that a rule changes in part": (
        "mangle", "-A INPUT -j TOS --or-tos 0x10\n-A INPUT -m tos --tos 0x18 -j DROP",
        "-A INPUT -j TOS --or-tos 0x10",
    ),
    "when a connection is left alone": (
        "raw", "-A PREROUTING -p udp -j CT --notrack\n-A PREROUTING -m conntrack --ctstate INVALID -j DROP",
        "-A PREROUTING -m conntrack --ctstate INVALID -j DROP\n-A PREROUTING -p udp -j CT --notrack",
    ),
}  # fmt: skip


def read(table: str, rules: str) -> Program:
    return hitables.read(f"{HEAD[table]}{rules}\nCOMMIT\n")


def result(before: Program, after: Program, **options: object) -> Difference:
    difference = compare(before, after, **options)  # type: ignore[arg-type]
    assert difference is not None
    return difference


@pytest.mark.needs_kernel
@pytest.mark.parametrize("name", PAIRS)
def test_the_kernel_shows_the_difference(name: str) -> None:
    table, *rules = PAIRS[name]
    before, after = (read(table, each) for each in rules)
    shown = replay(before, after, result(before, after))
    assert shown.finding is ReplayResult.CONFIRMED, shown.describe()
    assert {each.backend for each in shown.shown} == set(Backend)
    for each in shown.shown:
        assert each.finding is ReplayResult.CONFIRMED, shown.describe()


@pytest.mark.needs_kernel
def test_a_difference_is_told_with_the_lines_that_counted() -> None:
    before, after = (read("filter", each) for each in PAIRS["a port"][1:])
    message = replay(before, after, result(before, after)).describe()
    assert "kernel: confirmed" in message
    assert "counted by line 5: -A INPUT -p tcp -m tcp --dport" in message
    assert "does not pass" in message
    assert "passes" in message


@pytest.mark.needs_kernel
def test_what_only_one_backend_does_is_asked_of_both() -> None:
    """A later fragment's payload is read as ports by native nft expressions alone."""
    before = read("filter", "-A FORWARD -p udp -m udp --dport 53 -j DROP")
    after = read("filter", "-A FORWARD -p udp -m multiport --dports 53 -j DROP")
    difference = result(before, after, backends=(Backend.NFT,))
    assert difference.packet is not None
    assert difference.packet.is_later_fragment
    shown = replay(before, after, difference)
    nft, legacy = shown.shown
    assert (nft.backend, nft.finding) == (Backend.NFT, ReplayResult.CONFIRMED), shown.describe()
    assert legacy.finding is ReplayResult.NOT_REALISABLE
    assert "treated alike" in legacy.reason


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend)
def test_ipv6_is_replayed_too(backend: Backend) -> None:
    head = HEAD["filter"]
    rule = "-A INPUT -s 2001:db8::/{} -p ipv6-icmp -j DROP\nCOMMIT\n"
    before, after = (hitables.read(head + rule.format(bits)) for bits in (32, 48))
    shown = replay(before, after, result(before, after, backends=(backend,)), backends=(backend,))
    assert shown.finding is ReplayResult.CONFIRMED, shown.describe()


def test_a_second_copy_of_a_memory_has_no_packet_to_send() -> None:
    limit = "-m limit --limit 1/sec -j LOG"
    before = read("filter", f"-A INPUT {limit}")
    after = read("filter", f"-A INPUT -s 10.0.0.0/8 {limit}\n-A INPUT ! -s 10.0.0.0/8 {limit}")
    shown = replay(before, after, result(before, after))
    assert shown.finding is ReplayResult.NOT_REALISABLE
    assert "no packet shows it" in shown.reason


@pytest.mark.needs_kernel
def test_a_set_of_ports_cannot_be_filled_and_that_is_said() -> None:
    before = read("filter", "-A INPUT -m set --match-set bad src,dst -j DROP")
    after = read("filter", "-A INPUT -m set --match-set bad src,dst -j ACCEPT")
    shown = replay(before, after, result(before, after))
    assert shown.finding is ReplayResult.NOT_REALISABLE, shown.describe()
    assert "set --match-set bad src,dst" in shown.reason


@pytest.mark.needs_kernel
def test_a_plain_member_is_no_match_where_those_with_nomatch_are_asked_for() -> None:
    after = read("filter", "-A INPUT -s 192.0.2.77 -j DROP")
    for negation, finding in (("", ReplayResult.NOT_REALISABLE), ("! ", ReplayResult.CONFIRMED)):
        before = read("filter", f"-A INPUT -m set {negation}--match-set bad src --return-nomatch -j DROP")
        shown = replay(before, after, result(before, after))
        assert shown.finding is finding, shown.describe()


@pytest.mark.needs_kernel
@pytest.mark.parametrize(
    ("dice", "tries"), [("-A FORWARD", 1), ("-A INPUT -m connlabel --label 1", 1), ("-A INPUT", 4)]
)
def test_only_what_chance_decides_is_tried_again(
    dice: str, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No packet has the label that the difference asks for, whatever the dice show."""
    thrown = f"{dice} -m statistic --mode random --probability 0.5 -j LOG\n"
    labelled = "-A INPUT -m connlabel --label 1 -j"
    before, after = (read("filter", f"{thrown}{labelled} {verdict}") for verdict in ("ACCEPT", "DROP"))
    difference = result(before, after, backends=(Backend.LEGACY,))
    loads = []
    for most in (0, 3):
        count = 0

        def counted(*words: Any) -> None:
            nonlocal count
            count += 1
            load(*words)

        with monkeypatch.context() as patched:
            patched.setattr(replaying, "TRIES", most)
            patched.setattr(replaying, "load", counted)
            shown = replay(before, after, difference, backends=(Backend.LEGACY,))
        assert shown.finding is ReplayResult.NOT_REALISABLE, shown.describe()
        assert "connlabel --label 1" in shown.reason
        loads.append(count)
    assert loads[1] == tries * loads[0] > 0


@pytest.mark.needs_kernel
def test_a_rule_set_that_the_kernel_refuses_is_not_replayed() -> None:
    """There is no such estimator."""
    rule = "-A INPUT -p udp -m rateest --rateest none --rateest-gt --rateest-pps 5 -j"
    before, after = (read("filter", f"{rule} {verdict}") for verdict in ("ACCEPT", "DROP"))
    shown = replay(before, after, result(before, after))
    assert shown.finding is ReplayResult.NOT_REALISABLE
    assert "does not take" in shown.reason


@pytest.mark.needs_kernel
def test_a_program_that_means_something_else_than_its_words_raises_an_alarm() -> None:
    """As if the reader had taken port 22 for 23: the kernel reads the words."""
    right, wrong = (read("filter", f"-A INPUT -p udp -m udp --dport {port} -j DROP") for port in (22, 23))
    misread = _with_words(wrong, right)
    nothing = read("filter", "-A INPUT -p udp -j ACCEPT")
    shown = replay(misread, nothing, result(misread, nothing))
    assert shown.finding is ReplayResult.CONTRADICTED, shown.describe()
    assert "before" in shown.reason


def _with_words(program: Program, words: Program) -> Program:
    """*program* with the words of another in the place of its own."""
    (table,), (other,) = program.tables, words.tables

    def worded(rule: Rule, with_words: Rule) -> Rule:
        matches = zip(rule.matches, with_words.matches, strict=True)
        return rule._replace(matches=tuple(match._replace(words=message.words) for match, message in matches))

    chains = tuple(
        chain.with_rules(tuple(map(worded, chain.rules, other[chain.name].rules))) for chain in table.chains
    )
    return replace(program, tables=(replace(table, chains=chains),))


def test_every_way_is_walked_once_and_the_wished_one_first() -> None:
    rules = "-A INPUT -m time --weekdays Mon -j LOG\n-A INPUT -m limit --limit 1/sec -j DROP"
    before = read("filter", rules)
    witness = result(before, read("filter", rules.replace("DROP", "REJECT")))
    assert witness.packet is not None
    assert witness.answers is not None
    walked = list(
        executions(
            before.table("filter"),
            "INPUT",
            witness.packet,
            Backend.LEGACY,
            FixedAnswers({}, {}, {}),
            witness.answers,
        )
    )
    assert len(walked) == 2 * 3
    assert len({(way.walk.verdict, way.walk.effects) for way in walked}) == 2 * 3
    assert witness.before is not None
    assert walked[0].walk == witness.before
    assert all(way.is_compatible(way) for way in walked)
    assert not walked[0].is_compatible(walked[-1])
