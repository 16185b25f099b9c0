"""Rules that ask for a mark which earlier rules of the list set stand in a tree where these do."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples

import hitables
from hitables.compiler.result import ChainReport

pytestmark = pytest.mark.engine


def text_of(rules: Sequence[str], table: str = "filter") -> str:
    lines = [f"-A own {rule}" for rule in rules]
    user = ":own - [0:0]\n:marks - [0:0]\n-A FORWARD -j own\n-A marks -p udp -j MARK --set-xmark 0x3/0x3"
    return "\n".join([f"*{table}", ":FORWARD ACCEPT [0:0]", user, *lines, "COMMIT", ""])


def compiled(rules: Sequence[str], backend: str = "any") -> ChainReport:
    output = hitables.compile(text_of(rules), backend=backend)
    assert output.proved and not output.faults
    (report,) = (each for each in output.reports if each.chain == "own")
    return report


def pairs(mark: str, asked: str, count: int = 150) -> list[str]:
    rules = []
    for n in range(count):
        rules += [
            f"-s 10.0.{n}.0/24 -j MARK --set-xmark {mark.format(n=n + 1)}",
            f"-m {asked.format(n=n + 1)}",
        ]
    return rules


CALICO = pairs("0x10000/0x10000", "mark --mark 0x10000/0x10000 -j RETURN")


@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
@pytest.mark.parametrize(
    "rules",
    [
        CALICO,
        pairs("{n:#x}/0xffffffff", "mark ! --mark 0x0 -j ACCEPT"),
        pairs("0x10000/0x10000", "mark --mark 0x10000/0x10000 -g marks"),
        ["-p icmp -j RETURN", *CALICO, "-j MARK --set-xmark 0x0/0x10000"],
    ],
)
def test_pairs_of_a_rule_that_marks_and_one_that_returns_are_cut_together(
    rules: Sequence[str], backend: str
) -> None:
    report = compiled(rules, backend)
    assert report.why == "" and report.read_after < 20


@pytest.mark.parametrize(
    "between",
    [
        "-m limit --limit 5/sec -j MARK --set-xmark 0x10000/0x10000",  # marks packets of any source
        "-j marks",
        "-j XTFOO --bar 3",
        "-m unknown --bar 3",
    ],
)
def test_what_marks_other_packets_is_not_overlooked(between: str) -> None:
    rules = CALICO[:60]
    for at in range(25, 5, -5):
        rules.insert(2 * at + 1, between)
    compiled(rules)


@pytest.mark.parametrize("backend", ["legacy", "nft"])
@pytest.mark.parametrize(
    "before",
    ["-m limit --limit 5/sec", "-m statistic --mode nth --every 3 --packet 0", "-p udp -m udp --dport 53"],
)
def test_a_rule_that_does_something_before_it_asks_stands_where_it_did(before: str, backend: str) -> None:
    """Packets without the mark use the limit, too, and broken ones are dropped."""
    rules = pairs("0x10000/0x10000", "mark --mark 0x10000/0x10000 -j RETURN", 60)
    for at in range(101, 21, -20):
        rules[at] = f"{before} -m mark --mark 0x10000/0x10000 -j RETURN"
    compiled(rules, backend)


def drawn(rng: random.Random) -> list[str]:
    marks = ["0x1/0x1", "0x2/0x2", "0x3/0x3", "0x0/0x3", "0x4/0xffffffff"]
    tests = ["mark --mark 0x1/0x1", "mark --mark 0x3/0x3", "mark ! --mark 0x0/0x3", "connmark --mark 0x1/0x1"]
    own = ["RETURN", "ACCEPT", "DROP", "RETURN", "LOG", "marks"]

    def source() -> str:
        return rng.choice(
            ["", f"-s 10.0.{rng.randrange(6)}.0/24", f"-p tcp -m tcp --dport {rng.randrange(3)}"]
        )

    rules = []
    for _ in range(rng.choice([20, 60])):
        kind = rng.random()
        if kind < 0.4:
            rules.append(f"{source()} -j MARK --set-xmark {rng.choice(marks)}")
        elif kind < 0.8:
            before = source() if rng.random() < 0.2 else rng.choice(["", "", "", "-m limit --limit 3/sec"])
            rules.append(f"{before} -m {rng.choice(tests)} -j {rng.choice(own)}")
        elif kind < 0.9:
            rules.append(
                f"{source()} -j {rng.choice([*own, 'CONNMARK --restore-mark', 'CONNMARK --save-mark'])}"
            )
        else:
            rules.append(f"-s 10.0.{rng.randrange(6)}.0/25 -m limit --limit 3/sec -j {rng.choice(own)}")
    return [" ".join(rule.split()) for rule in rules]


@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_lists_that_set_and_ask_for_marks_are_proved(backend: str, seed: int) -> None:
    text = text_of(drawn(random.Random(seed)), "mangle")
    output = hitables.compile(text, backend=backend, min_length=4, max_expansion=20.0)
    assert output.proved and not output.faults
    if backend != "any":
        assert hitables.check(text, output.text, engine="diagrams", backend=backend)
