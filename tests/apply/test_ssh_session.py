"""Which SSH session is known to an apply, and how its packets come through nat of this host."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest
from support.firewall import Firewall, office
from support.small_namespace import Namespace

import hitables
from hitables.apply.translation import ConnectionEnds, may_lead_to
from hitables.ir.fields import TCP, Family
from hitables.ir.packet import Backend
from hitables.kernel.conntrack import Flow, Tuple, make_flows
from hitables.kernel.netlink import Netfilter

pytestmark = [pytest.mark.needs_kernel, pytest.mark.either_backend]
HITABLES = Path(sys.executable).parent / "hitables"


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
        with_init = ["env", "SSH_CONNECTION=10.3.0.1 40000 127.0.0.1 22", *NEW_PIDS, "sh", "-c", script]
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


REQUESTS = "-A PREROUTING -d 192.0.2.5 -p tcp -m tcp --dport 22 -j CT --notrack"
ANSWERS = "-A OUTPUT -p tcp -m tcp --sport 22 -j CT --notrack"


@pytest.mark.parametrize(
    ("raw", "refused"),
    [
        (REQUESTS, ["the session (", "a new connection ("]),
        (ANSWERS, ["the answers of the session (", "the answers to a new connection ("]),
        (REQUESTS.replace("--dport 22", "--dport 23"), []),
        (
            REQUESTS.replace("--dport 22", "--dport 22 --tcp-flags FIN,SYN,RST,ACK SYN"),
            ["a new connection ("],
        ),
    ],
    ids=["requests", "answers", "others", "a new connection"],
)
def test_a_translated_session_that_would_not_be_tracked_is_cut_off(
    firewall: Firewall, raw: str, refused: list[str]
) -> None:
    client, named, server = (int(ip_address(each)) for each in ("10.3.0.1", "192.0.2.5", "10.0.0.1"))
    flow = Flow(Tuple(client, named, TCP, 50000, 22), replied=True, dnat=server)
    assert firewall.namespace.call(make_flow, flow) == 0
    text = TRANSLATED.replace("-d 10.0.0.1 -p tcp -m tcp --dport 22 -m conntrack --ctstate DNAT", "-p tcp")
    path = firewall.file(f"*raw\n{raw}\nCOMMIT\n{text}")
    ssh = {"SSH_CONNECTION": "10.3.0.1 50000 10.0.0.1 22"}
    said = firewall.apply(path, "--dry-run", status=2 if refused else 1, environment=ssh).stderr
    lines = [line for line in said.split("\n") if "is not translated as the session is" in line]
    assert len(lines) == len(refused) and ("would not pass" in said) == bool(refused)
    for line, what in zip(lines, refused, strict=True):
        assert what in line and "state=UNTRACKED)" in line and line.endswith(f"{raw} (table raw)")


OF_REQUESTS = (
    "--ctorigdst 192.0.2.5", "--ctorigsrc 10.3.0.0/16", "--ctorigdstport 22 --ctproto tcp", "--ctorigsrcport 40000:",
    "! --ctorigdst 10.0.0.1", "--ctdir ORIGINAL", "--ctstate DNAT --ctorigdst 192.0.2.5 --ctorigdstport 20:30",
)  # fmt: skip
OF_NO_REQUEST = (
    "! --ctorigdst 192.0.2.5", "--ctorigdstport 2222", "--ctdir REPLY", "--ctproto udp", "--ctorigsrc 10.4.0.0/16",
    "! --ctstate DNAT --ctorigdst 192.0.2.5",
)  # fmt: skip


def test_the_connection_table_answers_what_rules_ask_of_the_connection(tmp_path: Path) -> None:
    client, named, server = (int(ip_address(each)) for each in ("10.3.0.1", "192.0.2.5", "10.0.0.1"))
    flow = Flow(Tuple(client, named, TCP, 50000, 22), replied=True, dnat=server)
    ssh = {"SSH_CONNECTION": "10.3.0.1 50000 10.0.0.1 22"}
    old = "-d 10.0.0.1 -p tcp -m tcp --dport 22 -m conntrack --ctstate DNAT"
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        assert namespace.call(make_flow, flow) == 0
        for asked in OF_REQUESTS + OF_NO_REQUEST:
            path = firewall.file(TRANSLATED.replace(old, f"-m conntrack {asked}"))
            status = 1 if asked in OF_REQUESTS else 2
            said = firewall.apply(path, "--dry-run", status=status, environment=ssh).stderr
            assert "assumed" not in said and "only if" not in said, (asked, said)
        raw = "*raw\n-A PREROUTING -m conntrack --ctorigdst 192.0.2.5 -j DROP\nCOMMIT\n"
        firewall.apply(firewall.file(raw), "--dry-run", status=1, environment=ssh)
        went = "*filter\n:OUTPUT DROP [0:0]\n-A OUTPUT -m conntrack {} -j ACCEPT\nCOMMIT\n"
        for asked in ("--ctdir REPLY", "--ctreplsrc 10.0.0.1 --ctreplsrcport 22", "--ctrepldst 10.3.0.1"):
            firewall.apply(firewall.file(went.format(asked)), "--dry-run", status=1, environment=ssh)
        firewall.apply(firewall.file(went.format("--ctreplsrc 192.0.2.5")), status=2, environment=ssh)


def test_the_direction_of_a_session_that_is_in_no_table_is_unknown(firewall: Firewall) -> None:
    path = firewall.file(
        "*filter\n:INPUT DROP [0:0]\n-A INPUT -m conntrack --ctdir ORIGINAL -j ACCEPT\nCOMMIT\n"
    )
    ssh = {"SSH_CONNECTION": "10.3.0.1 50000 127.0.0.1 22"}
    error = firewall.apply(path, status=2, environment=ssh).stderr
    assert "the session (" in error and "assumed not to hold: conntrack --ctdir" in error
    assert "a new connection (" not in error


def test_a_new_connection_needs_no_translation_of_its_client(firewall: Firewall) -> None:
    """The session itself does: its server knows the address that nat has made of the client's."""
    client, server, seen = (int(ip_address(each)) for each in ("10.3.0.1", "10.0.0.1", "10.9.9.9"))
    flow = Flow(Tuple(client, server, TCP, 50000, 22), replied=True, snat=seen)
    assert firewall.namespace.call(make_flow, flow) == 0
    rules = "-A {} -p tcp -m tcp --{} 22 -j CT --notrack\n"
    raw = rules.format("PREROUTING", "dport") + rules.format("OUTPUT", "sport")
    path = firewall.file(f"*raw\n{raw}COMMIT\n*filter\n-A INPUT -p tcp -j ACCEPT\nCOMMIT\n")
    ssh = {"SSH_CONNECTION": "10.9.9.9 50000 10.0.0.1 22"}
    said = firewall.apply(path, "--dry-run", status=2, environment=ssh).stderr
    assert "the session (" in said and "a new connection" not in said


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
    sent, arrived = (
        ConnectionEnds("10.3.0.1", 5000, "192.0.2.5", 2222),
        ConnectionEnds("10.3.0.1", 5000, "10.0.0.1", 22),
    )
    assert may_lead_to(rule.target, sent, arrived) is may
