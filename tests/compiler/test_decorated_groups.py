"""Rules that cross, among rules that log, mark, count, limit, return and jump: groups do what the list does.

Lists of this size would get one tree, so the grouping is imposed: each number is another one.
"""

from __future__ import annotations

import functools
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.equal_programs import assert_equal
from support.scale import examples

from benchmarks import decorations, public_sets
from hitables import read, write
from hitables.compiler import run_trees
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.compiler.pipeline import compile_text
from hitables.compiler.result import Compiled
from hitables.ir.choices import Malformed, backend_choice

pytestmark = pytest.mark.engine

CHAINS = """\
-A ends -m limit --limit 5/min -j LOG --log-prefix "d "
-A ends -j CONNMARK --set-mark 3
-A ends -j DROP
-A back -p tcp -m tcp --dport 2 -j ACCEPT
-A back -j RETURN
"""
TARGETS = {
    "decides": ["ACCEPT", "DROP", "ends", "REJECT"],
    "late": ["LOG", "MARK --set-mark 1", "back", "CONNMARK --save-mark", "ends"],
    "leaves": ["RETURN"],
}
# Matches of rules that are not moved: with memory, or reading what others write.
BOUND = ["-m limit --limit 3/sec ", "-m mark --mark 1 ", "-m recent --name r --set "]


def crossing_text(rng: random.Random, chain: str, count: int = 60) -> str:
    """Rules specific in one address, in the other, or in neither."""
    kinds = rng.choice([["decides"], ["decides", "late"], ["decides", "leaves"], list(TARGETS)])
    rules = []
    for at in range(count):
        kind = rng.choice(["decides", "decides", "decides", *kinds]) if at else rng.choice(kinds)
        shape = rng.choice(
            ["-s 10.{}.0.0/{} ", "-d 10.{}.0.0/{} ", "-s 10.{}.0.0/{} ", "-d 10.{}.0.0/{} ", ""]
        )
        match = shape.format(rng.randrange(8) * 32, rng.choice([11, 11, 16])) if shape else ""
        match += rng.choice(
            ["", "-p tcp ", "-p tcp -m tcp --dport 1:2 ", "-p udp -m udp --dport 2 ", "-p icmp "]
        )
        match += rng.choice(BOUND) if kind == "late" and rng.random() < 0.4 else ""
        if rng.random() < 0.1:
            match += "-m conntrack --ctstate ESTABLISHED "
        rules.append(f"-A {chain} {match}-j {rng.choice(TARGETS[kind])}")
    heads = f":{chain} {'- [0:0]' if chain == 'office' else 'ACCEPT [0:0]'}\n:ends - [0:0]\n:back - [0:0]\n"
    call = "-A FORWARD -j office\n-A FORWARD -s 10.0.0.0/8 -j LOG\n" if chain == "office" else ""
    built_in = ":FORWARD DROP [0:0]\n" if chain == "office" else ""
    return f"*mangle\n{built_in}{heads}{call}" + "\n".join(rules) + f"\n{CHAINS}COMMIT\n"


@settings(max_examples=examples(24))
@given(
    seed=st.integers(0, 2**32),
    grouping=st.integers(1, 16),
    chain=st.sampled_from(["FORWARD", "office"]),
    backend=st.sampled_from(["legacy", "nft", "any"]),
    malformed=st.sampled_from(Malformed),
)
def test_groups_among_rules_of_every_kind_treat_every_packet_alike(
    seed: int, grouping: int, chain: str, backend: str, malformed: Malformed
) -> None:
    before = read(crossing_text(random.Random(seed), chain).replace("-j REJECT", "-j DROP"))
    options = Options(backend=backend, malformed=malformed, leaf_size=2, min_length=3, max_expansion=50.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_trees, "grow", functools.partial(_grouped, grouping, run_trees.grow))
        after = read(write(compile_rules(before, options).program), family=before.family)
    assert_equal(before, after, options)


def _grouped(number, grow, boxes, **options):  # type: ignore[no-untyped-def]
    if options.get("algorithm") == "auto":
        options |= {"grouping": number, "size_penalty": 0.0}
    return grow(boxes, **options)


@pytest.mark.parametrize("grouping", range(1, 5))
def test_rules_that_repeat_an_earlier_rule_are_in_no_tree(grouping: int) -> None:
    """As in rule sets that were pasted together of sections, each with the rules of states in front."""
    rng = random.Random(1)
    state = "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
    rules = [
        f"-A FORWARD -{rng.choice('sd')} 10.{rng.randrange(256)}.{rng.randrange(4)}.0/24 "
        f"-j {rng.choice(['ACCEPT', 'DROP'])}"
        for _ in range(120)
    ]
    for at in range(0, 160, 40):
        rules[at:at] = [state]
    before = f"*filter\n:FORWARD DROP [0:0]\n{chr(10).join(rules)}\nCOMMIT\n"
    options = Options(leaf_size=2, min_length=3, max_expansion=50.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_trees, "grow", functools.partial(_grouped, grouping, run_trees.grow))
        compiled = compile_text(before, options)
    assert not compiled.by_regions
    chains = compiled.program.table("filter").chains
    called = {rule.target.name for chain in chains for rule in chain.rules if rule.target}
    kept = [chain for chain in chains if chain.rules and chain.name not in {"FORWARD", *called}]
    repeated = [rule for chain in kept for rule in chain.rules if "conntrack" in str(rule.matches)]
    assert len(repeated) == 3


def test_a_long_head_is_weighed_with_both_orders_of_groups(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The groups that are cheapest on a sample do not fit in full; behind the whole head another order does."""
    program = read(decorations.decorate(public_sets.verdicts_drawn("wustl/fw1_10K", shared), "head"))
    options = Options(backend=backend_choice("legacy"))
    chosen = _modelled(compile_rules(program, options))
    monkeypatch.setattr(run_trees, "grow", functools.partial(_nth_grouping, 5, run_trees.grow))
    assert chosen <= _modelled(compile_rules(program, options))


def _nth_grouping(number, grow, boxes, **options):  # type: ignore[no-untyped-def]
    if options.get("algorithm") == "auto":
        options["grouping"] = number
    return grow(boxes, **options)


def _modelled(compiled: Compiled) -> float:
    """Nanoseconds that the chain costs, by the model."""
    (cost,) = (each.ns_after["legacy"] for each in compiled.reports if each.chain == "FORWARD")
    return cost
