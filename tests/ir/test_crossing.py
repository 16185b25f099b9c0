"""Parts of a list in which rules of two kinds follow each other by turns."""

from __future__ import annotations

import pytest

from hitables.ir.commuting import GROUP
from hitables.ir.crossing import TURNS, Crossing, crossings
from hitables.ir.fields import Family
from hitables.ir.narrow_fields import narrow_fields
from hitables.ir.rule import Metadata
from hitables.parse.iptables import read

COUNT = max(GROUP, TURNS)
PAIRS = [f"-{side} 192.0.2.{host} -j DROP" for host in range(COUNT) for side in "sd"]


def found(rules: list[str], bounds: list[int] | None = None, chain: str = "FORWARD") -> list[Crossing]:
    heads = "".join(f":{name} -\n" for name in ("acct", "user"))
    text = f"*filter\n{heads}" + "".join(f"-A {chain} {rule}\n" for rule in rules) + "COMMIT\n"
    table = read(text).table("filter")
    narrow = narrow_fields(table[chain].rules, Family.IPV4)
    return crossings(table[chain].rules, narrow, table, Family.IPV4, bounds or [])


def spans(rules: list[str], bounds: list[int] | None = None) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in found(rules, bounds)]


def test_the_kinds_of_a_part_are_told() -> None:
    (part,) = found(PAIRS)
    assert part == Crossing(0, 2 * COUNT, (0, 1) * COUNT)
    assert part.by_kind() == [list(range(0, 2 * COUNT, 2)), list(range(1, 2 * COUNT, 2))]


@pytest.mark.parametrize(
    "between",
    [
        "-j LOG",
        "-p tcp -m tcp --dport 22 -j ACCEPT",
        "-s 192.0.2.1 -m limit --limit 3/sec -j DROP",
    ],
)
def test_a_rule_of_neither_kind_ends_a_part(between: str) -> None:
    assert spans([between, *PAIRS, between, *PAIRS]) == [
        (1, 1 + 2 * COUNT),
        (2 + 2 * COUNT, 2 + 4 * COUNT),
    ]


def test_few_rules_of_both_fields_belong_to_the_first_kind() -> None:
    exception = "-s 192.0.2.1 -d 192.0.2.2 -j ACCEPT"
    (part,) = found([*PAIRS, exception, *PAIRS])
    assert part.kinds == (*(0, 1) * COUNT, 0, *(0, 1) * COUNT)
    assert not found([rule for pair in PAIRS for rule in (pair, exception)])


def test_a_part_ends_at_a_bound() -> None:
    assert spans([*PAIRS, *PAIRS], [2 * COUNT]) == [(0, 2 * COUNT), (2 * COUNT, 4 * COUNT)]


def test_few_rules_of_a_kind_or_few_turns_are_no_part() -> None:
    sources, destinations = PAIRS[::2], PAIRS[1::2]
    assert not found([*sources, *destinations])
    assert not found(PAIRS[: 2 * GROUP - 2])
    assert found([*PAIRS, *sources])


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("-i ppp{}", "-o ppp{}"),
        ("-m physdev --physdev-in tap{} --physdev-is-bridged", "-m physdev --physdev-out tap{}"),
        ("-p tcp -m tcp --sport {}", "-p tcp -m tcp --dport {}"),
        ("-s 192.0.2.{}", "-p udp -m udp --dport {}"),
    ],
)
def test_kinds_may_differ_in_interfaces_and_ports(one: str, two: str) -> None:
    rules = [f"{each.format(n)} -j DROP" for n in range(1, COUNT + 1) for each in (one, two)]
    assert spans(rules) == [(0, 2 * COUNT)]


def in_turn(*kinds: str) -> list[str]:
    return [f"{kind.format(n)} -j DROP" for n in range(1, 2 * COUNT) for kind in kinds]


PORT, NAME, TAP = "-p udp -m udp --dport {}", "-i ppp{}", "-m physdev --physdev-in tap{}"


def test_three_and_four_kinds_are_told() -> None:
    for kinds in (["-s 192.0.2.{}", PORT, NAME], ["-s 192.0.2.{}", PORT, NAME, "-d 192.0.2.{}"]):
        (part,) = found(in_turn(*kinds))
        assert [len(each) for each in part.by_kind()] == [2 * COUNT - 1] * len(kinds)
        assert sorted(at for kind in part.by_kind() for at in kind) == list(range(part.end))
    assert not found(in_turn("-s 192.0.2.{}", PORT, NAME, "-d 192.0.2.{}", TAP))


def test_a_rule_of_several_fields_is_of_the_kind_that_most_rules_have() -> None:
    rules = [
        *in_turn("-s 192.0.2.{} -p udp -m udp --dport {}".replace("{}", "{0}"), PORT, NAME, "-d 192.0.2.{}")
    ]
    (part,) = found(rules)
    assert part.kinds[:4] == (0, 0, part.kinds[2], part.kinds[3]) and len(part.by_kind()) == 3


def test_two_kinds_go_before_three_unless_these_are_twice_as_long() -> None:
    two, three = in_turn("-s 192.0.2.{}", PORT), in_turn("-s 192.0.2.{}", PORT, NAME)
    assert [len(each.by_kind()) for each in found([*two, *two, *three])] == [2, 3]
    assert [len(each.by_kind()) for each in found([*two, *three, *three])] == [3]


def test_of_parts_that_overlap_the_longest_is_taken() -> None:
    ports = [
        f"-{'sd'[n % 2]} 192.0.2.{n} -p tcp -m tcp --{'ds'[n % 2]}port {n} -j DROP" for n in range(1, 20)
    ]
    assert spans([*PAIRS, *ports]) == [(0, 2 * COUNT + 19)]


@pytest.mark.parametrize(
    ("test", "writer", "parts"),
    [
        ("-m mark --mark 1", "-j MARK --set-mark 1", 0),
        ("-m mark --mark 1", "-j LOG", 1),
        ("-m dscp --dscp 1", "-j MARK --set-mark 1", 1),
        ("-p tcp", "-j UNHEARD --of", 0),  # which may write addresses
        ("-p tcp", "-j LOG", 1),
    ],
)
def test_a_rule_that_tests_what_the_table_writes_must_stay(test: str, writer: str, parts: int) -> None:
    rules = [rule.replace(" -j", f" {test} -j", 1) for rule in PAIRS]
    text = "*mangle\n" + "".join(f"-A FORWARD {rule}\n" for rule in rules) + f"-A INPUT {writer}\nCOMMIT\n"
    table = read(text).table("mangle")
    narrow = narrow_fields(table["FORWARD"].rules, Family.IPV4)
    assert len(crossings(table["FORWARD"].rules, narrow, table, Family.IPV4, [])) == parts


def test_what_a_table_writes() -> None:
    table = read(
        "*mangle\n-A INPUT -m recent --name x --set -j MARK --set-mark 1\n-A INPUT -j DROP\nCOMMIT\n"
    )
    assert Metadata.MARK in table.table("mangle").states_written()
    assert not read("*filter\n-A INPUT -s 192.0.2.1 -j DROP\nCOMMIT\n").table("filter").states_written()
