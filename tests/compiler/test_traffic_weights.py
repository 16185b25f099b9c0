"""Weights by traffic: rules that many packets match are read early; traffic without information is refused."""

from __future__ import annotations

import gzip
import random
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.capture_bytes import Record, ethernet, ipv4, l4, pcap, records

import hitables
from hitables.analyse.weights import counted
from hitables.cli.main import main
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.simulate.interpreter import Interpreter
from hitables.simulate.traffic import from_packets, trace_batch

RULES = 300
BUSY = range(200, 210)


def rules_text(counters: bool = False) -> str:
    rng = random.Random(7)
    lines = []
    for at in range(RULES):
        count = f"[{5000 if at in BUSY else 1}:100] " if counters else ""
        source = f"{rng.randrange(1, 120)}.{rng.randrange(256)}.{rng.randrange(256)}.{at % 250}/32"
        lines.append(f"{count}-A FORWARD -s {source} -p udp -m udp --dport {at + 1000} -j ACCEPT\n")
    return "*filter\n:FORWARD DROP [0:0]\n" + "".join(lines) + "COMMIT\n"


def headers() -> list[tuple[int, int, int, int, int]]:
    """Packets of which nine in ten match one of the BUSY rules."""
    rng = random.Random(8)
    program = hitables.read(rules_text())
    sources = [
        rule.matches[0].tests[0].values.pairs[0][0] for rule in program.table("filter")["FORWARD"].rules
    ]
    chosen = [rng.choice(BUSY) if rng.random() < 0.9 else rng.randrange(RULES) for _ in range(3000)]
    return [(sources[at], 0x0A000001, 4000, at + 1000, 17) for at in chosen]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "some_trace"
    file.write_text("".join("\t".join(map(str, (*header, 1))) + "\n" for header in headers()))
    return file


def mean_reads(program: Program, trace: Path) -> float:
    batch = trace_batch(str(trace), Family.IPV4)
    reads = Interpreter(program, Backend.NFT).run("filter", "FORWARD", batch).reads
    return float(np.mean(reads))


def run(*arguments: object, text: str | bytes = "") -> Result:
    return CliRunner().invoke(main, ["compile", "--no-verify", *map(str, arguments)], input=text)


def test_rules_that_many_packets_match_are_read_early(trace: Path) -> None:
    program = hitables.read(rules_text())
    alike = compile_rules(program, Options(backend="nft"))
    weights = from_packets(
        program, "filter", "FORWARD", trace_batch(str(trace), Family.IPV4), Backend.NFT, str(trace)
    )
    weighed = compile_rules(program, Options(backend="nft", traffic=weights))
    assert mean_reads(weighed.program, trace) < 0.8 * mean_reads(alike.program, trace)
    (report,) = weighed.reports
    assert report.read_after == pytest.approx(mean_reads(weighed.program, trace), rel=0.25)


def rules_of(compiled: str) -> str:
    """A compiled text without its first line and its marker."""
    return re.sub(r"^:ht-source-\w+ -\n", "", compiled.split("\n", 1)[1], flags=re.MULTILINE)


def test_the_counters_of_the_input_give_weights_and_can_be_ignored(trace: Path) -> None:
    program = hitables.read(rules_text(counters=True))
    weights = counted(program)
    assert weights is not None and counted(hitables.read(rules_text())) is None
    by_hand = hitables.write(compile_rules(program, Options(traffic=weights)).program)
    assert rules_of(run(text=rules_text(counters=True)).stdout) == by_hand
    alike = run("--alike", text=rules_text(counters=True)).stdout
    assert rules_of(alike) == hitables.write(compile_rules(program).program)
    assert mean_reads(hitables.read(by_hand), trace) < 0.8 * mean_reads(hitables.read(alike), trace)


def test_the_report_names_the_source_of_the_weights(trace: Path) -> None:
    done = run("--trace", trace, "--summary", "-o", "/dev/null", text=rules_text())
    assert done.exit_code == 0 and f"rules are weighed by {trace}" in done.stderr
    done = run("--summary", "-o", "/dev/null", text=rules_text(counters=True))
    assert "rules are weighed by the counters of -" in done.stderr
    done = run("--summary", "-o", "/dev/null", text=rules_text())
    assert "rules are weighed by" not in done.stderr


def frames() -> list[bytes]:
    return [
        ethernet(ipv4(l4(sport, dport), src=source, dst=target))
        for source, target, sport, dport, _ in headers()
    ]


def test_a_capture_and_a_trace_of_the_same_packets_give_the_same_weights(trace: Path, tmp_path: Path) -> None:
    capture, rules = tmp_path / "some.pcap", tmp_path / "rules"
    capture.write_bytes(gzip.compress(pcap(records(frames(), step=1000))))
    rules.write_text(rules_text())
    weighed = run("--trace", trace, text=rules_text()).stdout
    done = run("--pcap", capture, text=rules_text())
    assert (done.stdout, done.stderr) == (weighed, "")
    done = run("--pcap", "-", rules, text=gzip.decompress(capture.read_bytes()))
    assert rules_of(done.stdout) == rules_of(weighed)


def test_what_a_capture_lacks_is_named(tmp_path: Path) -> None:
    capture = tmp_path / "some.pcap"
    arp = b"\2" * 12 + b"\x08\x06" + bytes(28)
    capture.write_bytes(
        pcap([*records([*frames(), arp], step=1000), Record(10**18, frames()[0][:36], 58)])[:-1]
    )
    done = run("--pcap", capture, "--summary", "-o", "/dev/null", text=rules_text())
    lost = "left out: 1 not IP, a record in which the file ends"
    assert f"hitables: {capture}: 3,000 packets read; {lost}" in done.stderr
    assert f"rules are weighed by {capture} ({lost})" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "TRACE", "--pcap", "TRACE"], "give one of them"),
        (["--trace", "TRACE", "--alike"], "give one of them"),
        (["--through", "FORWARD"], "give one of them"),
        (["--trace", "TRACE", "--through", "OUTPUT"], "none of 3000 packets matches a rule of filter OUTPUT"),
        (["--trace", "TRACE", "--through", "ht1"], "no built-in chain ht1"),
        (["--trace", "TRACE", "--scheme", "paper"], "weighs all rules the same"),
        (["--trace", "missing"], "missing: No such file"),
        (["--pcap", "TRACE"], "not a readable capture: it is text; --trace reads a trace"),
        (["--pcap", "-"], "FILE and --pcap are both standard input"),
    ],
)  # fmt: skip
def test_unusable_sources_of_weights_are_refused(arguments: list[str], message: str, trace: Path) -> None:
    given = [str(trace) if word == "TRACE" else word for word in arguments]
    done = run(*given, "-o", trace.parent / "out", text=rules_text())
    assert done.exit_code == 2 and message in done.stderr
    assert not (trace.parent / "out").exists()


def test_a_trace_that_matches_nothing_or_is_of_the_other_family_is_refused(trace: Path) -> None:
    other = "*filter\n:FORWARD DROP [0:0]\n" + "-A FORWARD -s 200.0.0.1 -j ACCEPT\n" * 9 + "COMMIT\n"
    done = run("--trace", trace, text=other)
    assert done.exit_code == 2 and "none of 3000 packets matches a rule" in done.stderr
    done = run("--trace", trace, text=other.replace("200.0.0.1", "2001:db8::1"))
    assert done.exit_code == 2 and "the trace is IPv4, the rule set is not" in done.stderr
