"""Jumps of other programs behind all rules of a chain: docker and netavark append theirs to table nat.

A packet that no rule decides must reach them, wherever the trees of the chain have taken it.
"""

from __future__ import annotations

import json
import re
import socket

import pytest
from support.firewall import Firewall, plain

import hitables
from hitables.apply.drift import cut_off_jumps
from hitables.apply.records import Half
from hitables.apply.texts import parse
from hitables.compiler.list_planner import ListPlanner
from hitables.compiler.options import Options
from hitables.compiler.pipeline import compile_text

REDIRECTS = "".join(
    f"-A OUTPUT -s 10.{each}.0.0/16 -p udp -m udp --dport 443 -j REDIRECT --to-ports 8443\n"
    for each in range(60)
)
NAT = f"*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{REDIRECTS}COMMIT\n"
JUMP = "-m addrtype --dst-type LOCAL -j DOCKER"


def send() -> None:
    """A packet from an address of one of the trees, which no rule of REDIRECTS matches."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("10.7.0.1", 0))
        sender.sendto(b"", ("10.7.0.1", 8080))


@pytest.mark.needs_kernel
def test_packets_reach_a_jump_that_is_appended_behind_the_trees(firewall: Firewall) -> None:
    firewall.namespace.run(["ip", "address", "add", "10.7.0.1/32", "dev", "lo"])
    firewall.namespace.run(["ip", "link", "set", "lo", "up"])
    firewall.apply(firewall.file(NAT), "--leave", "docker")
    assert " -g ht" in firewall.save()
    firewall.iptables("-t", "nat", "-N", "DOCKER")
    firewall.iptables("-t", "nat", "-A", "OUTPUT", *JUMP.split())
    firewall.namespace.call(send)
    assert f"[1:28] -A OUTPUT {JUMP}" in firewall.save(counters=True)
    firewall.hitables("status")
    # The jump stays last, also behind rules that are new.
    more = "-A OUTPUT -d 192.0.2.1 -p udp -m udp --dport 53 -j REDIRECT --to-ports 5353\n"
    firewall.apply(firewall.file(NAT.replace("COMMIT", f"{more}COMMIT")), "--leave", "docker")
    assert firewall.iptables("-t", "nat", "-S", "OUTPUT").splitlines()[-1] == f"-A OUTPUT {JUMP}"
    held = plain(firewall.save())
    firewall.hitables("status", "--repair")
    assert plain(firewall.save()) == held


@pytest.mark.needs_kernel
def test_a_jump_behind_all_rules_stays_there_and_leaves_the_chain_its_tree(firewall: Firewall) -> None:
    rules = "".join(
        f"-A INPUT -s 10.{each}.0.0/16 -p tcp -m tcp --dport {each + 1} -j DROP\n" for each in range(60)
    )
    text = f"*filter\n:INPUT ACCEPT [0:0]\n{rules}COMMIT\n"
    firewall.iptables("-N", "f2b-a")
    firewall.iptables("-A", "INPUT", "-j", "f2b-a")
    for _ in range(2):
        firewall.apply(firewall.file(text), "--leave", "fail2ban")
        firewall.iptables("-D", "INPUT", "-j", "f2b-a")
        firewall.iptables("-A", "INPUT", "-j", "f2b-a")
    firewall.hitables("status")
    changed = text.replace("COMMIT", "-A INPUT -s 192.0.2.1 -j DROP\nCOMMIT")
    firewall.apply(firewall.file(changed), "--leave", "fail2ban")
    chain = firewall.iptables("-S", "INPUT").splitlines()[1:]
    assert chain[-1] == "-A INPUT -j f2b-a" and len(chain) < 10


@pytest.mark.needs_kernel
def test_a_jump_that_an_unknown_program_appends_is_told_and_applied_rules_let_packets_reach_it(
    firewall: Firewall,
) -> None:
    text = f"*filter\n{NAT[NAT.index(':OUTPUT') :].replace('REDIRECT --to-ports 8443', 'DROP')}"
    firewall.apply(firewall.file(text), "--leave", "mine-*")
    firewall.iptables("-N", "mine-a")
    firewall.iptables("-A", "OUTPUT", "-j", "mine-a")
    shown = firewall.hitables("status", status=1).stdout
    assert "chain OUTPUT: '-j mine-a' stands behind a tree now" in shown
    repaired = firewall.hitables("status", "--repair", status=1).stdout.partition("is loaded again\n")[2]
    assert repaired.startswith("rules still differ from rule set 2 when it is loaded again:\n  IPv4: table")
    assert f": hitables apply {firewall.folder}/office.rules --leave 'mine-*'\n" in repaired
    data = json.loads(firewall.hitables("status", "--repair", "--format", "json", status=1).stdout)
    assert data["repaired"] == 2 and "rules still differ from rule set 2" in "".join(data["notes"])
    firewall.apply(firewall.file(text), "--leave", "mine-*")
    assert len(firewall.iptables("-S", "OUTPUT").splitlines()) == 3
    firewall.hitables("status")


def test_a_jump_in_front_of_a_tree_that_was_appended_again_is_told() -> None:
    """As of rules that an earlier version applied, whose trees are not called."""
    tree = ["-A OUTPUT -s 10.0.0.0/9 -g ht1", "-A OUTPUT -s 10.128.0.0/9 -j ACCEPT", "-A ht1 -j ACCEPT"]
    jump = f"-A OUTPUT {JUMP}"
    texts = (
        "\n".join(["*nat", ":OUTPUT ACCEPT [0:0]", ":DOCKER - [0:0]", ":ht1 - [0:0]", *rules, "COMMIT", ""])
        for rules in ([jump, *tree], [*tree, jump])
    )
    loaded, now = map(parse, texts)
    half = Half(loaded, {"nat": ("ht1",)})
    (told,) = cut_off_jumps(now, half, ["DOCKER"])
    assert f"chain OUTPUT: '{JUMP}' stands behind a tree now" in told
    assert not list(cut_off_jumps(loaded, half, ["DOCKER"]))
    assert not list(cut_off_jumps(now, Half(now, {"nat": ("ht1",)}), ["DOCKER"]))


@pytest.mark.needs_kernel
@pytest.mark.parametrize("spelling", ["{}", "{}/32"])
def test_a_jump_behind_all_rules_stays_last_however_the_file_is_spelled(
    firewall: Firewall, spelling: str
) -> None:
    rules = [f"-A INPUT -s {spelling.format(f'10.0.0.{each}')} -j DROP" for each in range(1, 5)]
    for rule in rules[:3]:
        firewall.iptables(*rule.split())
    firewall.iptables("-N", "f2b-a")
    firewall.iptables("-A", "INPUT", "-j", "f2b-a")
    text = "\n".join(["*filter", ":INPUT ACCEPT [0:0]", *rules, "COMMIT", ""])
    firewall.apply(firewall.file(text), "--leave", "fail2ban")
    assert firewall.iptables("-S", "INPUT").splitlines()[-1] == "-A INPUT -j f2b-a"


@pytest.mark.parametrize("backend", ["any", "legacy", "nft"])
@pytest.mark.parametrize("equivalence", ["full", "verdict"])
def test_the_proof_knows_of_jumps_that_will_be_appended(backend: str, equivalence: str) -> None:
    exempt = "-A OUTPUT -s 192.0.2.7/32 -j ACCEPT\n"  # as the policy does, but docker gets no such packet
    text = NAT.replace("COMMIT", f"{exempt}COMMIT")
    output = hitables.compile(text, backend=backend, equivalence=equivalence, leave="docker")
    assert output.proved and not output.faults
    assert " -s 192.0.2.7/32 -j ACCEPT" in output.text
    (report,) = (report for report in output.reports if report.chain == "OUTPUT")
    assert report.why == "" and report.read_after < 30
    chain = re.findall("^-A OUTPUT .*", output.text, flags=re.MULTILINE)
    assert not any(" -g " in rule for rule in chain)


@pytest.mark.injects_fault
def test_a_tree_that_keeps_packets_from_appended_jumps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ListPlanner, "is_open", lambda *chain: False)
    output = compile_text(NAT, Options(leave=("DOCKER",)))
    assert [fault.chain for fault in output.faults] == ["OUTPUT"]
    assert "the rules of chain DOCKER" in output.faults[0].detail


@pytest.mark.needs_kernel
@pytest.mark.parametrize(
    ("leave", "table", "chain", "jump"),
    [
        ("FLANNEL-*", "filter", "FORWARD", "-j FLANNEL-FWD"),
        ("NETAVARK-HOSTPORT-MASQ", "nat", "POSTROUTING", "-j NETAVARK-HOSTPORT-MASQ"),
        ("cni", "nat", "POSTROUTING", "-s 10.88.0.2/32 -j CNI-1abb70b64f54bf384ceebd70"),
        ("cni", "nat", "OUTPUT", "-m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT"),
        ("proxmox", "filter", "INPUT", "-j PVEFW-INPUT"),
    ],
)
def test_programs_may_append_their_jumps_anew(
    firewall: Firewall, leave: str, table: str, chain: str, jump: str
) -> None:
    """flanneld and netavark delete the jump and append it, also where it was in front; CNI for a container.

    portmap and pve-firewall append theirs where there is none, as after a boot.
    """
    rules = NAT[NAT.index("-A") :].replace("OUTPUT", chain).replace("REDIRECT --to-ports 8443", "ACCEPT")
    program = jump.split()[-1]
    firewall.iptables("-t", table, "-N", program)
    firewall.iptables("-t", table, "-A", chain, *jump.split())
    text = f"*{table}\n:{chain} ACCEPT [0:0]\n{rules}"
    firewall.apply(firewall.file(text), "--leave", leave)
    for _ in range(2):
        listed = firewall.iptables("-t", table, "-S", chain).splitlines()[1:]
        assert listed[-1] == f"-A {chain} {jump}" and not any(" -g " in rule for rule in listed)
        firewall.iptables("-t", table, "-D", chain, *jump.split())
        firewall.iptables("-t", table, "-A", chain, *jump.split())
        firewall.hitables("status")


@pytest.mark.parametrize("has_jump", [False, True])
@pytest.mark.parametrize(
    ("program", "called"),
    [("ufw", "ufw-before-input"), ("proxmox", "PVEFW-INPUT"), ("ocserv", "INPUT-ocserv-fw-vpns0")],
)
def test_trees_of_a_chain_to_which_a_program_may_append_are_called(
    program: str, called: str, has_jump: bool
) -> None:
    """ufw and pve-firewall append their jumps if they find none, ocserv-fw for each client."""
    jump = f"-A INPUT -j {called}\n" if has_jump else ""
    rules = (
        NAT[NAT.index("-A") :].replace("-A OUTPUT", "-A INPUT").replace("REDIRECT --to-ports 8443", "DROP")
    )
    text = f"*filter\n:INPUT ACCEPT [0:0]\n:{called} - [0:0]\n{jump}{rules}"
    output = hitables.compile(text, leave=program)
    is_left_in_front = has_jump and program == "ufw"  # the boot makes its chains, and the jumps to them
    assert bool(re.search("^-A INPUT .* -g ht", output.text, flags=re.MULTILINE)) == is_left_in_front
    assert " -g ht" in output.text


@pytest.mark.parametrize("leave", ["cni", "podman", "CNI-*", "CNI-HOSTPORT-DNAT"])
def test_trees_leave_room_for_the_jump_of_ports_that_cni_publishes(leave: str) -> None:
    """portmap appends its jump for the first container after a boot; the file may have it in front."""
    declared, jump = ":CNI-HOSTPORT-DNAT - [0:0]\n", f"{JUMP.replace('DOCKER', 'CNI-HOSTPORT-DNAT')}\n"
    for text in (NAT, NAT.replace("COMMIT", f"{declared}-I OUTPUT {jump}COMMIT")):
        output = hitables.compile(text, leave=leave)
        chain = re.findall("^-A OUTPUT .*", output.text, flags=re.MULTILINE)
        assert output.proved and len(chain) < 30
        assert not any(" -g " in rule for rule in chain)
