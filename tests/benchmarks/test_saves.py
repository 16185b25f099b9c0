"""A rule set equals its own save: the law of the keys, held against the kernel for every extension.

`make saves` tries all real rule sets and more drawn rules; benchmarks.saves says what is asked.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.small_namespace import Namespace

from benchmarks import public_sets, saves
from benchmarks.spellings import SECTIONS, Section
from hitables.api import read
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.rule import Role
from hitables.syntax import canonical
from hitables.syntax.canonical import Form, OptionUse
from hitables.syntax.extensions import MATCHES, TARGETS, memory
from hitables.verify.portfolio import check
from hitables.verify.question import Equal

# Options of the table that no rule here can have, and why.
UNSPELT = {
    "bpf": {"--object-pinned": "needs a program pinned in a file system of the kernel"},
    "ipvs": {"--vaddr": "this kernel has no ipvs"},
}
NO_SECTION = {
    "quota2": "not part of iptables 1.8.9",
    "MIRROR": "not part of iptables 1.8.9",
    "SAME": "not part of iptables 1.8.9",
    "ULOG": "not in kernels since 3.17",
    "ACCEPT": "has no options",
}
# Real sets that were called different from their saves before there were canonical keys, and one of IPv6.
REAL = (
    "found-online-sargon-iptables-save-txt",
    "found-online-tptp-cc-iptables-save-txt",
    "tj90241_rcc-dff-2220__etc-iptables-rules",
    "basics-interface-aud6",
)

BOTH = [
    pytest.param(section, family, id=f"{section.begin} {section.chain} IPv{family}")
    for section in SECTIONS
    for family in section.families
]
# `make saves` tries each family in both backends.
IN_BACKENDS = [
    pytest.param(section, family, backend, id=f"{section.begin} {section.chain} IPv{family}-{backend.value}")
    for section in SECTIONS
    for family in section.families
    for backend in Backend
    if backend is Backend.NFT or family is section.families[0]
]


Within = Callable[[Family, Backend], Namespace]


@pytest.fixture(scope="module")
def within() -> Iterator[Within]:
    """One namespace of each family and backend, whose tables are empty again after each section."""
    with ExitStack() as stack:
        yield functools.cache(lambda *kind: stack.enter_context(saves.furnished(*kind)))


@pytest.mark.needs_kernel
@pytest.mark.parametrize(("section", "family", "backend"), IN_BACKENDS)
def test_every_spelling_equals_its_save_and_has_the_key_of_its_meaning(
    section: Section, family: Family, backend: Backend, within: Within
) -> None:
    assert saves.try_section(section, family, backend, within(family, backend)).otherwise == []


@pytest.mark.needs_kernel
@pytest.mark.parametrize(("section", "family"), [each for each in BOTH if "IDLETIMER" not in str(each.id)])
def test_drawn_rules_have_one_key_just_when_the_kernel_holds_the_same(
    section: Section, family: Family, within: Within
) -> None:
    scratch = within(family, Backend.LEGACY)
    assert saves.try_drawn(section, family, Backend.LEGACY, 8, 0, scratch).otherwise == []


# Beginning of the rules, family, table, option: the names that its value may have.
NAMES = [
    (
        "-p icmp -m icmp", 4, "filter", "--icmp-type",
        "any echo-reply pong destination-unreachable network-unreachable host-unreachable protocol-unreachable "
        "port-unreachable fragmentation-needed source-route-failed network-unknown host-unknown "
        "network-prohibited host-prohibited TOS-network-unreachable TOS-host-unreachable "
        "communication-prohibited host-precedence-violation precedence-cutoff source-quench redirect "
        "network-redirect host-redirect TOS-network-redirect TOS-host-redirect echo-request ping "
        "router-advertisement router-solicitation time-exceeded ttl-exceeded ttl-zero-during-transit "
        "ttl-zero-during-reassembly parameter-problem ip-header-bad required-option-missing timestamp-request "
        "timestamp-reply address-mask-request address-mask-reply",
    ),
    (
        "-p icmpv6 -m icmp6", 6, "filter", "--icmpv6-type",
        "destination-unreachable no-route communication-prohibited beyond-scope address-unreachable "
        "port-unreachable failed-policy reject-route packet-too-big time-exceeded ttl-exceeded "
        "ttl-zero-during-transit ttl-zero-during-reassembly parameter-problem bad-header unknown-header-type "
        "unknown-option echo-request ping echo-reply pong router-solicitation router-advertisement "
        "neighbour-solicitation neighbor-solicitation neighbour-advertisement neighbor-advertisement redirect",
    ),
    *(
        (
            begin, 4, table, option,
            "CS0 CS1 CS2 CS3 CS4 CS5 CS6 CS7 BE AF11 AF12 AF13 AF21 AF22 AF23 AF31 AF32 AF33 AF41 AF42 AF43 EF",
        )
        for begin, table, option in (
            ("-m dscp", "filter", "--dscp-class"), ("-j DSCP", "mangle", "--set-dscp-class"),
        )
    ),
    *(
        (
            begin, 4, table, option,
            "Minimize-Delay Maximize-Throughput Maximize-Reliability Minimize-Cost Normal-Service",
        )
        for begin, table, option in (("-m tos", "filter", "--tos"), ("-j TOS", "mangle", "--set-tos"))
    ),
    (
        "-j REJECT", 4, "filter", "--reject-with",
        "icmp-net-unreachable net-unreach icmp-host-unreachable host-unreach icmp-proto-unreachable proto-unreach "
        "icmp-port-unreachable port-unreach icmp-net-prohibited net-prohib icmp-host-prohibited host-prohib "
        "icmp-admin-prohibited admin-prohib",
    ),
    (
        "-j REJECT", 6, "filter", "--reject-with",
        "icmp6-no-route no-route icmp6-adm-prohibited adm-prohibited icmp6-addr-unreachable addr-unreach "
        "icmp6-port-unreachable port-unreach icmp6-policy-fail policy-fail icmp6-reject-route reject-route",
    ),
    ("-p tcp -j REJECT", 4, "filter", "--reject-with", "tcp-reset tcp-rst"),
    (
        "-p dccp -m dccp", 4, "filter", "--dccp-types",
        "REQUEST RESPONSE DATA ACK DATAACK CLOSEREQ CLOSE RESET SYNC SYNCACK INVALID",
    ),
    (
        "-p sctp -m sctp", 4, "filter", "--chunk-types any",
        "DATA INIT INIT_ACK SACK HEARTBEAT HEARTBEAT_ACK ABORT SHUTDOWN SHUTDOWN_ACK ERROR COOKIE_ECHO COOKIE_ACK "
        "ECN_ECNE ECN_CWR SHUTDOWN_COMPLETE I_DATA RE_CONFIG PAD ASCONF ASCONF_ACK FORWARD_TSN I_FORWARD_TSN",
    ),
    (
        "-p mh -m mh", 6, "filter", "--mh-type",
        "binding-refresh-request brr home-test-init hoti careof-test-init coti home-test hot careof-test cot "
        "binding-update bu binding-acknowledgement ba binding-error be",
    ),
    ("-m connlabel", 4, "filter", "--label", "0 126 127"),
    ("-p mh -m mh", 6, "filter", "--mh-type", "5: 5:254 254 254: 255 :255 0:254"),
    ("-j LOG", 4, "filter", "--log-level", "alert crit debug emerg error info notice panic warning"),
    (
        "-m addrtype", 4, "filter", "--dst-type",
        "UNSPEC UNICAST LOCAL BROADCAST ANYCAST MULTICAST BLACKHOLE UNREACHABLE PROHIBIT THROW NAT XRESOLVE",
    ),
    ("-m conntrack", 4, "filter", "--ctstatus", "NONE EXPECTED SEEN_REPLY ASSURED CONFIRMED"),
    ("-m pkttype", 4, "filter", "--pkt-type", "unicast broadcast multicast host bcast mcast"),
    (
        "-m ipv6header --soft", 6, "filter", "--header",
        "hop dst route frag auth ah esp none hop-by-hop ipv6-opts ipv6-route ipv6-frag ipv6-nonxt protocol prot",
    ),
    (
        "-p tcp -j TCPOPTSTRIP", 4, "mangle", "--strip-options",
        "wscale mss sack-permitted sack timestamp md5",
    ),
    ("-m time", 4, "filter", "--weekdays", "Mo Tu We Th Fr Sa Su Mon Tue Wed Thu Fri Sat Sun 1 2 3 4 5 6 7"),
    ("-m limit", 4, "filter", "--limit", "7/s 7/second 7/m 7/minute 7/h 7/hour 7/d 7/day"),
    ("-p tcp -m tcp", 4, "filter", "--tcp-flags ALL", "FIN SYN RST PSH ACK URG ALL NONE"),
]  # fmt: skip


@pytest.mark.needs_kernel
@pytest.mark.parametrize(("begin", "family", "table", "option", "names"), NAMES)
def test_every_name_of_a_value_means_what_the_tools_make_of_it(
    begin: str, family: int, table: str, option: str, names: str, within: Within
) -> None:
    section = Section(begin, (Family(family),), table, "INPUT", ())
    rules = [f"-A INPUT {begin} {option} {name}" for name in names.split()]
    scratch = within(Family(family), Backend.LEGACY)
    result = saves.try_rules(section, rules, Family(family), Backend.LEGACY, scratch)
    assert result.otherwise == []
    assert result.rules == len(rules)


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", Backend, ids=lambda backend: backend.value)
@pytest.mark.parametrize("name", REAL)
def test_a_real_rule_set_equals_its_save(shared: Path, name: str, backend: Backend) -> None:
    (given_set,) = [(full, text) for full, text in public_sets.dumps(shared) if name in full]
    assert saves.try_set(*given_set, backend).otherwise == []


@pytest.mark.needs_kernel
def test_keys_that_know_nothing_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    section = next(section for section in SECTIONS if section.begin == "-m cpu")
    key = canonical.key
    monkeypatch.setattr(
        canonical,
        "key",
        lambda name, form, uses, defaults, family: key(name, Form(), uses, defaults, family),
    )
    without = saves.try_section(section, Family.IPV4, Backend.LEGACY).otherwise
    assert any("is saved as" in message for message in without)
    assert any("two keys for one meaning" in message for message in without)
    assert any("the kernel holds the same bytes" in message for message in without)


@pytest.mark.needs_kernel
def test_keys_that_tell_nothing_apart_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    section = next(section for section in SECTIONS if section.begin == "-m addrtype")
    monkeypatch.setattr(canonical, "key", lambda name, form, uses, defaults, family: name)
    result = saves.try_section(section, Family.IPV4, Backend.LEGACY).otherwise
    assert any("one key for two meanings" in message for message in result)
    assert any("the kernel holds other bytes" in message for message in result)


@pytest.mark.parametrize("name", [*MATCHES, *TARGETS])
def test_every_option_is_spelt_or_it_is_said_why_not(name: str) -> None:
    extension = MATCHES.get(name) or TARGETS[name]
    spelt = [
        " ".join([section.begin, *(options for meaning in section.meanings for options in meaning)])
        for section in SECTIONS
        if section.name == name
    ]
    assert spelt or name in NO_SECTION, f"benchmarks/spellings.py has no section of {name}"
    assert not spelt or name not in NO_SECTION, f"{name} has a section, and is in NO_SECTION"
    by_option: dict[str, set[str]] = {}
    for word, option in extension.options.items():
        by_option.setdefault(option.name, set()).add(word)
    words = set(" ".join(spelt).split())
    missing = {option for option, known in by_option.items() if not known & words} if spelt else set()
    assert missing == set(UNSPELT.get(name, ()))


def test_the_reasons_of_the_campaign_are_for_rules_that_are_tried() -> None:
    rules = [rule for section in SECTIONS for _, rule in section.rules()]
    known = [pattern for _, pattern, _ in (*saves.NOT_LOADED, *saves.OTHERWISE)]
    drawn_only = [pattern for pattern in known if re.search("recent|limit-burst 0|HMARK", pattern)]
    for pattern in set(known) - set(drawn_only):
        assert any(re.search(pattern, rule) for rule in rules), pattern


# ---- laws without a kernel ----


def _key(begin: str, family: Family = Family.IPV4) -> str:
    """The key of a rule's last match that is no header test, or of its target."""
    (rule,) = read(f"*mangle\n-A PREROUTING {begin}\nCOMMIT\n", family=family).tables[0]["PREROUTING"].rules
    if rule.target is not None:
        return rule.target.key
    return [match for match in rule.matches if match.role is not Role.SPACE][-1].key


MARKS = st.integers(0, 0xFFFFFFFF)


@given(value=MARKS, mask=MARKS, other=MARKS, its_mask=MARKS)
def test_two_marks_have_one_key_just_when_they_change_a_mark_alike(
    value: int, mask: int, other: int, its_mask: int
) -> None:
    plain, hexadecimal = (
        f"-j MARK --set-mark {value}/{mask}",
        f"-j MARK --set-xmark {value:#x}/{value | mask:#X}",
    )
    assert _key(plain) == _key(hexadecimal.replace("0X", "0x"))
    another = f"-j MARK --set-xmark {other}/{its_mask}"
    assert (_key(plain) == _key(another)) == ((value, value | mask) == (other, its_mask))


@given(cost=st.integers(1, 30_000_000))
def test_the_rate_of_a_limit_says_its_cost(cost: int) -> None:
    rate = memory._rate_of(cost, 10_000)
    assert rate == f"cost {cost}" or memory._cost(rate, 10_000)[0] == cost


@given(first=st.integers(0, 2**31), second=st.integers(0, 2**31))
def test_a_probability_has_31_bits(first: int, second: int) -> None:
    keys = [
        _key(f"-m statistic --mode random --probability {number / 2**31:.14f}") for number in (first, second)
    ]
    assert (keys[0] == keys[1]) == (first == second)


WORDS = st.text(
    st.characters(codec="ascii", exclude_characters="\n\r", exclude_categories=["Cc"]), min_size=1
)


@given(prefix=WORDS, other=WORDS)
def test_no_text_can_be_mistaken_for_options(prefix: str, other: str) -> None:
    def key(*uses: OptionUse) -> str:
        return canonical.key("NFLOG", TARGETS["NFLOG"].form, uses, {}, Family.IPV4)

    one = key(OptionUse("--nflog-prefix", False, (prefix,)))
    assert one != key(OptionUse("--nflog-prefix", False, (prefix,)), OptionUse("--nflog-size", False, ("5",)))
    assert (one == key(OptionUse("--nflog-prefix", False, (other,)))) == (prefix == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("-j LOG --log-prefix a --log-uid", '-j LOG --log-prefix "a --log-uid"'),
        ("-j UNKNOWN --say a b", '-j UNKNOWN --say "a b"'),
        ("-m unknown --say a b", '-m unknown --say "a b"'),
        ("-j HMARK --hmark-sport 7 --hmark-rnd 4 --hmark-mod 2", "-j HMARK --hmark-sport-mask 7 --hmark-rnd 4 --hmark-mod 2"),
        ("-m hashlimit --hashlimit-upto 60/min --hashlimit-name a", "-m hashlimit --hashlimit-upto 1/sec --hashlimit-name a"),
        ("-m policy --dir in --pol ipsec --strict --reqid 1 --next --reqid 2",
         "-m policy --dir in --pol ipsec --strict --reqid 2 --next --reqid 1"),
    ],
)  # fmt: skip
def test_what_was_or_could_be_taken_for_the_same_is_not(one: str, other: str) -> None:
    assert _key(one) != _key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("--protocol 6 -j DROP", "-p tcp -j DROP"),
        ("--proto 0x11 -j DROP", "-p udp -j DROP"),
        ("-m owner --uid-owner 0x0 -j DROP", "-m owner --uid-owner 0-0 -j DROP"),
        ("-m owner --uid-owner 10:20 -j DROP", "-m owner --uid-owner 10-20 -j DROP"),
        ("-m mac --mac-source :1:2:3:4:5", "-m mac --mac-source 00:01:02:03:04:05"),
        ("-p udp --sport 53 --dport 0:65535 -j DROP", "-p udp --sport 53 -j DROP"),
        ("-j NOTRACK", "-j CT --notrack"),
    ],
)
def test_these_were_refused_or_called_different(one: str, other: str) -> None:
    chain = "PREROUTING" if "mac" in one else "OUTPUT"
    texts = [f"*raw\n-A {chain} {rule}\nCOMMIT\n" for rule in (one, other)]
    answer = check(*(read(text, family=Family.IPV4) for text in texts), saves.Question(malformed="exact"))
    assert isinstance(answer, Equal) and answer.proved


def test_what_is_printed_stays_as_it_was_written() -> None:
    text = "-A PREROUTING -m limit --limit 60/minute -m mark --mark 01/255 -j MARK --or-mark 020"
    (rule,) = read(f"*mangle\n{text}\nCOMMIT\n", family=Family.IPV4).tables[0]["PREROUTING"].rules
    assert [match.words for match in rule.matches] == [("--limit", "60/minute"), ("--mark", "01/255")]
    assert rule.target is not None and rule.target.words == ("--or-mark", "020")
