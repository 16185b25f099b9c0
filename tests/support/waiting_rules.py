"""Rules that wait for their confirmation, and those before them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from support.firewall import Firewall

from hitables.apply.store import StateDirectory

OLD = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 10.0.0.1/32 -j DROP\nCOMMIT\n"

NEW = "*filter\n:INPUT DROP [0:0]\n" + "".join(
    f"-A INPUT -s 10.{n}.0.0/16 -p tcp -m tcp --dport {n} -j ACCEPT\n" for n in range(1, 41)
) + "-A INPUT -i lo -j ACCEPT\nCOMMIT\n"  # fmt: skip

HITABLES = Path(sys.executable).parent / "hitables"


def status_of(firewall: Firewall) -> dict[int, str]:
    return dict(StateDirectory(firewall.state, -1).state().status)


def guard_of(firewall: Firewall) -> int:
    waiting = json.loads((firewall.state / "state.json").read_text())["waiting"]
    assert waiting is not None
    return int(waiting["guard"])


def add_a_jail(firewall: Firewall) -> None:
    """As fail2ban starts: a chain, and a jump to it in front of rules of ours."""
    firewall.iptables("-N", "f2b-sshd")
    firewall.iptables("-A", "f2b-sshd", "-s", "192.0.2.7", "-j", "DROP")
    firewall.iptables("-I", "INPUT", "-p", "tcp", "-j", "f2b-sshd")
