"""Facts of the kernel behind ir/synproxy.py, and behind what `hitables reach` says of TPROXY."""

from __future__ import annotations

import socket

import pytest
from support.kernel_packets import packet

from hitables.ir.fields import TCP, UDP, Family
from hitables.ir.packet import Backend, Packet
from hitables.ir.synproxy import TAKEN
from hitables.kernel import Namespace, load
from hitables.kernel.experiment import Trial, furnish, prepare, send_trials

pytestmark = pytest.mark.needs_kernel

SYNPROXY = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -j SYNPROXY --mss 1460\nCOMMIT\n"


def passed(
    text: str, table: str, chain: str, sent: list[Packet], family: Family, backend: Backend
) -> list[bool]:
    with Namespace() as namespace:
        furnish(namespace, family, ["eth0", "eth1"])
        load(text, family, backend, namespace)
        prepare(namespace, table, chain, [Trial(each) for each in sent], True)
        results = send_trials(namespace)
    assert all(each.arrived for each in results)
    return [each.passed for each in results]


@pytest.mark.parametrize("backend", Backend)
def test_synproxy_takes_packets_by_their_flags(backend: Backend) -> None:
    """Of IPv6: SYNPROXY drops bad checksums of TCP, and those of IPv4 are bad in the test bed."""
    sent = [packet(Family.IPV6, TCP, "INPUT", flags=flags, sport=1000 + flags) for flags in range(64)]
    goes_on = passed(SYNPROXY, "filter", "INPUT", sent, Family.IPV6, backend)
    assert [flags not in TAKEN for flags in range(64)] == goes_on


def connected(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(0.5)
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("backend", Backend)
def test_synproxy_answers_where_nobody_listens(backend: Backend) -> None:
    with Namespace() as namespace:
        namespace.run(["ip", "link", "set", "lo", "up"])
        assert not namespace.call(connected, 9)
        load(SYNPROXY, Family.IPV4, backend, namespace)
        assert namespace.call(connected, 9)


@pytest.mark.parametrize("backend", Backend)
def test_tproxy_drops_where_no_socket_listens(backend: Backend) -> None:
    rules = "*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp -j TPROXY --on-port 5000\nCOMMIT\n"
    sent = [packet(Family.IPV4, UDP, "PREROUTING")]
    assert passed(rules, "mangle", "PREROUTING", sent, Family.IPV4, backend) == [False]
