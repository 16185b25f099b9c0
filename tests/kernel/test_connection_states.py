"""Facts of the kernel behind ir/connection_states.py and ir/tracked_walk.py: which states tables see."""

from __future__ import annotations

import re
import socket
import struct
from contextlib import suppress

import pytest
from support.kernel_packets import packet

from hitables.ir.connection_states import (
    ICMP_OF,
    STATE_NAMES,
    state_without_connection,
    states_of,
    why_no_state,
    why_not_of_kind,
)
from hitables.ir.fields import ICMP, ICMPV6, STATES, TCP, UDP, Family, Field
from hitables.ir.packet import Backend, Packet
from hitables.ir.tracked_walk import run_tracked
from hitables.ir.unreal import why_unreal
from hitables.kernel import Namespace, load, save
from hitables.kernel.experiment import Trial, furnish, prepare, send_trials
from hitables.reader import read

pytestmark = [pytest.mark.needs_kernel, pytest.mark.usefixtures("small_namespaces")]

COUNTED = "".join(
    f"-A {{0}} -m conntrack --ctstate {state} -m comment --comment {state}\n" for state in STATE_NAMES
)
LO = (
    f"*raw\n{COUNTED.format('PREROUTING')}{COUNTED.format('OUTPUT')}-A OUTPUT -p udp --dport 99 -j CT --notrack\n"
    "COMMIT\n*filter\n-A INPUT -p tcp --dport 7 -j REJECT --reject-with tcp-reset\n"
    "-A INPUT -p udp -j DROP\nCOMMIT\n"
)
CLOSED, UNTRACKED_PORT = 7, 99


def counted(text: str, chain: str) -> set[str]:
    """The states that the rules of a chain have counted."""
    rules = re.findall(rf"^\[([0-9]+):.*-A {chain} .*--comment (\w+)", text, re.MULTILINE)
    return {state for count, state in rules if int(count)}


def through(text: str, table: str, sent: list[Packet], backend: Backend) -> tuple[str, list[bool]]:
    """The rules with their counters after the packets came to PREROUTING, and which packets passed."""
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, ["eth0", "eth1"])
        load(text, Family.IPV4, backend, namespace)
        prepare(namespace, table, "PREROUTING", [Trial(each) for each in sent], True)
        results = send_trials(namespace)
        assert all(each.arrived for each in results)
        return save(Family.IPV4, backend, namespace, counters=True), [each.passed for each in results]


@pytest.mark.parametrize("backend", Backend)
def test_every_packet_of_table_raw_is_invalid(backend: Backend) -> None:
    sent = [packet(Family.IPV4, UDP, "PREROUTING", state) for state in ("NEW", "ESTABLISHED")]
    text, _ = through(f"*raw\n{COUNTED.format('PREROUTING')}COMMIT\n", "raw", sent, backend)
    assert counted(text, "PREROUTING") == set(states_of("raw", False))


def send_to_itself(port: int) -> None:
    """In the helper process: a packet of TCP to the closed port, of UDP to another one."""
    kind = socket.SOCK_STREAM if port == CLOSED else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, kind) as sender:
        sender.settimeout(0.2)
        if sender.connect_ex(("127.0.0.1", port)) == 0:
            sender.send(b"x")


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize(
    ("port", "out", "back"),
    [
        (5000, {"INVALID"}, {"NEW"}),
        (UNTRACKED_PORT, {"INVALID"}, {"UNTRACKED"}),
        (CLOSED, {"INVALID", "RELATED"}, {"NEW", "RELATED"}),  # the reset of REJECT has a connection
    ],
)
def test_packets_of_loopback_come_back_to_raw_as_they_left(
    backend: Backend, port: int, out: set[str], back: set[str]
) -> None:
    with Namespace() as namespace:
        namespace.run(["ip", "link", "set", "lo", "up"])
        load(LO, Family.IPV4, backend, namespace)
        namespace.call(send_to_itself, port)
        text = save(Family.IPV4, backend, namespace, counters=True)
    assert counted(text, "OUTPUT") == out and counted(text, "PREROUTING") == back
    assert back <= set(states_of("raw", True))


def send_alone(family: Family, protocol: int, payload: bytes) -> None:
    """In the helper process: a packet of no connection to this host itself, which its rules drop."""
    of_family = socket.AF_INET if family is Family.IPV4 else socket.AF_INET6
    with socket.socket(of_family, socket.SOCK_RAW, protocol) as sender, suppress(PermissionError):
        sender.sendto(payload, ("127.0.0.1" if family is Family.IPV4 else "::1", 0))


def icmp_bytes(kind: int) -> bytes:
    """A message of ICMP with a right checksum, without a packet that it could quote."""
    return bytes([kind, 0]) + (0xFFFF - (kind << 8)).to_bytes(2, "big") + bytes(64)


def tcp_bytes(flags: int) -> bytes:
    """A header of TCP; the kernel does not check the sum of what it sends itself."""
    return struct.pack("!HHIIBBHHH", 40000, 9, 1, 1, 0x50, flags, 1024, 0, 0)


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("family", Family)
def test_a_packet_of_no_connection_has_the_state_of_its_kind(family: Family, backend: Backend) -> None:
    kinds = (
        [0, 3, 5, 8, 11, 13, 14] if family is Family.IPV4 else [1, 3, 128, 129, 130, 135, 136, 137, 139, 143]
    )
    of_icmp = ICMP if family is Family.IPV4 else ICMPV6
    sent: list[tuple[dict[Field, int | None], bytes]] = [
        ({Field.PROTO: of_icmp, Field.ICMP: kind << 8}, icmp_bytes(kind)) for kind in kinds
    ]
    for flags in (0x02, 0x10, 0x18, 0x12, 0x04, 0x14, 0x11, 0x01, 0x00, 0x29):
        sent.append(({Field.PROTO: TCP, Field.FLAGS: flags}, tcp_bytes(flags)))
    with Namespace() as namespace:
        namespace.run(["ip", "link", "set", "lo", "up"])
        for values, payload in sent:
            load(
                f"*mangle\n{COUNTED.format('OUTPUT')}-A OUTPUT -j DROP\nCOMMIT\n", family, backend, namespace
            )
            protocol = values[Field.PROTO]
            assert protocol is not None
            namespace.call(send_alone, family, protocol, payload)
            (state,) = counted(save(family, backend, namespace, counters=True), "OUTPUT")
            assumed = state_without_connection(family, values)
            assert state == ("INVALID" if assumed == "RELATED" else assumed), values
            assert not why_not_of_kind(family, values, state), values


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("family", Family)
def test_a_packet_with_a_broken_header_is_invalid(family: Family, backend: Backend) -> None:
    """Also within an established connection, whose packets are looked up by their ports."""
    of_icmp, whole = ICMP_OF[family], tcp_bytes(0x10)
    echo = icmp_bytes(8 if family is Family.IPV4 else 128)
    datagram = struct.pack("!HHHH", UNTRACKED_PORT, UNTRACKED_PORT, 8, 0)
    sent = [(TCP, whole[:size]) for size in (3, 8, 19)]
    sent += [(TCP, whole[:12] + bytes([offset << 4]) + whole[13:]) for offset in (4, 15)]
    sent += [(UDP, datagram[:7]), (of_icmp, echo[:4]), (of_icmp, echo[:7])]
    counting = f"*mangle\n{COUNTED.format('OUTPUT')}-A OUTPUT -j DROP\nCOMMIT\n"
    with Namespace() as namespace:
        namespace.run(["ip", "link", "set", "lo", "up"])
        for protocol, payload in [(TCP, whole), (UDP, datagram), (of_icmp, echo), *sent]:
            load(counting.replace(" -j DROP", ""), family, backend, namespace)
            namespace.call(send_alone, family, protocol, payload)
            state = counted(save(family, backend, namespace, counters=True), "OUTPUT")
            is_broken = (protocol, payload) in sent
            assert (state == {"INVALID"}) == is_broken, (protocol, payload, state)
            size = len(payload)
            packet = Packet(
                family,
                {Field.PROTO: protocol, Field.STATE: STATES.index("NEW")},
                l4_bytes=size,
                bad_offset=is_broken and size == len(whole),
            )
            assert bool(why_unreal(packet, "mangle")) == is_broken


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize(
    "rules", ["-j CT --notrack", "-j NOTRACK", "-j CT --zone 5", "-j CT --zone 5\n-A PREROUTING -j NOTRACK"]
)
def test_the_state_behind_ct_is_that_of_a_tracked_walk(backend: Backend, rules: str) -> None:
    text = f"*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING {rules}\n{COUNTED.format('PREROUTING')}COMMIT\n"
    sent = packet(Family.IPV4, UDP, "PREROUTING", "INVALID")
    walk = run_tracked(read(text, family=Family.IPV4).table("raw"), "PREROUTING", sent, backend)
    told = {
        step.rule.matches[-1].words[-1] for step in walk.steps if step.rule.target is None and step.outcome
    }
    after, _ = through(text, "raw", [sent], backend)
    assert told == counted(after, "PREROUTING") and len(told) == 1


@pytest.mark.parametrize("backend", Backend)
def test_packets_that_are_not_the_first_do_not_enter_nat(backend: Backend) -> None:
    text = f"*nat\n{COUNTED.format('PREROUTING')}-A PREROUTING -p udp -j REDIRECT --to-ports 53\nCOMMIT\n"
    states = ("NEW", "ESTABLISHED", "INVALID", "UNTRACKED")
    sent = [packet(Family.IPV4, UDP, "PREROUTING", state, sport=1000 + at) for at, state in enumerate(states)]
    after, _ = through(text, "nat", sent, backend)
    assert counted(after, "PREROUTING") == {
        state for state in states if not why_no_state("nat", False, state)
    }
