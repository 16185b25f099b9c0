"""Which matches drop a packet whose headers are too short or broken, in real kernels (item 3 of the pitfalls)."""

from __future__ import annotations

import itertools

import pytest
from support.kernel_packets import packet, treat
from support.small_namespace import Namespace

from hitables.ir.fields import DCCP, ICMP, ICMPV6, SCTP, TCP, UDP, UDPLITE, Family, Fragment
from hitables.ir.packet import Backend, Packet
from hitables.kernel import load
from hitables.kernel.experiment import Trial, furnish, prepare, send_trials

pytestmark = pytest.mark.needs_kernel

INTERFACES = ("eth0", "eth1")
EVERYWHERE = list(itertools.product(Family, Backend))
ESP, AH, IPCOMP = 50, 51, 108

# protocol, rule -> bytes of layer 4 that the xtables match wants, and whether nft reads it natively.
NEEDS = {
    (TCP, "-p tcp -m tcp"): (20, False),
    (TCP, "-p tcp -m tcp --dport 53"): (20, True),
    (TCP, "-p tcp -m tcp --dport 60000"): (20, True),
    (TCP, "-p tcp -m tcp --dport 0:65535"): (20, False),
    (TCP, "-p tcp -m tcp --tcp-flags ALL NONE"): (20, True),
    (TCP, "-p tcp -m tcp --tcp-option 2"): (20, False),
    (TCP, "-p tcp -m multiport --dports 53"): (4, False),
    (TCP, "-p tcp -m tcpmss --mss 1:9"): (20, False),
    (UDP, "-p udp -m udp"): (8, False),
    (UDP, "-p udp -m udp --dport 53"): (8, True),
    (UDP, "-p udp -m multiport --sports 53"): (4, False),
    (UDPLITE, "-p udplite -m multiport --ports 53"): (4, False),
    (SCTP, "-p sctp -m sctp"): (12, False),
    (SCTP, "-p sctp -m sctp --dport 53"): (12, False),
    (SCTP, "-p sctp -m sctp --chunk-types any INIT"): (16, False),
    (SCTP, "-p sctp -m multiport --dports 53"): (4, False),
    (DCCP, "-p dccp -m dccp --dport 53"): (12, False),
    (DCCP, "-p dccp -m dccp --dccp-types REQUEST"): (12, False),
    (ESP, "-p esp -m esp --espspi 500"): (8, False),
    (IPCOMP, "-p 108 -m ipcomp --ipcompspi 500"): (4, False),
    (ICMP, "-p icmp -m icmp --icmp-type 3"): (8, False),
    (ICMP, "-p icmp -m icmp --icmp-type any"): (8, False),
    (AH, "-p ah -m ah --ahspi 500"): (12, False),
    (ICMPV6, "-p icmpv6 -m icmp6 --icmpv6-type 1"): (8, False),
}
ONE_FAMILY = {ICMP: Family.IPV4, AH: Family.IPV4, ICMPV6: Family.IPV6}
PLACES = [
    (family, protocol, rule)
    for family in Family
    for protocol, rule in NEEDS
    if ONE_FAMILY.get(protocol, family) is family
]


@pytest.mark.parametrize("backend", Backend)
def test_3_a_match_drops_headers_that_are_too_short_for_it(backend: Backend) -> None:
    for family in Family:
        with Namespace() as namespace:
            furnish(namespace, family, INTERFACES)
            for protocol, rule in (rest for where, *rest in PLACES if where is family):
                bytes_, native = NEEDS[protocol, rule]
                load(f"*filter\n-A OUTPUT {rule}\nCOMMIT\n", family, backend, namespace)
                sizes = range(24)
                shorts = [packet(family, protocol, "OUTPUT", l4_bytes=size) for size in sizes]
                prepare(namespace, "filter", "OUTPUT", list(map(Trial, shorts)), False)
                dropped = [
                    size
                    for size, result in zip(sizes, send_trials(namespace), strict=True)
                    if not result.passed
                ]
                reads_itself = native and backend is Backend.NFT
                assert dropped == ([] if reads_itself else list(range(bytes_))), (family, rule)


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_3_tcp_at_fragment_offset_1_is_dropped_in_ipv4_alone(family: Family, backend: Backend) -> None:
    at_one = packet(family, TCP, "OUTPUT", offset_one=True, fragment=Fragment.LATER)
    with Namespace() as namespace:
        furnish(namespace, family, INTERFACES)
        for rule, xtables in (("-m tcp", True), ("-m tcp --sport 7", backend is Backend.LEGACY)):
            expected = "drop" if family is Family.IPV4 and xtables else "0"
            assert treat(namespace, backend, f"-A OUTPUT -p tcp {rule}", [at_one]) == [expected]
        assert treat(namespace, backend, "-A OUTPUT -p tcp -m multiport --sports 7", [at_one]) == ["0"]


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_3_a_bad_data_offset_drops_once_the_ports_and_flags_fit(family: Family, backend: Backend) -> None:
    bad = packet(family, TCP, "OUTPUT", bad_offset=True)
    with Namespace() as namespace:
        furnish(namespace, family, INTERFACES)
        for rule, expected in {
            "--tcp-option 2": "drop",
            "! --tcp-option 2": "drop",
            "--dport 53 --tcp-option 2": "drop",
            "--dport 54 --tcp-option 2": "0",
            "--tcp-flags ALL NONE --tcp-option 2": "0",
            "--dport 53": "1",
        }.items():
            assert treat(namespace, backend, f"-A OUTPUT -p tcp -m tcp {rule}", [bad]) == [expected], rule


def cut_short(fragment: Fragment = Fragment.WHOLE) -> Packet:
    """An IPv6 packet whose chain of extension headers cannot be walked."""
    walked = packet(Family.IPV6, None, "OUTPUT", fragment=fragment, cut_short=True)
    return Packet(Family.IPV6, walked.values, cut_short=True)


@pytest.mark.parametrize("fragment", Fragment)
@pytest.mark.parametrize("backend", Backend)
def test_3_a_protocol_test_on_a_broken_ipv6_chain_drops_in_legacy_and_fails_in_nft(
    backend: Backend, fragment: Fragment
) -> None:
    lost = [cut_short(fragment)]
    legacy = backend is Backend.LEGACY
    with Namespace() as namespace:
        furnish(namespace, Family.IPV6, INTERFACES)
        for rule in ("-p tcp", "! -p tcp", "-p udp -m udp --dport 53", "-p 60"):
            assert treat(namespace, backend, f"-A OUTPUT {rule}", lost) == ["drop" if legacy else "0"], rule
        assert treat(namespace, backend, "-A OUTPUT -p all", lost) == ["drop" if legacy else "1"]
        # The tests of addresses and interfaces come first.
        assert treat(namespace, backend, "-A OUTPUT -s 2002::/16 -p tcp", lost) == ["0"]
        assert treat(namespace, backend, "-A OUTPUT -o eth7 -p tcp", lost) == ["0"]
        assert treat(namespace, backend, "-A OUTPUT -s 2001::/16", lost) == ["1"]


@pytest.mark.parametrize("backend", Backend)
def test_3_matches_that_walk_the_chain_themselves_drop_as_well(backend: Backend) -> None:
    """These have no header field, yet a third outcome: not yes, not no, but dropped."""
    with Namespace() as namespace:
        furnish(namespace, Family.IPV6, INTERFACES)
        for rule in ("-m frag --fragmore", "-m dst", "-m rt --rt-type 0"):
            assert treat(namespace, backend, f"-A OUTPUT {rule}", [cut_short()]) == ["drop"], rule


@pytest.mark.parametrize("backend", Backend)
def test_3_legacy_walks_over_an_ipv6_authentication_header_and_nft_stops_at_it(backend: Backend) -> None:
    ah = packet(Family.IPV6, AH, "OUTPUT", l4_bytes=12)
    # What follows the header is, by its first byte, a chain that ends early.
    with Namespace() as namespace:
        furnish(namespace, Family.IPV6, INTERFACES)
        expected = "1" if backend is Backend.NFT else "drop"
        assert treat(namespace, backend, "-A OUTPUT -p ah", [ah]) == [expected]
