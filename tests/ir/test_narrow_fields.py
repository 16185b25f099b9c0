"""The fields that rules limit to few values."""

from __future__ import annotations

import pytest

from hitables.ir.fields import Family, Field
from hitables.ir.narrow_fields import BITS, BOUND, NUMBER_BITS, may_drop, narrow_fields
from hitables.parse.iptables import read

# Another value of each field and number, by which lists of the rule and these tell packets apart.
OTHERS = """\
-A FORWARD -s 203.0.113.1 -d 203.0.113.2 -i lo -o lo -p tcp -m tcp --sport 9 --dport 9 -j DROP
-A FORWARD -m physdev --physdev-in lo --physdev-out lo -m mark --mark 99 -m connmark --mark 99 -j DROP
-A FORWARD -m tos --tos 0x98/0xff -j DROP
"""


def narrow(rule: str, others: str = OTHERS) -> int:
    program = read(f"*filter\n-A FORWARD {rule}\n{others}COMMIT\n", family=Family.IPV4)
    return narrow_fields(program.table("filter")["FORWARD"].rules, Family.IPV4)[0]


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("-s 192.0.2.1 -j DROP", [Field.SRC]),
        ("-s 192.0.2.0/24 -d 198.51.100.7 -j DROP", [Field.SRC, Field.DST]),
        ("-s 10.0.0.0/8 -j DROP", [Field.SRC]),
        ("-s 64.0.0.0/2 -j DROP", []),
        ("! -s 192.0.2.1 -j DROP", []),
        ("-i eth0 ! -o eth1 -j DROP", [Field.IIF]),
        ("-i eth+ -j DROP", [Field.IIF]),
        ("-p tcp -m tcp --dport 22 -j DROP", [Field.DPORT]),
        ("-p tcp -m tcp --dport 1024: -j DROP", []),
        ("-p tcp -j DROP", []),
        ("-m physdev --physdev-in tap1 --physdev-is-bridged -j DROP", [Field.PHYSIN]),
        ("-s 192.0.2.1 -m set --match-set x dst -j DROP", [Field.SRC]),
        ("-j DROP", []),
    ],
)
def test_a_field_counts_if_few_of_its_values_match(rule: str, fields: list[Field]) -> None:
    assert narrow(rule) == sum(BITS[field] for field in fields)


@pytest.mark.parametrize(
    ("rule", "numbers"),
    [
        ("-m mark --mark 0x100/0xff00 -j DROP", ["mark"]),
        ("-m connmark --mark 7 -m dscp --dscp 5 -j DROP", ["connmark", "tos"]),
        ("-m mark ! --mark 7 -j DROP", []),
        ("-m length --length 100 -j DROP", []),
    ],
)
def test_a_number_that_trees_cut_counts_if_it_is_one_value(rule: str, numbers: list[str]) -> None:
    assert narrow(rule) == sum(NUMBER_BITS[name] for name in numbers)


def test_a_field_that_all_rules_limit_alike_tells_none_apart() -> None:
    hosts = "".join(f"-A FORWARD -o eth0 -s 192.0.2.{n} -j DROP\n" for n in range(2, 5))
    assert narrow("-o eth0 -s 192.0.2.1 -j DROP", hosts) == BITS[Field.SRC]
    assert narrow("-o eth1 -s 192.0.2.1 -j DROP", hosts) == BITS[Field.SRC] | BITS[Field.OIF]
    assert narrow("-o eth0 -m limit --limit 3/sec -j DROP", hosts) == BOUND


@pytest.mark.parametrize(
    "match",
    ["-m limit --limit 3/sec", "-m recent --name x --rcheck", "-m statistic --mode random --probability 0.5"],
)
def test_a_rule_that_asks_a_memory_or_chance_is_bound(match: str) -> None:
    assert narrow(f"-s 192.0.2.1 {match} -j DROP") == BOUND


@pytest.mark.parametrize(
    ("rule", "family", "drops"),
    [
        ("-p tcp -m tcp --dport 22 -j DROP", Family.IPV4, True),
        ("-s 2001:db8::1 -p tcp -j DROP", Family.IPV6, True),
        ("-s 192.0.2.1 -p tcp -j DROP", Family.IPV4, False),
        ("-p tcp -m tcp --tcp-option 5 -j DROP", Family.IPV4, True),
        ("-i eth0 -m mark --mark 1 -j DROP", Family.IPV6, False),
    ],
)
def test_matches_that_may_drop_a_packet_with_a_broken_header(rule: str, family: Family, drops: bool) -> None:
    program = read(f"*filter\n-A FORWARD {rule}\nCOMMIT\n", family=family)
    (only,) = program.table("filter")["FORWARD"].rules
    assert any(may_drop(match, family) for match in only.matches) == drops
