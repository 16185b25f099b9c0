"""A rule set removes rules of other programs in built-in chains (calico, LXD): apply and status say so before."""

from __future__ import annotations

import pytest
from support.firewall import Firewall

import hitables
from hitables.apply.commented_rules import removed, warnings
from hitables.ir.foreign import patterns_of

JUMP = '-A FORWARD -m comment --comment "cali:lqqG4wadUOch3HEE" -j cali-FORWARD'
OF_CALICO = (
    "-A FORWARD -m comment --comment cali:Z8uPW5xmm5_njEVq "
    '-m comment --comment "Policy explicitly accepted packet." -m mark --mark 0x10000/0x10000 -j ACCEPT',
    "-A FORWARD -m comment --comment cali:k088Wr2_x7KmuQVC -j MARK --set-xmark 0x10000/0x10000",
)
OF_KUBE_ROUTER = tuple(
    f'-A {chain} -m comment --comment "KUBE-ROUTER rule to explicitly ACCEPT traffic that comply to network '
    'policies" -m mark --mark 0x20000/0x20000 -j ACCEPT'
    for chain in ("INPUT", "FORWARD")
)
OF_USERS = (
    "-A FORWARD -m mark --mark 0x10000/0x10000 -j ACCEPT",
    '-A FORWARD -m comment --comment "as calico does" -j ACCEPT',
    "-A cali-FORWARD -m comment --comment cali:0 -j DROP",
)

OF_LXD, OF_INCUS = (
    tuple(
        f'-A FORWARD {way} {bridge} -m comment --comment "generated for {program} network {bridge}" -j ACCEPT'
        for way in ("-i", "-o")
    )
    for program, bridge in (("LXD", "lxdbr0"), ("Incus", "incusbr0"))
)


def filters(*rules: str) -> str:
    lines = (":INPUT DROP [0:0]", ":FORWARD DROP [0:0]", ":cali-FORWARD - [0:0]", *rules)
    return "*filter\n" + "".join(f"{line}\n" for line in lines) + "COMMIT\n"


MINE = "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n"


def test_rules_are_known_by_the_comments_of_the_programs_that_are_left() -> None:
    kernel = hitables.read(filters(JUMP, *OF_CALICO, *OF_KUBE_ROUTER, *OF_USERS))

    def gone(wanted: str, *leave: str) -> list[str]:
        return [each.text for each in removed(kernel, hitables.read(wanted), patterns_of(leave))]

    assert gone(MINE, "calico") == list(OF_CALICO)
    assert gone(MINE, "kube", "cali-*") == [OF_KUBE_ROUTER[0], *OF_CALICO, OF_KUBE_ROUTER[1]]
    assert not gone(MINE, "docker"), "chains that these rules replace are told of otherwise"
    assert not gone(filters(*reversed(OF_CALICO)), "calico"), "the file has them"
    assert gone(filters(OF_CALICO[0], *OF_USERS), "calico") == [OF_CALICO[1]]
    assert not gone("*mangle\nCOMMIT\n", "calico"), "the table stays as it is"


def test_each_program_has_a_warning_with_its_rules_and_their_chains() -> None:
    kernel, mine = hitables.read(filters(*OF_CALICO, *OF_KUBE_ROUTER)), hitables.read(MINE)
    told = list(warnings(removed(kernel, mine, patterns_of(["kube", "calico"])), "--repair", "office.rules"))
    assert [each.partition(", as '")[0] for each in told] == [
        "warning: --repair removes 2 rules of kube from table filter (INPUT, FORWARD)",
        "warning: --repair removes 2 rules of calico from table filter (FORWARD)",
    ]
    assert all("have these in office.rules, in front of" in each for each in told)


def test_rules_of_lxd_and_incus_are_told_of_whatever_is_left() -> None:
    kernel = hitables.read(filters(*OF_LXD, *OF_INCUS, *OF_CALICO))
    for leave in ((), ("docker",)):
        told = list(
            warnings(removed(kernel, hitables.read(MINE), patterns_of(leave)), "mine.rules", "mine.rules")
        )
        assert [each.partition(", as '")[0] for each in told] == [
            f"warning: mine.rules removes 2 rules of {program} from table filter (FORWARD)"
            for program in ("LXD", "Incus")
        ]
        assert "for its networks in mine.rules, or restart Incus, which" in told[1]
    assert not removed(kernel, hitables.read(filters(*OF_INCUS, *OF_LXD)), ()), "the file has them"


@pytest.mark.needs_kernel
def test_apply_and_status_warn_before_they_remove_rules_of_programs_that_are_left(firewall: Firewall) -> None:
    firewall.load(filters(JUMP, *OF_CALICO, *OF_LXD))
    path, warned = firewall.file(MINE), "office.rules removes 2 rules of calico from table filter (FORWARD)"
    assert warned in firewall.apply(path, "--leave", "calico", "--dry-run", status=1).stderr
    told = firewall.apply(path, "--leave", "calico").stderr
    assert warned in told and "office.rules removes 2 rules of LXD from table filter (FORWARD)" in told
    put_back = OF_CALICO[1].split()
    firewall.iptables(*put_back)
    repaired = firewall.hitables("status", "--repair").stdout
    said = repaired.index("--repair removes 1 rule of calico from table filter (FORWARD)")
    assert said < repaired.index("is loaded again")
    firewall.iptables(*put_back)
    with_them = firewall.file(filters(*OF_CALICO).replace(":cali-FORWARD - [0:0]\n", ""))
    assert "removes" not in firewall.apply(with_them, "--leave", "calico").stderr
    firewall.hitables("status")
    assert [line.partition(" -j ")[2] for line in firewall.save().splitlines() if "-A FORWARD" in line] == [
        "cali-FORWARD", "ACCEPT", "MARK --set-xmark 0x10000/0x10000",
    ]  # fmt: skip
