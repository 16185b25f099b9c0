"""Matches as numbers: the whole arrays say of each match what the match alone says."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hitables.core.prover import ProveOp
from hitables.ir.fields import Family, Field
from hitables.ir.packet import Backend
from hitables.ir.rule import Match
from hitables.parse.iptables import read
from hitables.verify.match_table import MatchTable, number_matches

RULES = """
-A INPUT -s 10.0.0.0/8 -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT ! -s 10.1.0.0/16 -d 192.0.2.1 -p udp -m udp --sport 53:60 -j DROP
-A INPUT -m multiport --ports 80,443 -p tcp -j ACCEPT
-A INPUT -p tcp -m tcp --tcp-flags SYN,ACK SYN -j ACCEPT
-A INPUT -p tcp -m tcp --tcp-option 7 -j ACCEPT
-A INPUT -m conntrack --ctstate NEW -j ACCEPT
-A INPUT -m comment --comment "one" -m comment --comment "two" -j ACCEPT
-A INPUT -m limit --limit 3/sec -j ACCEPT
-A INPUT -m recent --name a --set -j ACCEPT
-A INPUT -i eth0 -m mac --mac-source 00:11:22:33:44:55 -j ACCEPT
-A INPUT -f -j DROP
-A INPUT -p 47 -m mark --mark 1 -j ACCEPT
"""
TESTS = {ProveOp.TEST, ProveOp.NATIVE}


def matches() -> list[Match]:
    program = read(f"*filter\n:INPUT ACCEPT [0:0]\n{RULES}COMMIT\n")
    return [match for rule in program.table("filter")["INPUT"].rules for match in rule.matches]


def steps(table: MatchTable, backend: Backend, number: int) -> list[tuple[ProveOp, object]]:
    """The steps of a match, in which tests are values and memories are keys."""
    code, starts = table.codes[backend]
    named: dict[int, object] = {at: test for test, at in table.tests.numbers.items()}
    named |= {at: fact for fact, at in table.tests.facts.items()}
    told = []
    for op, argument in code.reshape(-1, 2)[starts[number] : starts[number + 1]].tolist():
        if op in TESTS:
            told.append((ProveOp(op), named[argument]))
        elif op == ProveOp.EVENT:
            told.append((ProveOp(op), (table.keys[argument >> 1], argument & 1)))
        else:
            told.append((ProveOp(op), argument))
    return told


@pytest.mark.parametrize("backend", Backend)
def test_a_match_has_the_same_code_among_others_as_alone(backend: Backend) -> None:
    listed = matches()
    table = number_matches(listed, Family.IPV4)
    assert len({len(match.tests) for match in listed}) > 2
    for match, number in zip(listed, table.numbers.tolist(), strict=True):
        alone = number_matches([match], Family.IPV4)
        assert steps(table, backend, number) == steps(alone, backend, 0)


def test_a_match_asks_the_same_among_others_as_alone() -> None:
    listed = matches()
    table = number_matches(listed, Family.IPV4)
    for match, number in zip(listed, table.numbers.tolist(), strict=True):
        alone = number_matches([match], Family.IPV4)
        for name in ("asks", "once", "writes", "reads", "inexact"):
            assert getattr(table, name)[number] == getattr(alone, name)[0], (match, name)
        required = table.test_list[table.test_start[number] : table.test_start[number + 1]]
        assert len(required) == alone.test_start[1] == (0 if match.either else len(match.tests))


def test_matches_that_are_read_alike_have_one_number_in_the_order_in_which_they_are_met() -> None:
    listed = matches()
    numbers = number_matches([*listed, *listed[::-1]], Family.IPV4).numbers
    first = numbers[: len(listed)]
    assert np.array_equal(numbers[len(listed) :], first[::-1])
    met = list(dict.fromkeys(first.tolist()))
    assert met == list(range(len(met)))
    assert len(met) == len({match.key for match in listed}) - 1  # the two comments are read alike


@pytest.mark.parametrize(
    ("family", "addresses"),
    [(Family.IPV4, ("10.0.0.0/8", "10.2.0.0/16")), (Family.IPV6, ("2001:db8::/32", "2001:db8:7::/48"))],
)
def test_the_ends_of_tests_are_the_first_and_the_last_piece_of_their_values(
    family: Family, addresses: tuple[str, str]
) -> None:
    rules = "".join(f"-A INPUT -s {each} -j DROP\n-A INPUT ! -s {each} -j DROP\n" for each in addresses)
    program = read(f"*filter\n:INPUT ACCEPT [0:0]\n{rules}COMMIT\n", family=family)
    listed = [match for rule in program.table("filter")["INPUT"].rules for match in rule.matches]
    tests = number_matches(listed, family).tests
    pieces = [*tests.coordinates[Field.SRC].starts, tests.coordinates[Field.SRC].top + 1]
    assert pieces == sorted(pieces) and len(pieces) == 6
    for (_, pairs), number in tests.numbers.items():
        ends = tests.ends[2 * tests.starts[number] : 2 * tests.starts[number + 1]].reshape(-1, 2).tolist()
        assert [(pieces[low], pieces[high + 1] - 1) for low, high in ends] == list(pairs)
        assert all(low[1] + 1 < high[0] for low, high in pairwise(ends))
