"""Matches of generated rules: as the rules are read again from their text, and from the kernel's."""

from __future__ import annotations

import pytest

from hitables import read
from hitables.emit.tree_tests import joined
from hitables.ir.fields import Family
from hitables.ir.rule import Match


def match_of(words: str) -> Match:
    program = read(f"*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD {words} -j DROP\nCOMMIT\n")
    return program.table("filter")["FORWARD"].rules[0].matches[-1]


@pytest.mark.parametrize(
    ("words", "test", "result"),
    [
        ("-p tcp -m tcp --dport 1:90", "--dport 81:90", "--dport 81:90"),
        ("-p udp -m udp --sport 5:9", "--dport 81:90", "--sport 5:9 --dport 81:90"),
        (
            "-p tcp -m tcp ! --dport 5 --tcp-flags SYN,ACK SYN",
            "--dport 7",
            "--tcp-flags SYN,ACK SYN --dport 7",
        ),
        ("-p tcp -m tcp --sport 5 ! --dport 5", "--dport 7", "--sport 5 --dport 7"),
    ],
)
def test_two_tests_of_the_ports_of_one_protocol_are_one_match(words: str, test: str, result: str) -> None:
    match = match_of(words)
    protocol = f"-p {match.name} -m {match.name} "
    assert joined(match, match_of(protocol + test), Family.IPV4) == match_of(protocol + result)
