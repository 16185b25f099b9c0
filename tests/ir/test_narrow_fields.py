"""The fields that rules limit to few values."""

from __future__ import annotations

import pytest

from hitables.ir.fields import Family, Field
from hitables.ir.narrow_fields import BITS, BOUND, narrow_fields
from hitables.parse.iptables import read


def narrow(rule: str, family: Family = Family.IPV4, exact: bool = False) -> int:
    rules = read(f"*filter\n-A FORWARD {rule}\nCOMMIT\n", family=family).table("filter")["FORWARD"].rules
    return narrow_fields(rules, family, exact=exact)[0]


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


def test_where_no_broken_header_may_be_dropped_a_rule_that_drops_some_is_bound() -> None:
    ports, protocol = "-p tcp -m tcp --dport 22 -j DROP", "-s 2001:db8::1 -p tcp -j DROP"
    assert narrow(ports, exact=True) == BOUND and narrow(ports) == BITS[Field.DPORT]
    assert narrow(protocol, Family.IPV6, exact=True) == BOUND
    assert narrow("-s 192.0.2.1 -p tcp -j DROP", exact=True) == BITS[Field.SRC]
