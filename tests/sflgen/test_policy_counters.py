"""Counters of policies are kept through patches and folds, on either backend."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.planned_updates import prefixes
from support.sflgen_command import both, sflgen
from support.small_namespace import Namespace

import hitables
from hitables.ir.fields import Family
from hitables.kernel.contents_legacy import policy_counters
from hitables.kernel.namespace import run
from sflgen.policy_counters import with_policy_counters

_TOOL = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}


def long_list(family: Family) -> str:
    """A rule list that is compiled; two tables; all policies and some rules have counted."""
    rules = hitables.write(prefixes(20)).splitlines()
    if family is Family.IPV6:
        rules = [
            line.replace("-s 10.", "-s 2001:db8:10:").replace(".0/24", "::/64").replace(".", ":")
            for line in rules
        ]
        rules = [line.replace("-s 2001:db8:10:0:0:1 ", "-s 2001:db8::1 ") for line in rules]
    head = [":INPUT ACCEPT [100:2000]", ":FORWARD DROP [5:60]", ":OUTPUT ACCEPT [7:80]", ":plain - [0:0]"]
    counted_rules = [f"[3:4] {line}" for line in rules if line.startswith("-A INPUT")]
    nat = ["*nat", ":PREROUTING ACCEPT [1:2]", ":OUTPUT ACCEPT [3:4]", "COMMIT"]
    return "\n".join([*nat, "*filter", *head, *counted_rules, "COMMIT", ""])


def counted(backend: str, family: Family) -> dict[str, str]:
    """The counters of each policy, as the tool prints them."""
    counts, table = {}, ""
    for line in run([f"{_TOOL[family]}-{backend}-save", "-c"]).splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":") and "[0:0]" not in line:
            chain, policy, count = line[1:].split()
            counts[f"{table} {chain} {policy}"] = count
    return counts


def updated(backend: str, family: Family, folder: str) -> list[dict[str, str]]:
    """The counts of policies at first, and after each command."""
    run([f"{_TOOL[family]}-{backend}-restore", "-c"], long_list(family))
    version = str(int(family))
    ban = ("-s", "192.0.2.7" if family is Family.IPV4 else "2001:db8::7", "-j", "DROP")
    counts = [counted(backend, family)]
    for command in (
        ("init", "--backend", backend, "--family", version),
        ("insert", "INPUT", "1", *ban),
        ("insert", "-t", "nat", "OUTPUT", "1", "-j", "ACCEPT"),
        ("delete", "INPUT", "20"),
        ("fold",),
    ):
        done = sflgen(command[0], "--state", folder, "--live", *command[1:])
        assert done.exit_code == 0, done.stderr
        counts.append(counted(backend, family))
    done = sflgen("stream", "--live", "--state", folder, text="-D INPUT 1\n-P FORWARD ACCEPT\n")
    assert done.exit_code == 0, done.stderr
    counts.append(counted(backend, family))
    return counts


@pytest.mark.needs_kernel
@both
@pytest.mark.parametrize("family", Family)
def test_counters_of_policies_are_kept(backend: str, family: Family, tmp_path: Path) -> None:
    with Namespace() as namespace:
        before, *counts, last = namespace.call(updated, backend, family, str(tmp_path / "st"))
    assert before["filter INPUT ACCEPT"] == "[100:2000]" and len(before) == 5
    assert counts == [before] * 5
    assert last == {key: count for key, count in before.items() if "FORWARD" not in key}, (
        "as iptables -P does"
    )


def asked(family: Family) -> list[tuple[str, str, int, int]]:
    run([f"{_TOOL[family]}-legacy-restore", "-c"], long_list(family))
    return list(policy_counters("filter", family))


@pytest.mark.needs_kernel
@pytest.mark.parametrize("family", Family)
def test_counters_of_policies_are_read_from_the_kernel(family: Family) -> None:
    with Namespace() as namespace:
        counts = namespace.call(asked, family)
    assert counts == [("INPUT", "ACCEPT", 100, 2000), ("FORWARD", "DROP", 5, 60), ("OUTPUT", "ACCEPT", 7, 80)]


def test_a_patch_of_a_missing_table_is_unchanged() -> None:
    patch = "*none\n-A INPUT -j DROP\nCOMMIT\n"
    assert with_policy_counters(patch, Family.IPV4) == patch
