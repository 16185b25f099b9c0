"""Packets of `apply --must`: those that would not pass, and those that name what does not exist, are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.firewall import Firewall, office
from support.small_namespace import Namespace

from hitables.ir.packet import Backend

pytestmark = [pytest.mark.needs_kernel, pytest.mark.either_backend]


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
