"""What real kernels do where one would guess otherwise; our semantics rests on these facts.

Measured with Linux 6.18 and iptables 1.8.9 to 1.8.11.  A kernel that does otherwise fails here, and
then docs/semantics.md and the option table are wrong for it.
"""

from __future__ import annotations

import itertools
import re
import socket
import struct

import pytest
from support.iptables_version import iptables_is
from support.kernel_packets import ACK, ECHO, SYN, counts, packet, treat
from support.small_namespace import Namespace

from hitables import read
from hitables.errors import LiveError
from hitables.ir.fields import TCP, UDP, Family, Field, Fragment
from hitables.ir.packet import Backend, Packet
from hitables.ir.rule import Role
from hitables.kernel import load, make_ip_sets, save
from hitables.kernel.craft import craft
from hitables.kernel.experiment import Trial, furnish, prepare, send_trials
from hitables.kernel.load_save import read_by_iptc
from hitables.kernel.namespace import run, set_sysctl
from hitables.kernel.replay import ReplayResult, replay
from hitables.kernel.testbed import target_of
from hitables.verify import bdd, exact
from hitables.verify.lint import lint
from hitables.verify.question import Difference, Question

pytestmark = pytest.mark.needs_kernel

INTERFACES = ("eth0", "eth1")
IP_NODEFRAG = 22
EVERYWHERE = list(itertools.product(Family, Backend))


def chain_of(count: int, flag: str) -> str:
    """A table whose OUTPUT reaches *count* nested chains by -j or -g."""
    names = [f"n{at}" for at in range(count)]
    lines = [f":{name} - [0:0]" for name in names]
    lines += [f"-A {caller} {flag} {name}" for caller, name in zip(["OUTPUT", *names], names, strict=False)]
    return "*filter\n" + "\n".join(lines) + "\nCOMMIT\n"


# 1. Nesting.


@pytest.mark.parametrize("flag", ["-j", "-g"])
@pytest.mark.parametrize("family", Family)
def test_1_nft_takes_15_nested_chains_and_goto_counts_as_a_jump(family: Family, flag: str) -> None:
    with Namespace() as namespace:
        load(chain_of(15, flag), family, Backend.NFT, namespace)
    with Namespace() as namespace, pytest.raises(LiveError, match="Too many links"):
        load(chain_of(16, flag), family, Backend.NFT, namespace)


@pytest.mark.parametrize("flag", ["-j", "-g"])
def test_1_legacy_takes_thousands_of_nested_chains(flag: str) -> None:
    with Namespace() as namespace:
        load(chain_of(3000, flag), Family.IPV4, Backend.LEGACY, namespace)


# 2. "None" is a value.  3. A header too short drops the packet.

LATER = {"fragment": Fragment.LATER}
# rule, protocol -> where nft reads the payload itself, a later fragment has what looks like ports.
NATIVE = ["-m tcp --dport 53", "-m tcp --dport 50:60", "-m tcp ! --dport 54", "-m tcp --sport 1000",
          "-m tcp --syn", "-m tcp --tcp-flags SYN,ACK SYN"]  # fmt: skip
THROUGH_XTABLES = [
    "-m tcp",
    "-m tcp --dport 0:65535",
    "-m tcp ! --tcp-option 7",
    "-m multiport --dports 53",
    "-m multiport ! --dports 54",
]


@pytest.mark.parametrize("rule", [*NATIVE, *THROUGH_XTABLES])
@pytest.mark.parametrize("backend", Backend)
def test_2_a_later_fragment_has_ports_only_where_nft_reads_them_itself(backend: Backend, rule: str) -> None:
    later, whole = packet(Family.IPV4, TCP, "OUTPUT", **LATER), packet(Family.IPV4, TCP, "OUTPUT")
    misread = backend is Backend.NFT and rule in NATIVE
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, INTERFACES)
        assert treat(namespace, backend, f"-A OUTPUT -p tcp {rule}", [whole, later]) == ["1", "01"[misread]]


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("test", ["-m udp {}--dport 53", "-m multiport {}--dports 53", "-m udp {}--sport 5"])
def test_2_neither_a_port_test_nor_its_negation_matches_without_ports(backend: Backend, test: str) -> None:
    """Legacy and xtables matches drop a header that is too short; native ones pass over it."""
    rules = "\n".join(f"-A OUTPUT -p udp {test.format(negated)}" for negated in ("", "! "))
    native = backend is Backend.NFT and "multiport" not in test
    short = packet(Family.IPV4, UDP, "OUTPUT", l4_bytes=1)
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, INTERFACES)
        assert treat(namespace, backend, rules, [short]) == ["0" if native else "drop"]


# The packet has ports 1000 and 53 and the flag SYN.
OTHERWISE = ["! --sport 1000 ! --dport 54", "! --sport 1001 ! --dport 53", "! --dport 0:65535",
             "! --sport 0:65535 --dport 53", "! --tcp-flags NONE NONE", "--tcp-flags NONE SYN"]  # fmt: skip


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("family", Family)
def test_2_nft_leaves_out_or_joins_tests_that_never_match_in_legacy(family: Family, backend: Backend) -> None:
    """So such a match is a fact of its own, of which no tree makes anything.

    Since 1.8.11 that is so of flags alone; hitables must be right for either version.
    """
    with Namespace() as namespace:
        furnish(namespace, family, INTERFACES)
        for options in OTHERWISE:
            rule = f"-A OUTPUT -p tcp -m tcp {options}"
            (message,) = treat(namespace, backend, rule, [packet(family, TCP, "OUTPUT")])
            mended = iptables_is((1, 8, 11)) and "flags" not in options
            assert message == ("1" if backend is Backend.NFT and not mended else "0"), options
            read_as = read(f"*filter\n{rule}\nCOMMIT\n").table("filter")["OUTPUT"].rules[0].matches[1]
            assert read_as.role is Role.CONSTANT and not read_as.tests, options


@pytest.mark.parametrize("backend", Backend)
def test_2_in_ipv6_nft_reads_the_ports_of_a_later_fragment_out_of_the_ip_header(backend: Backend) -> None:
    """The flow label stands where the destination port is read, and packets here are numbered in it."""
    later = packet(Family.IPV6, TCP, "OUTPUT", dport=53, **LATER)
    source_byte = later.values[Field.SRC] >> 80 & 0x3F
    rules = {
        "--dport 53": 0, "--dport 1": 1, "! --dport 53": 1, "--sport 24576": 1, "--sport 1000": 0,
        f"--tcp-flags ALL {'NONE' if not source_byte else ''}": 1,
    }  # fmt: skip
    assert source_byte == 0
    with Namespace() as namespace:
        furnish(namespace, Family.IPV6, INTERFACES)
        for rule, read in rules.items():
            expected = str(read if backend is Backend.NFT else 0)
            assert treat(namespace, backend, f"-A OUTPUT -p tcp -m tcp {rule}", [later]) == [expected], rule


# 4. Ports need a protocol.


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_4_protocol_0_means_any_and_its_negation_is_refused(family: Family, backend: Backend) -> None:
    packets = [packet(family, protocol, "OUTPUT") for protocol in (TCP, UDP, 47, ECHO[family][0])]
    with Namespace() as namespace:
        furnish(namespace, family, INTERFACES)
        assert treat(namespace, backend, "-A OUTPUT -p 0\n-A OUTPUT", packets) == ["2"] * 4
        with pytest.raises(LiveError):
            load("*filter\n-A OUTPUT ! -p 0\nCOMMIT\n", family, backend, namespace)
        with pytest.raises(LiveError):
            load("*filter\n-A OUTPUT --dport 53\nCOMMIT\n", family, backend, namespace)
        with pytest.raises(LiveError):
            load("*filter\n-A OUTPUT -m multiport --dports 53\nCOMMIT\n", family, backend, namespace)


# 5. Hash tables can fill.


@pytest.mark.parametrize("backend", Backend)
def test_5_a_full_hashlimit_table_drops_the_packet_itself(backend: Backend) -> None:
    rule = (
        "-A OUTPUT -m hashlimit --hashlimit-upto 100/sec --hashlimit-mode dstport "
        "--hashlimit-name full --hashlimit-htable-max 1 --hashlimit-htable-size 1"
    )
    packets = [packet(Family.IPV4, UDP, "OUTPUT", dport=port) for port in (1, 1, 2)]
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, INTERFACES)
        assert treat(namespace, backend, rule, packets) == ["1", "1", "drop"]


@pytest.mark.parametrize("backend", Backend)
def test_5_a_limit_is_charged_by_packets_that_fail_a_later_match(backend: Backend) -> None:
    rule = "-A OUTPUT -p udp -m limit --limit 1/hour --limit-burst 2 -m udp --dport 53"
    packets = [packet(Family.IPV4, UDP, "OUTPUT", dport=port) for port in (9, 53, 53)]
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, INTERFACES)
        assert treat(namespace, backend, rule, packets) == ["0", "1", "0"]


# 6. Names.


@pytest.mark.parametrize("backend", Backend)
def test_6_names_have_28_characters_and_a_chain_wins_over_the_target_of_its_name(backend: Backend) -> None:
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, INTERFACES)
        load(f"*filter\n:{'a' * 28} - [0:0]\nCOMMIT\n", Family.IPV4, backend, namespace)
        for name in ("a" * 29, "ACCEPT", "DROP", "QUEUE", "RETURN"):
            with pytest.raises(LiveError):
                load(f"*filter\n:{name} - [0:0]\nCOMMIT\n", Family.IPV4, backend, namespace)
        text = "*filter\n:LOG - [0:0]\n-A OUTPUT -j LOG\n-A LOG -j DROP\nCOMMIT\n"
        load(text, Family.IPV4, backend, namespace)
        prepare(namespace, "filter", "OUTPUT", [Trial(packet(Family.IPV4, UDP, "OUTPUT"))], False)
        assert not send_trials(namespace)[0].passed


# 7. --test is no test.

LOOP = "*filter\n:a - [0:0]\n:b - [0:0]\n-A OUTPUT -j a\n-A a -j b\n-A b -j a\nCOMMIT\n"
NO_TARGET = "*filter\n-A OUTPUT -j NO_SUCH_CHAIN\nCOMMIT\n"


@pytest.mark.parametrize("backend", Backend)
def test_7_the_test_option_accepts_a_loop_that_loading_refuses(backend: Backend) -> None:
    with Namespace() as namespace:
        namespace.run([f"iptables-{backend.value}-restore", "--test"], LOOP)
        with pytest.raises(LiveError):
            load(LOOP, Family.IPV4, backend, namespace)


def test_7_on_nft_the_test_option_accepts_chains_that_do_not_exist() -> None:
    with Namespace() as namespace:
        namespace.run(["iptables-nft-restore", "--test"], NO_TARGET)
        with pytest.raises(LiveError):
            load(NO_TARGET, Family.IPV4, Backend.NFT, namespace)


# 8. Commit is per table.


@pytest.mark.parametrize("backend", Backend)
def test_8_an_error_in_the_second_table_leaves_the_first_one_applied(backend: Backend) -> None:
    text = "*filter\n-A OUTPUT -s 10.0.0.1/32\nCOMMIT\n*mangle\n-A OUTPUT -j NO_SUCH_CHAIN\nCOMMIT\n"
    with Namespace() as namespace:
        with pytest.raises(LiveError):
            load(text, Family.IPV4, backend, namespace)
        assert "-A OUTPUT -s 10.0.0.1/32" in save(Family.IPV4, backend, namespace)


@pytest.mark.parametrize("backend", Backend)
def test_8_in_legacy_any_change_of_a_table_resets_the_memory_of_limit(backend: Backend) -> None:
    rules = "*filter\n:other - [0:0]\n-A OUTPUT -m limit --limit 1/hour --limit-burst 1\nCOMMIT\n"
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, INTERFACES)
        load(rules, Family.IPV4, backend, namespace)
        prepare(namespace, "filter", "OUTPUT", [Trial(packet(Family.IPV4, UDP, "OUTPUT"))] * 3, False)
        send_trials(namespace)
        assert counts(Family.IPV4, backend, namespace) == [1]
        load("*filter\n-A other -j ACCEPT\nCOMMIT\n", Family.IPV4, backend, namespace, noflush=True)
        send_trials(namespace)
        assert counts(Family.IPV4, backend, namespace)[0] == (2 if backend is Backend.LEGACY else 1)


@pytest.mark.parametrize("backend", Backend)
def test_8_noflush_flushes_the_declared_chain_only(backend: Backend) -> None:
    first = "*filter\n:a - [0:0]\n:b - [0:0]\n-A a -s 10.0.0.1/32\n-A b -s 10.0.0.2/32\nCOMMIT\n"
    patch = "*filter\n:a - [0:0]\n-A a -s 10.0.0.3/32\nCOMMIT\n"
    with Namespace() as namespace:
        load(first, Family.IPV4, backend, namespace)
        load(patch, Family.IPV4, backend, namespace, noflush=True)
        rules = [line for line in save(Family.IPV4, backend, namespace).splitlines() if line.startswith("-A")]
    assert rules == ["-A a -s 10.0.0.3/32", "-A b -s 10.0.0.2/32"]


# 9. Counters of copies are pieces.


@pytest.mark.parametrize("backend", Backend)
def test_9_the_counters_of_copies_add_up_to_those_of_the_rule(backend: Backend) -> None:
    packets = [
        Trial(packet(Family.IPV4, protocol, "OUTPUT", flags=flags))
        for protocol, flags in ((TCP, SYN), (TCP, ACK), (UDP, 0), (47, 0))
    ]
    one = "*filter\n-A OUTPUT -o eth1\nCOMMIT\n"
    copied = (
        "*filter\n:t - [0:0]\n:u - [0:0]\n-A OUTPUT -p tcp -g t\n-A OUTPUT -p udp -g u\n"
        "-A OUTPUT -o eth1\n-A t -o eth1\n-A u -o eth1\nCOMMIT\n"
    )
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, INTERFACES)
        load(one, Family.IPV4, backend, namespace)
        prepare(namespace, "filter", "OUTPUT", packets, False)
        send_trials(namespace)
        assert counts(Family.IPV4, backend, namespace) == [4]
        load(copied, Family.IPV4, backend, namespace)
        send_trials(namespace)
        assert counts(Family.IPV4, backend, namespace) == [2, 1, 1, 2, 1]


# 10. With conntrack loaded, fragments are put together before filter.


def in_two(number: int, source: int, target: int) -> list[bytes]:
    """One udp packet in two fragments of one id."""
    pieces = (
        packet(Family.IPV4, UDP, "OUTPUT", fragment=Fragment.FIRST, l4_bytes=185 * 8),
        packet(Family.IPV4, UDP, "OUTPUT", fragment=Fragment.LATER, l4_bytes=24),
    )
    return [craft(piece, number, source, target) for piece in pieces]


def send_in_two(source: int, target: int, via: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sender:
        for piece in in_two(7, source, target):
            sender.sendto(piece, (socket.inet_ntoa(struct.pack(">I", target)), 0))


@pytest.mark.parametrize("followed", [False, True])
@pytest.mark.parametrize("backend", Backend)
def test_10_a_conntrack_rule_anywhere_puts_fragments_together(backend: Backend, followed: bool) -> None:
    state = "-A unreached -m conntrack --ctstate NEW\n" if followed else ""
    rules = f"*filter\n:unreached - [0:0]\n-A OUTPUT -f\n-A OUTPUT ! -f -p udp\n{state}COMMIT\n"
    target = target_of(Family.IPV4, 1, False)
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, INTERFACES)
        load(rules, Family.IPV4, backend, namespace)
        namespace.call(send_in_two, 0xC6120001, target, "eth1")
        later, other = counts(Family.IPV4, backend, namespace)[:2]
    assert (later, other) == ((0, 1) if followed else (1, 1))


def arrive_in_two(targets: tuple[str, ...]) -> None:
    """For each target two fragments that come in by v0, whose host is 10.1.0.1, and two that stay on the host."""
    for setting in ("ipv4.conf.all.rp_filter", "ipv4.conf.default.rp_filter"):
        set_sysctl(setting, "0")
    set_sysctl("ipv4.ip_forward", "1")
    run(["ip", "link", "add", "v0", "address", "02:00:00:00:00:01", "type", "veth", "peer", "name", "w0"])
    for name in ("lo", "w0", "v0"):
        run(["ip", "link", "set", name, "up"])
    run(["ip", "address", "add", "10.1.0.1/24", "dev", "v0"])
    run(["ip", "route", "add", "default", "dev", "v0"])
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind(("w0", 0))
        for number, target in enumerate(targets, 1):
            for piece in in_two(number, 0x0A010002, int.from_bytes(socket.inet_aton(target), "big")):
                wire.send(bytes.fromhex("0200000000010200000000020800") + piece)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sender:
        sender.setsockopt(socket.IPPROTO_IP, IP_NODEFRAG, 1)
        for piece in in_two(9, 0x0A010001, 0x0A010001):
            sender.sendto(piece, ("10.1.0.1", 0))


@pytest.mark.parametrize("followed", [False, True])
@pytest.mark.parametrize("backend", Backend)
def test_10_no_fragment_comes_to_input_of_ipv4_whether_connections_are_followed_or_not(
    backend: Backend, followed: bool
) -> None:
    places = [("mangle", "PREROUTING"), ("mangle", "FORWARD"), ("mangle", "INPUT"), ("filter", "INPUT"),
              ("security", "INPUT")]  # fmt: skip
    state = "*filter\n:unreached - [0:0]\n-A unreached -m conntrack --ctstate NEW\nCOMMIT\n"
    rules = "".join(
        f"*{table}\n"
        + "".join(f"-A {chain} -f\n-A {chain} ! -f -p udp\n" for name, chain in places if name == table)
        + "COMMIT\n"
        for table in ("mangle", "filter", "security")
    )
    with Namespace() as namespace:
        load(rules.replace("*filter\n", state.removesuffix("COMMIT\n")) if followed else rules,
             Family.IPV4, backend, namespace)  # fmt: skip
        namespace.call(arrive_in_two, ("10.1.0.1", "192.0.2.1"))
        counted: dict[tuple[str, str], tuple[int, int]] = {}
        while counted.get(("filter", "INPUT"), (0, 0))[1] < 2 or not any(counted["mangle", "FORWARD"]):
            counted = later_and_other(save(Family.IPV4, backend, namespace, counters=True))
    assert all(counted[place] == (0, 2) for place in places[2:])
    # With IP_NODEFRAG a packet leaves in fragments, and is put together as it comes in at lo.
    assert counted["mangle", "PREROUTING"] == ((0, 3) if followed else (3, 3))
    assert counted["mangle", "FORWARD"] == ((0, 1) if followed else (1, 1))


def later_and_other(saved: str) -> dict[tuple[str, str], tuple[int, int]]:
    """By table and chain: the counts of its first two rules."""
    counted = {}
    for table, body in re.findall(r"^\*(\w+)$(.*?)^COMMIT$", saved, re.MULTILINE | re.DOTALL):
        for chain in ("PREROUTING", "FORWARD", "INPUT"):
            found = re.findall(rf"^\[(\d+):\d+\] -A {chain} ", body, re.MULTILINE)
            if found:
                later, other = map(int, found)
                counted[table, chain] = later, other
    return counted


# 11. Odd rules are kept as they are.


@pytest.mark.parametrize("backend", Backend)
def test_11_a_reversed_udp_range_loads_and_never_matches_and_tcp_refuses_one(backend: Backend) -> None:
    packets = [packet(Family.IPV4, UDP, "OUTPUT", dport=port) for port in (0, 29, 30, 59999, 60000, 65535)]
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, INTERFACES)
        if not iptables_is((1, 8, 11)):  # which refuses both
            assert treat(namespace, backend, "-A OUTPUT -p udp -m udp --dport 60000:29", packets) == ["0"] * 6
        for protocol in ("tcp", "udp") if iptables_is((1, 8, 11)) else ("tcp",):
            reversed_range = f"-A OUTPUT -p {protocol} --dport 60000:29"
            with pytest.raises(LiveError):
                load(f"*filter\n{reversed_range}\nCOMMIT\n", Family.IPV4, backend, namespace)


@pytest.mark.parametrize("backend", Backend)
def test_11_where_there_is_no_interface_its_name_is_empty_and_plus_matches_it(backend: Backend) -> None:
    tests = {"-i +": "1", "! -i +": "0", "-i eth0": "0", "! -i eth0": "1", "-i e+": "0", "! -i e+": "1"}
    leaving = packet(Family.IPV4, UDP, "OUTPUT")
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, INTERFACES)
        for test, expected in tests.items():
            rules = f"*filter\n:u - [0:0]\n-A OUTPUT -j u\n-A u {test}\nCOMMIT\n"
            load(rules, Family.IPV4, backend, namespace)
            prepare(namespace, "filter", "OUTPUT", [Trial(leaving)], False)
            send_trials(namespace)
            assert counts(Family.IPV4, backend, namespace)[1] == int(expected), test


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_11_a_forwarded_packet_has_its_input_interface_in_postrouting(
    family: Family, backend: Backend
) -> None:
    """iptables refuses -i there, but not in a user chain that is entered from there."""
    tests = {"-i eth0": "1", "! -i eth0": "0", "-i eth1": "0", "-i +": "1"}
    for packet_, forwarded in (
        (packet(family, UDP, "POSTROUTING"), True),
        (packet(family, UDP, "POSTROUTING", iif=""), False),
    ):
        with Namespace() as namespace:
            furnish(namespace, family, INTERFACES)
            for test, expected in tests.items():
                rules = f"*mangle\n:u - [0:0]\n-A POSTROUTING -j u\n-A u {test}\nCOMMIT\n"
                load(rules, family, backend, namespace)
                prepare(namespace, "mangle", "POSTROUTING", [Trial(packet_)], False)
                (result,) = send_trials(namespace)
                assert result.arrived
                if forwarded:
                    assert counts(family, backend, namespace)[1] == int(expected), test


def test_11_an_input_interface_tells_programs_apart_in_postrouting() -> None:
    text = (
        "*mangle\n:POSTROUTING ACCEPT [0:0]\n:u - [0:0]\n-A POSTROUTING -j u\n-A u -i eth0 -j DROP\nCOMMIT\n"
    )
    before, after = read(text), read(text.replace("-A u -i eth0 -j DROP\n", ""))
    answer = exact.check(before, after, Question())
    assert isinstance(answer, Difference)
    assert replay(before, after, answer).finding is ReplayResult.CONFIRMED
    assert isinstance(bdd.check(before, after, Question()), Difference)
    assert not lint(before, Question(), tell=lambda stage: None).flaws


def test_11_legacy_prints_a_rule_for_no_interface_as_one_for_every_interface() -> None:
    text = "*filter\n-A INPUT ! -i +\nCOMMIT\n"
    with Namespace() as namespace:
        by_legacy = "-A INPUT ! -i +\n" if iptables_is((1, 8, 11)) else "-A INPUT\n"
        for backend, printed in ((Backend.LEGACY, by_legacy), (Backend.NFT, "-A INPUT ! -i +\n")):
            load(text, Family.IPV4, backend, namespace)
            assert printed in save(Family.IPV4, backend, namespace)


# 12. python-iptables leaves out what it cannot encode.


def test_12_python_iptables_does_not_tell_a_rule_for_whole_packets_from_one_for_all() -> None:
    with Namespace() as namespace:
        load("*filter\n-A INPUT ! -f -s 10.0.0.1/32\nCOMMIT\n", Family.IPV4, Backend.LEGACY, namespace)
        (rule,) = read_by_iptc("filter", Family.IPV4, namespace)["INPUT"]
    assert not any("frag" in key for key in rule)


# 13. Size is no limit.


@pytest.mark.parametrize("backend", Backend)
def test_13_ten_thousand_shared_chains_load(backend: Backend) -> None:
    names = [f"c{at}" for at in range(10_000)]
    lines = [f":{name} - [0:0]" for name in (*names, "shared")]
    lines += [f"-A OUTPUT -s 10.{at >> 8}.{at & 255}.1/32 -g {name}" for at, name in enumerate(names)]
    lines += [f"-A {name} -p udp -j shared" for name in names]
    with Namespace() as namespace:
        load("*filter\n" + "\n".join(lines) + "\nCOMMIT\n", Family.IPV4, backend, namespace)
        assert save(Family.IPV4, backend, namespace).count("-j shared") == len(names)


@pytest.mark.parametrize("backend", Backend)
def test_notrack_turns_a_packet_untracked_in_mid_chain(backend: Backend) -> None:
    """So past a rule that writes the state, the state is no field to build trees on."""
    rules = (
        "*raw\n-A OUTPUT -m conntrack --ctstate INVALID\n-A OUTPUT -j CT --notrack\n"
        "-A OUTPUT -m conntrack --ctstate INVALID\n-A OUTPUT -m conntrack --ctstate UNTRACKED\nCOMMIT\n"
    )
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, INTERFACES)
        load(rules, Family.IPV4, backend, namespace)
        prepare(namespace, "raw", "OUTPUT", [Trial(packet(Family.IPV4, UDP, "OUTPUT"))], True)
        send_trials(namespace)
        assert counts(Family.IPV4, backend, namespace) == [1, 1, 0, 1]


@pytest.mark.parametrize("backend", Backend)
def test_a_set_is_read_as_it_was_filled(backend: Backend) -> None:
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, INTERFACES)
        make_ip_sets({"known": "hash:net"}, Family.IPV4, namespace, {"known": ["10.0.0.6"]})
        for side, expected in (("dst", "drop"), ("src", "0")):
            rule = f"-A OUTPUT -m set --match-set known {side} -j DROP"
            assert treat(namespace, backend, rule, [packet(Family.IPV4, UDP, "OUTPUT")]) == [expected]


@pytest.mark.parametrize("backend", Backend)
def test_a_target_drops_what_it_cannot_rewrite(backend: Backend) -> None:
    """So such a target may end a packet's way, though it mostly goes on."""
    good, bad = packet(Family.IPV4, TCP, "FORWARD"), packet(Family.IPV4, TCP, "FORWARD", bad_offset=True)
    rule = "-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 500"
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, INTERFACES)
        load(f"*mangle\n{rule}\nCOMMIT\n", Family.IPV4, backend, namespace)
        prepare(namespace, "mangle", "FORWARD", [Trial(good), Trial(bad)], False)
        assert [result.passed for result in send_trials(namespace)] == [True, False]


@pytest.mark.parametrize("backend", Backend)
def test_no_address_of_the_zero_network_but_0_0_0_0_is_a_broadcast(backend: Backend) -> None:
    plain = packet(Family.IPV4, UDP, "OUTPUT")
    sources = (0, 1, 0xFFFFFF, 0xFFFFFFFF)
    zeros = [Packet(Family.IPV4, {**plain.values, Field.SRC: source}) for source in sources]
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, INTERFACES)
        rule = "-A OUTPUT -m addrtype --src-type BROADCAST"
        assert treat(namespace, backend, rule, zeros) == ["1", "0", "0", "1"]


# 21. A test of two dimensions of an ipset may change it.


@pytest.mark.parametrize("backend", Backend)
def test_21_a_test_of_a_set_of_addresses_and_macs_completes_an_entry_without_a_mac(backend: Backend) -> None:
    """So such a match is an event: no tree leaves it out or adds it."""
    arriving = packet(Family.IPV4, UDP, "INPUT", dport=53)
    source = ".".join(str(arriving.values[Field.SRC] >> shift & 255) for shift in (24, 16, 8, 0))
    with Namespace() as namespace:
        furnish(namespace, Family.IPV4, INTERFACES)
        namespace.run(["ipset", "create", "M", "bitmap:ip,mac", "range", f"{source}/24"])
        namespace.run(["ipset", "add", "M", source])
        for dimensions, completed in (("src", False), ("src,src", True)):
            rules = f"*filter\n-A INPUT -m set --match-set M {dimensions}\nCOMMIT\n"
            namespace.run([f"iptables-{backend.value}-restore"], rules)
            prepare(namespace, "filter", "INPUT", [Trial(arriving)], False)
            (fate,) = send_trials(namespace)
            assert fate.passed
            entry = namespace.run(["ipset", "list", "M"]).splitlines()[-1]
            assert re.fullmatch(rf"{source}(,[0-9A-F:]{{17}})?", entry)
            assert ("," in entry) == completed
