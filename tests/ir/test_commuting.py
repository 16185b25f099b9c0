"""Rules of one action are put in groups by field, and nothing else is moved."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.every_packet import difference, every_walk
from support.scale import examples

from hitables.ir.choices import Malformed
from hitables.ir.commuting import GROUP, CountingChains, grouped, regrouped
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.parse.iptables import read
from hitables.verify.question import Question

HOSTS = range(1, GROUP + 1)
PAIRS = [f"-A FORWARD -{side} 10.0.0.{host}" for host in HOSTS for side in "sd"]


def program(lines: list[str], family: Family = Family.IPV4, table: str = "filter") -> Program:
    return read("\n".join([f"*{table}", *lines, "COMMIT", ""]), family=family)


def of_actions(lines: list[str]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The order of rules of which some have a target of table raw or mangle."""
    table, chain = ("raw", "PREROUTING") if any("-j CT" in line for line in lines) else ("mangle", "FORWARD")
    lines = [line.replace("FORWARD", chain) for line in lines]
    read_table = program(lines, table=table).table(table)
    found = regrouped(read_table[chain].rules, CountingChains(read_table, Family.IPV4))
    return None if found is None else (found.order, found.cuts)


def order(lines: list[str], family: Family = Family.IPV4) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    table = program(lines, family).table("filter")
    found = regrouped(table["FORWARD"].rules, CountingChains(table, family))
    return None if found is None else (found.order, found.cuts)


def test_sources_come_before_destinations_and_each_keeps_its_order() -> None:
    count = len(PAIRS)
    sources, destinations = range(0, count, 2), range(1, count, 2)
    assert order(PAIRS) == ((*sources, *destinations), (0, GROUP, count))


def test_rules_around_a_run_stay_where_they_are() -> None:
    found = order(["-A FORWARD -p tcp -j DROP", *PAIRS, "-A FORWARD -j LOG"])
    assert found is not None
    places, cuts = found
    assert places[0] == 0 and places[-1] == len(PAIRS) + 1 and cuts == (1, 1 + GROUP, 1 + len(PAIRS))


def test_a_rule_belongs_to_the_field_with_most_values_and_few_rules_are_the_last_group() -> None:
    lines = [f"{line} -p tcp" for line in PAIRS] + ["-A FORWARD -p udp", "-A FORWARD"]
    found = order([lines[-1], lines[-2], *lines[:-2]])
    assert found is not None
    places, cuts = found
    assert places[-2:] == (0, 1) and cuts == (0, GROUP, 2 * GROUP, 2 * GROUP + 2)


@pytest.mark.parametrize(
    "between",
    ["-j LOG", "-j DROP", "-m limit --limit 3/sec", "-p tcp -m tcp --dport 80", "-m recent --name x --set"],
)
def test_no_rule_moves_across_one_that_does_more_than_count(between: str) -> None:
    """A test of ports drops packets that are cut off."""
    half = len(PAIRS) // 2
    assert order([*PAIRS[:half], f"-A FORWARD {between}", *PAIRS[half:]]) is None
    assert order([*PAIRS[:half], "-A FORWARD -m mark --mark 1", *PAIRS[half:]]) is not None


@pytest.mark.parametrize(
    "action",
    [
        "-j CT --notrack", "-j MARK --set-mark 1", "-j NFLOG --nflog-group 3", '-j LOG --log-prefix "seen "',
        "-j CLASSIFY --set-class 1:10", "-j CONNMARK --save-mark",
    ],
)  # fmt: skip
def test_rules_of_one_action_are_moved_as_those_that_only_count(action: str) -> None:
    assert of_actions([f"{line} {action}" for line in PAIRS]) == order(PAIRS)


@pytest.mark.parametrize(
    "action",
    [
        "-j DROP", "-j own", "-g own", "-j RETURN", "-m limit --limit 3/sec -j LOG",
        # What the rules ask is what the action writes.
        "-m mark --mark 0 -j MARK --set-mark 1", "-m ttl --ttl-gt 3 -j TTL --ttl-dec 1",
        "-m conntrack --ctstate UNTRACKED -j CT --notrack", "-m set --match-set s src -j SET --add-set s src",
    ],
)  # fmt: skip
def test_other_actions_are_not_moved(action: str) -> None:
    own = [":own - [0:0]", "-A own -j LOG"]
    assert of_actions([*own, *(f"{line} {action}" for line in PAIRS)]) is None


def test_rules_of_different_actions_end_a_run() -> None:
    """The last mark counts: one packet matches the source of one host and the destination of the next."""
    marks = [f"{line} -j MARK --set-mark {1 + at // 2}" for at, line in enumerate(PAIRS)]
    assert of_actions(marks) is None
    twice = [f"{line} -j MARK --set-mark {1 + at // len(PAIRS)}" for at, line in enumerate(PAIRS * 2)]
    found = of_actions(twice)
    assert found is not None and found[1] == tuple(range(0, 2 * len(PAIRS) + 1, GROUP))


def test_a_test_of_the_protocol_drops_ipv6_packets_that_hide_it() -> None:
    lines = [f"-A FORWARD -{side} fd00::{host:x} -p tcp" for host in HOSTS for side in "sd"]
    assert order(lines, Family.IPV6) is None
    assert order([line.removesuffix(" -p tcp") for line in lines], Family.IPV6) is not None


def test_too_few_rules_of_a_second_field_are_not_moved() -> None:
    sources = [f"-A FORWARD -s 10.0.0.{host}" for host in range(40)]
    assert order([*sources, *PAIRS[1:-2:2]]) is None
    assert order([*sources, *PAIRS[1::2]]) is not None


@settings(max_examples=examples(20))
@given(seed=st.integers(0, 2**32), family=st.sampled_from(list(Family)))
def test_every_packet_is_treated_alike_in_both_orders(seed: int, family: Family) -> None:
    rng = random.Random(seed)
    net = "10.0.0.{}" if family is Family.IPV4 else "fd00::{}"

    def rule() -> str:
        source = rng.choice(["", "", f" -s {net}", f" ! -s {net}"]).format(rng.randrange(1, 3))
        destination = rng.choice(["", f" -d {net}"]).format(rng.randrange(1, 3))
        if rng.random() < 0.02:
            return f"-A FORWARD{source}{destination}{rng.choice([' -j LOG', ' -j DROP'])}"
        return f"-A FORWARD{source}{destination}{rng.choice([' -p tcp', *asked])}{action}"

    action, *asked = rng.choice(
        [
            ("", "", ""), (" -j MARK --set-mark 1", "", " -m mark --mark 1"), (" -j MARK --or-mark 2", "", " -m ttl --ttl-lt 9" if family is Family.IPV4 else " -m hl --hl-lt 9"),
            (" -j LOG", "", " -m mark ! --mark 1"), (" -j CONNMARK --set-mark 1", "", " -m connmark --mark 1"),
            (" -j TTL --ttl-inc 1" if family is Family.IPV4 else " -j HL --hl-inc 1", "", " -m mark --mark 1"),
        ]
    )  # fmt: skip

    lines = [rule() for _ in range(50)]
    before = program(lines, family, "mangle")
    table = before.table("mangle")
    after = replace(before, tables=(grouped(table, family),))
    assert sorted(rule.line for rule in after.table("mangle")["FORWARD"].rules) == sorted(
        rule.line for rule in table["FORWARD"].rules
    )
    question = Question(malformed=Malformed.EXACT)
    assert difference(every_walk(before, after, (rng.choice(list(Backend)),)), question) is None
