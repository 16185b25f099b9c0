"""Packets of established connections read no tree in front of the rule that decides them."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from hitables.analyse.weights import from_counters
from hitables.api import read
from hitables.compiler import run_trees
from hitables.compiler.options import Options
from hitables.compiler.pipeline import compile_text
from hitables.ir.choices import Equivalence, backend_choice
from hitables.ir.established import NEAR, established_head
from hitables.ir.fields import STATES, Family, Field
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.simulate.batch import PacketBatch
from hitables.simulate.boundary_packets import BoundarySampler
from hitables.simulate.interpreter import Interpreter
from hitables.verify.called_parts import with_called_parts

STATE = "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
FRONT = ["-i lo -j ACCEPT", "-m conntrack --ctstate INVALID -j DROP", "-j users"]


def text_of(rules: list[str], counters: bool = False) -> str:
    counted = [
        f"[{1_000_000 if STATE in rule else 10}:0] " * counters + f"-A FORWARD {rule}" for rule in rules
    ]
    head = ["*filter", ":FORWARD DROP [0:0]", ":users - [0:0]"]
    return "\n".join([*head, *counted, "-A users -s 192.0.2.1 -j DROP", "COMMIT", ""])


def interfaces(rng: random.Random) -> list[str]:
    return [f"-i eth0.{at} -j {rng.choice(['ACCEPT', 'DROP'])}" for at in range(10, 60)]


def nets(rng: random.Random) -> list[str]:
    return [
        f"-{rng.choice('sd')} 10.{rng.randrange(256)}.{rng.randrange(4)}.0/{rng.choice((20, 24, 28))} "
        f"-p tcp --dport {rng.randrange(1, 1000)} -j {rng.choice(['ACCEPT', 'DROP'])}"
        for _ in range(150)
    ]


def blocks(rng: random.Random) -> list[str]:
    hosts = [f"-s 198.51.{rng.randrange(256)}.{at} -j DROP" for at in range(100)]
    return [*hosts, *(f"-p tcp --dport {at} -j ACCEPT" for at in rng.sample(range(1, 9999), 100))]


def both_ways(rng: random.Random) -> list[str]:
    hosts = [f"198.51.{rng.randrange(256)}.{at}" for at in range(100)]
    return [f"-{side} {host} -j ACCEPT" for host in hosts for side in "sd"]


@pytest.mark.parametrize("backend", ["nft", "legacy"])
@pytest.mark.parametrize("made", [interfaces, nets, blocks, both_ways])
@pytest.mark.parametrize("front", range(len(FRONT) + 1))
@pytest.mark.parametrize("equivalence", Equivalence)
def test_packets_of_connections_read_no_more(
    backend: str, made: Callable[[random.Random], list[str]], front: int, equivalence: Equivalence
) -> None:
    rules = made(random.Random(7))
    text = text_of([*FRONT[:front], STATE, *rules])
    compiled = compile_text(text, Options(backend=backend_choice(backend), equivalence=equivalence))
    before, after = (Interpreter(each, Backend(backend)) for each in (compiled.before, compiled.program))
    (report,) = (each for each in compiled.reports if each.chain == "FORWARD")
    assert not report.why and report.read_after < report.read_before / 2
    batch = established(compiled.before, before)
    reads = [each.run("filter", "FORWARD", batch).reads for each in (before, after)]
    assert (reads[1] <= reads[0]).all()


def test_parts_behind_a_return_are_compared_as_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """RETURN stays in the chain, where trees that are called have the policy in its place."""
    monkeypatch.setattr(run_trees.RunTrees, "FEW_READ", 0)
    rng = random.Random(7)
    hosts = [".".join(str(rng.randrange(1, 224)) for _ in range(4)) for _ in range(150)]
    rules = [f"-{side} {host} -j DROP" for host in hosts for side in "sd"]
    text = text_of([*FRONT[:2], STATE.replace("ACCEPT", "RETURN"), *rules])
    compiled = compile_text(text, Options(backend=backend_choice("nft")))
    assert not compiled.by_regions
    before, after = (each.table("filter") for each in (compiled.before, compiled.program))
    assert with_called_parts(before, after, Family.IPV4, exact=False) is not None


def established(program: Program, before: Interpreter) -> PacketBatch:
    """Packets at the bounds of the chain's rules, which belong to connections."""
    batch = BoundarySampler(before, "filter", "FORWARD", seed=1).draw(500)
    batch = batch.pick(np.flatnonzero(~batch.malformed()))
    batch.rows["low"][:, Field.STATE] = STATES.index("ESTABLISHED")
    return batch


def test_counters_decide_where_there_are_any() -> None:
    """They count few packets of connections: then these may read a tree first."""
    text = text_of([STATE, *interfaces(random.Random(7))], counters=True).replace("[1000000:0]", "[1:0]")
    options = Options(backend=backend_choice("nft"))
    counted = compile_text(text, Options(backend=backend_choice("nft"), traffic=from_counters(read(text))))
    first = [
        each.table("filter")["FORWARD"].rules[0]
        for each in (compile_text(text, options).program, counted.program)
    ]
    assert [rule.leaves and not rule.enters for rule in first] == [True, False]


@pytest.mark.parametrize(
    ("rule", "head"),
    [
        (STATE, 3),
        ("-m state --state ESTABLISHED -m comment --comment kept -j RETURN", 3),
        ("-m conntrack ! --ctstate NEW,INVALID -j users", 3),
        ("-m conntrack ! --ctstate NEW,INVALID -g users", 3),
        ("-i eth0 -m conntrack --ctstate ESTABLISHED -j ACCEPT", 0),
        ("-m conntrack --ctstate ESTABLISHED --ctdir REPLY -j ACCEPT", 0),
        ("-m conntrack --ctstate NEW -j ACCEPT", 0),
        ("-m conntrack --ctstate RELATED,ESTABLISHED -j LOG", 0),
    ],
)
def test_the_rule_that_decides_packets_of_connections(rule: str, head: int) -> None:
    def rules(front: int) -> int:
        lines = ["-s 192.0.2.1 -j DROP"] * front + [rule, "-s 192.0.2.2 -j DROP"]
        return established_head(read(text_of(lines)).table("filter")["FORWARD"].rules)

    assert rules(2) == head
    assert rules(NEAR) == 0


def test_a_rule_that_decides_goes_before_one_that_enters_a_chain() -> None:
    enters = "-m conntrack --ctstate ESTABLISHED -j users"
    rules = read(text_of([enters, "-i lo -j ACCEPT", STATE])).table("filter")["FORWARD"].rules
    assert established_head(rules) == 3
