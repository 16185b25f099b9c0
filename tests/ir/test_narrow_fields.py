"""The fields that rules limit to few values."""

from __future__ import annotations

import pytest

from hitables.ir.fields import Family, Field
from hitables.ir.narrow_fields import BITS, BOUND, may_drop, narrow_fields
from hitables.parse.iptables import read


def narrow(rule: str, family: Family = Family.IPV4) -> int:
    rules = read(f"*filter\n-A FORWARD {rule}\nCOMMIT\n", family=family).table("filter")["FORWARD"].rules
    return narrow_fields(rules, family)[0]


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
