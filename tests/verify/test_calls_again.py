"""A chain that packets came back from, and that changes nothing, decides nothing when it is entered again."""

from __future__ import annotations

import re

import pytest

import hitables

pytestmark = pytest.mark.engine

CHAIN = "-A C -p tcp -m tcp --dport 22 -j RETURN\n-A C -p udp -j DROP\n-A C -m mark --mark 0x1 -j ACCEPT\n"


def program(rules: str, chain: str = CHAIN) -> str:
    chains = ":C - [0:0]\n:D - [0:0]\n"
    return f"*mangle\n:FORWARD DROP [0:0]\n{chains}{rules}{chain}COMMIT\n"


@pytest.mark.parametrize(
    ("between", "chain", "equal"),
    [
        ("-A FORWARD -s 10.0.0.0/8 -j ACCEPT\n", CHAIN, True),
        ("-A FORWARD -s 10.0.0.0/8 -j MARK --set-xmark 0x1/0xffffffff\n", CHAIN, False),
        ("-A FORWARD -s 10.0.0.0/8 -j D\n", CHAIN + "-A D -j MARK --set-xmark 0x1/0xffffffff\n", False),
        ("-A FORWARD -s 10.0.0.0/8 -j LOG\n", CHAIN, True),
        ("", CHAIN + "-A C -p icmp -j LOG\n", False),
        ("", CHAIN + "-A C -p icmp -j D\n-A D -j LOG\n", False),
        ("", CHAIN + "-A C -p icmp -m limit --limit 1/sec -j ACCEPT\n", False),
        ("", CHAIN + "-A C -p icmp -m recent --name a --set\n", False),
    ],
)
def test_a_second_call_is_needed_only_where_something_changed(between: str, chain: str, equal: bool) -> None:
    last = "-A FORWARD -d 10.9.0.0/16 -j ACCEPT\n"
    twice = program(f"-A FORWARD -j C\n{between}-A FORWARD -j C\n{last}", chain)
    once = program(f"-A FORWARD -j C\n{between}{last}", chain)
    # A chain of another name is read in its caller.
    renamed = re.sub(r"(?<=[ :])C\b", "E", once)
    for first, second in ((twice, once), (once, twice), (twice, renamed), (renamed, twice)):
        assert bool(hitables.check(first, second)) is equal


def test_packets_that_did_not_come_through_the_first_call_make_the_second() -> None:
    """D returns some packets before it calls C."""
    called = "-A D -s 10.0.0.0/8 -j RETURN\n-A D -j C\n"
    twice = program("-A FORWARD -j D\n-A FORWARD -j C\n-A FORWARD -j ACCEPT\n", CHAIN + called)
    once = program("-A FORWARD -j D\n-A FORWARD -j ACCEPT\n", CHAIN + called)
    assert not hitables.check(twice, once) and not hitables.check(once, twice)
    inside = program("-A FORWARD -j D\n-A FORWARD -j ACCEPT\n", CHAIN + called + "-A D -j C\n")
    assert hitables.check(once, inside) and hitables.check(inside, once)
