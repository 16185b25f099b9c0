"""The rules in the kernel that read the counters of ipsets are found in every table of both backends."""

from __future__ import annotations

import pytest
from support.kernel_rules import tool
from support.small_namespace import Namespace

from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.counter_readers import CounterReader, counter_readers

pytestmark = pytest.mark.needs_kernel

RULE = "-A OUTPUT -m set --match-set HI dst {} -j DROP"


def _found(namespace: Namespace) -> list[CounterReader]:
    return namespace.call(_readers)


def _readers() -> list[CounterReader]:
    return list(counter_readers())


@pytest.mark.parametrize("backend", list(Backend), ids=lambda backend: backend.value)
@pytest.mark.parametrize("family", list(Family), ids=lambda family: family.name.lower())
def test_each_table_of_each_family_and_backend_is_looked_at(family: Family, backend: Backend) -> None:
    with Namespace() as namespace:
        namespace.run(["ipset", "create", "HI", "bitmap:port", "range", "0-99", "counters"])
        assert _found(namespace) == []
        for table, words in {"mangle": "--packets-gt 3", "filter": "! --bytes-eq 9", "raw": ""}.items():
            rule = RULE.format(words).split()
            namespace.run([tool(family, backend), "-w", "-t", table, *rule])
        found = _found(namespace)
        assert {(each.family, each.backend) for each in found} == {(family, backend)}
        assert {each.table: " ".join(each.line.split()) for each in found} == {
            "mangle": RULE.format("--packets-gt 3"),
            "filter": RULE.format("! --bytes-eq 9"),
        }


def test_a_table_that_cannot_be_printed_may_have_some() -> None:
    with Namespace() as namespace:
        namespace.run(["iptables-nft", "-A", "OUTPUT", "-j", "ACCEPT"])
        assert _found(namespace) == []
        namespace.run(["nft", "add table ip filter { flags dormant; }"])
        assert _found(namespace) == [CounterReader(Family.IPV4, Backend.NFT)]
