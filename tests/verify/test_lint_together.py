"""The lines that lint names as those that have to be removed with a rule that changes nothing."""

from __future__ import annotations

import pytest

import hitables
from hitables.verify.lint import NOTHING

pytestmark = pytest.mark.engine


def test_a_rule_in_front_of_all_that_decide_its_packets_is_not_named() -> None:
    text = (
        "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
        "-A INPUT -s 10.1.0.0/16 -p tcp -j REJECT\n-A INPUT -s 10.1.0.0/16 -p tcp -j DROP\n"
        "-A INPUT -s 10.0.0.0/7 -j ACCEPT\n-A INPUT -s 10.0.0.0/7 -j DROP\nCOMMIT\n"
    )
    together = {flaw.line: flaw.together for flaw in hitables.lint(text).flaws if flaw.kind == NOTHING}
    assert together == {7: (8,)}
