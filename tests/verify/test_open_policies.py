"""A policy `-` leaves the kernel's policy as it is, which may be any: no verdict is equal to it."""

from __future__ import annotations

import pytest

import hitables
from hitables.ir.program import Program
from hitables.verify import bdd, exact
from hitables.verify.lint import lint
from hitables.verify.question import KERNEL_POLICY, Difference, Equal, Question

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
