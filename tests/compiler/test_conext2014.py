"""Scheme "paper": the figures that the 2014 paper publishes, and equality with the input."""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.equal_programs import assert_equal
from support.rule_texts import make_text
from support.scale import examples

from hitables import InvalidOption, compile, read, write
from hitables.analyse.rule_boxes import BoxReader
from hitables.compiler.conext2014 import transform
from hitables.compiler.options import PAPER_CHOICES, Options
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


def plain_text(rng: random.Random, extra: list[str], protocols: Sequence[str] = ("tcp", "tcp", "udp")) -> str:
    """Many plain rules in a built-in and a user chain, some others between them."""

    def plain(chain: str) -> str:
        protocol = rng.choice(protocols)
        parts = [f"-A {chain}"]
        for flag in ("-s", "-d"):
            if rng.random() < 0.6:
                parts.append(
                    f"{flag} 10.{rng.randrange(3)}.{rng.randrange(3)}.0/{rng.choice([8, 15, 16, 23, 24, 32])}"
                )
        if protocol not in ("tcp", "udp"):
            protocol_words = [f"-p {protocol}"] if protocol else []
            return " ".join([*parts, *protocol_words, rng.choice(["-j ACCEPT", "-j DROP", "-j REJECT"])])
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


# Every choice of scheme paper, of which least-max goes with equal cuts only.
CHOICES: list[dict[str, Any]] = [
    {"unequal_cuts": unequal, "dispatch": dispatch, "runs": runs, "dim_choice": dim_choice}
    for unequal in (False, True)
    for dispatch in PAPER_CHOICES["dispatch"]
    for runs in PAPER_CHOICES["runs"]
    for dim_choice in PAPER_CHOICES["dim_choice"]
    if not (unequal and dim_choice == "least-max")
]
# Of the plain rules: what a run holds, and more that a run of the paper holds.
PROTOCOLS = {
    "tool": ("tcp", "tcp", "udp"),
    "paper": ("tcp", "tcp", "udp", "udp", "icmp", "esp", "sctp", "0", "", ""),
}


@pytest.mark.parametrize("malformed", list(Malformed))
@pytest.mark.parametrize("backend", ["any", "legacy", "nft"])
@settings(max_examples=examples(8))
@given(seed=st.integers(0, 2**32), choices=st.sampled_from(CHOICES))
def test_a_transformed_program_treats_every_packet_alike(
    backend: str, malformed: Malformed, seed: int, choices: dict[str, Any]
) -> None:
    options = replace(SMALL, backend=backend, malformed=malformed, **choices)
    before, after = transformed(plain_text(random.Random(seed), BETWEEN, PROTOCOLS[options.runs]), options)
    assert_equal(before, after, options)


@settings(max_examples=examples(8))
@given(seed=st.integers(0, 2**32), family=st.sampled_from(Family), runs=st.sampled_from(["tool", "paper"]))
def test_rules_that_are_not_plain_stay_in_order(seed: int, family: Family, runs: str) -> None:
    options = replace(SMALL, backend="legacy", runs=runs)
    before, after = transformed(make_text(random.Random(seed), family), options, family)
    assert_equal(before, after, options)


def test_runs_become_trees_and_the_rest_stays_between_them() -> None:
    plain = [f"-A INPUT -s 10.0.{at}.0/24 -p {'tcp' if at % 2 else 'udp'} -j ACCEPT" for at in range(40)]
    lines = [*plain[:20], "-A INPUT -j LOG", *plain[20:], "-A INPUT -p icmp -j ACCEPT"]
    text = "\n".join(["*filter", ":INPUT DROP [0:0]", *lines, "COMMIT", ""])
    transformed = transform(read(text), Options(backend="legacy", leaf_size=4, min_length=8))
    table = transformed.program.table("filter")
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
    (report,) = transformed.reports
    assert (
        report.why == "" and report.before == 42 and report.after == sum(len(c.rules) for c in table.chains)
    )


def test_a_short_run_stays_unchanged() -> None:
    lines = [f"-A INPUT -s 10.0.{at}.0/24 -p tcp -j ACCEPT" for at in range(7)]
    program = read("\n".join(["*filter", ":INPUT DROP [0:0]", *lines, "COMMIT", ""]))
    transformed = transform(program, Options(backend="legacy", min_length=8))
    assert transformed.program == program
    assert transformed.reports[0].why == "no 8 plain rules of one protocol in a row"


def test_a_chain_that_would_nest_too_deep_for_nf_tables_stays_unchanged() -> None:
    lines = [f"-A INPUT -s 10.0.{at}.0/24 -p tcp -j ACCEPT" for at in range(200)]
    program = read("\n".join(["*filter", ":INPUT DROP [0:0]", *lines, "COMMIT", ""]))
    transformed = transform(program, Options(backend="any", leaf_size=1))
    assert transformed.program == program
    assert "nf_tables takes 15" in transformed.reports[0].why
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
    options = Options(backend="legacy", leaf_size=16, min_length=10, dispatch="tool")
    transformed = transform(program, options)
    headers = traces.parse(lines(f"{name}_trace"))
    rows = np.zeros(len(headers), PACKET)
    for column, which in enumerate((Field.SRC, Field.DST, Field.SPORT, Field.DPORT, Field.PROTO)):
        rows["low"][:, which] = headers.headers[:, column]
        rows["present"] |= np.uint16(1 << which)
    rows["present"] |= np.uint16(1 << Field.FRAG)
    rows["l4_bytes"] = 64
    interpreter = Interpreter(transformed.program, Backend.LEGACY)
    result = interpreter.run("filter", "FORWARD", PacketBatch(Family.IPV4, rows))
    source_line = np.array(
        [rule.line for chain in transformed.program.table("filter").chains for rule in chain.rules]
    )
    decided = source_line[result.rule]
    first = program.table("filter")["FORWARD"].rules[0].line
    assert headers.expected is not None
    assert (decided - first == headers.expected).all()
    growth, mean, longest = PUBLISHED[name]
    assert transformed.program.rule_count() / len(rules) == pytest.approx(growth, rel=0.05)
    assert float(result.reads.mean()) == pytest.approx(mean, rel=0.05)
    assert int(result.reads.max()) == pytest.approx(longest, rel=0.05)


def test_the_papers_runs_take_rules_of_any_protocol_and_of_none() -> None:
    lines = [
        f"-A INPUT -s 10.0.{at}.0/24 {words} -j ACCEPT"
        for at in range(20)
        for words in ("", "-p esp", "-p tcp")
    ]
    program = read("\n".join(["*filter", ":INPUT DROP [0:0]", *lines, "COMMIT", ""]))
    small = Options(backend="legacy", leaf_size=2, min_length=8)
    assert transform(program, small).program == program, (
        "the tool's runs end at each rule of another protocol"
    )
    reports = transform(program, replace(small, runs="paper")).reports
    assert reports[0].why == "" and reports[0].read_after < reports[0].read_before


def test_of_one_protocol_both_definitions_of_runs_grow_the_same_tree() -> None:
    """But for the rule that enters the tool's: `-p udp`."""
    lines = [f"-A OUTPUT -s 10.0.{at}.0/24 -p udp -m udp --dport {at}:{at + 9} -j ACCEPT" for at in range(40)]
    program = read("\n".join(["*filter", ":OUTPUT DROP [0:0]", *lines, "COMMIT", ""]))
    tool, paper = (
        transform(program, Options(backend="legacy", leaf_size=4, runs=runs)).reports[0]
        for runs in ("tool", "paper")
    )
    assert tool.after == paper.after + 2  # and its other side, `-g` to the rules behind the run
    assert tool.read_after == paper.read_after + 1


@settings(max_examples=examples(10))
@given(seed=st.integers(0, 2**32), choices=st.sampled_from(CHOICES))
def test_a_report_counts_what_packets_read(seed: int, choices: dict[str, Any]) -> None:
    """The mean over the first corners of all rules, as the interpreter counts it in the printed rules."""
    options = replace(SMALL, backend="legacy", **choices)
    lines = plain_text(random.Random(seed), BETWEEN[1:2], PROTOCOLS[options.runs]).splitlines()
    kept = [
        line for line in lines if not line.startswith(":SUB") and "SUB" not in line and "REJECT" not in line
    ]
    before = read("\n".join([*kept, ""]))
    result = transform(before, options)
    report = next(each for each in result.reports if each.chain == "FORWARD")
    rules = before.table("filter")["FORWARD"].rules
    space = BoxReader(Family.IPV4, nft=False, malformed=options.malformed).read(rules, {})
    rows = np.zeros(len(rules), PACKET)
    rows["l4_bytes"] = 64
    for row, rule in zip(rows, space, strict=True):
        for field in (Field.SRC, Field.DST, Field.PROTO, Field.SPORT, Field.DPORT):
            values = rule.boxes[0].get(field)
            # A corner has "none" for a port that the rule leaves open, as a later fragment has no ports.
            if values is not None or field not in (Field.SPORT, Field.DPORT):
                row["low"][field] = values[0] if values else 0
                row["present"] |= np.uint16(1 << field)
        row["present"] |= np.uint16(1 << Field.FRAG)
    after = Interpreter(result.program, Backend.LEGACY).run(
        "filter", "FORWARD", PacketBatch(Family.IPV4, rows)
    )
    assert report.read_after == pytest.approx(float(after.reads.mean())) or report.why
    assert int(after.reads.max()) <= report.longest


def test_the_choices_of_scheme_paper_are_refused_where_they_mean_nothing() -> None:
    for wrong in (
        {"dispatch": "figure"},
        {"runs": "all"},
        {"dim_choice": "most"},
        {"unequal_cuts": True, "dim_choice": "least-max"},
    ):
        with pytest.raises(InvalidOption):
            Options(**wrong)  # type: ignore[arg-type]
    text = "*filter\n:INPUT DROP [0:0]\n-A INPUT -j ACCEPT\nCOMMIT\n"
    for choice in ({"cuts": "unequal"}, {"dispatch": "tool"}, {"runs": "paper"}, {"dim_choice": "least-max"}):
        with pytest.raises(InvalidOption, match="needs scheme paper"):
            compile(text, **choice)  # type: ignore[arg-type]
        assert compile(text, scheme="paper", **choice).proved  # type: ignore[arg-type]
