"""Applies by one backend after the other: rules of ours that stay loaded are never left unnamed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.firewall import Firewall, office
from support.small_namespace import Namespace

from hitables.ir.packet import Backend
from hitables.kernel.checked_save import backend_of

pytestmark = pytest.mark.needs_kernel

NAT = "*nat\n-A POSTROUTING -o eth9 -j MASQUERADE\nCOMMIT\n"
FILTER6 = "*filter\n:INPUT DROP\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n"


def other(backend: Backend) -> Backend:
    return Backend.LEGACY if backend is Backend.NFT else Backend.NFT


@pytest.fixture
def firewall(tmp_path: Path) -> Iterator[Firewall]:
    """Rules that are in force, by the backend that the tool called iptables is not."""
    with Namespace() as namespace:
        backend = other(backend_of("iptables-save"))
        firewall = Firewall(namespace, tmp_path, backend)
        firewall.apply(firewall.file(office() + NAT))
        yield firewall


def in_force(firewall: Firewall) -> list[str]:
    """The numbers of the rule sets that history marks."""
    lines = firewall.hitables("history").stdout.splitlines()
    return [line.split()[1] for line in lines if line.startswith("*")]


def remove_old(firewall: Firewall, told: str) -> None:
    """Do what a warning names."""
    commands = [line for line in told.splitlines() if line.startswith("  printf ")]
    assert commands
    firewall.namespace.run(["sh", "-c", "\n".join(commands)])


def test_an_apply_goes_on_with_the_backend_of_the_rules_in_force(firewall: Firewall) -> None:
    told = firewall.apply(firewall.file(office(port=2000)), "--backend", "auto").stderr
    here, there = firewall.backend.value, other(firewall.backend).value
    assert f"these rules are for iptables-{here}, as it loaded rule set 2" in told
    assert f"--backend {there} changes over" in told
    assert "--dport 2005 " in firewall.save() and "--dport 1005 " not in firewall.save()
    assert in_force(firewall) == ["2", "3"]  # 2 has table nat
    again = firewall.apply(firewall.file(office(port=2000)), "--backend", "auto")
    assert "nothing to do" in again.stdout


def test_it_takes_the_tools_of_the_host_once_the_kernel_has_lost_the_rules(firewall: Firewall) -> None:
    for table in ("filter", "nat"):
        firewall.iptables("-t", table, "-F")
    for chain in ("INPUT", "FORWARD"):
        firewall.iptables("-P", chain, "ACCEPT")
    told = firewall.apply(firewall.file(office(port=2000)), "--backend", "auto").stderr
    assert "these rules are for" not in told and "stays loaded" not in told
    assert "--dport 2005 " not in firewall.save()
    assert in_force(firewall) == ["4"]


def test_a_policy_that_drops_packets_is_a_rule_set_that_is_held(firewall: Firewall) -> None:
    firewall.iptables("-F")
    firewall.iptables("-t", "nat", "-F")
    told = firewall.apply(firewall.file(office(port=2000)), "--backend", "auto").stderr
    assert f"these rules are for iptables-{firewall.backend.value}" in told


def test_a_change_of_the_backend_names_what_stays_until_it_is_removed(firewall: Firewall) -> None:
    new = other(firewall.backend).value
    firewall.apply(firewall.file(office(port=3000)))
    firewall.hitables("rollback", 2)  # what is in force is not what was recorded last
    told = firewall.apply(firewall.file(office(port=2000)), "--backend", new).stderr
    assert f"rule set 2 stays loaded by iptables-{firewall.backend.value}" in told
    assert "(they have no table nat of IPv4)" in told
    for command in (("status",), ("persist", "--unit-folder", firewall.folder)):
        shown = firewall.hitables(*command)
        assert f"rule set 2 is still loaded by iptables-{firewall.backend.value}" in (
            shown.stdout + shown.stderr
        )
    firewall.iptables("-N", "others")
    remove_old(firewall, told)
    assert "-A " not in firewall.save() and "DROP" not in firewall.save() and "others" not in firewall.save()
    assert "still loaded" not in firewall.hitables("status").stdout


def test_the_same_is_told_if_the_other_backend_has_the_new_rules_already(firewall: Firewall) -> None:
    new = other(firewall.backend).value
    firewall.namespace.run([f"iptables-{new}-restore"], office(1))
    told = firewall.apply(firewall.file(office(1)), "--no-compile", "--backend", new).stderr
    assert "recorded as rule set 3, and confirmed" in told
    assert "rule set 2 stays loaded" in told


def test_a_rollback_of_a_change_has_the_old_rules_in_force_again(firewall: Firewall) -> None:
    new = other(firewall.backend).value
    before = firewall.save()
    firewall.apply(firewall.file(office(port=2000)), "--backend", new)
    shown = firewall.hitables("rollback")
    assert "rule set 2 is loaded" in shown.stdout
    assert firewall.save() == before
    assert "-A " not in firewall.namespace.run([f"iptables-{new}-save"])
    assert in_force(firewall) == ["2"]
    assert "--dport 1005 " in (firewall.state / "confirmed.rules").read_text()
    assert "the kernel holds rule set 2" in firewall.hitables("status").stdout


def test_a_rollback_of_a_change_does_not_open_the_host(firewall: Firewall) -> None:
    new = other(firewall.backend).value
    remove_old(firewall, firewall.apply(firewall.file(office(port=2000)), "--backend", new).stderr)
    error = firewall.hitables("rollback", status=2).stderr
    assert "which the kernel does not hold any more: nothing is changed" in error
    assert "--dport 2005 " in firewall.namespace.run([f"iptables-{new}-save"])
    assert in_force(firewall) == ["4"]
    firewall.hitables("rollback", 3)
    assert "-A " not in firewall.namespace.run([f"iptables-{new}-save"])


def test_a_family_that_stays_behind_is_named(firewall: Firewall) -> None:
    new = other(firewall.backend).value
    file = firewall.file(FILTER6, "office6.rules")
    told = firewall.apply(file, "--family", "6", "--backend", new).stderr
    assert "rule set 2 has table filter of IPv4, table nat of IPv4" in told and "boots load it" in told
    assert "not compared here" in firewall.hitables("status").stdout


def test_families_that_change_over_one_after_the_other_are_named(firewall: Firewall) -> None:
    here, new = firewall.backend.value, other(firewall.backend).value
    file, file6 = firewall.file(office()), firewall.file(FILTER6, "office6.rules")
    firewall.apply(file, file6)
    assert "IPv6: the kernel holds rule set 4" in firewall.hitables("status").stdout
    told = firewall.apply(file, "--backend", new).stderr
    assert f"rule set 4 has table filter of IPv6, by iptables-{here}" in told
    remove_old(firewall, told)
    told = firewall.apply(file6, "--family", "6", "--backend", new).stderr
    assert f"rule set 4 stays loaded by iptables-{here}" in told and f"| ip6tables-{here}-restore" in told
    remove_old(firewall, told)
    shown = firewall.hitables("status").stdout
    assert "still loaded" not in shown and "not compared here" not in shown


def test_tools_of_two_backends_are_refused(tmp_path: Path) -> None:
    """One rule set has one backend; hosts may have changed iptables and not ip6tables."""
    tools = tmp_path / "tools"
    tools.mkdir()
    with Namespace() as namespace:
        for family, backend in (("iptables", "legacy"), ("ip6tables", "nft")):
            path = namespace.run(["sh", "-c", f"command -v {family}-{backend}-save"]).strip()
            (tools / f"{family}-save").write_text(f'#!/bin/sh\nexec {path} "$@"\n')
            (tools / f"{family}-save").chmod(0o755)
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        error = firewall.hitables(
            "apply",
            firewall.file(office()),
            firewall.file(FILTER6, "office6.rules"),
            "--backend",
            "auto",
            status=2,
            environment={"PATH": f"{tools}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        ).stderr
        assert "iptables is legacy and ip6tables is nft" in error and "--backend says which" in error
