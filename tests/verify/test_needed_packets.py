"""Packets of ICMP that hosts need, and of which a chain lets none pass."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.small_namespace import Namespace

import hitables
from hitables.cli.main import main
from hitables.ir.fields import Family
from hitables.ir.foreign import hide
from hitables.ir.packet import Backend
from hitables.kernel.load_save import load, save
from hitables.verify.needed_packets import stopped
from hitables.verify.question import Question

USUAL = [
    "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    "-A INPUT -p tcp --dport 22 -j ACCEPT",
]
SOLICITATION, ADVERTISEMENT = ("INPUT", "neighbour solicitation"), ("INPUT", "neighbour advertisement")
TOO_BIG, FRAGMENT = ("INPUT", "packet-too-big"), ("INPUT", "fragmentation-needed")


def text_of(lines: list[str], chain: str = "INPUT", policy: str = "DROP") -> str:
    policies = [f":{name} {policy if name == chain else 'ACCEPT'}" for name in ("INPUT", "FORWARD", "OUTPUT")]
    own = [":own -"] if "own" in " ".join(lines) else []
    return "\n".join(["*filter", *policies, *own, *lines, "COMMIT", ""])


def found(text: str, family: Family, question: Question | None = None) -> list[tuple[str, str]]:
    program = hitables.read(text, family=family)
    asked = question or Question()
    return [(each.chain, each.needed.name) for each in stopped(program, asked, lambda step: None)]


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        (USUAL, [SOLICITATION, ADVERTISEMENT]),
        ([*USUAL, "-A INPUT -p ipv6-icmp -j ACCEPT"], []),
        ([*USUAL, "-A INPUT -p icmp -j ACCEPT"], [SOLICITATION, ADVERTISEMENT]),  # that of IPv4
        ([*USUAL, "-A INPUT -p ipv6-icmp --icmpv6-type 135 -j ACCEPT"], [ADVERTISEMENT]),
        ([*USUAL, "-A INPUT -p ipv6-icmp --icmpv6-type 128 -j ACCEPT"], [SOLICITATION, ADVERTISEMENT]),
        ([*USUAL, "-A INPUT -i eth0 -s fe80::/10 -m limit --limit 9/s -j ACCEPT"], []),
        ([*USUAL, "-A INPUT -m conntrack --ctstate UNTRACKED -j own", "-A own -j ACCEPT"], []),
        ([*USUAL, "-A INPUT -i lo -j ACCEPT"], [SOLICITATION, ADVERTISEMENT]),
        ([*USUAL, "-A INPUT -s ::1 -j ACCEPT"], [SOLICITATION, ADVERTISEMENT]),
        ([*USUAL, "-A INPUT -d ::1 -j ACCEPT"], [SOLICITATION, ADVERTISEMENT]),
        ([*USUAL, "-A INPUT -s ::/127 -j ACCEPT"], []),
        (["-A INPUT -m conntrack --ctstate INVALID -j DROP", *USUAL, "-A INPUT -p 58 -j own", "-A own -j RETURN"],
         [SOLICITATION, ADVERTISEMENT]),
        (["-A INPUT -p tcp -j ACCEPT"], [SOLICITATION, ADVERTISEMENT, TOO_BIG]),
        (["-A INPUT -s ::1 -j ACCEPT"], []),
        (["-A INPUT -i lo -j ACCEPT"], []),  # nothing else passes: closed on purpose
        ([], []),
    ],
)  # fmt: skip
def test_a_chain_that_lets_none_pass_is_named(lines: list[str], names: list[tuple[str, str]]) -> None:
    assert found(text_of(lines), Family.IPV6) == names
    assert found(text_of([*lines, "-A INPUT -j DROP"], policy="ACCEPT"), Family.IPV6) == names


def test_each_chain_is_asked_for_what_comes_to_it() -> None:
    for chain, field in (("OUTPUT", "-o"), ("FORWARD", "-i")):
        lines = [f"-A {chain} {field} lo -j ACCEPT", f"-A {chain} -p tcp -j ACCEPT"]
        expected = {
            "OUTPUT": ["neighbour solicitation", "neighbour advertisement"],
            "FORWARD": ["packet-too-big"],
        }
        assert found(text_of(lines, chain), Family.IPV6) == [(chain, name) for name in expected[chain]]


def test_of_ipv4_the_errors_of_large_packets_are_asked_for() -> None:
    lines = ["-A INPUT -p tcp -j ACCEPT", "-A INPUT -p icmp --icmp-type echo-request -j ACCEPT"]
    assert found(text_of(lines), Family.IPV4) == [FRAGMENT]
    assert not found(text_of([*lines, USUAL[0]]), Family.IPV4)
    code = "-A INPUT -p icmp --icmp-type fragmentation-needed -j ACCEPT"
    assert not found(text_of([*lines, code]), Family.IPV4)
    other = "-A INPUT -p icmp --icmp-type host-unreachable -j ACCEPT"
    assert found(text_of([*lines, other]), Family.IPV4) == [FRAGMENT]


@pytest.mark.parametrize("address", ["-s 127.0.0.1", "-d 127.0.0.0/8", "-s 127.0.0.0/8 -d 127.0.0.0/8"])
def test_packets_of_loopback_addresses_come_from_no_network(address: str) -> None:
    lines = ["-A INPUT -p tcp -j ACCEPT", f"-A INPUT {address} -j ACCEPT"]
    assert found(text_of(lines), Family.IPV4) == [FRAGMENT]
    assert not found(text_of([*lines, "-A INPUT -s 126.0.0.0/7 -j ACCEPT"]), Family.IPV4)


def test_only_what_is_asked_and_known_is_told() -> None:
    text = text_of([*USUAL, "-A INPUT -j own"])
    assert found(text, Family.IPV6) == [SOLICITATION, ADVERTISEMENT]
    hidden = hide(hitables.read(text, family=Family.IPV6), ("own",))
    assert not list(stopped(hidden, Question(), lambda step: None))
    for question in (Question(chains=frozenset({"OUTPUT"})), Question(tables=frozenset({"nat"}))):
        assert not found(text, Family.IPV6, question)
    assert not found(text, Family.IPV6, Question(timeout=1e-9))
    assert not found("*mangle\n:INPUT DROP\n-A INPUT -p tcp -j ACCEPT\nCOMMIT\n", Family.IPV6)


def test_lint_notes_them(tmp_path: Path) -> None:
    path = tmp_path / "host.rules"
    path.write_text(text_of(USUAL))
    done = CliRunner().invoke(main, ["lint", str(path), "--family", "6"])
    note = "chain INPUT (table filter) lets no neighbour solicitation (ICMPv6 type 135) pass: other hosts"
    assert done.exit_code == 0 and note in done.stdout, done.output
    assert ": note:" not in CliRunner().invoke(main, ["lint", str(path), "--family", "4"]).stdout


def send_one() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("fd00::1", 9))


@pytest.mark.needs_kernel
@pytest.mark.parametrize(
    "more", [[], ["-A INPUT -p ipv6-icmp --icmpv6-type 135 -j ACCEPT"]], ids=["stopped", "accepted"]
)
def test_a_host_that_lets_no_solicitation_in_is_not_found(more: list[str]) -> None:
    with Namespace({"ipv6.conf.all.accept_dad": "0"}) as host, Namespace() as other:
        text = text_of([*USUAL, "-A INPUT -p udp --dport 9 -m comment --comment reached", *more])
        load(text, Family.IPV6, Backend.NFT, host)
        host.run(
            ["ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1", "netns", str(other._pid)]
        )
        for namespace, device, address in ((host, "veth0", "fd00::1/64"), (other, "veth1", "fd00::2/64")):
            namespace.run(["ip", "address", "add", address, "dev", device, "nodad"])
            namespace.run(["ip", "link", "set", device, "up"])
        deadline = time.monotonic() + 60
        reached = is_lost = False
        while not (reached or is_lost):
            assert time.monotonic() < deadline
            other.call(send_one)
            time.sleep(0.1)
            is_lost = "FAILED" in other.run(["ip", "-6", "neighbour", "show", "fd00::1"])
            counted = save(Family.IPV6, Backend.NFT, host, counters=True)
            reached = any("reached" in line and not line.startswith("[0:") for line in counted.splitlines())
        assert reached == bool(more)
        assert (SOLICITATION in found(text, Family.IPV6)) != reached
