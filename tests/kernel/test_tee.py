"""The copy that TEE sends goes through OUTPUT before the next rule is read, so an ipset may change in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.firewall import BACKENDS, Firewall
from support.small_namespace import Namespace

import hitables
from hitables.ir.packet import Backend

RULES = """\
*mangle
-A OUTPUT -m conntrack --ctstate UNTRACKED -j SET --add-set seen src
COMMIT
*filter
:INPUT ACCEPT [0:0]
-A INPUT -m set --match-set seen src -j ACCEPT
-A INPUT -p udp -m udp --dport 53 -j TEE --gateway 127.0.0.2
-A INPUT -m set --match-set seen src -j DROP
COMMIT
"""


@pytest.mark.needs_kernel
@BACKENDS
def test_a_rule_behind_tee_finds_what_the_copy_added_to_an_ipset(backend: Backend, tmp_path: Path) -> None:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        firewall.load(RULES)
        firewall.send(1, 53)
        assert firewall.counted("seen src -j DROP") == 1


def test_the_rule_behind_tee_is_no_copy_of_the_one_before_it() -> None:
    without = RULES.replace("-A INPUT -m set --match-set seen src -j DROP\n", "")
    assert not hitables.check(RULES, without)
