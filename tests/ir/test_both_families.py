"""`check` and `diff` across families: a rule set of IPv4 and one of IPv6."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator
from itertools import product

import hypothesis.strategies as st
import pytest
from hypothesis import given
from support.small_namespace import Namespace

import hitables
from hitables.errors import InvalidOption, NotComparable
from hitables.ir import semantics
from hitables.ir.fields import ICMP, ICMPV6, STATES, TCP, UDP, Family, Field, interface_number
from hitables.ir.packet import Backend, Packet
from hitables.ir.program import Program
from hitables.ir.rule import Match
from hitables.kernel.load_save import load, save
from hitables.verify.question import Difference

LOCAL = "10.0.0.0/8=fd00::/8"


def input_rules(*rules: str, policy: str = "DROP") -> str:
    return "\n".join(
        ["*filter", f":INPUT {policy} [0:0]", *(f"-A INPUT {rule}" for rule in rules), "COMMIT\n"]
    )


def compared(rules4: str, rules6: str, *pairs: str) -> bool:
    """Whether the two are equal across families; all ways to ask have to agree."""
    one, other = hitables.read(rules4, family=4), hitables.read(rules6, family=6)
    across = {"across_families": True, "pairs": pairs}
    answers = {bool(hitables.check(one, other, engine=engine, **across)) for engine in ("exact", "diagrams")}
    answers |= {bool(hitables.check(other, one, **across)), not hitables.diff(one, other, **across).regions}
    (answer,) = answers
    return answer


def is_equal(rule4: str, rule6: str, *pairs: str) -> bool:
    return compared(input_rules(rule4), input_rules(rule6), *pairs)


# ---- what is the same in both families ----


@pytest.mark.parametrize(
    "rule4, rule6",
    [
        ("-p tcp --dport 22 -j ACCEPT", "-p tcp --dport 22 -j ACCEPT"),
        ("-p icmp -j ACCEPT", "-p ipv6-icmp -j ACCEPT"),
        ("! -p icmp -j ACCEPT", "! -p ipv6-icmp -j ACCEPT"),
        ("-p icmp --icmp-type echo-request -j ACCEPT", "-p icmpv6 --icmpv6-type echo-request -j ACCEPT"),
        ("-p icmp --icmp-type fragmentation-needed -j ACCEPT", "-p icmpv6 --icmpv6-type packet-too-big -j ACCEPT"),
        ("-p icmp ! --icmp-type 8 -j ACCEPT", "-p icmpv6 ! --icmpv6-type 128 -j ACCEPT"),
        ("-j REJECT --reject-with icmp-host-prohibited", "-j REJECT --reject-with icmp6-adm-prohibited"),
        ("-m ttl --ttl-lt 5 -j ACCEPT", "-m hl --hl-lt 5 -j ACCEPT"),
        ("-m limit --limit 5/min -j ACCEPT", "-m limit --limit 5/min -j ACCEPT"),
        ("-m recent --rcheck --name a -j ACCEPT", "-m recent --rcheck --name a -j ACCEPT"),
        ("-m connlimit --connlimit-above 9 -j ACCEPT", "-m connlimit --connlimit-above 9 -j ACCEPT"),
        ("-m set --match-set ports dst -j ACCEPT", "-m set --match-set ports dst -j ACCEPT"),
        # What only one family has, or only logs, makes no difference.
        ("-j LOG --log-prefix v4", "-m limit --limit 1/s -j LOG --log-prefix v6"),
        ("-f -j ACCEPT", "-m rt --rt-type 0 -j ACCEPT"),
        ("-m addrtype --dst-type BROADCAST -j ACCEPT", "-p icmpv6 --icmpv6-type neighbour-solicitation -j ACCEPT"),
        ("-m pkttype --pkt-type broadcast -j ACCEPT", "-m recent --set --name a"),
        ("-s 192.0.2.1 -j ACCEPT", "-d fe80::/10 -j ACCEPT"),
        ("-s 10.0.0.1/255.0.0.255 -j ACCEPT", "-m iprange --src-range fd00::1-fd00::9 -j ACCEPT"),
        ("-m set --match-set office4 src -j ACCEPT", "-m set --match-set office6 src -j ACCEPT"),
        ("-m set ! --match-set bad4 src -j ACCEPT", "-m set ! --match-set bad6 src -j ACCEPT"),
        ("! -s 192.0.2.1 -j ACCEPT", "-j ACCEPT"),
        ("-j ACCEPT", "-s 2000::/3 -j ACCEPT"),
        ("! -f -j ACCEPT", "-j ACCEPT"),
        ("-m addrtype --dst-type LOCAL -j ACCEPT", "-m addrtype --dst-type LOCAL -j ACCEPT"),
        ("-m addrtype --dst-type local -j ACCEPT", "-m addrtype --dst-type Local -j ACCEPT"),
        # In IPv6 an address has to have all types of a list, and one of this host is UNICAST, too.
        ("-m addrtype --dst-type LOCAL -j ACCEPT", "-m addrtype --dst-type LOCAL,UNICAST -j ACCEPT"),
        ("-m addrtype --dst-type LOCAL -j ACCEPT", "-m addrtype --dst-type UNICAST -j ACCEPT"),
        ("-s 192.0.2.1 -j ACCEPT", "-m addrtype --dst-type LOCAL,MULTICAST -j ACCEPT"),
        ("-m addrtype --src-type LOCAL --dst-type BROADCAST -j ACCEPT", "-s 2001:db8::1 -j ACCEPT"),
        ("-m addrtype --src-type LOCAL ! --dst-type MULTICAST -j ACCEPT",
         "-m addrtype --src-type LOCAL ! --dst-type MULTICAST -j ACCEPT"),
        ("-m addrtype --dst-type LOCAL,BROADCAST -j ACCEPT", "-m addrtype --dst-type LOCAL -j ACCEPT"),
        ("-m addrtype --dst-type LOCAL,MULTICAST -j ACCEPT", "-j ACCEPT"),  # as all packets at INPUT are
        ("-m recent --set --name a -j ACCEPT", "-j ACCEPT"),
        ("-m connlimit --connlimit-above 9 --connlimit-mask 24 -j ACCEPT",
         "-m connlimit --connlimit-above 9 --connlimit-mask 64 -j ACCEPT"),
        ("-m conntrack --ctproto icmp -j ACCEPT", "-m conntrack --ctproto 58 -j ACCEPT"),
        ("-m conntrack --ctorigsrc 10.0.0.1 -j ACCEPT", "-m conntrack --ctorigdst fd00::1 -j ACCEPT"),
        ("-m conntrack ! --ctorigsrc 10.0.0.1 -j ACCEPT", "-j ACCEPT"),
        ("-p ah -j ACCEPT", "-p ipv6-icmp --icmpv6-type redirect -j ACCEPT"),
        ("-p ah -m ah --ahspi 5 -j ACCEPT", "-p mh -m mh --mh-type 1 -j ACCEPT"),
        ("-m addrtype ! --src-type LOCAL ! --dst-type BROADCAST -j ACCEPT", "-m addrtype ! --src-type LOCAL -j ACCEPT"),
        ("-m addrtype ! --src-type BROADCAST --dst-type LOCAL -j ACCEPT", "-m addrtype --dst-type LOCAL -j ACCEPT"),
        ("-m conntrack ! --ctorigsrc 10.0.0.1 --ctorigdst 10.0.0.1 -j ACCEPT", "-s fd00::1 -j ACCEPT"),
        ("-m set --match-set four src ! --update-counters -j ACCEPT", "-s fd00::1 -j ACCEPT"),
        ("-s 192.0.2.1 -j ACCEPT", "-m rt ! --rt-type 0 -j ACCEPT"),  # a packet without such a header
    ],
)  # fmt: skip
def test_rules_that_are_the_same(rule4: str, rule6: str) -> None:
    assert is_equal(rule4, rule6)


@pytest.mark.parametrize(
    "rule4, rule6",
    [
        ("-p tcp --dport 22 -j ACCEPT", "-p tcp --dport 23 -j ACCEPT"),
        ("-p icmp -j ACCEPT", "-p icmp -j ACCEPT"),  # in IPv6 a protocol that no packet has
        ("-p icmp --icmp-type 8 -j ACCEPT", "-p ipv6-icmp -j ACCEPT"),
        ("-p icmp --icmp-type 8 -j ACCEPT", "-p icmpv6 --icmpv6-type 129 -j ACCEPT"),
        ("-p tcp -j REJECT --reject-with tcp-reset", "-p tcp -j REJECT"),
        ("-m ttl --ttl-lt 5 -j ACCEPT", "-m hl --hl-lt 6 -j ACCEPT"),
        ("-m limit --limit 5/min -j ACCEPT", "-m limit --limit 6/min -j ACCEPT"),
        ("-m recent --rcheck --name a -j ACCEPT", "-m recent --rcheck --name b -j ACCEPT"),
        ("-m set --match-set ports dst -j ACCEPT", "-m set ! --match-set ports dst -j ACCEPT"),
        ("-m set ! --match-set bad4 src -j ACCEPT", "-m set --match-set bad6 src -j ACCEPT"),
        ("! -s 192.0.2.1 -j ACCEPT", "-s 2001:db8::1 -j ACCEPT"),
        ("-i lo -j ACCEPT", "-i eth0 -j ACCEPT"),
        ("-m addrtype --dst-type LOCAL -j ACCEPT", "-m addrtype --dst-type MULTICAST -j ACCEPT"),
        ("-m addrtype --src-type LOCAL -j ACCEPT", "-j ACCEPT"),
        ("-m addrtype --dst-type UNICAST -j ACCEPT", "-m addrtype --dst-type UNICAST -j ACCEPT"),
        (
            "-m addrtype --dst-type LOCAL,MULTICAST -j ACCEPT",
            "-m addrtype --dst-type LOCAL,MULTICAST -j ACCEPT",
        ),
        ("-m addrtype ! --src-type LOCAL --dst-type LOCAL -j ACCEPT", "-j ACCEPT"),
        ("-m u32 --u32 6&0xFF=0x11 -j ACCEPT", "-m u32 --u32 6&0xFF=0x11 -j ACCEPT"),
        (
            "-m string --algo bm --string x --to 60 -j ACCEPT",
            "-m string --algo bm --string x --to 60 -j ACCEPT",
        ),
        ("-m conntrack --ctproto 1 -j ACCEPT", "-m conntrack --ctproto 1 -j ACCEPT"),
        ("-p tcp -j ACCEPT", "-p tcp -m ipv6header --header frag --soft -j ACCEPT"),
        (
            "-m connlimit --connlimit-above 9 -j ACCEPT",
            "-m connlimit --connlimit-above 9 --connlimit-mask 32 -j ACCEPT",
        ),
        (
            "-m hashlimit --hashlimit-upto 5/sec --hashlimit-mode srcip --hashlimit-name a --hashlimit-srcmask 32 -j ACCEPT",
            "-m hashlimit --hashlimit-upto 5/sec --hashlimit-mode srcip --hashlimit-name a --hashlimit-srcmask 32 -j ACCEPT",
        ),
        ("-j MARK --set-mark 1", "-j DROP"),
    ],
)
def test_rules_that_differ(rule4: str, rule6: str) -> None:
    assert not is_equal(rule4, rule6)


@pytest.mark.parametrize(
    "type4, type6",
    [
        ("0/0", "129/0"), ("8/0", "128/0"), ("3/0", "1/0"), ("3/1", "1/3"), ("3/3", "1/4"), ("3/13", "1/1"),
        ("3/4", "2/0"), ("11/0", "3/0"), ("11/1", "3/1"), ("12/0", "4/0"),
    ],
)  # fmt: skip
def test_a_type_of_icmp_that_both_families_have(type4: str, type6: str) -> None:
    rule4, rule6 = (
        f"-p icmp -m icmp --icmp-type {type4} -j ACCEPT",
        f"-p icmpv6 -m icmp6 --icmpv6-type {type6} -j ACCEPT",
    )
    assert is_equal(rule4, rule6)
    assert not compared(input_rules(rule4), input_rules())
    assert not compared(input_rules(), input_rules(rule6))


def test_a_list_that_one_rule_set_alone_fills() -> None:
    """Half of a limit for SSH: the rule that counts is missing."""
    asking = "-m recent --name s --update --seconds 60 --hitcount 4 -j DROP"
    filling = "-m recent --name s --set"
    assert compared(
        input_rules(filling, asking, policy="ACCEPT"), input_rules(filling, asking, policy="ACCEPT")
    )
    for without in ((asking,), (f"-s fe80::/10 {filling}", asking), (asking, "-j X")):
        assert not compared(input_rules(filling, asking, policy="ACCEPT"), with_chain(*without))
    assert compared(input_rules(filling, asking, policy="ACCEPT"), with_chain(filling, asking))
    elsewhere = with_chain(asking).replace("COMMIT", f"-A X {filling}\nCOMMIT")
    assert not compared(input_rules(filling, asking, policy="ACCEPT"), elsewhere)


def with_chain(*rules: str) -> str:
    """A rule set with an empty chain X."""
    return input_rules(*rules, policy="ACCEPT").replace("-A", ":X - [0:0]\n-A", 1)


def test_chance_and_limits_that_are_asked_again() -> None:
    for match in ("statistic --mode random --probability 0.5", "limit --limit 5/min"):
        rule = f"-m {match} -j ACCEPT"
        assert compared(input_rules(rule, rule), input_rules(rule, rule))
        assert not compared(input_rules(rule, rule), input_rules(rule))
    half = "-m statistic --mode random --probability 0.5 -j"
    assert not compared(input_rules(f"{half} DROP", f"{half} ACCEPT"), input_rules(f"{half} DROP"))


def send(address: str) -> None:
    """A packet to port 9 of this host itself."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"", (address, 9))


@pytest.mark.needs_kernel
def test_lists_of_types_of_addresses_are_asked_as_the_kernel_asks_them() -> None:
    lists = ("LOCAL", "UNICAST", "LOCAL,MULTICAST", "LOCAL,UNICAST", "MULTICAST")
    rules = [f"-p udp -m addrtype --dst-type {types}" for types in lists]
    counted = []
    with Namespace() as namespace:
        namespace.run(["ip", "link", "set", "lo", "up"])
        for family, address in ((Family.IPV4, "127.0.0.1"), (Family.IPV6, "::1")):
            load(input_rules(*rules, policy="ACCEPT"), family, Backend.NFT, namespace)
            namespace.call(send, address)
            kept = save(family, Backend.NFT, namespace, True)
            counted.append([int(count) for count in re.findall(r"^\[(\d+):.*-A INPUT", kept, re.MULTILINE)])
    assert counted == [[1, 0, 1, 1, 0], [1, 1, 0, 1, 0]]
    for types, four, six in zip(lists, *counted, strict=True):
        rule = f"-m addrtype --dst-type {types} -j ACCEPT"
        assert is_equal(rule, rule) is (four == six), types


def test_targets_that_are_the_same() -> None:
    table = "*mangle\n:PREROUTING ACCEPT\n-A PREROUTING {}\nCOMMIT\n"
    for one, other, is_same in (
        ("-p tcp -j TPROXY --on-port 80", "-p tcp -j TPROXY --on-port 80", True),
        (
            "-p tcp -j TPROXY --on-port 80 --on-ip 127.0.0.1",
            "-p tcp -j TPROXY --on-port 80 --on-ip ::1",
            True,
        ),
        ("-p tcp -j TPROXY --on-port 80", "-p tcp -j TPROXY --on-port 81", False),
        ("-j TTL --ttl-set 64", "-j HL --hl-set 64", True),
        ("-j TTL --ttl-set 64", "-j HL --hl-set 65", False),
    ):
        assert compared(table.format(one), table.format(other)) is is_same


@pytest.mark.parametrize("rule", ["", "-A PREROUTING -j DROP\n"])
def test_a_table_that_one_rule_set_alone_has(rule: str) -> None:
    mangle = f"*mangle\n:PREROUTING ACCEPT\n{rule}COMMIT\n"
    assert compared(input_rules(), input_rules() + mangle) is (rule == "")
    assert compared(input_rules() + mangle, input_rules()) is (rule == "")
    assert compared(mangle, input_rules("-j DROP", policy="ACCEPT")) is False


def test_the_internet_is_what_is_routed_there() -> None:
    """All public networks are named, so no address stands for the Internet; private ones are not of it."""
    every = ipaddress.ip_network("0.0.0.0/0")
    public = [every]
    for private in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"):
        network = ipaddress.ip_network(private)
        public = [
            part
            for each in public
            for part in (each.address_exclude(network) if network.subnet_of(each) else [each])
        ]
    rules = input_rules(*(f"-s {each} -p tcp -j DROP" for each in public), policy="ACCEPT")
    with pytest.raises(NotComparable, match="each address of the Internet"):
        compared(rules, input_rules(policy="ACCEPT"))
    one = next(str(each) for each in public if each.prefixlen > 3)
    dropping = input_rules("-s 2000::/3 -p tcp -j DROP", policy="ACCEPT")
    assert compared(rules, dropping, f"{one}=2000::/3")


def test_the_packet_has_addresses_that_no_rule_names() -> None:
    rules = (
        "-s 192.0.2.0/24 -j REJECT",
        "-s 1.0.0.0/8 -j REJECT",
        "-s 10.255.255.255 -j REJECT",
        "-j ACCEPT",
    )
    one, other = hitables.read(input_rules(*rules), family=4), hitables.read(input_rules(), family=6)
    for pairs in ([], [LOCAL]):
        (difference,) = hitables.check(one, other, across_families=True, pairs=pairs).differences
        assert difference.packet is not None and difference.before is not None
        assert verdict_of(one, difference.packet) == difference.before.verdict == "ACCEPT"


def test_rules_are_shown_as_the_file_has_them() -> None:
    rules = ("! -s 10.0.0.0/8 -p udp -j ACCEPT", "! -s 10.0.0.0/8 -p tcp -j ACCEPT")
    one, other = hitables.read(input_rules(*rules), family=4), hitables.read(input_rules(), family=6)
    (difference,) = hitables.check(one, other, across_families=True).differences
    told = difference.describe()
    assert any(f": -A INPUT {rule}\n" in told for rule in rules)


def test_ranges_of_both_addresses_are_negated_one_by_one() -> None:
    ranges = "-m iprange {}--src-range {} {}--dst-range {} -j ACCEPT"
    one, other = (
        ("10.0.0.0-10.255.255.255", "192.0.2.1-192.0.2.9"),
        ("fd00::-fdff:{}".format(":".join(["ffff"] * 7)), "2001:db8::1-2001:db8::9"),
    )
    for no, not_to in (("", ""), ("! ", ""), ("", "! "), ("! ", "! ")):
        four, six = (ranges.format(no, source, not_to, to) for source, to in (one, other))
        assert is_equal(four, six, LOCAL)
        assert is_equal(four, "-s fe80::1 -j ACCEPT", LOCAL) is (not_to == "")
        assert is_equal(four, "-s fd00::/8 -j ACCEPT", LOCAL) is ((no, not_to) == ("", "! "))
        assert is_equal(four, "! -s fd00::/8 -j ACCEPT", LOCAL) is ((no, not_to) == ("! ", "! "))


def test_pairs_of_networks() -> None:
    ssh = "-s {} -p tcp --dport 22 -j ACCEPT"
    assert is_equal(ssh.format("10.0.0.0/8"), ssh.format("fd00::/8"), LOCAL)
    assert not is_equal(ssh.format("10.0.0.0/8"), ssh.format("fe80::/10"), LOCAL)
    assert not is_equal(ssh.format("10.0.0.0/8"), "-p tcp --dport 22 -j ACCEPT", LOCAL)
    # What is inside a network is not the network: no pair has the host.
    assert is_equal(ssh.format("10.0.0.1"), ssh.format("fd00::1"), LOCAL)
    assert not is_equal(ssh.format("10.0.0.1"), ssh.format("fd00::1"), LOCAL, "10.0.0.1=fd00::2")
    assert is_equal(ssh.format("10.0.0.1"), ssh.format("fd00::1"), LOCAL, "fd00::1=10.0.0.1")
    assert is_equal("! -s 10.0.0.0/8 -j ACCEPT", "! -s fd00::/8 -j ACCEPT", LOCAL)
    assert not is_equal("! -s 10.0.0.0/8 -j ACCEPT", "-j ACCEPT", LOCAL)
    assert is_equal("! -s 10.0.0.1 -j ACCEPT", "-j ACCEPT", LOCAL)
    # All of IPv4 may have another twin than the addresses of the Internet.
    assert not is_equal("-j ACCEPT", "-s fd00::/8 -j ACCEPT")
    assert is_equal("-j ACCEPT", "-s 2000::/3 -j ACCEPT", "0.0.0.0/0=::/0") is False
    assert is_equal("-s 8.0.0.0/8 -j ACCEPT", "-s 2000::/3 -j ACCEPT", "8.0.0.0/8=2000::/3")
    # Smaller networks stand for themselves, one of all other addresses for the Internet.
    assert not is_equal("-s 8.0.0.0/8 -j ACCEPT", "-s 2000::/3 -j ACCEPT", "8.0.0.0/8=2001::/16")


@pytest.mark.parametrize(
    "pairs, words",
    [
        (["10.0.0.0/8"], "one network of IPv4 and one of IPv6"),
        (["10.0.0.0/8=fd00::/8=fe80::/10"], "one network of IPv4 and one of IPv6"),
        (["10.0.0.1/8=fd00::/8"], "host bits"),
        (["10.0.0.0/8=10.0.0.0/8"], "both networks are of IPv4"),
        (["fd00::/8=fe80::/10"], "both networks are of IPv6"),
        ([LOCAL, "10.0.0.0/8=fe80::/10"], "the same network of IPv4"),
        ([LOCAL, "10.0.0.0/9=fd00::/8"], "the same network of IPv6"),
        (["0.0.0.0/0=fd00::/8"], "has the Internet, and fd00::/8 has not"),
    ],
)
def test_wrong_pairs(pairs: list[str], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        compared(input_rules(), input_rules(), *pairs)


def test_two_rule_sets_that_cannot_be_compared() -> None:
    one, other = hitables.read(input_rules(), family=4), hitables.read(input_rules(), family=6)
    with pytest.raises(NotComparable, match=r"before and after|both for IPv4"):
        hitables.check(one, one, across_families=True)
    with pytest.raises(InvalidOption, match="table nat"):
        hitables.diff(one, other, across_families=True, tables=["nat"])
    with pytest.raises(InvalidOption, match="across"):
        hitables.check(one, one, pairs=[LOCAL])
    apart = input_rules("-s 0.0.0.0/1 -j DROP", "-d 128.0.0.0/1 -j DROP")
    assert hitables.check(hitables.read(apart, family=4), other, across_families=True)
    halves = input_rules("-s 0.0.0.0/1 -j ACCEPT", "-s 128.0.0.0/1 -j DROP")
    with pytest.raises(NotComparable, match="each address of the Internet"):
        hitables.check(hitables.read(halves, family=4), other, across_families=True)


def test_what_is_left_out_is_told() -> None:
    nat = "*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -j MASQUERADE\nCOMMIT\n"
    one = hitables.read(
        input_rules("-s 10.0.0.1 -j ACCEPT", "-s 10.0.0.0/8 -j ACCEPT") + nat, family=4, name="a"
    )
    other = hitables.read(input_rules("-m set --match-set b src -j ACCEPT"), family=6, name="b")
    checked = hitables.check(one, other, across_families=True, pairs=[LOCAL])
    assert checked.scope[1:] == (
        "a: 1 rule left out, for other addresses or for ipsets that b does not ask",
        "a: table nat left out, which changes addresses",
        "b: 1 rule left out, for other addresses or for ipsets that a does not ask (b)",
    )
    five = [LOCAL, *(f"192.168.{at}.0/24=fe80:{at}::/32" for at in range(1, 5))]
    (first, *_) = hitables.check(one, other, across_families=True, pairs=five).scope
    assert f"no rule names, {LOCAL}, {five[1]}, {five[2]}, 2 more pairs; without" in first
    for target, is_told in (("ACCEPT", True), ("LOG", False), ("MARK --set-mark 1", True)):
        limited = input_rules(f"-m limit --limit 1/s -j {target}").replace("*filter", "*mangle")
        scope = hitables.check(hitables.read(limited, family=4), other, across_families=True).scope
        assert ("limits" in scope[-1]) is is_told
    three = [LOCAL, *five[1:3]]  # and the Internet
    (first, *_) = hitables.check(one, other, across_families=True, pairs=three).scope
    assert f"no rule names, {LOCAL}, {five[1]}, {five[2]}; without" in first
    empty = hitables.read(input_rules() + nat.replace("-A POSTROUTING -j MASQUERADE\n", ""), family=4)
    assert "nat" not in " ".join(hitables.check(empty, other, across_families=True).scope)
    assert checked.scope == hitables.diff(one, other, across_families=True, pairs=[LOCAL]).scope
    assert not hitables.check(one, one).scope


def test_types_of_one_family_are_left_out_of_user_chains() -> None:
    head = "*filter\n:INPUT DROP\n:web - [0:0]\n-A INPUT -j web\n"
    one = hitables.read(f"{head}-A web -p icmp --icmp-type timestamp-request -j ACCEPT\nCOMMIT\n", family=4)
    other = hitables.read(f"{head}COMMIT\n", family=6)
    assert hitables.check(one, other, across_families=True)
    assert hitables.check(one, other, across_families=True, chains=["web"])


def test_a_packet_walks_through_the_rules_of_the_files() -> None:
    logging = "-m limit --limit 1/s -j LOG"
    one = hitables.read(input_rules(logging, "-p tcp -j ACCEPT"), family=4)
    other = hitables.read(input_rules(logging, logging), family=6)
    (difference,) = hitables.check(one, other, across_families=True).differences
    assert [len(walk.steps) for walk in (difference.before, difference.after)] == [2, 2]


def test_packets_with_broken_headers_are_left_out() -> None:
    """The option of tcp drops them in one rule set alone."""
    option = "-p tcp ! --tcp-option 2 -j ACCEPT"
    assert compared(input_rules(option, "-p tcp -j ACCEPT"), input_rules("-p tcp -j ACCEPT"))


def test_a_difference_is_told_by_matches_of_the_rules() -> None:
    local = "-m addrtype --dst-type LOCAL -j DROP"
    one = hitables.read(input_rules(local, "-p tcp -j ACCEPT"), family=4)
    other = hitables.read(input_rules(local), family=6)
    (change,) = hitables.diff(one, other, across_families=True).regions
    assert change.facts == (("addrtype --dst-type LOCAL", False),)


def test_the_difference_is_told_in_verdicts() -> None:
    logging = "-p tcp -j LOG"
    one = hitables.read(input_rules(logging, "-p tcp -j REJECT --reject-with tcp-reset"), family=4)
    other = hitables.read(input_rules("-p tcp -j REJECT"), family=6)
    (change,) = hitables.diff(one, other, across_families=True).regions
    assert (change.before.verdict, change.after.verdict) == ("REJECT --reject-with tcp-reset", "REJECT")
    assert not change.before.effects and not change.after.effects


# ---- a law: packets of both families, through the rules as they are ----

NETWORKS = {
    Family.IPV4: ("10.0.0.0/8", "10.1.0.0/16", "10.1.1.1", "192.0.2.0/24", "198.51.100.7"),
    Family.IPV6: ("fd00::/8", "fd01::/16", "fd01::1", "2001:db8::/32", "2001:db8:7::7"),
}
TYPES = ((8, 128), (0, 129), (11, 3))


@st.composite
def twins(draw: st.DrawFn) -> tuple[str, str]:
    """A rule of each family; most are the same but for their addresses."""
    texts: dict[Family, list[str]] = {family: [] for family in Family}
    for option in ("-s", "-d"):
        at = draw(st.integers(-4, 4))
        no = draw(st.sampled_from(["", "", "! "]))
        for family in Family:
            if draw(st.integers(0, 9)) == 0:
                at = draw(st.integers(-1, 4))
            texts[family] += [f"{no}{option} {NETWORKS[family][at]}"] if at >= 0 else []
    words = draw(
        st.sampled_from(["", "", "-i eth0", "-m conntrack --ctstate NEW", "-m set --match-set ports dst"])
    )
    name = draw(st.sampled_from(["", "", "", "! "]))
    if draw(st.integers(0, 4)) == 0:
        texts[Family.IPV4].append(f"-m set {name}--match-set four src")
        texts[Family.IPV6].append(f"-m set {name}--match-set six src")
    protocol, kind = draw(st.sampled_from(["", "tcp", "udp", "icmp"])), draw(st.sampled_from(TYPES))
    has_type = draw(st.booleans())
    verdict = draw(st.sampled_from(["ACCEPT", "DROP", "REJECT", "LOG"]))
    for family in Family:
        if draw(st.integers(0, 9)) == 0:
            verdict = draw(st.sampled_from(["ACCEPT", "DROP", "REJECT"]))
        own = {"icmp": "ipv6-icmp"}.get(protocol, protocol) if family is Family.IPV6 else protocol
        texts[family] += [words, f"-p {own}" if own else ""]
        if protocol == "icmp" and has_type:
            texts[family].append(f"--icmp-type {kind[0]}" if own == "icmp" else f"--icmpv6-type {kind[1]}")
        if protocol in ("tcp", "udp"):
            texts[family].append(f"--dport {draw(st.sampled_from([22, 22, 22, 80]))}")
        texts[family].append(f"-j {verdict}")
    one, other = (" ".join(filter(None, texts[family])) for family in Family)
    return one, other


def places(pairs: list[str]) -> list[tuple[str, str]]:
    """An address of each family for each place: one that no network inside it has."""
    of_place = {"": ("203.0.113.9", "2a00::9")}
    for at, (one, other) in enumerate(zip(*NETWORKS.values(), strict=True)):
        inside = ("10.9.0.9", "fd90::9"), ("10.1.9.9", "fd01::9"), ("10.1.1.1", "fd01::1")
        last = ("192.0.2.9", "2001:db8::9"), ("198.51.100.7", "2001:db8:7::7")
        of_place[f"{one}={other}"] = (*inside, *last)[at]
    return [of_place[""], *(of_place[pair] for pair in pairs)]


def packets(pairs: list[str]) -> Iterator[tuple[Packet, Packet]]:
    """The same packet in both families."""
    kinds: list[dict[Family, dict[Field, int]]] = [
        {family: {Field.PROTO: protocol, Field.SPORT: 4000, Field.DPORT: port} for family in Family}
        for protocol, port in product((TCP, UDP), (22, 80, 443))
    ]
    for kind in kinds[:3]:
        for family in Family:
            kind[family][Field.FLAGS] = 2
    kinds += [
        {
            Family.IPV4: {Field.PROTO: ICMP, Field.ICMP: one << 8},
            Family.IPV6: {Field.PROTO: ICMPV6, Field.ICMP: other << 8},
        }
        for one, other in TYPES
    ]
    states = STATES.index("NEW"), STATES.index("INVALID")
    interfaces = interface_number("eth0"), interface_number("eth1")
    addresses = places(pairs)
    for kind, source, to, state, name, is_port in product(
        kinds, addresses, addresses, states, interfaces, (False, True)
    ):
        if state == states[0] and kind[Family.IPV4].get(Field.ICMP, 8 << 8) != 8 << 8:
            continue  # an answer or an error begins no connection
        both = []
        for family, one, other in zip(Family, source, to, strict=True):
            values = {
                Field.SRC: int(ipaddress.ip_address(one)), Field.DST: int(ipaddress.ip_address(other)),
                Field.FRAG: 0, Field.IIF: name, Field.OIF: 0, Field.STATE: state, **kind[family],
            }  # fmt: skip
            both.append(
                Packet(family, values, fact=lambda match, epoch, is_port=is_port: is_in(match, is_port))
            )
        yield both[0], both[1]


def is_in(match: Match, is_port: bool) -> bool:
    """The answer of a set: the one that both families ask has it or not, the others have no address."""
    return (is_port and "ports" in match.words) != ("!" in match.words)


def verdict_of(program: Program, packet: Packet) -> str:
    return semantics.run(program.table("filter"), "INPUT", packet, Backend.NFT).verdict.split(" ")[0]


@given(
    st.lists(twins(), min_size=1, max_size=6),
    st.sets(st.integers(0, 4)),
)
def test_the_answer_is_that_of_packets_of_both_families(
    rules: list[tuple[str, str]], paired: set[int]
) -> None:
    pairs = [f"{NETWORKS[Family.IPV4][at]}={NETWORKS[Family.IPV6][at]}" for at in sorted(paired)]
    one, other = (
        hitables.read(input_rules(*texts), family=family)
        for family, texts in zip((4, 6), zip(*rules, strict=True), strict=True)
    )
    both = [(verdict_of(one, four), verdict_of(other, six)) for four, six in packets(pairs)]
    is_same = all(four == six for four, six in both)
    checked = hitables.check(one, other, across_families=True, pairs=pairs)
    assert (
        bool(checked) == is_same == (not hitables.diff(one, other, across_families=True, pairs=pairs).regions)
    )
    for case in checked.cases:
        if isinstance(case.answer, Difference):
            assert case.answer.before and case.answer.after
            words = tuple(walk.verdict.split(" ")[0] for walk in (case.answer.before, case.answer.after))
            assert words in both
