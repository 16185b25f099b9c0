"""Hot rules: whatever stands in front of a tree, packets are treated as before and counted for their lines."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from support.crossing_text import crossing
from support.equal_programs import assert_equal
from support.hot_rules import skewed_text, take_everything
from support.scale import examples

import hitables
from hitables import costs, read, write
from hitables.analyse.boxes import Axis, Cut
from hitables.analyse.weights import counted
from hitables.cli.main import main
from hitables.compiler import hot, hot_costs
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.compiler.result import Compiled
from hitables.emit.chain_writer import WrittenChains
from hitables.ir.choices import Equivalence, Malformed, backend_choice, backends_of
from hitables.ir.fields import Family, Field
from hitables.ir.meaning import Digests
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.ir.rule import Rule
from hitables.simulate.boundary_packets import draw_packets
from hitables.simulate.interpreter import Interpreter
from hitables.verify import bdd, exact
from hitables.verify.question import Equal, Question

pytestmark = pytest.mark.engine


def prefix(rng: random.Random, version: int) -> str:
    number, wide = rng.randrange(8), rng.random() < 0.3
    if version == 4:
        return f"10.{number * 32}.0.0/{11 if wide else 16}"
    return f"2001:db8:{number * 0x2000:x}::/{35 if wide else 48}"


def crossing_text(rng: random.Random, version: int, chain: str, count: int = 40) -> str:
    """Rules that cross, some with effects, memory, comments or several boxes; few match most packets."""
    protocols = ["", "-p tcp ", "-p udp ", "-p tcp -m tcp --dport 1:90 ", "-p udp -m udp --sport 5 "]
    protocols += ["-p tcp -m multiport --dports 22,80,443 ", "-m conntrack --ctstate NEW ", "! -p udp "]
    others = ["LOG", "MARK --set-mark 1", "RETURN", "back", "ends"]
    lines = []
    for at in range(count):
        match = "".join(
            f"{side} {prefix(rng, version)} " for side in rng.choice([("-s",), ("-d",), ("-s", "-d")])
        )
        match += rng.choice(["", "", "-i eth0 ", "! -i eth1 ", "-o eth+ "])
        match += rng.choice(protocols) + rng.choice(["", "", "", '-m comment --comment "a b" '])
        target = rng.choice(["ACCEPT", "DROP", "ACCEPT", "DROP", rng.choice(others)])
        if rng.random() < 0.1:
            match += rng.choice(["-m limit --limit 3/sec ", "-m mark --mark 1 "])
        packets = rng.choice([0, 1, 3, 10_000 // (at + 1)])
        lines.append(f"[{packets}:{packets}] -A {chain} {match}-j {target}")
    called = chain == "office"
    heads = ":FORWARD DROP [0:0]\n" + (":office - [0:0]\n" if called else "")
    calls = "[1:1] -A FORWARD -j LOG\n[9999:9] -A FORWARD -j office\n" if called else ""
    ends = "[0:0] -A back -p tcp -j DROP\n[0:0] -A ends -p tcp -j ACCEPT\n[0:0] -A ends -j DROP\n"
    rules = "\n".join(lines)
    return f"*mangle\n{heads}:back - [0:0]\n:ends - [0:0]\n{calls}{rules}\n{ends}COMMIT\n"


@pytest.fixture
def every_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every candidate is chosen, whatever it costs."""
    take_everything(monkeypatch)


def compiled(before: Program, options: Options) -> Compiled:
    done = compile_rules(before, options)
    (report,) = (each for each in done.reports if each.chain in ("FORWARD", "office") and each.before > 9)
    if not report.why:
        chain = done.program.table("mangle" if "mangle" in {t.name for t in done.program} else "filter")
        assert len(chain[report.chain].rules) >= report.hot
    return done


@settings(max_examples=examples(10))
@given(
    seed=st.integers(0, 2**32),
    version=st.sampled_from([4, 6]),
    chain=st.sampled_from(["FORWARD", "office"]),
    backend=st.sampled_from(["legacy", "nft", "any"]),
    malformed=st.sampled_from(Malformed),
    equivalence=st.sampled_from(Equivalence),
)
def test_whatever_hot_rules_are_chosen_every_packet_is_treated_alike(
    seed: int, version: int, chain: str, backend: str, malformed: Malformed, equivalence: Equivalence
) -> None:
    before = read(crossing_text(random.Random(seed), version, chain))
    options = Options(
        backend=backend, malformed=malformed, equivalence=equivalence, leaf_size=2, min_length=3,
        max_expansion=50.0, traffic=counted(before), hot=8,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        take_everything(patch)
        made = compiled(before, options).program
    after = read(write(made), family=before.family)
    assert chain_digests(made) == chain_digests(after), "the map is of the rules that are printed"
    assert all(
        most_of_one_name(rule) <= 1 for table in made for chain in table.chains for rule in chain.rules
    ), "iptables-nft-save prints two matches of one name as one"
    question = Question(backends_of(options.backend), malformed, equivalence=equivalence)
    answer = exact.check(before, after, question)
    assert isinstance(answer, Equal), getattr(answer, "reason", answer)
    if equivalence is Equivalence.FULL:
        assert_equal(before, after, options, 500)


def most_of_one_name(rule: Rule) -> int:
    return max(Counter(match.name for match in rule.matches if match.name).values(), default=0)


def chain_digests(program: Program) -> dict[tuple[str, str], str]:
    digests = Digests()
    return {
        (table.name, chain.name): digests.of_rules(chain.rules) for table in program for chain in table.chains
    }


@settings(max_examples=examples(10))
@given(seed=st.integers(0, 2**32), backend=st.sampled_from(Backend))
def test_the_packets_of_a_hot_rule_count_for_the_line_of_its_rule(seed: int, backend: Backend) -> None:
    before = read(crossing_text(random.Random(seed), 4, "FORWARD"))
    options = Options(backend=backend, leaf_size=2, min_length=3, traffic=counted(before), hot=8)
    with pytest.MonkeyPatch.context() as patch:
        take_everything(patch)
        after = compiled(before, options).program
    batch = draw_packets(before, "mangle", "FORWARD", 800, 1, backend)
    batch = batch.pick(~batch.malformed())
    assert hits_by_line(before, batch, backend) == hits_by_line(after, batch, backend)


def hits_by_line(program: Program, batch, backend: Backend) -> Counter[int]:  # type: ignore[no-untyped-def]
    hits = Interpreter(program, backend).run("mangle", "FORWARD", batch, hits=True).hits
    assert hits is not None
    rules = [rule for chain in program.table("mangle").chains for rule in chain.rules]
    lines: Counter[int] = Counter()
    for rule, count in zip(rules, hits.tolist(), strict=True):
        # The stand-in of a rule with memory enters the chain of that rule, as rules of trees enter others.
        if rule.line and count:
            lines[rule.line] += count
    return lines


# ---- one list, looked at closely ----


@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
def test_the_rules_of_most_packets_come_first_and_the_proof_is_one_by_both_engines(backend: str) -> None:
    output = hitables.compile(skewed_text(), backend=backend, hot=3)
    (report,) = output.reports
    assert 1 <= report.hot <= 3 and not output.by_regions and not output.faults
    front = output.program.table("filter")["FORWARD"].rules[: report.hot]
    assert front[0].line == 11 and {rule.line for rule in front} <= {3, 11, 104, 304}
    assert all(rule.counters == (0, 0) for rule in front)
    plain = hitables.compile(skewed_text(), backend=backend)
    assert all(report.ns_after[each] < plain.reports[0].ns_after[each] for each in report.ns_after)
    question = Question(backends_of(backend_choice(backend)))
    assert isinstance(bdd.check(output.before, output.program, question), Equal)
    counters = [rule.counters for chain in output.program.table("filter").chains for rule in chain.rules]
    listed = [rule.counters for rule in output.before.table("filter")["FORWARD"].rules]
    assert sum(each[0] for each in counters if each) == sum(each[0] for each in listed if each)


def test_the_counter_of_a_network_makes_no_single_address_hot() -> None:
    hosts = "".join(
        f"[5:5] -A INPUT -s 10.0.0.{n} -p udp -m udp --dport {n}:900 -j DROP\n" for n in range(1, 5)
    )
    others = hosts.replace("10.0.0", "10.0.1")
    network = "[90000:90000] -A INPUT -s 10.0.0.0/24 -p udp -m udp --dport 12:22 -j ACCEPT\n"
    text = f"*filter\n:INPUT DROP [0:0]\n{hosts}{others}{network}COMMIT\n"
    assert "-s 10.0.0.0/32" not in hitables.compile(text, backend="nft", hot=4).text


def test_no_hot_rule_pays_where_all_rules_match_alike() -> None:
    even = "\n".join(
        f"[5:5] {line.split('] ')[-1]}" if line.startswith("[") else line
        for line in skewed_text().split("\n")
    )
    output = hitables.compile(even, hot=20)
    assert output.reports[0].hot == 0 and not output.reports[0].why
    assert output.text == hitables.compile(even).text


def test_the_trees_of_groups_are_proved_by_lists_behind_hot_rules(every_candidate: None) -> None:
    rng = random.Random(3)
    lines = crossing(600, 3).replace("-j RETURN", "-j DROP").split("\n")
    text = "\n".join(f"[{rng.randrange(9)}:0] {line}" if line.startswith("-A") else line for line in lines)
    output = hitables.compile(text, backend="legacy", hot=12)
    (report,) = (each for each in output.reports if each.chain == "FORWARD")
    assert report.hot == 12 and not output.by_regions and not output.faults
    calls = [rule for rule in output.program.table("filter")["FORWARD"].rules if rule.enters]
    assert calls, "the tree should have groups, to be a test"


@pytest.mark.injects_fault
def test_wrong_hot_rules_are_left_out_with_a_warning_and_the_tree_stays(
    every_candidate: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = hot.hot_copy
    monkeypatch.setattr(hot, "hot_copy", lambda rule: copy(rule)._replace(matches=()))
    output = hitables.compile(skewed_text(), hot=3)
    (fault,) = output.faults
    assert fault.left == "without hot rules" and output.reports[0].hot == 0 and not output.reports[0].why
    assert output.proved and output.text.count("\n") > 402


def run(*arguments: object, text: str) -> Result:
    return CliRunner().invoke(main, ["compile", *map(str, arguments)], input=text)


def test_a_trace_tells_the_rules_of_most_packets(tmp_path: Path) -> None:
    program = read(skewed_text())
    sources = [
        rule.matches[0].tests[0].values.pairs[0][0] for rule in program.table("filter")["FORWARD"].rules
    ]
    rng = random.Random(1)
    rows = [
        (8 if rng.random() < 0.6 else rng.randrange(1, 200), rng.randrange(230, 900)) for _ in range(4000)
    ]
    trace = tmp_path / "some_trace"
    trace.write_text("".join(f"{sources[at]}\t16909060\t4000\t{port}\t6\t1\n" for at, port in rows))
    done = run("--hot", 4, "--trace", trace, "--summary", text=skewed_text(counters=False))
    assert done.exit_code == 0, done.stderr
    forward = [line for line in done.stdout.split("\n") if line.startswith("-A FORWARD")]
    assert (
        sources[8]
        == read(f"*filter\n{forward[0]}\nCOMMIT\n".replace("-A FORWARD", ":FORWARD ACCEPT [0:0]\n-A FORWARD"))
        .table("filter")["FORWARD"]
        .rules[0]
        .matches[0]
        .tests[0]
        .values.pairs[0][0]
    )
    assert " hot " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hot", "3"], "there are no packets: give a trace or a capture"),
        (["--hot", "3", "--uniform"], "which --uniform hides"),
        (["--hot", "-1"], "-1"),
        (["--hot", "3", "--scheme", "paper"], "scheme paper"),
    ],
)
def test_hot_rules_without_traffic_are_refused(arguments: list[str], message: str) -> None:
    done = run(*arguments, text=skewed_text(counters=False))
    assert done.exit_code == 2 and message in done.stderr and not done.stdout


@pytest.mark.parametrize("enters", ["-j", "-g"])
def test_a_chain_that_others_enter_gets_hot_rules(enters: str) -> None:
    rules = [f"-A C -s 10.0.{at}.0/24 -p tcp -m tcp --dport {at} -j ACCEPT" for at in range(1, 41)]
    counted = [f"[{at}:9] {rule}" for at, rule in enumerate(rules, 1)]
    counted[20] = counted[20].replace("[21:", "[90000:")
    lines = [
        "*filter",
        ":FORWARD ACCEPT [0:0]",
        ":C - [0:0]",
        f"[9:9] -A FORWARD {enters} C",
        *counted,
        "COMMIT",
        "",
    ]
    output = hitables.compile("\n".join(lines), hot=1)
    assert output.proved and next(each for each in output.reports if each.chain == "C").hot == 1


def test_a_price_does_not_depend_on_how_a_match_is_spelt_that_packets_do_not_answer() -> None:
    points = np.zeros((3, 1, 2), np.uint64)
    points[:, 0, 1] = [0x0A000001, 0x0A000002, 0x0A000003]
    packets = hot_costs.batch_of(points, (Axis(Field.SRC, 32, False, Cut.PREFIX),), Family.IPV4)
    rules = "".join(f"-A FORWARD -s 10.0.0.{at}/32 -j ACCEPT\n" for at in range(1, 60))
    prices = []
    for match in ("mark --mark 0x1", "mark --mark 0x3", "limit --limit 10/sec", "limit --limit 1/min"):
        text = f"*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m {match} -j DROP\n{rules}COMMIT\n"
        table = read(text).table("filter")
        written = WrittenChains(table["FORWARD"].rules, [])
        model = hot_costs.HotCosts(table, "FORWARD", written, 0, costs.default(), [Backend.NFT], Family.IPV4)
        prices.append(float(model.of([()], packets)[0, 0]))
    assert prices[0] == prices[1] > 0 and prices[2] == prices[3] > 0
