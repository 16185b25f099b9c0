"""Applies beside rules that read the counters of ipsets: each packet is counted as often as by the source."""

from __future__ import annotations

import re

import pytest
from support.firewall import Firewall

from hitables.ir.fields import Family
from hitables.ir.packet import Backend

pytestmark = pytest.mark.needs_kernel

HEADS = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"
READER = "-A OUTPUT -m set --match-set HI dst --packets-gt 100000 -j DROP\n"
MANGLE = f"*mangle\n{READER}COMMIT\n"
COUNTING = "".join(
    f"-A OUTPUT -p udp -m set --match-set HI dst -m udp --dport {port} -j DROP\n" for port in range(41, 101)
)
FILE = f"{HEADS}{COUNTING}COMMIT\n"


def create(firewall: Firewall) -> None:
    """A set of ports, which rules of both families may match."""
    firewall.namespace.run(["ipset", "create", "HI", "bitmap:port", "range", "0-9999", "counters"])


def load(firewall: Firewall, text: str, family: Family = Family.IPV4) -> None:
    """Load *text* beside the tables that it does not have."""
    wait = ["-w"] if firewall.backend is Backend.LEGACY else []
    firewall.namespace.run([f"{family.tool}-{firewall.backend.value}-restore", *wait], text)


def counted(firewall: Firewall, family: Family = Family.IPV4) -> int:
    """How often ten packets are counted in the set."""
    firewall.namespace.run(["ipset", "flush", "HI"])
    firewall.namespace.run(["ipset", "add", "HI", "5000", "packets", "0", "bytes", "0"])
    firewall.send(10, 5000, family)
    listed = re.search(r"^5000 packets (\d+)", firewall.namespace.run(["ipset", "list", "HI"]), re.MULTILINE)
    assert listed
    return int(listed[1])


@pytest.mark.parametrize("reading", list(Family), ids=lambda family: family.name.lower())
def test_a_reader_in_a_table_that_stays_keeps_each_test_of_a_set(firewall: Firewall, reading: Family) -> None:
    create(firewall)
    load(firewall, MANGLE, reading)
    load(firewall, FILE)
    before = counted(firewall)
    assert before >= 600
    told = firewall.apply(firewall.file(FILE)).stdout
    assert "treat every packet the same" in told
    assert counted(firewall) == before
    assert "nothing to do" in firewall.apply(firewall.file(FILE)).stdout


def test_a_reader_in_the_file_of_the_other_family_does_so(firewall: Firewall) -> None:
    create(firewall)
    load(firewall, FILE)
    before = counted(firewall)
    six = firewall.file(f"{HEADS}{READER.replace('-m', '-d 2001:db8::/32 -m', 1)}COMMIT\n", "six.rules")
    firewall.apply(firewall.file(FILE), six)
    assert counted(firewall) == before


@pytest.mark.either_backend
def test_a_reader_that_comes_later_gives_the_next_apply_something_to_do(firewall: Firewall) -> None:
    create(firewall)
    load(firewall, FILE)
    before = counted(firewall)
    path = firewall.file(FILE)
    firewall.apply(path)
    assert counted(firewall) < before
    assert "nothing to do" in firewall.apply(path).stdout
    load(firewall, MANGLE, Family.IPV6)
    firewall.apply(path)
    assert counted(firewall) == before


@pytest.mark.either_backend
def test_a_reader_that_the_file_replaces_is_none(firewall: Firewall) -> None:
    create(firewall)
    load(firewall, f"{HEADS}{READER}COMMIT\n")
    path = firewall.file(FILE)
    firewall.apply(path)
    assert counted(firewall) < 600
    assert "nothing to do" in firewall.apply(path).stdout


def test_status_compares_rules_that_count_where_the_other_family_reads(firewall: Firewall) -> None:
    create(firewall)
    load(firewall, MANGLE, Family.IPV6)
    firewall.apply(firewall.file(f"{HEADS}-A OUTPUT -m set --match-set HI dst\nCOMMIT\n"))
    firewall.iptables("-D", "OUTPUT", "-m", "set", "--match-set", "HI", "dst")
    assert "no longer evaluates set --match-set HI dst" in firewall.hitables("status", status=1).stdout
