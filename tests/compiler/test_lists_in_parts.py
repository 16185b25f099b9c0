"""Lists of two kinds of rules by turns, and lists of different fields behind each other."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.every_packet import TooMany, difference, every_walk
from support.lists_in_parts import drawn, text
from support.scale import deep, examples

import hitables
from hitables.build.tree import EntryKind
from hitables.compiler import run_trees
from hitables.ir.choices import Malformed
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.verify.question import Question

pytestmark = pytest.mark.engine

RNG = random.Random(3)
HOSTS = [".".join(str(RNG.randrange(1, 224)) for _ in range(4)) for _ in range(200)]
NAMES = [f"tap{RNG.getrandbits(32):08x}-{RNG.getrandbits(8):02x}" for _ in range(150)]
PORTS = RNG.sample(range(1, 65536), 200)


def by_turns(one: str, two: str, values: list[str] | list[int], *targets: str) -> list[str]:
    pairs = [each.format(value) for value in values for each in (one, two)]
    return [f"{rule} {targets[at % len(targets)]}" for at, rule in enumerate(pairs)]


LISTS = {
    "hosts blocked both ways": (by_turns("-s {}", "-d {}", HOSTS, "-j DROP"), 50),
    "hosts accepted or dropped": (by_turns("-s {}", "-d {}", HOSTS, "-j DROP", "-j ACCEPT", "-j DROP"), 50),
    "ports both ways": (
        by_turns("-p tcp -m tcp --sport {}", "-p tcp -m tcp --dport {}", PORTS, "-j ACCEPT"),
        50,
    ),
    "interfaces": (by_turns("-i {}", "-o {}", NAMES, "-j DROP"), 60),
    "ports of a bridge": (
        by_turns("-m physdev --physdev-in {}", "-m physdev --physdev-out {} --physdev-is-bridged", NAMES, "-j DROP"),
        60,
    ),
    "hosts, then ports": (
        [f"-s {host} -j DROP" for host in HOSTS] + [f"-p tcp -m tcp --dport {port} -j ACCEPT" for port in PORTS],
        20,
    ),
    "interfaces in, then out": ([f"-{way} {name} -j DROP" for way in "io" for name in NAMES], 40),
    "four lists": (
        [f"-s {host} -j DROP" for host in HOSTS]
        + [f"-p udp -m udp --dport {port} -j ACCEPT" for port in PORTS]
        + [f"-i {name} -j DROP" for name in NAMES]
        + [f"-d {host} -j ACCEPT" for host in HOSTS],
        45,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("backend", ["nft", "any", "legacy"])
def test_packets_read_few_rules(name: str, backend: str) -> None:
    rules, most = LISTS[name]
    output = hitables.compile(
        text(["-m conntrack --ctstate ESTABLISHED -j ACCEPT", *rules, "-j LOG"]), backend=backend
    )
    (report,) = (each for each in output.reports if each.chain == "FORWARD")
    assert not output.by_regions and not report.why
    assert report.read_after < most < report.read_before / 2
    assert report.after <= 4 * len(rules)


def test_security_groups_of_a_bridge() -> None:
    """As OpenStack writes them: a chain for each port and way, entered in FORWARD and in a chain of all."""
    heads, jumps, groups, own = [":sg -\n:fallback -\n"], [], [], []
    for name in NAMES:
        for way in ("out", "in"):
            chain = f"{way[0]}{name[3:11]}"
            heads.append(f":{chain} -\n")
            jumps.append(f"-A FORWARD -m physdev --physdev-{way} {name} --physdev-is-bridged -j sg\n")
            groups.append(f"-A sg -m physdev --physdev-{way} {name} --physdev-is-bridged -j {chain}\n")
            own.append(f"-A {chain} -m conntrack --ctstate ESTABLISHED -j RETURN\n-A {chain} -j fallback\n")
    lines = [*jumps, *groups, "-A sg -j ACCEPT\n", *own, "-A fallback -j DROP\n"]
    source = "*filter\n:FORWARD ACCEPT\n" + "".join([*heads, *lines]) + "COMMIT\n"
    output = hitables.compile(source, backend="nft")
    reads = {each.chain: each.read_after for each in output.reports if not each.why}
    assert not output.by_regions and reads["FORWARD"] < 110 and reads["sg"] < 110


@pytest.mark.parametrize("leaves", ["-j RETURN", "-g user0"])
def test_a_rule_with_memory_that_leaves_the_chain_stays_in_it(leaves: str) -> None:
    rules = [f"-s {host} -j DROP" for host in HOSTS]
    rules.insert(90, f"-p tcp -s 10.9.0.0/17 -m limit --limit 3/sec {leaves}")
    rules += [f"-d {host} -j DROP" for host in HOSTS]
    rules += [f"-p udp -m udp --dport {port} -j ACCEPT" for port in PORTS]
    output = hitables.compile(text(rules, "list", ":list -\n:user0 -\n-A FORWARD -j list\n"))
    assert not output.faults and not output.by_regions


def test_lists_that_are_read_fast_as_they_are_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    source = text([f"-{way} 10.0.{n}.0/24 -j DROP" for n in range(200) for way in "sd"])
    before = hitables.compile(source).text
    monkeypatch.setattr(run_trees, "apart", None)
    assert hitables.compile(source).text == before


def test_rules_that_affect_no_verdict_go_before_the_list_is_cut() -> None:
    rules = [*LISTS["hosts blocked both ways"][0], f"-s {HOSTS[0]} -j DROP"]
    output = hitables.compile(text(rules), equivalence="verdict")
    (report,) = (each for each in output.reports if each.chain == "FORWARD")
    assert report.gone == 1 and report.read_after < 25


@settings(max_examples=examples(30))
@given(seed=st.integers(0, 2**32))
def test_every_packet_is_treated_as_in_the_list(seed: int) -> None:
    rng = random.Random(seed)
    family = rng.choice(list(Family))
    source = drawn(rng, family)
    malformed = rng.choice(list(Malformed))
    backend = rng.choice(["nft", "legacy"])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_trees.RunTrees, "FEW_READ", rng.choice([0, 1]))
        output = hitables.compile(
            source, backend=backend, family=family, malformed=malformed, min_length=8, max_expansion=8
        )
    assert not output.faults
    walks = every_walk(output.before, output.program, (Backend(backend),), most=5000 if deep() else 2000)
    with contextlib.suppress(TooMany):
        assert difference(walks, Question(malformed=malformed)) is None


def test_the_drawn_lists_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_trees.RunTrees, "FEW_READ", 0)
    steps: set[int] = set()
    told = run_trees.apart

    def noting(*arguments: object) -> object:
        trees = told(*arguments)  # type: ignore[arg-type]
        for tree in trees:
            steps.update(tree.step.tolist())
        return trees

    monkeypatch.setattr(run_trees, "apart", noting)
    for seed in range(15):
        rng = random.Random(seed)
        hitables.compile(drawn(rng, Family.IPV4), min_length=8, max_expansion=8)
    assert {EntryKind.ASK, EntryKind.MEET, EntryKind.GO, EntryKind.RULE} <= steps
