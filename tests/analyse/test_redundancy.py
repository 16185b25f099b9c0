"""Equivalence "verdict": removed rules affect no verdict, the others do what they did, and reports list both."""

from __future__ import annotations

import json
import random
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hitables_command import run
from support.programs import make_program
from support.rule_texts import make_text
from support.scale import examples
from support.small_programs import small_program

from hitables import HitablesError, read, write
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.compiler.pipeline import compile_text
from hitables.emit.sourcemap import source_map
from hitables.ir.choices import Equivalence, Malformed, backends_of
from hitables.ir.fields import Family
from hitables.ir.program import Program
from hitables.verify import bdd, exact
from hitables.verify.question import Answer, Equal, Question

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]


def options(backend: str = "any", malformed: Malformed = Malformed.STRICTER, *, least: int = 3) -> Options:
    return Options(
        backend=backend,
        malformed=malformed,
        leaf_size=2,
        min_length=least,
        max_expansion=20.0,
        equivalence="verdict",
    )


def question(chosen: Options, equivalence: Equivalence = Equivalence.VERDICT) -> Question:
    return Question(backends_of(chosen.backend), chosen.malformed, equivalence=equivalence)


def verdict_of(answer: Answer) -> str:
    return "equal" if isinstance(answer, Equal) else str(getattr(answer, "describe", lambda: answer)())


def text_of(rules: str, policy: str = "DROP") -> str:
    return f"*filter\n:FORWARD {policy} [0:0]\n:user - [0:0]\n{rules}COMMIT\n"


def gone(
    rules: str, backend: str = "any", *, policy: str = "DROP", malformed: Malformed = Malformed.STRICTER
) -> str:
    """The rules of FORWARD that go, by their places from 1; what is left is proved."""
    program = read(text_of(rules, policy))
    chosen = options(backend, malformed, least=1000)
    result = compile_rules(program, chosen)
    assert verdict_of(exact.check(program, result.program, question(chosen))) == "equal"
    return " ".join(str(each.line - 3) for each in result.gone)


@pytest.mark.parametrize("malformed", list(Malformed))
@pytest.mark.parametrize("backend", ["any", "legacy", "nft"])
@settings(max_examples=examples(6))
@given(seed=st.integers(0, 2**32), family=st.sampled_from(Family), least=st.sampled_from((3, 1000)))
def test_the_output_gives_every_packet_the_verdict_of_the_input(
    backend: str, malformed: Malformed, seed: int, family: Family, least: int
) -> None:
    rng = random.Random(seed)
    chosen = options(backend, malformed, least=least)
    texts = read(make_text(rng, family), family=family)
    for program in (texts, small_program(rng)):
        result = compile_rules(program, chosen).program
        after = read(write(result), family=family) if program is texts else result
        assert verdict_of(exact.check(program, after, question(chosen))) == "equal"


@settings(max_examples=examples(15))
@given(st.randoms(use_true_random=False))
def test_diagrams_find_the_same_verdicts(rng: random.Random) -> None:
    program = small_program(rng)
    result = compile_rules(program, options()).program
    assert verdict_of(bdd.check(program, result, question(options()))) == "equal"


@settings(max_examples=examples(25))
@given(st.randoms(use_true_random=False))
def test_rules_of_every_kind_may_be_between(rng: random.Random) -> None:
    program = make_program(rng, tiny=True)
    chosen = options(least=1000)
    result = compile_rules(program, chosen).program
    assert verdict_of(exact.check(program, result, question(chosen))) == "equal"


@settings(max_examples=examples(15))
@given(st.randoms(use_true_random=False))
def test_logs_marks_and_evaluations_stay_unchanged(rng: random.Random) -> None:
    program = small_program(rng)
    (table,) = program.tables
    chains = (
        chain.with_rules(tuple(r for r in chain.rules if r.target is not None)) for chain in table.chains
    )
    silent = Program(program.family, (type(table)(table.name, tuple(chains)),))  # without rules that count
    result = compile_rules(silent, options(least=1000)).program
    assert verdict_of(exact.check(silent, result, question(options(), Equivalence.FULL))) == "equal"


A, B = "-A FORWARD -s 10.0.0.0/8", "-A FORWARD -s 10.1.0.0/16"
TCP = "-p tcp -m tcp"


@pytest.mark.parametrize(
    ("rules", "went"),
    [
        (f"{A} -j ACCEPT\n{B} -j REJECT\n", "2"),  # shadowed
        (f"{B} -j ACCEPT\n{A} -j ACCEPT\n", "1"),  # the next does the same
        (f"{B} -j ACCEPT\n{B} -d 10.9.0.0/16 -j DROP\n{A} -j ACCEPT\n", "2 1"),
        (f"{B} -j ACCEPT\n{B} -j LOG\n{A} -j ACCEPT\n", "2 1"),
        (f"{B} -j ACCEPT\n{A} -j LOG\n{A} -j ACCEPT\n", ""),  # its packets would be logged
        (f"{B} -j ACCEPT\n{A} -j user\n{A} -j ACCEPT\n", ""),
        (f"{A} -j DROP\n", "1"),  # the policy does
        (f"{A} -j RETURN\n", "1"),
        (f"{A} -m limit --limit 1/sec -j DROP\n", ""),  # a memory is asked
        (f"{A} -j ACCEPT\n{B} -m limit --limit 1/sec -j DROP\n", "2"),  # it never was
        (f"{A} -m recent --set\n{A} -j ACCEPT\n", ""),
        (f"{A}\n", "1"),  # it counts, and nothing else
        (f"{A} -j MARK --set-mark 1\n{B} -m mark --mark 1 -j ACCEPT\n{B} -j ACCEPT\n", ""),
        (f"{B} -m mark --mark 1 -j ACCEPT\n{B} -j ACCEPT\n", "1"),
        (f"-A FORWARD {TCP} --dport 0:99 -j ACCEPT\n-A FORWARD {TCP} --dport 50:60 -j DROP\n", "2"),
        # Later fragments match neither, and do match the last.
        (f"-A FORWARD {TCP} --dport 22 -j DROP\n-A FORWARD {TCP} ! --dport 22 -j DROP\n-A FORWARD -p tcp -j ACCEPT\n", ""),
    ],
)  # fmt: skip
def test_which_rules_are_removed(rules: str, went: str) -> None:
    removed = gone(rules)
    assert sorted(removed.split()) == sorted(went.split())


def test_a_rule_that_drops_broken_packets_stays_where_it_drops_them() -> None:
    rules = f"{B} {TCP} --dport 80 -j ACCEPT\n{A} -j ACCEPT\n"
    assert gone(rules, "legacy") == "" and gone(rules, "nft") == "1"
    # Dropped instead of accepted is what --malformed stricter allows.
    rules = f"{B} -p tcp -j ACCEPT\n{A} {TCP} --sport 0:1023 -j DROP\n{A} -j ACCEPT\n"
    assert gone(rules) == ""
    rules = f"{B} {TCP} --dport 80 -j ACCEPT\n-A FORWARD {TCP} --dport 1:9 -j DROP\n{B} {TCP} --dport 80:81 -j ACCEPT\n"
    assert gone(rules, "legacy") == gone(rules, "legacy", malformed=Malformed.EXACT) == "1 2"


def test_a_set_may_be_removed_with_the_rules_that_read_it() -> None:
    assert gone(f"{A} -j ACCEPT\n{B} -m set --match-set hosts src -j DROP\n") == "2"


def test_the_last_rule_that_needs_connections_stays() -> None:
    asks = "-m conntrack --ctstate NEW"
    assert gone(f"{A} {asks} -j DROP\n{B} {asks} -j DROP\n") == "2"


def crossing(count: int, rng: random.Random) -> str:
    """Rules that are specific in one address or the other, in any order, all of one verdict."""
    lines = []
    for number in range(count):
        side = rng.choice("sd")
        port = rng.choice(("", f" {TCP} --dport {rng.randrange(1, 2000)}"))
        lines.append(f"-A FORWARD -{side} 10.{number % 200}.{rng.randrange(256)}.0/24{port} -j ACCEPT\n")
    return text_of("".join(lines))


def test_rules_of_equal_verdict_are_reordered_and_trees_get_shallower() -> None:
    program = read(crossing(400, random.Random(5)))
    whole = compile_rules(program, Options(backend="legacy"))
    verdict = compile_rules(program, Options(backend="legacy", equivalence="verdict"))
    one, two = whole.reports[0], verdict.reports[0]
    assert (one.before, two.before) == (400, 400) and one.gone == 0
    assert two.after <= one.after
    assert two.read_after < 0.97 * one.read_after and two.ns_after["legacy"] < one.ns_after["legacy"]
    assert two.read_before == pytest.approx(one.read_before, rel=0.05)
    chosen = Options(backend="legacy", equivalence="verdict")
    assert verdict_of(exact.check(program, verdict.program, question(chosen))) == "equal"
    lines = [
        rule.line for table in verdict.program for chain in table.chains for rule in chain.rules if rule.line
    ]
    assert set(lines) | {each.line for each in verdict.gone} == set(range(4, 404))


def test_the_output_the_map_and_the_report_list_removed_rules(tmp_path: Path) -> None:
    path = tmp_path / "in.rules"
    path.write_text(crossing(60, random.Random(1)).replace("COMMIT", f"{A} -j DROP\nCOMMIT"))
    done = run(
        "compile", path, "--equivalence", "verdict", "--map", tmp_path / "map.json", "-o", tmp_path / "out"
    )
    head = (tmp_path / "out").read_text().splitlines()[0]
    mapped = json.loads((tmp_path / "map.json").read_text())
    jsonschema.validate(mapped, json.loads((ROOT / "hitables/schema/map.json").read_text()))
    went = mapped["tables"][0]["gone"]
    assert {"chain": "FORWARD", "line": 64, "why": "changes nothing"} in went and done.stdout == ""
    rules = f"{len(went)} rule{'' if len(went) == 1 else 's'}"
    assert f"equivalence verdict ({rules} went); proved to give every packet the verdict" in head
    assert "proved equal" in run("check", "--verdict-only", path, tmp_path / "out").stdout
    message = run("compile", "--equivalence", "verdict", "--no-verify", path).stdout.splitlines()[0]
    assert "NOT PROVED to give every packet the verdict of its input" in message
    assert "equivalence" not in run("compile", path).stdout.splitlines()[0]


def test_the_map_lists_a_removed_rule_in_its_table_alone() -> None:
    text = text_of(f"{A} -j ACCEPT\n{A} -j DROP\n") + "*mangle\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"
    result = compile_rules(read(text), Options(equivalence="verdict"))
    mapped = source_map(result.program, result.origins, "-", result.gone)
    assert {each["name"]: len(each["gone"]) for each in mapped["tables"]} == {"filter": 1, "mangle": 0}


def test_sflgen_refuses_a_rule_set_with_removed_rules(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from sflgen.cli import main

    path = tmp_path / "out.rules"
    path.write_text(compile_text(crossing(40, random.Random(2)), options(least=8)).text)
    done = CliRunner().invoke(main, ["init", str(path), "--state", str(tmp_path / "state")])
    assert done.exit_code == 2 and "rule set that it was compiled from" in done.output


def test_unusable_options_are_refused() -> None:
    with pytest.raises(HitablesError, match="use one of full, verdict"):
        Options(equivalence="some")
    done = run(
        "compile",
        "--scheme",
        "paper",
        "--equivalence",
        "verdict",
        text=crossing(40, random.Random(3)),
        status=2,
    )
    assert "needs scheme tree" in done.stderr


def test_full_equivalence_removes_no_rule() -> None:
    program = read(text_of(f"{A} -j ACCEPT\n{B} -j ACCEPT\n"))
    result = compile_rules(program)
    assert result.gone == () and result.program.rule_count() == 2
    assert source_map(result.program, result.origins, "-")["tables"][0]["gone"] == []
