"""Facts about user chains: which surely decide, and what comes back from the others."""

from __future__ import annotations

import pytest

from hitables import read
from hitables.analyse.callgraph import deciding, writes
from hitables.ir.rule import Metadata

LOG = '-m limit --limit 5/min -j LOG --log-prefix "d "'


@pytest.mark.parametrize(
    ("rules", "decides"),
    [
        (["-j DROP"], True),
        ([LOG, "-j DROP"], True),
        ([LOG, "-j MARK --set-mark 1", "-j REJECT"], True),
        (["-s 10.0.0.0/8 -j ACCEPT", "-j other", "-j DROP"], True),
        (["-s 10.0.0.0/8 -j ends", "-g ends"], True),
        (["-j ends", "-j LOG"], True),
        (["-s 10.0.0.0/8 -g ends", "-j DROP"], True),
        ([], False),
        (["-j LOG"], False),
        (["-s 10.0.0.0/8 -j DROP"], False),
        (["-s 10.0.0.0/8 -j RETURN", "-j DROP"], False),
        (["-j DROP", "-s 10.0.0.0/8 -j RETURN"], True),
        (["-s 10.0.0.0/8 -g other", "-j DROP"], False),
        (["-j other"], False),
        (["-g other", "-j DROP"], False),
        (["-m comment --comment x -j DROP"], False),
    ],
)
def test_a_chain_decides_when_no_packet_leaves_it_without_a_verdict(rules: list[str], decides: bool) -> None:
    lines = [f"-A asked {rule}" for rule in rules]
    text = "\n".join([
        "*filter", ":INPUT ACCEPT [0:0]", ":asked - [0:0]", ":ends - [0:0]", ":other - [0:0]",
        "-A INPUT -j asked", *lines, "-A ends -j DROP", "-A other -s 192.0.2.1 -j DROP", "COMMIT", "",
    ])  # fmt: skip
    assert ("asked" in deciding(read(text).table("filter"))) is decides


def test_a_chain_from_which_no_packet_comes_back_writes_nothing_that_its_caller_reads() -> None:
    table = read(
        "*mangle\n:INPUT ACCEPT [0:0]\n:ends - [0:0]\n:back - [0:0]\n:both - [0:0]\n-A INPUT -j both\n"
        "-A ends -j MARK --set-mark 1\n-A ends -j ACCEPT\n-A back -j MARK --set-mark 2\n"
        "-A both -s 192.0.2.0/24 -j ends\n-A both -j back\nCOMMIT\n"
    ).table("mangle")
    written = writes(table)
    assert written["ends"] == frozenset()
    assert written["back"] == written["both"] == written["INPUT"] == {Metadata.MARK}
