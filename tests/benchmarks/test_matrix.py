"""The table of reads and writes is held against the kernel: bench.matrix in short, and its judge."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import pytest
from support.iptables_version import iptables_is

from benchmarks.doc_tables import between
from benchmarks.matrix import judge as judging
from benchmarks.matrix.__main__ import FIGURES, PAGE, summary, tables
from benchmarks.matrix.counters import Counters
from benchmarks.matrix.experiment import NO_WRITER, ChainId, open_bench, try_later, try_row
from benchmarks.matrix.judge import CALLED_INDEPENDENT, judge
from benchmarks.matrix.record import (
    CHANGED,
    NEVER,
    SETTINGS,
    WRITERS,
    Record,
    Setting,
    identity,
    read_record,
)
from benchmarks.matrix.rules import NOT_TRIED, READERS, REFUSED_HERE, WORDS
from hitables import read
from hitables.errors import LiveError
from hitables.ir.dependence import may_change, rule_may_change
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.rule import EVERYTHING, Ends, Kind, Match, Metadata, Role, Rule, Target
from hitables.kernel import Namespace, load, netlink, save
from hitables.syntax.extensions import MATCHES, TARGETS

PRE, OUT = ChainId("mangle", "PREROUTING"), ChainId("mangle", "OUTPUT")


def rule(words: str, family: Family = Family.IPV4) -> Rule:
    text = f"*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING {words}\nCOMMIT\n"
    return read(text, family=family).table("mangle")["PREROUTING"].rules[0]


# The question.


def reader(role: Role = Role.CONSTANT, reads: frozenset[Metadata] = frozenset()) -> Match:
    return Match("m", (), role, "m", reads=reads)


def writer(*writes: Metadata) -> Target:
    return Target("T", Kind.VERDICT, "T", ends=Ends.NEVER, writes=frozenset(writes))


@pytest.mark.parametrize("role", [Role.NAMED, Role.ONCE])
def test_a_match_with_memory_depends_on_everything(role: Role) -> None:
    assert may_change(writer(), reader(role))


@pytest.mark.parametrize("state", Metadata)
def test_a_constant_match_depends_on_what_it_reads(state: Metadata) -> None:
    asked = reader(reads=frozenset({state}))
    assert may_change(writer(state), asked)
    assert may_change(writer(*EVERYTHING), asked)
    assert may_change(writer(state), reader(reads=EVERYTHING))
    assert not may_change(writer(*EVERYTHING - {state}), asked)
    assert not may_change(writer(), asked)
    assert not may_change(writer(*EVERYTHING), reader())


def test_a_test_of_a_header_field_depends_on_who_writes_the_field() -> None:
    asked = rule("-d 10.0.0.0/8")
    assert may_change(writer(Metadata.ADDRESSES), asked.matches[0])
    assert may_change(writer(*EVERYTHING), asked.matches[0])
    assert not may_change(writer(Metadata.MARK), asked.matches[0])
    assert not may_change(writer(*EVERYTHING), rule("-m comment --comment a").matches[0])
    notrack = Rule((), writer(Metadata.CT))
    assert rule_may_change(notrack, rule("-m conntrack --ctstate NEW"))
    assert not rule_may_change(rule("-j MARK --set-mark 1"), rule("-m conntrack --ctstate NEW"))


# The tables of the experiment.


def test_every_match_and_target_of_the_table_is_tried_or_named_with_the_reason() -> None:
    asked = {each.name for each in READERS}
    written = {each.name for each in WRITERS}
    for names, tried in ((MATCHES.keys(), asked & written), (TARGETS.keys(), written)):
        assert names - tried - NOT_TRIED.keys() == set(), (
            "give it a rule, or a reason: benchmarks/matrix/rules.py"
        )
        assert names & tried & NOT_TRIED.keys() == set(), (
            "is tried, and in NOT_TRIED of benchmarks/matrix/rules.py"
        )


def test_every_rule_of_the_experiment_is_read_as_the_extension_it_is_for() -> None:
    for each in (*READERS, *WRITERS):
        for family in each.families:
            result = judging.rule_of(each, family)
            names = [match.name for match in result.matches] + [result.target.name if result.target else ""]
            assert each.name in names, each
    for name, (words, _) in NOT_TRIED.items():
        assert name in str(judging.parsed(words, Family.IPV4, "mangle", "PREROUTING"))


# The judge can fail.


def small_record(letter: str, at: int, to: int) -> Record:
    """A record in which nothing changes but one pair, which is *letter*."""
    record = Record()
    for setting in SETTINGS:
        lines = [[NEVER] * len(READERS) for _ in WRITERS]
        lines[at][to] = letter
        record.codes[setting.name] = ["".join(line) for line in lines]
    there = {setting.name: "mangle PREROUTING, udp: 1 -> 0" for setting in SETTINGS}
    record.shown = {record.writers[at]: {record.readers[to]: there}}
    return record


def place_of(result: str, among: list[str]) -> int:
    return next(at for at, words in enumerate(among) if result in words)


RULES = functools.cache(judging.all_rules)


def failures(record: Record, rules: judging.Rules | None = None) -> set[str]:
    result = judge(record, rules or RULES()).failures
    return {failure.text() for failure in result if failure.kind == CALLED_INDEPENDENT}


@pytest.mark.parametrize(
    ("written", "asked", "independent"),
    [
        ("-j MARK --set-xmark 0x10", "-m mark --mark 0", False),
        ("-j MARK --set-xmark 0x10", "--ctstate NEW", True),
        ("-j LOG", "-m mark --mark 0", True),
    ],
)
def test_a_pair_that_changes_fails_just_when_the_table_calls_it_independent(
    written: str, asked: str, independent: bool
) -> None:
    record = small_record(NEVER, 0, 0)
    at, to = place_of(written, list(record.writers)), place_of(asked, list(record.readers))
    result = failures(small_record(CHANGED, at, to))
    assert bool(result) is independent
    assert failures(small_record(NEVER, at, to)) == set()
    if independent:
        (message,) = result
        assert written in message and asked in message and "udp: 1 -> 0" in message and "IPv4 nft" in message


def test_a_table_that_forgets_a_write_is_caught() -> None:
    record = small_record(NEVER, 0, 0)
    at = place_of("-j MARK --set-xmark 0x10", list(record.writers))
    record = small_record(CHANGED, at, place_of("-m mark --mark 0", list(record.readers)))
    assert not failures(record)
    forgetful = judging.Mistake("MARK writes nothing", "target access", "MARK", (("writes", frozenset()),))
    with judging.injected(forgetful):
        assert failures(record, judging.all_rules(RULES(), "MARK"))
    assert not failures(record)


def test_targets_that_end_the_way_otherwise_than_said_are_failures() -> None:
    record = small_record(NEVER, 0, 0)
    log, accept = (place_of(words, list(record.writers)) for words in ("-j LOG", "-j ACCEPT"))
    record.ended[record.writers[log]] = "udp"
    record.went_on[record.writers[accept]] = "udp"
    kinds = {failure.kind for failure in judge(record, RULES()).failures}
    assert {judging.ENDS, judging.GOES_ON} <= kinds


def test_a_constant_match_that_changes_by_itself_is_a_failure_and_an_event_is_none() -> None:
    record = small_record(NEVER, 0, 0)
    probes = list(record.readers)
    tos, chance = place_of("-m tos", probes), place_of("--mode random", probes)
    record.by_itself = {probes[at]: {"IPv4 nft": "udp: 1 -> 0"} for at in (tos, chance)}
    result = [
        failure.writer for failure in judge(record, RULES()).failures if failure.kind == judging.BY_ITSELF
    ]
    assert result == [probes[tos]]


# The recorded matrix.


def test_the_recorded_matrix_is_of_the_rules_that_stand_in_the_tables() -> None:
    record, now = read_record(FIGURES), Record()
    assert list(record.writers) == list(now.writers) and list(record.readers) == list(now.readers)
    for setting in SETTINGS:
        lines = record.codes[setting.name]
        assert len(lines) == len(WRITERS) and {len(line) for line in lines} == {len(READERS)}


def test_what_the_kernel_refused_is_known_with_its_reason() -> None:
    record = read_record(FIGURES)
    names = {identity(each): each.name for each in (*READERS, *WRITERS)}
    assert {names[rule] for rule in record.refused} == set(REFUSED_HERE)
    assert all(not packets for packets in record.lost.values())


@pytest.mark.parametrize("name", ["matrix", "matrix-events", "matrix-not-tried", "matrix-mutants"])
def test_the_page_shows_what_was_recorded(name: str) -> None:
    drawn = between(name).search(PAGE.read_text())
    assert drawn is not None and drawn[0] == tables(read_record(FIGURES))[name]


def test_the_table_calls_no_pair_independent_that_the_kernel_has_shown_to_depend() -> None:
    record = read_record(FIGURES)
    judged = judge(record, RULES())
    assert [failure.text() for failure in judged.failures] == []
    assert record.head["summary"] == summary(record, judged)


# The kernel, in short.

CHANGE = [  # place, writer, probe
    (PRE, "-j MARK --set-xmark 0x10/0xffffffff", "-m mark --mark 0x10"),
    (PRE, "-j CONNMARK --set-xmark 0x10/0xffffffff", "-m connmark --mark 0x10"),
    (PRE, "-j TOS --set-tos 0x10/0xff", "-m tos --tos 0x10/0xff"),
    (PRE, "-j TOS --set-tos 0x10/0xff", "-m rpfilter"),
    (PRE, "-j DSCP --set-dscp 4", "-m dscp --dscp 4"),
    (PRE, "-j TOS --set-tos 3/3", "-m ecn --ecn-ip-ect 3"),
    (PRE, "-j SET --add-set named src", "-m set --match-set named src"),
    (PRE, "-j SET --map-set mapping src --map-mark", "-m mark --mark 0x10"),
    (PRE, "-p tcp -m tcp --syn -j TCPMSS --set-mss 100", "-p tcp -m tcpmss --mss 100"),
    (PRE, "-p tcp -m tcp --syn -j TCPMSS --set-mss 100", "-m length --length {mssed}"),
    (PRE, "-m connlabel --label 2 --set", "-m connlabel --label 2"),
    (PRE, "-m cluster --cluster-total-nodes 2 --cluster-local-node 1 --cluster-hash-seed 7",
     "-m pkttype --pkt-type multicast"),
    (ChainId("mangle", "INPUT"), "-m socket --transparent --restore-skmark", "-m mark --mark 0x77"),
    (OUT, "-p tcp -j TCPOPTSTRIP --strip-options mss", "-p tcp -m tcpmss --mss 1460"),
]  # fmt: skip
KEEP = [
    (PRE, NO_WRITER, "-m mark --mark 0"),
    (PRE, "-j MARK --set-xmark 0x10/0xffffffff", "-m connmark --mark 0"),
    (PRE, "-j MARK --set-xmark 0x10/0xffffffff", "-m tos --tos 0/0xff"),
    (PRE, "-j CONNMARK --set-xmark 0x10/0xffffffff", "-m mark --mark 0"),
    (PRE, "-j TOS --set-tos 0x10/0xff", "-m mark --mark 0"),
    (PRE, "-j TOS --set-tos 0x10/0xff", "-m length --length {length}"),
    (PRE, "-j SET --add-set named src", "-m set --match-set addresses src"),
    (PRE, "-p tcp -j TCPOPTSTRIP --strip-options mss", "-m length --length {mssed}"),
    (PRE, "-j NFLOG --nflog-group 9", "-m mark --mark 0"),
    (PRE, "-m socket", "-m mark --mark 0"),
    (OUT, "-j CLASSIFY --set-class 1:16", "-m mark --mark 0"),
    (OUT, "-j MARK --set-xmark 0x10/0xffffffff", "-m owner --uid-owner 0"),
]  # fmt: skip


@pytest.fixture(scope="module", params=SETTINGS, ids=lambda setting: setting.name)
def bench(request: pytest.FixtureRequest) -> Iterator[tuple[Setting, Namespace]]:
    with Namespace() as namespace:
        namespace.call(open_bench, request.param.family, request.param.backend)
        yield request.param, namespace


@pytest.mark.needs_kernel
def test_the_kernel_shows_the_pairs_that_are_known_to_depend_and_no_others(
    bench: tuple[Setting, Namespace],
) -> None:
    setting, namespace = bench
    family = setting.family
    words = WORDS[family]
    for expected, cases in ((True, CHANGE), (False, KEEP)):
        for place, written, asked in cases:
            probe = re.sub(r"{(\w+)}", lambda result: words[result[1]], asked)
            seen = namespace.call(try_row, place, written, [probe])
            assert not seen.refused and seen.went_on and seen.asked == {0} and not seen.lost, (written, seen)
            assert bool(seen.changed) is expected, (written, probe, seen)


@pytest.mark.needs_kernel
def test_a_writer_in_one_table_shows_in_a_later_one(bench: tuple[Setting, Namespace]) -> None:
    _, namespace = bench
    first, last = ChainId("raw", "PREROUTING"), ChainId("security", "FORWARD")
    probes = ["-m mark --mark 0x10", "-m connmark --mark 0", "-m conntrack --ctstate UNTRACKED", "-p udp"]
    for written, changed in (("-j MARK --set-xmark 0x10/0xffffffff", {0}), ("-j CT --notrack", {1, 2})):
        seen = namespace.call(try_later, first, written, last, probes)
        assert not seen.refused and seen.asked == {0, 1, 2, 3} and set(seen.changed) == changed, seen


@pytest.mark.needs_kernel
def test_without_a_writer_no_probe_changes_but_those_with_chance(bench: tuple[Setting, Namespace]) -> None:
    """In both orders: a probe that writes would show by what stands before it."""
    setting, namespace = bench
    family = setting.family
    probes = [
        probe.rule(family)
        for probe in READERS
        if family in probe.families
        and "PREROUTING" in probe.chains
        and not probe.alone
        and "random" not in probe.words
    ]
    for order in (probes, probes[::-1]):
        seen = namespace.call(try_row, PRE, NO_WRITER, order)
        assert seen.arrived > 40 and not seen.changed and not seen.lost, seen
        assert len(seen.asked) == len(order)


@pytest.mark.needs_kernel
def test_a_rule_that_the_kernel_refuses_is_told_with_the_tools_words(
    bench: tuple[Setting, Namespace],
) -> None:
    _, namespace = bench
    seen = namespace.call(try_row, PRE, "-j CT --notrack", ["-m mark --mark 0"])
    assert seen.refused and not seen.fired
    seen = namespace.call(try_row, PRE, NO_WRITER, ["-m owner --uid-owner 0", "-m mark --mark 0"])
    assert seen.asked == {1}


@pytest.mark.needs_kernel
@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("backend", Backend)
def test_counters_read_from_the_kernel_are_those_that_iptables_save_prints(
    family: Family, backend: Backend
) -> None:
    text = (
        "*mangle\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n[3:30] -A OUTPUT\n[5:50] -A OUTPUT -m mark --mark 1\n"
        "[9:90] -A OUTPUT -p tcp -m tcp --dport 1\nCOMMIT\n"
    )
    with Namespace() as namespace:
        load(text, family, backend, namespace)
        printed = re.findall(
            r"^\[(\d+):\d+\] -A", save(family, backend, namespace, counters=True), re.MULTILINE
        )
        assert namespace.call(read_counters, family, backend) == [int(count) for count in printed]
        # ip6tables-nft-restore takes -c and loads no counters before 1.8.10.
        loses = family is Family.IPV6 and backend is Backend.NFT and not iptables_is((1, 8, 10))
        assert printed == (["0"] * 3 if loses else ["3", "5", "9"])


def read_counters(family: Family, backend: Backend) -> list[int]:
    counters = Counters(family, backend, "mangle", "OUTPUT", 3)
    try:
        return counters.read()
    finally:
        counters.close()


@pytest.mark.needs_kernel
def test_a_dump_that_the_kernel_refuses_is_an_error_and_an_empty_one_is_not() -> None:
    with Namespace() as namespace:
        assert len(namespace.call(whole_dump, 7)) == 20  # the end alone
        with pytest.raises(LiveError, match="netfilter: "):
            namespace.call(whole_dump, 99)


def whole_dump(kind: int) -> bytes:
    netfilter = netlink.Netfilter()
    try:
        return netfilter.dump_whole(netlink.message(netlink.NFTABLES, kind, netlink.NLM_F_DUMP, 2, b""))
    finally:
        netfilter.close()
