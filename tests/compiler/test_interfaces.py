"""Chains of interfaces: their trees test beginnings of names, and do what the lists do."""

from __future__ import annotations

import random
import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.equal_programs import assert_equal
from support.interface_texts import NAMES, apart, bridges, drawn, isolated
from support.scale import examples

from hitables import read, write
from hitables.build.grow import ALGORITHMS
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import NESTING, Options
from hitables.compiler.pipeline import compile_text
from hitables.ir.choices import Malformed, backends_of
from hitables.ir.fields import Family, Field, Fragment, interface_number
from hitables.ir.packet import Backend, Outcome, Packet
from hitables.ir.program import Program
from hitables.ir.semantics import run
from hitables.verify import bdd, exact
from hitables.verify.question import Equal, Question

pytestmark = pytest.mark.engine

SMALL = {"leaf_size": 2, "min_length": 3, "max_expansion": 20.0}
ADDRESSES = ("", "", "-s 10.0.0.0/8", "-s 10.1.0.0/16", "! -d 10.0.0.0/9", "-p tcp -m tcp --dport 22")


def packet(iif: str, oif: str) -> Packet:
    values = {
        Field.SRC: 0x0A010001, Field.DST: 0x0A010002, Field.PROTO: 47, Field.FRAG: Fragment.WHOLE,
        Field.IIF: interface_number(iif), Field.OIF: interface_number(oif), Field.STATE: 2,
    }  # fmt: skip
    return Packet(Family.IPV4, values)


def fates(program: Program, chain: str, backend: Backend) -> list[tuple[str, tuple[str, ...]]]:
    """Verdict and rules of every pair of names, and of packets that have one interface or none."""
    names = ("", *NAMES, "eth2", "b", "xxxxxxxxxxxxxz", "zz")
    found = []
    for iif, oif in product(names if chain != "OUTPUT" else ("",), names if chain != "INPUT" else ("",)):
        walk = run(program.table("filter"), chain, packet(iif, oif), backend)
        comments = [match.words[-1] for step in walk.steps if step.outcome is Outcome.YES for match in step.rule.matches
                    if match.name == "comment"]  # fmt: skip
        found.append((walk.verdict, tuple(comments)))
    return found


@pytest.mark.parametrize("chain", ["FORWARD", "INPUT", "OUTPUT"])
@pytest.mark.parametrize("backend", list(NESTING))
@settings(max_examples=examples(6), deadline=None)
@given(seed=st.integers(0, 2**32), algorithm=st.sampled_from(ALGORITHMS))
def test_every_pair_of_interfaces_meets_the_rules_that_it_met_in_the_list(
    backend: str, chain: str, seed: int, algorithm: str
) -> None:
    """Names of 15 letters, letters that mean something elsewhere, `! -i +`, packets without interface."""
    before = read(drawn(random.Random(seed), chain, rules=30))
    options = Options(backend=backend, algorithm=algorithm, **SMALL)
    after = read(write(compile_rules(before, options).program))
    for each in backends_of(options.backend):
        assert fates(before, chain, each) == fates(after, chain, each)


@pytest.mark.parametrize("chain", ["FORWARD", "INPUT", "OUTPUT"])
def test_most_rule_sets_that_these_laws_draw_get_trees_that_test_beginnings_of_names(chain: str) -> None:
    texts = (drawn(random.Random(seed), chain, rules=30) for seed in range(12))
    trees = [compile_text(text, Options(**SMALL)).text for text in texts]
    assert sum(bool(re.search(r"^-A \S+ -[io] \S+\+ -g ht", tree, re.MULTILINE)) for tree in trees) >= 8


@pytest.mark.parametrize("backend", list(NESTING))
@settings(max_examples=examples(6), deadline=None)
@given(seed=st.integers(0, 2**32), family=st.sampled_from(Family))
def test_interfaces_beside_addresses_and_ports_are_proved_by_both_engines(
    backend: str, seed: int, family: Family
) -> None:
    extras = ADDRESSES if family is Family.IPV4 else ("", "-s 2001:db8::/32", "-p tcp -m tcp --dport 22")
    before = read(drawn(random.Random(seed), rules=40, extras=extras), family=family)
    options = Options(backend=backend, **SMALL)
    after = read(write(compile_rules(before, options).program), family=family)
    assert_equal(before, after, options, count=300)
    question = Question(backends=backends_of(options.backend))
    for check in (exact.check, bdd.check):
        answer = check(before, after, question)
        assert isinstance(answer, Equal) and answer.proved, answer


PORTS = ("tap1", "tap12", "tap2", "t", "xxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxy")
PORT_TESTS = (
    *(f"--physdev-in {name}" for name in (*PORTS, *PORTS, "tap+", "tap1+", "+")),
    *(f"! --physdev-in {name}" for name in ("tap1", "tap+", "+")),
    *(f"--physdev-out {name} --physdev-is-bridged" for name in (*PORTS, "tap+")),
    "--physdev-is-bridged", "! --physdev-is-bridged", "! --physdev-out tap1",
)  # fmt: skip


def of_ports(rng: random.Random, extras: tuple[str, ...], rules: int = 40) -> str:
    """Rules that test ports of a bridge, in front of *extras* or behind them."""
    lines = [
        " ".join(["-A FORWARD", *rng.sample([f"-m physdev {rng.choice(PORT_TESTS)}", rng.choice(extras)], 2),
                  f"-j {rng.choice(('ACCEPT', 'DROP'))}"])
        for _ in range(rules)
    ]  # fmt: skip
    return "*filter\n:FORWARD DROP [0:0]\n" + "\n".join(lines) + "\nCOMMIT\n"


@pytest.mark.parametrize("backend", list(NESTING))
@settings(max_examples=examples(8), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    algorithm=st.sampled_from(ALGORITHMS),
    malformed=st.sampled_from(Malformed),
    family=st.sampled_from(Family),
)
def test_ports_of_bridges_beside_matches_that_drop_packets_get_trees_without_a_fault(
    backend: str, seed: int, algorithm: str, malformed: Malformed, family: Family
) -> None:
    """A packet whose header is cut off must meet a match that drops it, whatever its port."""
    sources = ("-s 10.0.0.0/8", "-s 10.1.0.0/16") if family is Family.IPV4 else ("-s 2001:db8::/32",)
    extras = (
        "",
        *sources,
        "-p tcp -m tcp --dport 22",
        "-p udp -m udp --dport 53",
        "-p tcp -m multiport --dports 22,80",
    )
    text = of_ports(random.Random(seed), extras)
    options = Options(backend=backend, algorithm=algorithm, malformed=malformed, **SMALL)
    result = compile_text(text, options, family=family)
    assert result.proved and not result.faults, result.faults


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("test", ["! --physdev-in +", "! --physdev-is-bridged"])
def test_a_tree_of_whole_names_does_not_test_that_there_is_no_port(algorithm: str, test: str) -> None:
    """No option but these says so, and they are no test of a name."""
    ports = [f"-A FORWARD -m physdev --physdev-in tap{n} -j ACCEPT" for n in range(12)]
    none = [f"-A FORWARD -s 10.{n}.0.0/16 -m physdev {test} -j DROP" for n in range(12)]
    text = "\n".join(["*filter", ":FORWARD DROP [0:0]", *ports, *none, "COMMIT"]) + "\n"
    assert not compile_text(text, Options(algorithm=algorithm, **SMALL)).faults


# Rules read on the mean, at most.  A test separates one branch of a fork, so sixteen digits take eight tests on
# the mean, and two names of 70 (or 200) can be told apart with 20 (26) of them.
MOST_READ = {70: 21.0, 200: 28.0}


@pytest.mark.parametrize("backend", list(NESTING))
def test_bridges_that_must_not_reach_each_other_are_a_small_tree(backend: str) -> None:
    result = compile_text(apart(bridges(70)), Options(backend=backend))
    (report,) = [each for each in result.reports if each.chain == "FORWARD"]
    assert report.before == 4830 and report.read_before > 2000
    assert report.read_after <= MOST_READ[70]
    assert report.after <= 2 * report.before


@pytest.mark.parametrize("count", [70, 200])
@pytest.mark.parametrize("backend", list(NESTING))
def test_the_two_stages_of_a_container_host_are_small_trees(backend: str, count: int) -> None:
    reports = compile_text(isolated(bridges(count)), Options(backend=backend)).reports
    one, two = (each for each in reports if each.chain != "FORWARD")
    assert one.read_before == count + 1 and one.read_after <= MOST_READ[count] / 2 + 4
    assert two.read_before > count / 2 and two.read_after <= MOST_READ[count] / 2 + 1
    assert max(one.after, two.after) <= 2 * (count + 1)
