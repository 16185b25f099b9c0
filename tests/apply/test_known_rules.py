"""A rule set removes rules of others in built-in chains (calico, crowdsec): apply and status say so before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.firewall import Firewall

import hitables
from hitables.apply.known_rules import removed, warnings
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

OF_CROWDSEC = "-A INPUT -m set --match-set crowdsec-blacklists src -j DROP"

# Of a shared connection, and of a tunnel that is the default route.
OF_NETWORKMANAGER = """\
*nat
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -s 10.42.0.0/24 ! -d 10.42.0.0/24 -m comment --comment nm-shared-eth1 -j MASQUERADE
COMMIT
*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:nm-sh-fw-eth1 - [0:0]
:nm-sh-in-eth1 - [0:0]
-A INPUT -i eth1 -m comment --comment nm-shared-eth1 -j nm-sh-in-eth1
-A FORWARD -m comment --comment nm-shared-eth1 -j nm-sh-fw-eth1
-A nm-sh-fw-eth1 -s 10.42.0.0/24 -i eth1 -j ACCEPT
-A nm-sh-in-eth1 -p udp -m udp --dport 67 -j ACCEPT
COMMIT
"""
OF_WG_QUICK = """\
*raw
:PREROUTING ACCEPT [0:0]
-A PREROUTING -d 10.9.0.2/32 ! -i wg0 -m addrtype ! --src-type LOCAL -m comment \
--comment "wg-quick(8) rule for wg0" -j DROP
COMMIT
*mangle
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A PREROUTING -p udp -m comment --comment "wg-quick(8) rule for wg0" -j CONNMARK --restore-mark
-A POSTROUTING -p udp -m mark --mark 0xca6c -m comment --comment "wg-quick(8) rule for wg0" \
-j CONNMARK --save-mark
COMMIT
"""


def filters(*rules: str) -> str:
    lines = (":INPUT DROP [0:0]", ":FORWARD DROP [0:0]", ":cali-FORWARD - [0:0]", *rules)
    return "*filter\n" + "".join(f"{line}\n" for line in lines) + "COMMIT\n"


MINE = "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n"


def gone(kernel: str, wanted: str, *leave: str) -> list[str]:
    rules = removed(hitables.read(kernel), hitables.read(wanted), patterns_of(leave))
    return [each.text for each in rules]


def test_rules_are_known_by_the_comments_of_their_programs() -> None:
    kernel = filters(JUMP, *OF_CALICO, *OF_KUBE_ROUTER, *OF_USERS)
    assert gone(kernel, MINE, "calico", "KUBE-*") == [OF_KUBE_ROUTER[0], *OF_CALICO, OF_KUBE_ROUTER[1]]
    assert not gone(kernel, filters(*reversed(OF_CALICO), *OF_KUBE_ROUTER), "calico"), "the file has them"
    assert gone(kernel, filters(OF_CALICO[0], *OF_KUBE_ROUTER, *OF_USERS), "calico") == [OF_CALICO[1]]
    assert not gone(kernel, "*mangle\nCOMMIT\n", "calico"), "the table stays as it is"


def test_rules_of_a_program_whose_chains_are_replaced_are_told_of_with_these() -> None:
    kernel = filters(JUMP, *OF_CALICO, *OF_KUBE_ROUTER)
    assert gone(kernel, MINE, "docker") == list(OF_KUBE_ROUTER)
    assert not gone(kernel.replace("COMMIT", ":KUBE-ROUTER-INPUT - [0:0]\nCOMMIT"), MINE)


@pytest.mark.parametrize(
    "rule",
    [
        OF_CROWDSEC,
        "-A FORWARD -m set --match-set crowdsec6-blacklists src -j REJECT --reject-with icmp-port-unreachable",
        '-A INPUT -m set --match-set crowdsec-blacklists-0 src -j LOG --log-prefix "crowdsec: "',
        "-A INPUT -p tcp -m multiport --dports 22 -m set --match-set f2b-sshd src -j DROP",
        "-A INPUT -m set --match-set fail2ban-sshd src -j DROP",
    ],
)
@pytest.mark.parametrize("leave", [(), ("crowdsec", "fail2ban")])
def test_rules_are_known_by_the_ipsets_of_their_programs(rule: str, leave: tuple[str, ...]) -> None:
    of_user = "-A INPUT -m set --match-set my-blacklists src -j DROP"
    assert gone(filters(of_user, rule), MINE, *leave) == [rule]
    assert not gone(filters(rule), filters(of_user, rule), *leave), "the file has it"
    assert not gone(filters(f"-A cali-FORWARD{rule.partition('INPUT')[2]}"), MINE), "a chain of others"


def test_rules_that_drop_belong_in_front_of_all_others() -> None:
    rules = removed(hitables.read(filters(OF_CROWDSEC)), hitables.read(MINE), patterns_of(["crowdsec"]))
    assert list(warnings(rules, "office.rules", "office.rules")) == [
        "warning: office.rules removes 1 rule of crowdsec from table filter (INPUT), as "
        f"'{OF_CROWDSEC}': --leave crowdsec keeps its chains and the jumps to them, and no other rules; "
        "have these in office.rules, in front of all other rules of the chain"
    ]


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


# Of a tunnel of strongSwan with leftfirewall=yes, of a client of ocserv, and of opensnitch.
OF_STRONGSWAN = (
    "-A INPUT -s 11.5.5.2/32 -d 11.5.5.1/32 -i eth0 -p ipencap -m policy --dir in --pol ipsec --reqid 1 "
    "--proto esp -j ACCEPT",
    "-A FORWARD -s 192.168.7.0/24 -d 10.77.0.0/16 -o eth0 -m policy --dir out --pol ipsec --reqid 1 "
    "--proto esp -j ACCEPT",
)
OF_OCSERV = (
    "-A FORWARD -d 192.168.7.53/32 -i vpns0 -p udp -m udp --dport 53 -m comment --comment ocserv-fw -j ACCEPT",
    "-A FORWARD -i vpns0 -m comment --comment ocserv-fw -j REJECT --reject-with icmp-port-unreachable",
)
OF_OPENSNITCH = "-A INPUT -p udp -m udp --sport 53 -j NFQUEUE --queue-num 0 --queue-bypass"


@pytest.mark.parametrize(
    ("rules", "removes", "advice"),
    [
        (OF_STRONGSWAN, "2 rules of the kind that strongSwan makes", "-m policy --dir in --pol ipsec"),
        (OF_OCSERV, "2 rules of ocserv", "do so anew: until then they may reach what it rejected"),
        ([OF_OPENSNITCH], "1 rule with -j NFQUEUE", "restart it if it makes them itself, as opensnitch does"),
    ],
)
def test_rules_of_tunnels_clients_and_queues_are_told_of(
    rules: Sequence[str], removes: str, advice: str
) -> None:
    of_user = (
        "-A FORWARD -m policy --dir in --pol ipsec -j ACCEPT",
        "-A FORWARD -m policy --dir in --pol ipsec ! --reqid 1 --proto esp -j ACCEPT",
        "-A FORWARD -m policy --dir in --pol ipsec --reqid 1 -j DROP",
        '-A INPUT -m comment --comment "for ocserv-fw: NFQUEUE --reqid" -j DROP',
        "-A cali-FORWARD -j NFQUEUE --queue-num 0",
    )
    kernel, leave = hitables.read(filters(*of_user, *rules)), patterns_of(["ocserv"])
    (told,) = warnings(removed(kernel, hitables.read(MINE), leave), "my.rules", "my.rules")
    assert told.startswith(f"warning: my.rules removes {removes} from table filter (") and advice in told
    assert not removed(kernel, hitables.read(filters(*rules)), leave), "the file has them"


OF_LXC_NET = """\
*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
-A INPUT -i lxcbr0 -p tcp -m tcp --dport 53 -j ACCEPT
-A INPUT -i lxcbr0 -p udp -m udp --dport 53 -j ACCEPT
-A INPUT -i lxcbr0 -p tcp -m tcp --dport 67 -j ACCEPT
-A INPUT -i lxcbr0 -p udp -m udp --dport 67 -j ACCEPT
-A FORWARD -o lxcbr0 -j ACCEPT
-A FORWARD -i lxcbr0 -j ACCEPT
COMMIT
*nat
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -s 10.0.3.0/24 ! -d 10.0.3.0/24 -j MASQUERADE
COMMIT
*mangle
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -o lxcbr0 -p udp -m udp --dport 68 -j CHECKSUM --checksum-fill
COMMIT
"""


def test_rules_of_lxc_net_are_known_by_their_texts() -> None:
    of_user = "-A INPUT -i lxcbr0 -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT"
    kernel = hitables.read(OF_LXC_NET.replace("COMMIT", of_user, 1))
    told = list(warnings(removed(kernel, hitables.read(MINE + mine("nat", "mangle")), ()), "it", "my.rules"))
    assert [each.partition(", as '")[0].partition("removes ")[2] for each in told] == [
        "6 rules of the kind that lxc-net makes from table filter (INPUT, FORWARD)",
        "1 rule of the kind that lxc-net makes from table nat (POSTROUTING)",
        "1 rule of the kind that lxc-net makes from table mangle (POSTROUTING)",
    ]
    assert "for its networks in my.rules, or restart lxc-net, which makes its rules again" in told[0]
    assert not removed(kernel, hitables.read(OF_LXC_NET), ()), "the file has them"


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


@pytest.mark.needs_kernel
def test_apply_and_status_warn_before_they_remove_the_rule_of_crowdsec(firewall: Firewall) -> None:
    firewall.namespace.run(["ipset", "create", "crowdsec-blacklists", "hash:net", "timeout", "300"])
    firewall.iptables(*OF_CROWDSEC.split())
    path, warned = firewall.file(MINE), "removes 1 rule of crowdsec from table filter (INPUT)"
    assert f"office.rules {warned}" in firewall.apply(path, "--leave", "crowdsec").stderr
    firewall.iptables(*OF_CROWDSEC.replace("-A", "-I").split())
    repaired = firewall.hitables("status", "--repair").stdout
    assert repaired.index(f"--repair {warned}") < repaired.index("is loaded again")
    firewall.iptables(*OF_CROWDSEC.replace("-A", "-I").split())
    with_it = firewall.file(MINE.replace("-A INPUT -i lo", f"{OF_CROWDSEC}\n-A INPUT -i lo"))
    assert "removes" not in firewall.apply(with_it, "--leave", "crowdsec").stderr
    assert "--match-set crowdsec-blacklists src -j DROP" in firewall.save()
    firewall.hitables("status")


def mine(*tables: str) -> str:
    return "".join(f"*{table}\nCOMMIT\n" for table in tables)


@pytest.mark.parametrize("leave", [(), ("networkmanager",)])
def test_rules_of_networkmanager_outside_its_chains_are_told_of(leave: tuple[str, ...]) -> None:
    kernel = hitables.read(OF_NETWORKMANAGER)
    wanted = hitables.read(mine("nat") + filters())
    (told,) = warnings(removed(kernel, wanted, patterns_of(leave)), "my.rules", "my.rules")
    assert told.startswith("warning: my.rules removes 1 rule of networkmanager from table nat (POSTROUTING)")
    assert told.endswith("in front of all other rules of the chain, or leave table nat out of it")
    assert not removed(kernel, hitables.read(filters()), patterns_of(leave)), "the chains tell of the jumps"
    assert not removed(kernel, kernel, patterns_of(leave)), "the file has it"


def test_rules_of_wg_quick_are_told_of_in_each_table_that_the_file_has() -> None:
    kernel = hitables.read(OF_WG_QUICK)
    told = list(warnings(removed(kernel, hitables.read(mine("raw", "mangle")), ()), "--repair", "your file"))
    assert [each.partition(", as '")[0] for each in told] == [
        "warning: --repair removes 1 rule of wg-quick from table raw (PREROUTING)",
        "warning: --repair removes 2 rules of wg-quick from table mangle (PREROUTING, POSTROUTING)",
    ]
    assert "leave table mangle out of your file, or have rules of your own there" in told[1]
    assert len(removed(kernel, hitables.read(mine("raw")), ())) == 1
    without_comments = OF_WG_QUICK.replace('-m comment --comment "wg-quick(8) rule for wg0"', "")
    assert not removed(kernel, hitables.read(without_comments), ()), "the file has rules that do the same"


@pytest.mark.needs_kernel
def test_rules_of_others_are_named_where_the_list_of_changes_is_cut_off(firewall: Firewall) -> None:
    firewall.load(OF_NETWORKMANAGER + OF_WG_QUICK)
    many = "".join(f"-A POSTROUTING -s 192.0.2.{n} -j SNAT --to-source 10.0.0.{n}\n" for n in range(1, 41))
    path = firewall.file(f"*nat\n{many}COMMIT\n{MINE}" + mine("raw", "mangle"))
    applied = firewall.apply(path, "--leave", "networkmanager")
    assert " more changes (" in applied.stdout
    for removes in (
        "removes 1 rule of networkmanager from table nat (POSTROUTING)",
        "removes 1 rule of wg-quick from table raw (PREROUTING)",
        "removes 2 rules of wg-quick from table mangle (PREROUTING, POSTROUTING)",
    ):
        assert f"office.rules {removes}" in applied.stderr
    assert "-j nm-sh-fw-eth1" in firewall.save() and "MASQUERADE" not in firewall.save()
    made_again = OF_NETWORKMANAGER.splitlines()[2].replace("-A", "-I").split()
    firewall.iptables("-t", "nat", *made_again)
    repaired = firewall.hitables("status", "--repair").stdout
    told = repaired.index("--repair removes 1 rule of networkmanager from table nat (POSTROUTING)")
    assert told < repaired.index("is loaded again")
