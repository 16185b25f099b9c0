"""Scheme "paper": what the 2014 paper publishes, and that it means what the input means."""

from __future__ import annotations

import gzip
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.equal_programs import assert_equal
from support.rule_texts import make_text
from support.scale import examples

from hitables import read, write
from hitables.compiler.conext2014 import transform
from hitables.compiler.options import Options
from hitables.ir.choices import Malformed
from hitables.ir.fields import Family, Field
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.ir.rule import Kind
from hitables.parse import classbench
from hitables.parse import trace as traces
from hitables.simulate.batch import PACKET, PacketBatch
from hitables.simulate.interpreter import Interpreter

pytestmark = pytest.mark.engine

SMALL = Options(leaf_size=4, spfac=1.0, min_length=2)


def transformed(text: str, options: Options = SMALL, family: Family | None = None) -> tuple[Program, Program]:
    """The program of *text*, and what its transformed form says once printed and read again."""
    before = read(text, family=family)
    return before, read(write(transform(before, options).program), family=before.family)


def plain_text(rng: random.Random, extra: list[str]) -> str:
    """Many plain rules in a built-in and a user chain, some others between them."""

    def plain(chain: str) -> str:
        protocol = rng.choice(["tcp", "tcp", "udp"])
        parts = [f"-A {chain}"]
        for flag in ("-s", "-d"):
            if rng.random() < 0.6:
                parts.append(
                    f"{flag} 10.{rng.randrange(3)}.{rng.randrange(3)}.0/{rng.choice([8, 15, 16, 23, 24, 32])}"
                )
        parts.append(f"-p {protocol} -m {protocol}")
        ports = [flag for flag in ("--sport", "--dport") if rng.random() < 0.5] or ["--dport"]
        for flag in ports:
            low = rng.choice([0, 22, 53, 80, 1023, 1024])
            parts.append(f"{flag} {low}:{rng.choice([low, low + 1, 1024, 4000, 65535])}")
        if rng.random() < 0.3:
            parts = parts[: -len(ports)]
            parts[-1] = f"-p {protocol}"
        return " ".join([*parts, rng.choice(["-j ACCEPT", "-j DROP", "-j REJECT"])])

    lines = ["*filter", ":INPUT DROP [0:0]", ":FORWARD ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]", ":SUB - [0:0]"]
    for chain in ("SUB", "FORWARD"):
        for _ in range(rng.randrange(4, 24)):
            lines.append(f"-A {chain} {rng.choice(extra)}" if rng.random() < 0.1 else plain(chain))
    lines.insert(rng.randrange(5, len(lines)), "-A FORWARD -s 10.0.0.0/9 -j SUB")
    return "\n".join([*lines, "COMMIT", ""])


# What may stand between runs and would go wrong if trees were entered by -j.
BETWEEN = [
    "-j LOG",
    "-p icmp -j ACCEPT",
    "-s 10.1.0.0/16 -j RETURN",
    "-p tcp -j RETURN",
    "-m mark --mark 0x1 -j DROP",
]


@pytest.mark.parametrize("malformed", list(Malformed))
@pytest.mark.parametrize("backend", ["any", "legacy", "nft"])
@settings(max_examples=examples(8))
@given(seed=st.integers(0, 2**32), unequal=st.booleans())
def test_a_transformed_program_treats_every_packet_alike(
    backend: str, malformed: Malformed, seed: int, unequal: bool
) -> None:
    options = replace(SMALL, backend=backend, malformed=malformed, unequal_cuts=unequal)
    before, after = transformed(plain_text(random.Random(seed), BETWEEN), options)
    assert_equal(before, after, options)


@settings(max_examples=examples(8))
@given(seed=st.integers(0, 2**32), family=st.sampled_from(Family))
def test_rules_that_are_not_plain_stay_in_order(seed: int, family: Family) -> None:
    options = replace(SMALL, backend="legacy")
    before, after = transformed(make_text(random.Random(seed), family), options, family)
    assert_equal(before, after, options)


def test_runs_become_trees_and_the_rest_stays_between_them() -> None:
    plain = [f"-A INPUT -s 10.0.{at}.0/24 -p {'tcp' if at % 2 else 'udp'} -j ACCEPT" for at in range(40)]
    lines = [*plain[:20], "-A INPUT -j LOG", *plain[20:], "-A INPUT -p icmp -j ACCEPT"]
    text = "\n".join(["*filter", ":INPUT DROP [0:0]", *lines, "COMMIT", ""])
    made = transform(read(text), Options(backend="legacy", leaf_size=4, min_length=8))
    table = made.program.table("filter")
    assert len(table["INPUT"].rules) == 1
    dispatch = [
        rule
        for chain in table.chains
        for rule in chain.rules
        if [m.words for m in rule.matches] == [("-p", "tcp")]
        or [m.words for m in rule.matches] == [("-p", "udp")]
    ]
    assert len(dispatch) == 4
    assert all(rule.target and rule.target.kind is Kind.GOTO for rule in dispatch)
    (report,) = made.reports
    assert (
        report.why == "" and report.before == 42 and report.after == sum(len(c.rules) for c in table.chains)
    )


def test_a_short_run_stays_unchanged() -> None:
    lines = [f"-A INPUT -s 10.0.{at}.0/24 -p tcp -j ACCEPT" for at in range(7)]
    program = read("\n".join(["*filter", ":INPUT DROP [0:0]", *lines, "COMMIT", ""]))
    made = transform(program, Options(backend="legacy", min_length=8))
    assert made.program == program
    assert made.reports[0].why == "no 8 plain rules of one protocol in a row"


def test_a_chain_that_would_nest_too_deep_for_nf_tables_stays_unchanged() -> None:
    lines = [f"-A INPUT -s 10.0.{at}.0/24 -p tcp -j ACCEPT" for at in range(200)]
    program = read("\n".join(["*filter", ":INPUT DROP [0:0]", *lines, "COMMIT", ""]))
    made = transform(program, Options(backend="any", leaf_size=1))
    assert made.program == program
    assert "nf_tables takes 15" in made.reports[0].why
    assert transform(program, Options(backend="legacy", leaf_size=1)).program != program


# Growth, mean and longest path of the 2014 tool, run with its equal cuts and binth 16.
PUBLISHED = {"fw1_1K": (71.7, 113, 245), "acl1_5K": (4.7, 154, 1115), "ipc1_1K": (1.7, 98, 413)}


@pytest.mark.parametrize("name", PUBLISHED)
def test_trees_are_as_large_and_as_deep_as_published(name: str, shared: Path) -> None:
    folder = shared / "rulesets" / "wustl"

    def lines(file: str) -> str:
        return gzip.open(folder / f"{file}.gz", "rt").read()

    rules = classbench.parse(lines(name))
    program = read(classbench.to_text(rules, chain="FORWARD"))
    made = transform(program, Options(backend="legacy", leaf_size=16, min_length=10))
    headers = traces.parse(lines(f"{name}_trace"))
    rows = np.zeros(len(headers), PACKET)
    for column, which in enumerate((Field.SRC, Field.DST, Field.SPORT, Field.DPORT, Field.PROTO)):
        rows["low"][:, which] = headers.headers[:, column]
        rows["present"] |= np.uint16(1 << which)
    rows["present"] |= np.uint16(1 << Field.FRAG)
    rows["l4_bytes"] = 64
    interpreter = Interpreter(made.program, Backend.LEGACY)
    result = interpreter.run("filter", "FORWARD", PacketBatch(Family.IPV4, rows))
    source_line = np.array(
        [rule.line for chain in made.program.table("filter").chains for rule in chain.rules]
    )
    decided = source_line[result.rule]
    first = program.table("filter")["FORWARD"].rules[0].line
    assert headers.expected is not None
    assert (decided - first == headers.expected).all()
    growth, mean, longest = PUBLISHED[name]
    assert made.program.rule_count() / len(rules) == pytest.approx(growth, rel=0.05)
    assert float(result.reads.mean()) == pytest.approx(mean, rel=0.05)
    assert int(result.reads.max()) == pytest.approx(longest, rel=0.05)
