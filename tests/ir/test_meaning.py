"""A digest stands for what rules do: it survives other spellings, and no other rule has it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rule_texts import make_text
from support.scale import examples

import hitables
from hitables.ir.meaning import Digests

RULES = ":INPUT DROP [0:0]\n-A INPUT -s 10.1.2.3 -p tcp --dport 22 -m comment --comment a -j ACCEPT\n"


def digest(rules: str) -> str:
    return Digests().of_table(hitables.read(f"*filter\n{rules}COMMIT\n").tables[0])


@pytest.mark.parametrize(
    "same",
    [
        RULES.replace("10.1.2.3", "10.1.2.3/32"),
        RULES.replace("10.1.2.3", "10.1.2.3/255.255.255.255"),
        RULES.replace("--dport 22", "-m tcp --dport ssh"),
        RULES.replace("--dport 22", "-m tcp --dport 22:22"),
        RULES.replace("-p tcp", "-p 6").replace("--dport", "-m tcp --destination-port"),
        RULES.replace("-A INPUT", "# a comment\n[5:300] -A INPUT").replace("[0:0]", "[7:70]"),
        RULES.replace("-A INPUT", ":FORWARD ACCEPT [0:0]\n-A INPUT -i +"),
    ],
)
def test_spellings_counters_and_comment_lines_do_not_change_a_digest(same: str) -> None:
    assert digest(same) == digest(RULES) and same != RULES


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("-p tcp --syn --dport 22", "-p tcp -m tcp --dport 22 --tcp-flags FIN,SYN,RST,ACK SYN"),
        ("-p udp --dport 53 --sport 1024:65535", "-p udp -m udp --sport 1024:65535 --dport 53"),
        (
            "-m iprange --dst-range 10.2.0.1-10.2.0.9 ! --src-range 10.3.0.1-10.3.0.9",
            "-m iprange ! --src-range 10.3.0.1-10.3.0.9 --dst-range 10.2.0.1-10.2.0.9",
        ),
        ("-p tcp --tcp-flags NONE NONE", "-p tcp -m tcp"),
        ("-d 10.0.0.5/0.0.0.1", "-d 0.0.0.1/0.0.0.1"),
    ],
)
def test_what_the_kernel_prints_has_the_digest_of_what_was_written(written: str, printed: str) -> None:
    chain = ":INPUT DROP [0:0]\n-A INPUT {} -j ACCEPT\n"
    assert digest(chain.format(written)) == digest(chain.format(printed))
    assert digest(chain.format(written)) != digest(":INPUT DROP [0:0]\n-A INPUT -j ACCEPT\n")


def test_the_order_of_tables_that_share_a_memory_does_not_change_a_digest() -> None:
    """A kernel prints tables in an order of its own, and each table is loaded by itself."""
    rule = "-A FORWARD -m recent --rcheck --name r --mask {} -j ACCEPT\n"
    filtering = f"*filter\n:FORWARD ACCEPT\n{rule.format('255.255.255.0')}COMMIT\n"
    mangling = f"*mangle\n:FORWARD ACCEPT\n{rule.format('255.255.0.0')}COMMIT\n"
    one, other = hitables.read(filtering + mangling), hitables.read(mangling + filtering)
    for name in ("filter", "mangle"):
        assert Digests().of_table(one.table(name)) == Digests().of_table(other.table(name))


@pytest.mark.parametrize(
    "other",
    [
        RULES.replace("10.1.2.3", "10.1.2.4"),
        RULES.replace("-s", "-d"),
        RULES.replace("--dport", "--sport"),
        RULES.replace("-s", "! -s"),
        RULES.replace("comment a", "comment b"),
        RULES.replace("ACCEPT", "DROP"),
        RULES.replace("DROP", "ACCEPT"),
        RULES.replace("INPUT", "OUTPUT"),
        RULES + "-A INPUT -j LOG\n",
        RULES.replace("-A INPUT", ":more - [0:0]\n-A INPUT"),
    ],
)
def test_another_rule_chain_or_policy_has_another_digest(other: str) -> None:
    assert digest(other) != digest(RULES) and other != RULES


@settings(max_examples=examples(15))
@given(seed=st.integers(0, 2**32))
def test_a_digest_does_not_depend_on_what_was_digested_before(seed: int) -> None:
    one, two = (hitables.read(make_text(random.Random(seed + at))).tables[0] for at in (0, 1))
    shared = Digests()
    assert [shared.of_table(each) for each in (one, two, one)] == [
        Digests().of_table(each) for each in (one, two, one)
    ]
    assert shared.of_table(hitables.read(make_text(random.Random(seed))).tables[0]) == shared.of_table(one)
