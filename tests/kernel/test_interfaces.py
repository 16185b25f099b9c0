"""Trees of interfaces in the kernel: the tests of names that they print mean the same in both backends."""

from __future__ import annotations

import random
import re
from collections import Counter
from itertools import product

import pytest
from support.interface_texts import NAMES, WILD, drawn
from support.kernel_packets import packet

from hitables import read
from hitables.compiler.options import Options
from hitables.compiler.pipeline import compile_text
from hitables.ir.fields import UDP, Family, interface_number
from hitables.ir.packet import Backend, Outcome, Packet
from hitables.ir.program import Program
from hitables.ir.rule import Rule
from hitables.ir.semantics import run
from hitables.kernel import Namespace, load, save
from hitables.kernel.experiment import Trial, furnish, prepare, send_trials

pytestmark = pytest.mark.needs_kernel

# On an interface whose name begins like that of a tunnel, packets arrive without hardware address.
SENT = tuple(name for name in NAMES if name not in ("br-2.100", "eth10"))


def by_comment(text: str) -> Counter[str]:
    """How many packets the copies of each numbered rule have counted."""
    counted: Counter[str] = Counter()
    for packets, comment in re.findall(r"^\[(\d+):\d+\].*--comment (r\d+)", text, re.MULTILINE):
        counted[comment] += int(packets)
    return counted


def predicted(
    program: Program, chain: str, sent: list[Packet], backend: Backend
) -> tuple[Counter[str], list[bool]]:
    """What the rules of the list count, and which packets pass, by the meaning of the program."""
    counted: Counter[str] = Counter()
    passed = []
    for each in sent:
        walk = run(program.table("filter"), chain, each, backend)
        passed.append(walk.verdict == "ACCEPT")
        for step in walk.steps:
            if step.outcome is Outcome.YES:
                counted.update(m.words[-1] for m in step.rule.matches if m.name == "comment")
    return counted, passed


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize(("family", "chain"), [(Family.IPV4, "FORWARD"), (Family.IPV6, "FORWARD"),
                                               (Family.IPV4, "INPUT"), (Family.IPV4, "OUTPUT")])  # fmt: skip
def test_each_packet_meets_the_same_rules_as_in_the_list(
    family: Family, chain: str, backend: Backend
) -> None:
    """Every pair of interfaces through the compiled rules; counters and verdicts are those of the list."""
    text = drawn(random.Random(f"{family} {chain}"), chain, rules=60)
    result = compile_text(text, Options(leaf_size=2, min_length=3, max_expansion=20.0), family=family)
    assert re.search(r"^-A \S+ -[io] \S+\+ -g ht", result.text, re.MULTILINE), "no beginning is tested"
    ways = product(SENT if chain != "OUTPUT" else ("",), SENT if chain != "INPUT" else ("",))
    sent = [packet(family, UDP, chain, iif=iif, oif=oif) for iif, oif in ways]
    with Namespace() as namespace:
        furnish(namespace, family, SENT)
        load(result.text, family, backend, namespace)
        prepare(namespace, "filter", chain, [Trial(each) for each in sent], tracked=False)
        fates = send_trials(namespace)
        counted = by_comment(save(family, backend, namespace, counters=True))
    assert all(fate.arrived for fate in fates)
    expected, passed = predicted(read(text, family=family), chain, sent, backend)
    assert [fate.passed for fate in fates] == passed
    assert counted - Counter() == expected


def predicted_names(rule: Rule) -> list[str]:
    """The input interfaces that pass all tests of the rule."""
    tests = [test for match in rule.matches for test in match.tests]
    return [name for name in SENT if all(interface_number(name) in test.values for test in tests)]


@pytest.mark.parametrize("backend", Backend)
def test_a_name_and_a_beginning_match_the_same_names_in_the_kernel_as_here(backend: Backend) -> None:
    """A beginning of 14 bytes, one that ends with `*` or `+`, `! -i +`: which names each rule counts."""
    spelt = [*WILD, *(name for name in SENT if not name.endswith("+"))]
    rules = [f"{bang}-i {name}" for name in spelt for bang in ("", "! ")]
    lines = "\n".join(f"-A FORWARD {rule} -m comment --comment r{at}" for at, rule in enumerate(rules))
    sent = [packet(Family.IPV4, UDP, "FORWARD", iif=name, oif=SENT[0]) for name in SENT]
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, SENT)
        load(f"*filter\n{lines}\nCOMMIT\n", Family.IPV4, backend, namespace)
        prepare(namespace, "filter", "FORWARD", [Trial(each) for each in sent], tracked=False)
        send_trials(namespace)
        counted = by_comment(save(Family.IPV4, backend, namespace, counters=True))
    for at, rule in enumerate(rules):
        meant = read(f"*filter\n-A FORWARD {rule}\nCOMMIT\n").table("filter")["FORWARD"].rules[0]
        count = len(predicted_names(meant))
        assert counted[f"r{at}"] == count, rule
