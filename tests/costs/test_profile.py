"""The cost model counts the tests of semantics; profiles are read back, and broken ones refused."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from support.programs import backends, make_packet, make_program
from support.rule_texts import make_text

import hitables
from hitables.cli.main import main
from hitables.compiler.compile import compile_rules
from hitables.costs import Costs, Reading, default, load, spent
from hitables.costs.profile import Figures, MatchCost
from hitables.costs.test_kinds import as_read, kind, program_as_read
from hitables.errors import HitablesError, LiveError
from hitables.ir import semantics
from hitables.ir.fields import Family
from hitables.ir.packet import Backend, Outcome
from hitables.kernel.calibrate import calibrate, non_negative
from hitables.kernel.namespace import Namespace
from hitables.simulate.batch import PacketBatch
from hitables.simulate.boundary_packets import draw_packets
from hitables.simulate.interpreter import Interpreter

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]


def rule_of(text: str) -> hitables.ir.rule.Rule:
    table = "mangle" if "MARK" in text else "filter"
    program = hitables.read(f"*{table}\n:FORWARD ACCEPT [0:0]\n:x - [0:0]\n-A FORWARD {text}\nCOMMIT\n")
    return program.table(table)["FORWARD"].rules[0]


def kinds_of(text: str, backend: Backend) -> list[str]:
    return [kind(match, backend, Family.IPV4) for match in as_read(rule_of(text), backend).matches]


@given(st.randoms(use_true_random=False), backends)
def test_match_counts_agree_with_semantics(rng: random.Random, backend: Backend) -> None:
    program = make_program(rng, tiny=True)
    table = program.tables[0]
    chain = table.chains[0].name
    packets = [make_packet(rng, program.family, tiny=True) for _ in range(20)]
    batch = PacketBatch.of(program.family, packets, [rng.getrandbits(64) for _ in packets])
    result = Interpreter(program, backend).run(table.name, chain, batch, hits=True, match_counts=True)
    assert result.match_counts is not None
    start, counts = result.match_counts.start, result.match_counts.counts
    first = {}
    for each in table.chains:
        for at in range(len(each.rules)):
            first[each.name, at] = len(first)
    read, taken = np.zeros(len(first), int), np.zeros(len(first), int)
    for packet in batch:
        for step in semantics.run(table, chain, packet, backend).steps:
            read[first[step.chain, step.index]] += 1
            taken[first[step.chain, step.index]] += step.outcome is Outcome.YES
    assert counts[start[:-1]].tolist() == read.tolist()
    assert counts[start[1:] - 1].tolist() == taken.tolist() == result.hits.tolist()
    for one, behind in itertools.pairwise(start):
        assert (np.diff(counts[one:behind].astype(int)) <= 0).all()


@pytest.mark.parametrize("seed", range(20))
def test_a_program_as_nft_reads_it_means_the_same(seed: int) -> None:
    rng = random.Random(seed)
    program = hitables.read(make_text(rng, Family.IPV4 if seed % 2 else Family.IPV6))
    other = program_as_read(program, Backend.NFT)
    for table in program:
        for chain in table.chains:
            batch = draw_packets(program, table.name, chain.name, 500, seed, Backend.NFT)
            one, two = (
                Interpreter(each, Backend.NFT).run(table.name, chain.name, batch) for each in (program, other)
            )
            assert [one.verdict_text(at) for at in range(500)] == [two.verdict_text(at) for at in range(500)]
            assert (one.reads == two.reads).all() and (one.effects == two.effects).all()


def test_nft_tests_the_protocol_first_and_each_port_by_itself() -> None:
    text = "-s 10.0.0.0/24 -d 10.0.0.1 -i eth0 -p tcp -m tcp --sport 1:9 --dport 22 -m comment --comment x"
    assert kinds_of(text, Backend.NFT) == [
        "interface",
        "protocol",
        "address/24",
        "address/32",
        "ports",
        "port",
        "-m comment",
    ]
    assert kinds_of(text, Backend.LEGACY)[-2:] == ["-m tcp", "-m comment"]


@pytest.mark.parametrize(
    ("spelt", "found"),
    [
        ("-s 10.0.0.0/255.255.255.0", "address/24"), ("-s 10.0.0.0/255.0.255.0", "address/x"),
        ("-s 10.0.0.0/22", "address/x"), ("! -s 10.0.0.0/16", "address/16"), ("-d 10.0.0.0/8", "address/8"),
        ("! -f", "fragment"), ("-p 47", "protocol"), ("-o eth+", "interface"),
    ],
)  # fmt: skip
def test_header_tests_have_the_kind_that_nft_loads(spelt: str, found: str) -> None:
    assert kinds_of(f"{spelt} -j ACCEPT", Backend.NFT) == [found]


def test_a_negated_port_is_one_port_and_flags_are_not_a_port() -> None:
    assert kinds_of("-p tcp -m tcp ! --dport 22", Backend.NFT)[-1] == "port"
    assert kinds_of("-p tcp -m tcp ! --dport 22:23", Backend.NFT)[-1] == "ports"
    assert kinds_of("-p tcp -m tcp --syn --dport 22", Backend.NFT)[-2:] == ["flags", "port"]


def plain(**tests: MatchCost) -> Costs:
    """A profile in which only what is given costs something, besides 1 for a target."""
    kinds = ("address", "address/x", "interface", "protocol", "fragment", "-m other")
    figures = {each: MatchCost(0.0, 0.0) for each in kinds} | tests
    targets = dict.fromkeys(("count", "verdict", "jump", "goto", "return", "-j other"), 1.0)
    return Costs({backend: Figures(figures, targets, 0.0, 0.0, ()) for backend in Backend}, "plain", {})


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("backend", Backend)
def test_a_rule_set_costs_what_its_packets_do_one_by_one(seed: int, backend: Backend) -> None:
    """Where misses cost what holds do, it does not matter which test of a rule failed."""
    program = hitables.read(make_text(random.Random(seed), rules=15))
    table, costs = program.table("filter"), plain()
    batch = draw_packets(program, "filter", "FORWARD", 60, seed, backend)
    walks = [semantics.run(table, "FORWARD", packet, backend) for packet in batch]
    found = spent(program, "filter", "FORWARD", batch, costs, backend)
    assert found.reads == pytest.approx(np.mean([len(walk.steps) for walk in walks]))
    # A rule without tests is never missed; one with tests costs 1 when its target is done.
    assert found.total == pytest.approx(np.mean([costs.walk(walk, backend) for walk in walks]))


def test_matches_after_a_failed_test_cost_nothing() -> None:
    costs = plain(address=MatchCost(3.0, 2.0), protocol=MatchCost(50.0, 40.0))
    missed = hitables.read(
        "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -s 10.0.0.0/8 -p tcp -j DROP\nCOMMIT\n"
    )
    batch = draw_packets(missed, "filter", "FORWARD", 400)
    tried = (
        Interpreter(missed, Backend.LEGACY).run("filter", "FORWARD", batch, match_counts=True).match_counts
    )
    assert tried is not None
    came, behind, taken = (int(count) / len(batch) for count in tried.counts)
    expected = (came - behind) * 3 + behind * 2 + (behind - taken) * 50 + taken * 40 + taken * 1
    assert 0 < taken < behind < came == 1
    assert spent(missed, "filter", "FORWARD", batch, costs, Backend.LEGACY).total == pytest.approx(expected)


def test_a_rule_costs_by_its_outcome_and_backend() -> None:
    costs = default()
    narrow, wide = rule_of("-s 10.0.0.0/24 -j ACCEPT"), rule_of("-s 10.0.0.0/22 -j ACCEPT")
    for backend in Backend:
        assert costs.rule(wide, backend, Reading.TAKEN) > costs.rule(wide, backend, Reading.MISS) > 0
    # nf_tables loads three bytes in another way than four.
    assert costs.rule(narrow, Backend.NFT, Reading.MISS) > 4 * costs.rule(wide, Backend.NFT, Reading.MISS)
    assert costs.rule(narrow, Backend.LEGACY, Reading.MISS) == costs.rule(wide, Backend.LEGACY, Reading.MISS)
    assert costs.address(24, Backend.NFT) == costs.match(narrow.matches[0], Backend.NFT)


def test_an_unknown_match_costs_what_a_call_costs() -> None:
    costs = default()
    unknown, known = rule_of("-m quota --quota 5 -j ACCEPT"), costs.of(Backend.NFT).tests["-m other"]
    assert costs.rule(unknown, Backend.NFT, Reading.MISS) == known.miss


def test_many_flows_cost_more_than_few_in_a_tree() -> None:
    rng = random.Random(1)
    rules = "".join(
        f"-A FORWARD -s 10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)} -j DROP\n"
        for _ in range(3000)
    )
    program = hitables.read(f"*filter\n:FORWARD ACCEPT [0:0]\n{rules}COMMIT\n")
    compiled = compile_rules(program).program
    batch = draw_packets(compiled, "filter", "FORWARD", 3000)
    for backend in Backend:
        few, many = (
            spent(compiled, "filter", "FORWARD", batch.pick(slice(count)), default(), backend)
            for count in (30, 3000)
        )
        assert many.total > few.total


def test_the_shipped_profile_follows_the_schema_and_reads_back(tmp_path: Path) -> None:
    schema = json.loads((ROOT / "hitables/schema/costs.json").read_text())
    data = default().as_data()
    jsonschema.validate(data, schema)
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(data))
    assert load(str(path)).figures == default().figures


def broken(change: str) -> str:
    data = default().as_data()
    if change == "version":
        data["version"] = 9
    elif change == "negative":
        data["backends"]["nft"]["tests"]["address"]["miss"] = -1
    elif change == "incomplete":
        del data["backends"]["nft"]["targets"]["goto"]
    elif change == "format":
        data["format"] = "hitables-map"
    elif change == "backend":
        data["backends"]["ebpf"] = data["backends"].pop("legacy")
    return json.dumps(data) if change != "text" else "{nothing"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("version", "a profile of version 9, this hitables reads version 1"), ("negative", "-1 is not a number"),
        ("incomplete", "target goto"), ("format", "not a profile of costs"), ("text", "not a profile of costs"),
        ("backend", "incomplete or broken"),
    ],
)  # fmt: skip
def test_a_profile_that_cannot_be_used_is_refused(change: str, message: str, tmp_path: Path) -> None:
    path, rules = tmp_path / "profile.json", tmp_path / "rules"
    path.write_text(broken(change))
    rules.write_text("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n")
    done = CliRunner().invoke(main, ["stats", str(rules), "--costs", str(path)])
    assert done.exit_code == 2
    assert message in done.output and "profile.json" in done.output


def test_a_profile_of_one_backend_has_no_figures_for_the_other() -> None:
    one = Costs({Backend.NFT: default().of(Backend.NFT)}, "mine.json", {})
    with pytest.raises(HitablesError, match=r"mine\.json: the profile has no figures for legacy"):
        one.of(Backend.LEGACY)


def test_the_least_squares_solution_has_no_negative_numbers() -> None:
    matrix = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    assert non_negative(matrix, matrix @ [2.0, 3.0]) == pytest.approx([2.0, 3.0], abs=1e-4)
    assert non_negative(matrix, np.array([1.0, 2.0, -1.0])) == pytest.approx([1.5, 0.0], abs=1e-4)


@pytest.mark.needs_kernel
def test_calibrate_writes_a_profile_that_stats_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is measured is not what is tried; large trees take seconds to load.
    monkeypatch.setattr("hitables.kernel.calibrate.PATIENCE", 0.1)
    monkeypatch.setattr("hitables.kernel.calibrate.PIECE", 0.01)
    monkeypatch.setattr("hitables.kernel.calibrate.TREE_PIECE", 0.01)
    monkeypatch.setattr("hitables.kernel.calibrate.TREES", ((16, 0), (64, 0), (64, 8), (256, 8)))
    monkeypatch.setattr("hitables.kernel.calibrate.KNOTS", (64, 128, 256, 512))
    monkeypatch.setattr("hitables.kernel.calibrate.TREE_RUNS", 2)
    path, rules = tmp_path / "profile.json", tmp_path / "rules"
    done = CliRunner().invoke(main, ["calibrate", "--backend", "nft", "-o", str(path)])
    assert done.exit_code == 0, done.output
    jsonschema.validate(
        json.loads(path.read_text()), json.loads((ROOT / "hitables/schema/costs.json").read_text())
    )
    rules.write_text("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 10.0.0.0/24 -j DROP\nCOMMIT\n")
    done = CliRunner().invoke(main, ["stats", str(rules), "--costs", str(path), "--backend", "nft", "--json"])
    found = json.loads(done.output)
    assert found["costs"] == str(path)
    assert next(chain for chain in found["chains"] if chain["chain"] == "INPUT")["modelled_ns"] > 0
    done = CliRunner().invoke(main, ["stats", str(rules), "--costs", str(path)])
    assert done.exit_code == 2 and "has no figures for legacy" in done.output


def test_calibrate_refuses_an_output_before_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*_: object) -> None:
        raise AssertionError("it has measured")

    monkeypatch.setattr("hitables.kernel.calibrate.calibrate", measured)
    done = CliRunner().invoke(main, ["calibrate", "-o", "/nonexistent/x.json"])
    assert done.exit_code == 2 and "/nonexistent/x.json: No such file or directory" in done.output


def test_calibrate_reports_why_it_cannot_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Namespace) -> Namespace:
        raise LiveError("cannot open a network namespace: Operation not permitted")

    monkeypatch.setattr(Namespace, "__enter__", refuse)
    with pytest.raises(LiveError, match=r"cannot measure here: .*not permitted; calibrate needs root, or"):
        calibrate([Backend.NFT])
