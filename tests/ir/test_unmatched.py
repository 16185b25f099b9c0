"""Rules that match no packet of a kernel; what kernels do is tried in tests/kernel/test_connection_states.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.hitables_command import run

from hitables.ir.fields import Family
from hitables.ir.unmatched import unmatched
from hitables.reader import read

NEW = "-m conntrack --ctstate NEW"
SYN_ACK = "-p tcp -m tcp --tcp-flags SYN,ACK SYN,ACK"


def why(table: str, rule: str, family: Family = Family.IPV4, more: str = "") -> str:
    """What is said of a rule; "" if nothing is."""
    text = f"*{table}\n{more}{rule}\nCOMMIT\n"
    found = [each.why for each in unmatched(read(text, family=family).table(table), family)]
    return found[0] if found else ""


@pytest.mark.parametrize(
    ("table", "rule", "expected"),
    [
        ("filter", f"-A INPUT {SYN_ACK} {NEW} -j REJECT", "begins no connection: it is INVALID or ESTABLISHED"),
        ("filter", f"-A INPUT {SYN_ACK} {NEW},ESTABLISHED -j REJECT", ""),
        ("filter", f"-A INPUT -p tcp -m tcp --tcp-flags RST RST {NEW} -j DROP", ""),  # behind a SYN without answer
        ("filter", f"-A INPUT -p tcp -m tcp --tcp-flags ALL NONE {NEW} -j DROP", "no packet of a connection has these flags"),
        ("filter", f"-A INPUT -p icmp -m icmp --icmp-type 3/4 {NEW} -j ACCEPT", "an error of ICMP begins no connection"),
        ("filter", f"-A INPUT -p icmp -m icmp --icmp-type 0 {NEW} -j ACCEPT", "an answer of ICMP begins no connection"),
        ("filter", f"-A INPUT -p icmp -m icmp --icmp-type 8 {NEW} -j ACCEPT", ""),
        ("filter", f"-A INPUT -p icmp {NEW} -j ACCEPT", ""),
        ("filter", "-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT", ""),
        ("nat", "-A PREROUTING -m conntrack --ctstate ESTABLISHED,INVALID -j ACCEPT", "table nat sees the first packet"),
        ("nat", "-A POSTROUTING -m conntrack --ctstate DNAT -j MASQUERADE", ""),
        ("raw", f"-A PREROUTING -i eth0 {NEW} -j DROP", "packets of table raw have no connection yet"),
        ("raw", f"-A PREROUTING {NEW} -j DROP", ""),  # those of lo
        ("raw", "-A PREROUTING -i eth0 -m conntrack --ctstate INVALID -j DROP", ""),
        ("filter", "-A INPUT -i eth0:1 -j DROP", "no interface has ':' in its name (eth0:1); packets of an alias"),
        ("filter", "-A FORWARD -o eth0/+ -j DROP", "no interface has '/' in its name (eth0/)"),
        ("filter", "-A INPUT ! -i eth0:1 -j DROP", ""),
        ("filter", "-A INPUT -i eth+ -j DROP", ""),
        ("filter", "-A INPUT -p ipv6-icmp -j ACCEPT", "no host sends ICMPv6 by IPv4, whose own is -p icmp"),
        ("filter", "-A INPUT ! -p ipv6-icmp -j ACCEPT", ""),
        ("filter", "-A INPUT -p icmp -j ACCEPT", ""),
    ],
)  # fmt: skip
def test_a_rule_for_packets_that_no_kernel_has_is_told(table: str, rule: str, expected: str) -> None:
    assert (expected in why(table, rule)) if expected else not why(table, rule)


def test_icmp_is_not_sent_by_ipv6() -> None:
    assert "whose own is -p ipv6-icmp" in why("filter", "-A INPUT -p icmp -j ACCEPT", Family.IPV6)
    assert not why("filter", "-A INPUT -p ipv6-icmp -j ACCEPT", Family.IPV6)


def test_neighbour_discovery_is_never_new() -> None:
    rule = f"-A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type {{}} {NEW} -j ACCEPT"
    assert "is not tracked: it is UNTRACKED" in why("filter", rule.format(135), Family.IPV6)
    assert not why("filter", rule.format(128), Family.IPV6)


def test_ct_gives_packets_of_raw_other_states() -> None:
    rule = f"-A PREROUTING -i eth0 {NEW} -j DROP"
    assert why("raw", rule) and not why("raw", rule, more="-A PREROUTING -j CT --zone 5\n")


def test_lint_notes_such_rules_and_its_exit_status_stays(tmp_path: Path) -> None:
    path = tmp_path / "alias.rules"
    path.write_text("*filter\n:INPUT DROP [0:0]\n-A INPUT -i eth0:1 -j ACCEPT\nCOMMIT\n")
    done = run("lint", path)
    assert "note: line 3 (table filter, chain INPUT) matches no packet: no interface has ':'" in done.stdout
    (note,) = json.loads(run("lint", path, "--format", "json").stdout)["notes"]
    assert note.startswith("line 3 (table filter, chain INPUT) matches no packet")
