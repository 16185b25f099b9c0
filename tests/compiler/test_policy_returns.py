"""RETURN of a built-in chain decides as the policy does, and is printed as the policy where it may come back."""

from __future__ import annotations

import functools
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.counted_packets import known_source, with_hits
from support.every_packet import difference, every_walk
from support.hitables_command import run
from support.scale import examples

import hitables
from hitables.compiler import run_trees
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.compiler.pipeline import Output
from hitables.emit.text import write
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.parse.iptables import read
from hitables.report.counters import as_saved
from hitables.simulate.boundary_packets import BoundarySampler
from hitables.simulate.interpreter import Interpreter
from hitables.sources.known import by_map
from hitables.sources.map_file import read_map
from hitables.verify import bdd, exact
from hitables.verify.question import Difference, Equal, Question

pytestmark = pytest.mark.engine

BOUND = ("-m limit --limit 3/sec ", "-m mark --mark 1 ")


def returning_text(
    rng: random.Random, count: int = 60, chain: str = "FORWARD", policy: str = "DROP", values: int = 200
) -> str:
    """Rules that cross, a fifth of which RETURN."""
    rules = []
    for _ in range(count):
        side, target = rng.choice("sd"), rng.choice(["ACCEPT", "DROP", "ACCEPT", "DROP", "RETURN"])
        port = f"-p udp -m udp --dport {rng.randrange(1, 900)} " if values > 10 else ""
        rules.append(f"-A {chain} -{side} 10.{rng.randrange(values)}.0.0/16 {port}-j {target}")
    call = "" if chain == "FORWARD" else f"-A FORWARD -j {chain}\n"
    heads = f":INPUT ACCEPT [0:0]\n:FORWARD {policy} [0:0]\n:OUTPUT ACCEPT [0:0]\n"
    heads += "" if chain == "FORWARD" else f":{chain} - [0:0]\n"
    return f"*filter\n{heads}{call}" + "\n".join(rules) + "\nCOMMIT\n"


def in_groups(grouping: int, program: Program, options: Options) -> Program:
    """*program* compiled with that grouping (0: the cheapest), printed and read again."""

    def grow(boxes: Any, **more: Any) -> Any:
        if more.get("algorithm") == "auto":
            more |= {"grouping": grouping, "size_penalty": 0.0}
        return plain_grow(boxes, **more)

    plain_grow = run_trees.grow
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_trees, "grow", functools.partial(grow))
        return read(write(compile_rules(program, options).program), family=program.family)


def returns_in(program: Program) -> set[str]:
    """The chains with rules of the source that RETURN."""
    chains = program.table("filter").chains
    return {chain.name for chain in chains for rule in chain.rules if rule.returns and rule.line}


# ---- laws ----


@settings(max_examples=examples(12))
@given(seed=st.integers(0, 2**32), grouping=st.integers(0, 6), policy=st.sampled_from(["ACCEPT", "DROP"]))
def test_every_packet_of_a_small_space_is_treated_alike(seed: int, grouping: int, policy: str) -> None:
    rng = random.Random(seed)
    text = returning_text(rng, 50, policy=policy, values=9)
    if rng.random() < 0.5:
        lines = text.splitlines()
        at = rng.randrange(4, len(lines) - 1)
        head, target = lines[at].split("-j ")
        lines[at] = f"{head}{rng.choice(BOUND)}-j {rng.choice(['RETURN', target])}"
        text = "\n".join([*lines, ""])
    before = read(text)
    options = Options(leaf_size=2, min_length=3, max_expansion=50.0)
    after = in_groups(grouping, before, options)
    question = Question()
    assert difference(every_walk(before, after, tuple(Backend)), question) is None
    assert isinstance(exact.check(before, after, question), Equal)


@settings(max_examples=examples(10))
@given(seed=st.integers(0, 2**32), version=st.integers(0, 2**32), backend=st.sampled_from(["legacy", "any"]))
def test_the_policy_and_each_rule_count_what_they_count_in_the_source(
    seed: int, version: int, backend: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    output = hitables.compile(returning_text(random.Random(seed)), backend=backend)
    batch = BoundarySampler(Interpreter(output.before, Backend.LEGACY), "filter", "FORWARD", seed=1).draw(800)
    batch = batch.pick(np.flatnonzero(~batch.malformed()))
    before, after = (with_hits(program, batch) for program in (output.before, output.program))
    path = tmp_path_factory.mktemp("map") / "map"
    path.write_text(json.dumps(output.source_map))
    known = by_map(read_map(str(path)), read(write(after)))
    assert as_saved(known) == as_saved(known_source(before, path))
    assume(_returns(output) > 0)  # a few drawn sets are cheaper with RETURN as it is


def _returns(output: Output) -> int:
    return sum(each.returns for each in output.reports)


# ---- cases ----


@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
@pytest.mark.parametrize("policy", ["ACCEPT", "DROP"])
def test_groups_of_a_built_in_chain_hold_rules_that_return(backend: str, policy: str) -> None:
    text = returning_text(random.Random(1), policy=policy)
    output = hitables.compile(text, backend=backend)
    (report,) = (each for each in output.reports if not each.why)
    assert report.returns == text.count("-j RETURN") and not output.by_regions
    assert not returns_in(output.program)
    assert "; RETURN of FORWARD (filter) as its policy; proved equal" in output.text.partition("\n")[0]


def test_groups_read_no_more_than_for_rules_with_verdicts() -> None:
    """Rules that RETURN had a tree of their own, which every packet read."""
    text = returning_text(random.Random(2), 400, policy="ACCEPT")
    returning, deciding = (hitables.compile(each) for each in (text, text.replace("-j RETURN", "-j ACCEPT")))
    assert returning.text.splitlines()[1:] != text.splitlines()
    assert [each.read_after for each in returning.reports] == [each.read_after for each in deciding.reports]


@pytest.mark.parametrize("case", ["user chain", "policy kept", "left to others", "as written"])
def test_where_the_policy_is_not_known_or_may_change_rules_return(case: str) -> None:
    text = returning_text(random.Random(3), chain="web" if case == "user chain" else "FORWARD")
    options: dict[str, Any] = {"min_length": 8}
    if case == "policy kept":
        text = text.replace(":FORWARD DROP", ":FORWARD -")
    if case == "left to others":
        options["leave"] = ("DOCKER*",)
    if case == "as written":
        options["as_written"] = True
    compiled = compile_rules(read(text), Options(**options))
    after = read(write(compiled.program))
    assert returns_in(compiled.program) and not any(each.returns for each in compiled.reports)
    assert isinstance(exact.check(read(text), after, Question()), Equal)


def test_a_tree_without_groups_keeps_return() -> None:
    rules = "".join(f"-A INPUT -s 10.{n}.0.0/16 -j {'RETURN' if n % 5 else 'ACCEPT'}\n" for n in range(60))
    output = hitables.compile(f"*filter\n:INPUT DROP [0:0]\n{rules}COMMIT\n")
    assert output.reports[0].why == "" and not _returns(output)
    assert output.text.count("-j RETURN") == rules.count("-j RETURN")
    assert "as its policy" not in output.text


@pytest.mark.parametrize("engine", [exact, bdd], ids=["exact", "bdd"])
@pytest.mark.parametrize("policy", ["ACCEPT", "DROP"])
@pytest.mark.parametrize("verdict", ["ACCEPT", "DROP"])
def test_return_equals_the_policy_in_a_built_in_chain_alone(engine: Any, policy: str, verdict: str) -> None:
    rules = "-A {chain} -s 10.0.0.0/8 -j {target}\n-A {chain} -p tcp -j {other}\n"
    other = "DROP" if verdict == "ACCEPT" else "ACCEPT"
    base = f"*filter\n:FORWARD {policy} [0:0]\n{rules}COMMIT\n"
    called = (
        f"*filter\n:FORWARD {policy} [0:0]\n:web - [0:0]\n-A FORWARD -j web\n-A FORWARD -p udp -j {other}\n"
        f"{rules}COMMIT\n"
    )
    for text, chain in ((base, "FORWARD"), (called, "web")):
        one, two = (
            read(text.format(chain=chain, target=target, other=other)) for target in ("RETURN", verdict)
        )
        is_equal = chain == "FORWARD" and policy == verdict
        assert isinstance(engine.check(one, two, Question()), Equal if is_equal else Difference)


def test_the_summary_names_the_chains_whose_policy_is_printed(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text(returning_text(random.Random(3)))
    done = run("compile", tmp_path / "rules", "-o", tmp_path / "out", "--summary")
    shown = " ".join(done.stderr.split())
    assert re.search(r"chain FORWARD: \d+ RETURN rules are printed with the policy as target", shown)
