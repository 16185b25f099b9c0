"""Rules that would cut off the session that applies them, or a packet that must pass, are refused."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from support.firewall import Firewall, office, plain
from support.small_namespace import Namespace

import hitables
from hitables.apply.translation import Ends, may_lead_to
from hitables.ir.fields import TCP, Family
from hitables.ir.packet import Backend
from hitables.kernel.conntrack import Flow, Tuple, make_flows
from hitables.kernel.netlink import Netfilter

pytestmark = pytest.mark.needs_kernel
HITABLES = Path(sys.executable).parent / "hitables"
SSH = {"SSH_CONNECTION": "10.3.0.1 40000 127.0.0.1 22"}


@pytest.fixture(params=list(Backend), ids=lambda backend: backend.value)
def firewall(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Firewall]:
    with Namespace() as namespace:
        yield Firewall(namespace, tmp_path, request.param)


def test_rules_that_would_end_this_session_are_refused_with_the_line_that_decides(firewall: Firewall) -> None:
    more = "-A INPUT -p tcp -m tcp --dport 22 -j DROP\n"
    path = firewall.file(office(more=more))
    error = firewall.apply(path, status=2, environment=SSH).stderr
    assert "the session (src=10.3.0.1 dst=127.0.0.1 proto=tcp dport=22" in error
    assert f"{path}:6: -A INPUT -p tcp -m tcp --dport 22 -j DROP" in error
    assert plain(firewall.save()) == ""
    warned = firewall.apply(path, "--force", environment=SSH).stderr
    assert "warning: would not pass" in warned


def test_a_link_local_session_comes_in_by_the_interface_of_its_zone(firewall: Firewall) -> None:
    for name in ("e0", "e1"):
        firewall.namespace.run(["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p"])
        firewall.namespace.run(["ip", "link", "set", name, "up"])
        firewall.namespace.run(["ip", "address", "add", "fe80::2/64", "dev", name, "nodad"])
    ssh = {"SSH_CONNECTION": "fe80::1%e1 50000 fe80::2%e1 22"}
    text = (
        "*filter\n:INPUT DROP [0:0]\n-A INPUT -i {} -s fe80::/10 -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n"
    )
    firewall.apply(firewall.file(text.format("e1")), "--dry-run", status=1, environment=ssh)
    error = firewall.apply(firewall.file(text.format("e0")), "--dry-run", status=2, environment=ssh).stderr
    assert "dport=22 in=e1" in error


ONE = pytest.mark.parametrize("firewall", [Backend.NFT], ids=["nft"], indirect=True)


def dry_run(firewall: Firewall) -> str:
    """A command of the shell that says how it ended: 2 where the session would be locked out, else 1."""
    path = firewall.file(office(more="-A INPUT -p tcp -m tcp --dport 22 -j DROP\n"))
    options = f"--backend {firewall.backend.value} --state {firewall.state} --dry-run"
    return f"{HITABLES} apply {path} {options}; echo status $?"


@ONE
def test_the_session_of_the_shell_above_is_known(firewall: Firewall) -> None:
    """sudo, doas and `su -` take SSH_CONNECTION away, the last one without a variable that tells.

    One that is empty says that there is no session.
    """
    for taken, status in (("-u SSH_CONNECTION", 2), ("SSH_CONNECTION=", 1)):
        script = f"exec env {taken} sh -c '{dry_run(firewall)}'"
        shell = ["env", "SSH_CONNECTION=10.3.0.1 40000 127.0.0.1 22", "sh", "-c", f"({script})"]
        assert f"status {status}\n" in firewall.namespace.run(shell)


NEW_PIDS = ["unshare", "--pid", "--fork", "--mount-proc"]


@ONE
def test_the_session_that_started_what_is_left_to_init_is_over_for_it(firewall: Firewall) -> None:
    """A server of tmux, for instance, or a daemon: setsid began a session of its own."""
    for begin, status in (("setsid", 1), ("env", 2)):
        script = f"{begin} sh -c 'unset SSH_CONNECTION; {dry_run(firewall)}'; true"
        with_init = ["env", f"SSH_CONNECTION={SSH['SSH_CONNECTION']}", *NEW_PIDS, "sh", "-c", script]
        assert f"status {status}\n" in firewall.namespace.run(with_init)


def at_terminal(script: str) -> str:
    """What a shell prints that has no process above it, and a terminal."""
    terminal, end = pty.openpty()
    command = [*NEW_PIDS, "env", "-u", "SSH_CONNECTION", "sh", "-c", script]
    done = subprocess.run(command, stdin=end, capture_output=True, text=True, check=False)
    os.close(terminal)
    os.close(end)
    return done.stdout + done.stderr


@ONE
def test_at_a_terminal_it_is_said_that_no_session_is_known(firewall: Firewall) -> None:
    said = firewall.namespace.call(at_terminal, dry_run(firewall))
    assert "no SSH session is known here" in said and "status 1\n" in said
    assert "no SSH" not in firewall.namespace.call(
        at_terminal, f"export SSH_CONNECTION=; {dry_run(firewall)}"
    )


def test_rules_that_let_no_new_session_in_are_refused(firewall: Firewall) -> None:
    more = "-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n"
    error = firewall.apply(firewall.file(office(more=more)), status=2, environment=SSH).stderr
    assert "a new connection (" in error
    assert "DROP by the policy of chain INPUT" in error
    assert "the session (" not in error
    allowed = more + "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n"
    firewall.apply(firewall.file(office(more=allowed)), environment=SSH)


MARKS_SSH = "-A PREROUTING -p tcp -m tcp --dport 22 -j MARK --set-xmark 0x1/0xffffffff\n"
NOT_TRACKED = "*raw\n-A PREROUTING -p tcp -m tcp --dport 22 -j CT --notrack\nCOMMIT\n"
TRACKED_ONLY = "-A INPUT -m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT\n"
FROM_CONNECTION = (
    "*mangle\n-A PREROUTING -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff\n"
    "-A PREROUTING -m conntrack --ctstate NEW -j CONNMARK --set-xmark 0x1/0xffffffff\n"
    "-A OUTPUT -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff\nCOMMIT\n"
)


@pytest.mark.parametrize(
    ("tables", "rule", "decides"),
    [
        (
            f"*mangle\n{MARKS_SSH}COMMIT\n",
            "-A INPUT -m mark --mark 0x1 -j DROP\n-A INPUT -j ACCEPT\n",
            "--mark 0x1 -j DROP",
        ),
        (
            f"*mangle\n{MARKS_SSH}COMMIT\n",
            "-A INPUT -m mark ! --mark 0x1 -j ACCEPT\n",
            "policy of chain INPUT",
        ),
        (NOT_TRACKED, TRACKED_ONLY, "policy of chain INPUT"),
        (
            FROM_CONNECTION,
            "-A INPUT -j ACCEPT\n-A OUTPUT -m mark --mark 0x1 -j DROP\n",
            "-A OUTPUT -m mark --mark 0x1",
        ),
    ],
    ids=["mark", "no mark", "not tracked", "mark of the connection"],
)
@pytest.mark.parametrize("where", ["file", "kernel"])
def test_what_other_tables_write_is_known_where_a_session_is_traced(
    firewall: Firewall, tables: str, rule: str, decides: str, where: str
) -> None:
    text = "*filter\n:INPUT DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n" + rule + "COMMIT\n"
    if where == "kernel":
        firewall.load(tables)
    path = firewall.file(tables + text if where == "file" else text)
    error = firewall.apply(path, status=2, environment=SSH).stderr
    assert decides in error and "these packets would not pass" in error
    must = "chain=INPUT src=10.3.0.1 dst=127.0.0.1 proto=tcp sport=9 dport=22"
    if "OUTPUT -m" not in rule:
        assert decides in firewall.apply(path, "--must", must, status=2).stderr
    assert "-A INPUT" not in firewall.save()


def test_every_packet_of_table_raw_is_invalid_where_a_session_is_traced(firewall: Firewall) -> None:
    raw = "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m conntrack --ctstate {} -j DROP\nCOMMIT\n"
    error = firewall.apply(firewall.file(raw.format("INVALID")), status=2, environment=SSH).stderr
    assert "these packets would not pass" in error and "--ctstate INVALID -j DROP" in error
    firewall.apply(firewall.file(raw.format("NEW,ESTABLISHED")), environment=SSH)


NEW_SSH = "-p tcp -m tcp --dport 22 -m conntrack --ctstate NEW"
SYN_IS_NOT_TRACKED = "*raw\n-A PREROUTING -p tcp -m tcp --dport 22 --syn -j CT --notrack\nCOMMIT\n"
ANSWERS_ARE_NOT_TRACKED = "*raw\n-A OUTPUT -p tcp -m tcp --sport 22 -j CT --notrack\nCOMMIT\n"


@pytest.mark.parametrize(
    "rule",
    [
        f"{NEW_SSH} -m recent --set --name SSH -j ACCEPT",
        f"{NEW_SSH} -m recent ! --rcheck --seconds 60 --hitcount 4 --name SSH -j ACCEPT",
        f"{NEW_SSH} -m recent ! --update --seconds 60 --name SSH -j ACCEPT",
        f"{NEW_SSH} -m connlimit --connlimit-upto 3 -j ACCEPT",
        f"{NEW_SSH} -m connlimit ! --connlimit-above 3 -j ACCEPT",
        f"{NEW_SSH} -m hashlimit --hashlimit-upto 3/min --hashlimit-name ssh -j ACCEPT",
        f"{NEW_SSH} -m hashlimit ! --hashlimit-above 3/min --hashlimit-name ssh -j ACCEPT",
        f"{NEW_SSH} -m limit --limit 3/min -j ACCEPT",
        f"{NEW_SSH} -m quota --quota 1000000 -j ACCEPT",
        f"{NEW_SSH} -m addrtype --dst-type LOCAL -j ACCEPT",
        f"{NEW_SSH} -m addrtype ! --dst-type MULTICAST,BROADCAST -j ACCEPT",
        f"{NEW_SSH} -m addrtype --src-type UNICAST --dst-type LOCAL -j ACCEPT",
        f"{NEW_SSH} -m pkttype --pkt-type unicast -j ACCEPT",
    ],
)
def test_a_first_connection_to_this_host_passes_what_asks_for_one(tmp_path: Path, rule: str) -> None:
    text = "*filter\n:INPUT DROP [0:0]\n-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n"
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        path = firewall.file(f"{text}-A INPUT {rule}\nCOMMIT\n")
        said = firewall.apply(path, "--dry-run", status=1, environment=SSH).stderr
        assert "only if" not in said
        path = firewall.file(f"{text}-A INPUT {rule.replace('ACCEPT', 'DROP')}\n-A INPUT -j ACCEPT\nCOMMIT\n")
        assert "a new connection (" in firewall.apply(path, "--dry-run", status=2, environment=SSH).stderr


@pytest.mark.parametrize(
    ("tables", "what"),
    [
        (
            f"{SYN_IS_NOT_TRACKED}*filter\n:INPUT DROP [0:0]\n"
            "-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n"
            "-A INPUT -p tcp -m tcp --dport 22 -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --mss 1460\n"
            f"-A INPUT {NEW_SSH} -j ACCEPT\n-A INPUT -m conntrack --ctstate INVALID -j DROP\nCOMMIT\n",
            "",
        ),
        (
            f"{NOT_TRACKED}*filter\n:OUTPUT DROP [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n"
            "-A OUTPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\nCOMMIT\n",
            "the answers to a new connection",
        ),
        (
            f"{ANSWERS_ARE_NOT_TRACKED}*filter\n:INPUT DROP [0:0]\n"
            f"-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n-A INPUT {NEW_SSH} -j ACCEPT\nCOMMIT\n",
            "a new connection, once answered",
        ),
        ("*mangle\n-A PREROUTING -j CONNMARK --restore-mark --mask 010\nCOMMIT\n", ""),
    ],
    ids=["SYNPROXY", "requests are not tracked", "answers are not tracked", "an octal mask"],
)
def test_a_session_of_which_a_half_is_not_tracked(tmp_path: Path, tables: str, what: str) -> None:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        status = 2 if what else 1
        done = firewall.apply(firewall.file(tables), "--dry-run", status=status, environment=SSH)
        assert what in done.stderr and ("would not pass" in done.stderr) == bool(what)


TRANSLATED = (
    "*mangle\n-A PREROUTING -d 10.0.0.1 -p tcp -m tcp --dport 22 -j DROP\nCOMMIT\n"
    "*nat\n-A PREROUTING -d 192.0.2.5 -p tcp -m tcp --dport 22 -j DNAT --to-destination 10.0.0.1\nCOMMIT\n"
    "*filter\n:INPUT DROP [0:0]\n-A INPUT -d 10.0.0.1 -p tcp -m tcp --dport 22 -m conntrack --ctstate DNAT -j ACCEPT\n"
    "COMMIT\n"
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("", ""), ""),
        (("*nat\n", "*nat\n-A OUTPUT -j ACCEPT\n"), ""),
        (
            ("-A PREROUTING -d 192.0.2.5", "-A OUTPUT -d 192.0.2.5"),
            "ACCEPT by the policy of chain PREROUTING, table nat",
        ),
        (
            ("--to-destination 10.0.0.1", "--to-destination 10.0.0.2"),
            "DNAT --to-destination 10.0.0.2 (table nat)",
        ),
        (("--to-destination 10.0.0.1", "--to-destination :2222"), "DNAT --to-destination :2222 (table nat)"),
        (("-A PREROUTING -d 10.0.0.1", "-A PREROUTING -d 192.0.2.5"), "-d 192.0.2.5"),
        (
            ("-A INPUT -d 10.0.0.1", "-A INPUT -d 192.0.2.5"),
            "state=ESTABLISHED+DNAT): DROP by the policy of chain INPUT",
        ),
    ],
)
def test_a_session_through_nat_is_traced_as_it_was_sent_and_as_it_arrives(
    firewall: Firewall, change: tuple[str, str], message: str
) -> None:
    client, sent_to, server = (int(ip_address(each)) for each in ("10.3.0.1", "192.0.2.5", "10.0.0.1"))
    flow = Flow(Tuple(client, sent_to, TCP, 50000, 22), replied=True, dnat=server)
    assert firewall.namespace.call(make_flow, flow) == 0
    ssh = {"SSH_CONNECTION": "10.3.0.1 50000 10.0.0.1 22"}
    path = firewall.file(TRANSLATED.replace(*change))
    done = firewall.apply(path, "--dry-run", status=2 if message else 1, environment=ssh)
    assert message in done.stderr and ("would not pass" in done.stderr) == bool(message)


@pytest.mark.parametrize(
    ("dropped", "message"),
    [("10.9.9.9", ""), ("10.3.0.1", "-s 10.3.0.1")],
    ids=["the source that the server has", "the source that filter has"],
)
def test_a_session_of_which_only_the_source_is_translated_needs_no_rule_in_prerouting(
    firewall: Firewall, dropped: str, message: str
) -> None:
    client, server, seen = (int(ip_address(each)) for each in ("10.3.0.1", "10.0.0.1", "10.9.9.9"))
    flow = Flow(Tuple(client, server, TCP, 50000, 22), replied=True, snat=seen)
    assert firewall.namespace.call(make_flow, flow) == 0
    path = firewall.file(
        f"*filter\n:INPUT DROP [0:0]\n-A INPUT -s {dropped}/32 -j DROP\n"
        "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n"
        "*nat\n-A PREROUTING -p udp -j ACCEPT\n-A INPUT -s 10.3.0.1 -p tcp -j SNAT --to-source 10.9.9.9\nCOMMIT\n"
    )
    ssh = {"SSH_CONNECTION": "10.9.9.9 50000 10.0.0.1 22"}
    done = firewall.apply(path, "--dry-run", status=2 if message else 1, environment=ssh)
    assert message in done.stderr and ("would not pass" in done.stderr) == bool(message)


@pytest.mark.parametrize("state", ["DNAT", "SNAT"])
def test_a_session_to_an_own_address_through_nat_needs_no_rule_in_prerouting(
    firewall: Firewall, state: str
) -> None:
    """It comes in translated; nat is not asked again."""
    firewall.namespace.run(["ip", "address", "add", "10.0.0.1/32", "dev", "lo"])
    client, sent_to, server = (int(ip_address(each)) for each in ("10.0.0.1", "192.0.2.5", "10.0.0.1"))
    flow = Flow(Tuple(client, sent_to, TCP, 50000, 22), replied=True, dnat=server)
    assert firewall.namespace.call(make_flow, flow) == 0
    path = firewall.file(
        "*nat\n-A PREROUTING -p udp -j ACCEPT\n"
        "-A OUTPUT -d 192.0.2.5 -p tcp -m tcp --dport 22 -j DNAT --to-destination 10.0.0.1\nCOMMIT\n"
        "*filter\n:INPUT DROP [0:0]\n"
        f"-A INPUT -d 10.0.0.1 -i lo -p tcp -m tcp --dport 22 -m conntrack --ctstate {state} -j ACCEPT\nCOMMIT\n"
    )
    ssh = {"SSH_CONNECTION": "10.0.0.1 50000 10.0.0.1 22"}
    done = firewall.apply(path, "--dry-run", status=1 if state == "DNAT" else 2, environment=ssh)
    assert ("state=NEW+DNAT): DROP by the policy of chain INPUT" in done.stderr) == (state != "DNAT")
    assert "is not translated" not in done.stderr


def make_flow(flow: Flow) -> int:
    netfilter = Netfilter()
    try:
        return make_flows(netfilter, Family.IPV4, [flow])
    finally:
        netfilter.close()


@pytest.mark.parametrize(
    ("target", "may"),
    [
        ("REDIRECT --to-ports 22", True), ("REDIRECT --to-ports 20-30", True), ("REDIRECT --to-ports 23", False),
        ("REDIRECT", False), ("DNAT --to-destination 10.0.0.1:22", True), ("DNAT --to-destination 10.0.0.1", False),
        ("DNAT --to-destination :22", False), ("DNAT --to-destination 10.0.0.1-10.0.0.9:22 --random", True),
        ("DNAT --to-destination 10.0.0.9:22", False), ("NETMAP --to 10.0.0.0/24", True), ("ACCEPT", False),
    ],
)  # fmt: skip
def test_which_targets_may_translate_to_a_server(target: str, may: bool) -> None:
    text = f"*nat\n:PREROUTING ACCEPT\n-A PREROUTING -p tcp -j {target}\nCOMMIT\n"
    (rule,) = hitables.read(text).table("nat")["PREROUTING"].rules
    assert rule.target is not None
    sent, arrived = Ends("10.3.0.1", 5000, "192.0.2.5", 2222), Ends("10.3.0.1", 5000, "10.0.0.1", 22)
    assert may_lead_to(rule.target, sent, arrived) is may


def test_marks_that_nothing_sets_are_none(firewall: Firewall) -> None:
    text = "*filter\n:INPUT DROP [0:0]\n-A INPUT -m mark ! --mark 0x1 -j ACCEPT\nCOMMIT\n"
    assert "only if" not in firewall.apply(firewall.file(text), environment=SSH).stderr


def test_a_table_that_stays_decides_nothing_about_new_rules(firewall: Firewall) -> None:
    firewall.load("*mangle\n-A PREROUTING -s 10.0.0.0/8 -j DROP\nCOMMIT\n")
    firewall.apply(firewall.file("*filter\n-A INPUT -j ACCEPT\nCOMMIT\n"), environment=SSH)


def test_a_condition_on_which_the_session_depends_is_named(firewall: Firewall) -> None:
    rules = "-A INPUT -m time --timestart 10:00 --timestop 11:00 -j {}\n-A INPUT -j ACCEPT\n"
    text = "*filter\n:INPUT DROP [0:0]\n" + rules + "COMMIT\n"
    said = firewall.apply(firewall.file(text.format("DROP")), "--dry-run", status=1, environment=SSH).stderr
    assert "passes table filter, chain INPUT, only if this does not hold: time --timestart 10:00" in said
    said = firewall.apply(firewall.file(text.format("ACCEPT")), "--dry-run", status=1, environment=SSH).stderr
    assert "only if" not in said


def test_packets_that_must_pass_are_tried(firewall: Firewall) -> None:
    packet = "chain=INPUT in=lo src=10.{}.0.9 dst=127.0.0.1 proto=udp sport=9 dport=1005"
    path = firewall.file(office())
    assert "10.6.0.9" in firewall.apply(path, "--must", packet.format(6), status=2).stderr
    firewall.apply(path, "--must", packet.format(5))
    assert "10.6.0.9" in firewall.apply(path, "--must", packet.format(6), status=2).stderr  # loaded already
    for place, message in (
        ("chain=INPTU", "table filter has no chain INPTU; did you mean INPUT?"),
        ("table=filtr chain=INPUT", "there is no table filtr"),
        ("table=nat chain=FORWARD", "table nat has no chain FORWARD"),
    ):
        assert (
            message
            in firewall.apply(path, "--must", packet.format(5).replace("chain=INPUT", place), status=2).stderr
        )


OWN, OWN6 = "192.0.2.10", "2001:db8::10"


@pytest.mark.parametrize(
    ("rule", "place", "passes"),
    [
        ("--dst-type LOCAL", f"chain=INPUT src=192.0.2.77 dst={OWN}", True),
        ("--dst-type LOCAL", "chain=INPUT src=127.0.0.1 dst=127.0.0.9", True),
        ("--src-type LOCAL --dst-type LOCAL", f"chain=INPUT src={OWN} dst={OWN}", True),
        ("--src-type LOCAL", f"chain=INPUT src=192.0.2.77 dst={OWN}", False),
        ("--src-type UNICAST", f"chain=INPUT src=192.0.2.77 dst={OWN}", True),
        ("! --dst-type MULTICAST,BROADCAST", f"chain=INPUT src=192.0.2.77 dst={OWN}", True),
        ("--dst-type LOCAL", "chain=INPUT src=192.0.2.77 dst=192.0.2.255", False),
        ("--dst-type BROADCAST", "chain=INPUT src=0.0.0.0 dst=255.255.255.255", True),
        ("--src-type BROADCAST", "chain=INPUT src=0.0.0.0 dst=255.255.255.255", True),
        ("--src-type BROADCAST", f"chain=INPUT src=0.1.2.3 dst={OWN}", False),
        ("--dst-type BROADCAST", "chain=INPUT src=192.0.2.77 dst=192.0.2.255", True),
        ("--dst-type MULTICAST", "chain=INPUT src=192.0.2.77 dst=224.0.0.251", True),
        ("--dst-type LOCAL", f"chain=PREROUTING table=raw src=192.0.2.77 dst={OWN}", True),
        ("--dst-type LOCAL", "chain=FORWARD src=192.0.2.77 dst=198.51.100.1", False),
        ("--src-type LOCAL", f"chain=OUTPUT src={OWN} dst=192.0.2.77", True),
        ("--dst-type LOCAL", f"chain=INPUT src=2001:db8::77 dst={OWN6}", True),
        ("--dst-type UNICAST", f"chain=INPUT src=2001:db8::77 dst={OWN6}", True),
        ("--dst-type LOCAL,UNICAST", f"chain=INPUT src=2001:db8::77 dst={OWN6}", True),
        ("--src-type LOCAL,UNICAST", f"chain=INPUT src=2001:db8::77 dst={OWN6}", False),
        ("--dst-type MULTICAST", "chain=INPUT src=fe80::1 dst=ff02::1", True),
    ],
)
def test_the_types_of_addresses_are_those_of_this_kernel(
    tmp_path: Path, rule: str, place: str, passes: bool
) -> None:
    chain = place.partition("=")[2].split()[0]
    table = "raw" if "table=raw" in place else "filter"
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        namespace.run(["ip", "link", "add", "e0", "type", "veth", "peer", "name", "e0p"])
        namespace.run(["ip", "link", "set", "e0", "up"])
        namespace.run(["ip", "address", "add", f"{OWN}/24", "dev", "e0"])
        namespace.run(["ip", "address", "add", f"{OWN6}/64", "dev", "e0", "nodad"])
        path = firewall.file(
            f"*{table}\n:{chain} DROP [0:0]\n-A {chain} -m addrtype {rule} -j ACCEPT\nCOMMIT\n"
        )
        family = ("--family", 6) if "::" in place else ()
        must = f"{place} proto=tcp sport=9 dport=22"
        done = firewall.apply(path, *family, "--dry-run", "--must", must, status=1 if passes else 2)
        assert ("would not pass" in done.stderr) != passes
        assert "assumed" not in done.stderr and "only if" not in done.stderr


def test_an_address_that_this_host_does_not_have_yet_is_of_unknown_type(firewall: Firewall) -> None:
    path = firewall.file(
        "*filter\n:INPUT DROP [0:0]\n-A INPUT -m addrtype --dst-type LOCAL -j ACCEPT\nCOMMIT\n"
    )
    must = "chain=INPUT src=192.0.2.77 dst=192.0.2.10 proto=tcp sport=9 dport=22"
    error = firewall.apply(path, "--must", must, status=2).stderr
    assert "assumed not to hold: addrtype --dst-type LOCAL" in error


def test_a_packet_of_a_family_that_is_not_applied_is_refused(firewall: Firewall) -> None:
    packet = "chain=INPUT src=2001:db8::1 dst=2001:db8::2 proto=tcp dport=22 sport=9"
    error = firewall.apply(firewall.file(office()), "--must", packet, status=2).stderr
    assert "no rules of that family are applied" in error


def test_an_answer_that_no_match_asks_for_is_told(firewall: Firewall) -> None:
    packet = "chain=INPUT in=lo src=10.5.0.9 dst=127.0.0.1 proto=udp sport=9 dport=1005 number={}=5"
    path = firewall.file(office(more="-A INPUT -m mark --mark 7 -j ACCEPT\n"))
    told = firewall.apply(path, "--must", packet.format("mrak")).stderr
    assert "no match of table filter asks for number=mrak (did you mean mark?)" in told
    assert "asks for" not in firewall.apply(path, "--must", packet.format("mark")).stderr


SETS = (
    "create bans hash:ip counters", "create guests hash:ip", "add guests 10.3.0.1", "create seen hash:ip counters",
    "add seen 10.3.0.1 packets 10", "create nets hash:net", "add nets 10.0.0.0/8", "create doors hash:ip,port",
    "add doors 10.3.0.1,tcp:22",
)  # fmt: skip
UNSURE = {
    "--match-set bans src": "-A INPUT -j SET --add-set bans src\n-A INPUT -m set --match-set bans src -j DROP",
    "--match-set guests src": "-A INPUT -j SET --del-set guests src\n"
    "-A INPUT -m set ! --match-set guests src -j DROP",
    "--packets-lt 5": "-A INPUT -m set --match-set seen src --packets-lt 5 -j DROP",
    "--return-nomatch": "-A INPUT -m set --match-set nets src --return-nomatch -j DROP",
    "statistic": "-A INPUT -m statistic --mode nth --every 1 --packet 0 -j DROP",
    "bpf": '-A INPUT -m bpf --bytecode "1,6 0 0 65535" -j DROP',
    "quota": "-A INPUT -m quota ! --quota 0x10 -j DROP",
    "recent .*--rcheck": "-A INPUT -m recent --set --name r\n-A INPUT -m recent --rcheck --name r -j DROP",
    "mac --mac-source": "-A INPUT -m mac --mac-source 02:00:00:00:00:09 -j DROP",
}


@ONE
def test_what_nobody_can_tell_of_a_packet_is_named(firewall: Firewall) -> None:
    """Each of these rules may drop the session: because of others before it, by chance, by a memory."""
    for command in SETS:
        firewall.namespace.run(["ipset", *command.split()])
    for words, rules in UNSURE.items():
        path = firewall.file(f"*filter\n:INPUT DROP [0:0]\n{rules}\n-A INPUT -j ACCEPT\nCOMMIT\n")
        said = firewall.apply(path, "--dry-run", status=1, environment=SSH).stderr
        assert re.search(f"chain INPUT, only if this (does not hold|holds): .*{words}", said), (words, said)
    sure = "-A INPUT -m recent --set --name r\n-A INPUT -m recent --update --hitcount 4 --name r -j DROP\n"
    sure += "-A INPUT -m set --match-set doors src -j DROP\n"  # fewer directions than an element has
    path = firewall.file(f"*filter\n:INPUT DROP [0:0]\n{sure}-A INPUT -j ACCEPT\nCOMMIT\n")
    assert "only if" not in firewall.apply(path, "--dry-run", status=1, environment=SSH).stderr
    first = "-A INPUT -p tcp -m connlimit --connlimit-above 0 --connlimit-mask 32 --connlimit-saddr -j DROP"
    path = firewall.file(f"*filter\n:INPUT DROP [0:0]\n{first}\n-A INPUT -j ACCEPT\nCOMMIT\n")
    assert first in firewall.apply(path, "--dry-run", status=2, environment=SSH).stderr


def test_the_members_of_ipsets_are_let_in(firewall: Firewall) -> None:
    """The trace asks the kernel whether the session's addresses and ports are in the sets."""
    firewall.namespace.run(["ipset", "create", "admins", "hash:net"])
    firewall.namespace.run(["ipset", "create", "doors", "hash:ip,port"])
    more = (
        "-A INPUT -m set --match-set admins src -m set --match-set doors dst,dst -j ACCEPT\n"
        "-A INPUT -m limit --limit 1/sec -j LOG\n"
    )
    path = firewall.file(office(more=more))
    error = firewall.apply(path, status=2, environment=SSH).stderr
    assert "DROP by the policy of chain INPUT" in error
    assert "assumed not to hold" not in error
    firewall.namespace.run(["ipset", "add", "admins", "10.3.0.0/24"])
    firewall.namespace.run(["ipset", "add", "doors", "127.0.0.1,tcp:2222"])
    firewall.apply(path, status=2, environment=SSH)
    firewall.namespace.run(["ipset", "add", "doors", "127.0.0.1,tcp:22"])
    firewall.apply(path, environment=SSH)


def test_the_members_of_sets_of_interfaces_are_let_in(firewall: Firewall) -> None:
    for command in ("create ports hash:net,iface", "add ports 10.3.0.0/24,eth0"):
        firewall.namespace.run(["ipset", *command.split()])
    rules = "-A INPUT -m set --match-set ports src,src -j ACCEPT\n"
    rules += "-A OUTPUT -m set --match-set ports dst,dst -j ACCEPT\n"
    path = firewall.file(f"*filter\n:INPUT DROP [0:0]\n:OUTPUT DROP [0:0]\n{rules}COMMIT\n")
    came = "chain=INPUT src=10.3.0.1 dst=10.3.0.2 proto=tcp sport=9 dport=22"
    went = "chain=OUTPUT src=10.3.0.2 dst=10.3.0.1 proto=tcp sport=22 dport=9"
    let_in = firewall.apply(
        path, "--dry-run", "--must", f"{came} in=eth0", "--must", f"{went} out=eth0", status=1
    )
    assert "only if" not in let_in.stderr
    assert "assumed" not in firewall.apply(path, "--must", f"{came} in=eth1", status=2).stderr
    drops = "-A INPUT -m set --match-set ports src,src -j DROP\n"
    path = firewall.file(f"*filter\n:INPUT ACCEPT [0:0]\n{drops}COMMIT\n")
    unknown = firewall.apply(path, "--dry-run", "--must", came, status=1).stderr
    assert "only if this does not hold: set --match-set ports src,src" in unknown


def test_a_limited_accept_lets_a_new_session_in(firewall: Firewall) -> None:
    more = "-A INPUT -p tcp -m tcp --dport 22 -m limit --limit 3/min -j ACCEPT\n"
    allowed = "-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n"
    firewall.apply(firewall.file(office(more=allowed + more)), environment=SSH)
