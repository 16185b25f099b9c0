"""A policy `-` leaves the kernel's policy as it is, which may be any: no verdict is equal to it."""

from __future__ import annotations

import re

import pytest
from support.small_namespace import Namespace

import hitables
from hitables.compiler.text_proof import prove_equal
from hitables.errors import NotEquivalent
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.kernel.namespace import run
from hitables.kernel.replay import ReplayResult, replay
from hitables.simulate import sampling
from hitables.verify import bdd, exact
from hitables.verify.lint import lint
from hitables.verify.question import KERNEL_POLICY, Difference, Equal, Question
from hitables.verify.reach import reach

pytestmark = pytest.mark.engine


def ending(target: str, policy: str = "-") -> Program:
    return hitables.read(
        f"*filter\n:FORWARD {policy} [0:0]\n-A FORWARD -s 10.0.0.1/32 -j {target}\n-A FORWARD -p udp -j DROP\nCOMMIT\n"
    )


@pytest.mark.parametrize("check", [exact.check, bdd.check], ids=["exact", "diagrams"])
@pytest.mark.parametrize("target", ["ACCEPT", "DROP"])
def test_return_is_no_verdict_where_the_kernel_keeps_its_policy(check: object, target: str) -> None:
    assert callable(check)
    answer = check(ending("RETURN"), ending(target), Question())
    assert isinstance(answer, Difference)
    assert KERNEL_POLICY in answer.reason and target in answer.reason
    assert isinstance(check(ending("RETURN"), ending("RETURN"), Question()), Equal)


@pytest.mark.parametrize("check", [exact.check, bdd.check], ids=["exact", "diagrams"])
def test_return_is_the_policy_where_there_is_one(check: object) -> None:
    assert callable(check)
    for policy in ("ACCEPT", "DROP"):
        assert isinstance(check(ending("RETURN", policy), ending(policy, policy), Question()), Equal)


def test_a_verdict_before_a_kept_policy_has_an_effect() -> None:
    text = "*filter\n:INPUT {} [0:0]\n-A INPUT -s 10.0.0.1/32 -j ACCEPT\nCOMMIT\n"
    kept, given = (hitables.read(text.format(policy)) for policy in ("-", "ACCEPT"))
    assert lint(kept, Question(), tell=lambda stage: None).flaws == []
    assert lint(given, Question(), tell=lambda stage: None).flaws != []


ENGINES = {"exact": exact.check, "diagrams": bdd.check, "sample": sampling.check}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", ["ACCEPT", "DROP"])
def test_a_policy_that_is_kept_is_equal_to_no_policy_that_is_given(engine: str, policy: str) -> None:
    kept, given = ending("DROP"), ending("DROP", policy)
    for before, after in ((kept, given), (given, kept)):
        answer = ENGINES[engine](before, after, Question())
        assert isinstance(answer, Difference) and answer.chain == "FORWARD"
        assert KERNEL_POLICY in answer.reason and policy in answer.reason
    assert isinstance(ENGINES[engine](kept, kept, Question()), Equal)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_policy_that_no_packet_meets_makes_no_difference(engine: str) -> None:
    texts = [f"*filter\n:FORWARD {policy} [0:0]\n-A FORWARD -j DROP\nCOMMIT\n" for policy in ("-", "ACCEPT")]
    before, after = map(hitables.read, texts)
    assert isinstance(ENGINES[engine](before, after, Question()), Equal)


def test_no_namespace_can_show_which_policy_a_kernel_has() -> None:
    kept, given = ending("DROP"), ending("DROP", "ACCEPT")
    difference = exact.check(kept, given, Question())
    assert isinstance(difference, Difference)
    shown = replay(kept, given, difference)
    assert shown.finding is ReplayResult.NOT_REALISABLE and "policy" in shown.reason and not shown.shown


def test_a_table_that_is_not_loaded_keeps_its_policies() -> None:
    nat = "*nat\n-A PREROUTING -p tcp -j ACCEPT\nCOMMIT\n"
    both = nat + "*filter\n:FORWARD {} [0:0]\nCOMMIT\n"
    assert hitables.check(nat, both.format("-")).result.value == 0
    assert hitables.check(nat, both.format("DROP")).result.value == 1


def test_packets_at_the_end_of_a_chain_with_a_kept_policy_may_pass() -> None:
    text = "*filter\n:FORWARD - [0:0]\n-A FORWARD -s 10.0.0.0/8 -j DROP\nCOMMIT\n"
    question = Question(tables=frozenset({"filter"}), chains=frozenset({"FORWARD"}))
    found = reach(hitables.read(text), {}, question, tell=lambda stage: None)
    assert found.outcomes and all(each.passes for each in found.outcomes)
    assert {each.verdict for each in found.outcomes} == {KERNEL_POLICY}
    packet = "chain=FORWARD in=eth0 out=eth1 src=192.0.2.1 dst=192.0.2.2 proto=icmp icmp=8/0"
    assert hitables.trace(text, packet).verdict == KERNEL_POLICY


def test_a_compiled_chain_keeps_the_kernels_policy() -> None:
    rules = "".join(f"-A FORWARD -s 10.{n}.0.0/16 -p tcp --dport {n} -j RETURN\n" for n in range(1, 60))
    text = f"*filter\n:FORWARD - [0:0]\n{rules}-A FORWARD -p udp -j DROP\nCOMMIT\n"
    output = hitables.compile(text)
    assert output.program.rule_count() > output.before.rule_count() and not output.faults
    assert re.search(r"^:FORWARD - ", output.text, re.MULTILINE)


UNDECLARED = "*filter\n-A FORWARD -s 10.0.0.1/32 -j {}\n-A FORWARD -s 10.0.0.0/24 -j DROP\nCOMMIT\n"


@pytest.mark.parametrize("target", ["ACCEPT", "RETURN"])
def test_compile_and_lint_do_not_rely_on_the_policy_of_a_chain_that_is_not_named(target: str) -> None:
    """iptables-legacy-restore leaves it, and the kernel may have DROP."""
    text = UNDECLARED.format(target).replace("-s 10.0.0.0/24", "-p udp")
    output = hitables.compile(text, equivalence="verdict", min_length=1)
    assert f"-A FORWARD -s 10.0.0.1/32 -j {target}\n" in output.text and ":FORWARD" not in output.text
    assert hitables.lint(text).flaws == []
    named = text.replace("*filter\n", "*filter\n:FORWARD ACCEPT [0:0]\n").replace("-p udp", "-s 10.0.0.2/32")
    assert (
        f"-A FORWARD -s 10.0.0.1/32 -j {target}\n" not in hitables.compile(named, equivalence="verdict").text
    )


def test_the_proof_of_a_compiled_text_does_not_rely_on_it() -> None:
    text = UNDECLARED.format("ACCEPT")
    with pytest.raises(NotEquivalent):
        prove_equal(hitables.read(text), UNDECLARED.format("RETURN"), Question())
    prove_equal(hitables.read(text), text, Question())
    declared = "*filter\n:FORWARD ACCEPT [0:0]\n"
    other = UNDECLARED.format("RETURN").replace("*filter\n", declared)
    prove_equal(hitables.read(text.replace("*filter\n", declared)), other, Question())


def policies_left(backend: str, declared: str) -> list[str]:
    """What the policy DROP becomes where such a text is loaded: as a whole, then with --noflush."""
    tool, text = f"iptables-{backend}", f"*filter\n{declared}-A FORWARD -s 10.0.0.1/32 -j ACCEPT\nCOMMIT\n"
    policies = []
    for options in ([], ["--noflush"]):
        run([tool, "-P", "FORWARD", "DROP"])
        run([f"{tool}-restore", *options], text)
        found = re.search(r"^:FORWARD (\S+)", run([f"{tool}-save", "-t", "filter"]), re.MULTILINE)
        assert found is not None
        policies.append(found[1])
    return policies


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("declared", [":FORWARD - [0:0]\n", ""], ids=["-", "undeclared"])
def test_the_kernel_keeps_such_a_policy(backend: Backend, declared: str) -> None:
    with Namespace() as namespace:
        whole = "DROP" if backend is Backend.LEGACY else "ACCEPT"
        assert namespace.call(policies_left, backend.value, declared) == [whole, "DROP"]
