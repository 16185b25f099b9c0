"""What extensions read and write: deny by default, and no proof or finding that forgets a write."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.matrix import judge
from benchmarks.matrix.record import WRITERS
from benchmarks.matrix.rules import READERS
from hitables import read
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.emit.text import write
from hitables.errors import Unsupported
from hitables.ir.program import Program
from hitables.ir.rule import EVERYTHING, Ends, Match, Metadata, Role
from hitables.syntax import access
from hitables.syntax.extensions import MATCHES, TARGETS
from hitables.syntax.options import HEADER_ACCESS
from hitables.verify import bdd, exact
from hitables.verify.lint import lint
from hitables.verify.question import Difference, Equal, Question

# Reader, writer: a packet's answer to the reader changes through the writer; in which table and
# chain iptables takes both; found in the kernel (`make matrix`) or read off its source.
CHANGES = [
    ("-m u32 --u32 0>>16&0xFF=0x10", "-j TOS --set-tos 0x10/0xff", "mangle OUTPUT"),
    ("-m u32 --u32 0>>16&0xFF=0x10", "-j TTL --ttl-set 16", "mangle OUTPUT"),
    ("-m string --algo bm --string x", "-j DSCP --set-dscp 0x10", "mangle OUTPUT"),
    ('-m bpf --bytecode "1,6 0 0 0"', "-j MARK --set-mark 1", "mangle OUTPUT"),
    ("-m connmark --mark 1", "-j CT --zone 1", "raw OUTPUT"),
    ("-m connlabel --label 1", "-j CT --notrack", "raw OUTPUT"),
    ("-m connlabel --label 1", "-m connlabel --label 1 --set", "mangle OUTPUT"),
    ("-m length --length 60", "-p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1000", "mangle OUTPUT"),
    ("-p tcp -m tcp --tcp-option 4", "-p tcp -j TCPOPTSTRIP --strip-options 4", "mangle OUTPUT"),
    ("-p tcp -m ecn --ecn-tcp-ece", "-p tcp -j ECN --ecn-tcp-remove", "mangle OUTPUT"),
    ("-m mark --mark 1", "-m socket --restore-skmark", "mangle PREROUTING"),
    ("-m mark --mark 1", "-j SET --map-set marks src --map-mark", "mangle OUTPUT"),
    ("-m set --match-set marks src", "-j MARK --set-mark 1", "mangle OUTPUT"),
    ("-m rpfilter --validmark", "-j MARK --set-mark 1", "mangle PREROUTING"),
    ("-m rpfilter", "-j TOS --set-tos 0x10/0xff", "mangle PREROUTING"),
    (
        "-m pkttype --pkt-type multicast",
        "-m cluster --cluster-total-nodes 2 --cluster-local-node 1 --cluster-hash-seed 7", "mangle PREROUTING",
    ),
    ("-m pkttype --pkt-type multicast", "-m ndpi --http", "mangle PREROUTING"),
    ("-m length --length 60", "-j FANCY --level 3", "mangle OUTPUT"),
    ("-m time --timestop 12:00", "-j FANCY --level 3", "mangle OUTPUT"),
    ("-p udp -m udp --dport 7", "-j FANCY --level 3", "mangle OUTPUT"),
    ("-p udp -m multiport --ports 7", "-j FANCY --level 3", "mangle OUTPUT"),
    ("-p icmp -m icmp --icmp-type 8", "-j FANCY --level 3", "mangle OUTPUT"),
    ("-p tcp -m tcp --syn", "-j FANCY --level 3", "mangle OUTPUT"),
    ("-s 10.1.0.0/16", "-j FANCY --level 3", "mangle OUTPUT"),
    ("-i eth0", "-m ndpi --http", "mangle PREROUTING"),
    ("-o eth0", "-m ndpi --http", "mangle OUTPUT"),
    ("-m physdev --physdev-in port1", "-m ndpi --http", "mangle PREROUTING"),
    ("-m physdev --physdev-out port1", "-m ndpi --http", "mangle POSTROUTING"),
]  # fmt: skip
KEEPS = [
    ("-m length --length 60", "-j MARK --set-mark 1", "mangle OUTPUT"),
    ("-m mark --mark 1", "-j TOS --set-tos 0x10/0xff", "mangle OUTPUT"),
    ("-m connmark --mark 1", "-j LOG", "mangle OUTPUT"),
    ("-m addrtype --dst-type LOCAL", "-m connlabel --label 1 --set", "mangle OUTPUT"),
    ("-p udp -m udp --dport 7", "-j CT --notrack", "raw OUTPUT"),
]
pairs = pytest.mark.parametrize(("reader", "writer", "place"), CHANGES)


def program(place: str, *rules: str) -> Program:
    table, chain = place.split()
    lines = "".join(f"-A {chain} {rule}\n" for rule in rules)
    return read(f"*{table}\n:{chain} ACCEPT [0:0]\n{lines}COMMIT\n")


def read_twice(reader: str, writer: str, place: str) -> tuple[Program, Program]:
    """The reader before and behind the writer, and the same without the second."""
    rules = f"{reader} -j ACCEPT", writer, f"{reader} -j DROP"
    return program(place, *rules), program(place, *rules[:2])


@pytest.mark.parametrize("engine", [exact, bdd])
@pairs
def test_a_question_behind_what_may_change_its_answer_is_a_new_one(
    engine, reader: str, writer: str, place: str
) -> None:  # type: ignore[no-untyped-def]
    before, after = read_twice(reader, writer, place)
    for equivalence in ("full", "verdict"):
        answer = engine.check(before, after, Question(equivalence=equivalence))
        assert isinstance(answer, Difference), answer
        assert "become" in answer.reason


@pytest.mark.parametrize("engine", [exact, bdd])
@pytest.mark.parametrize(("reader", "writer", "place"), KEEPS)
def test_what_reads_nothing_that_is_written_keeps_its_answer(
    engine, reader: str, writer: str, place: str
) -> None:  # type: ignore[no-untyped-def]
    assert isinstance(engine.check(*read_twice(reader, writer, place), Question()), Equal)


@pairs
def test_lint_calls_no_such_rule_dead_and_compile_leaves_it(reader: str, writer: str, place: str) -> None:
    before, _ = read_twice(reader, writer, place)
    assert not [flaw for flaw in lint(before, Question(), tell=lambda stage: None).flaws if flaw.line == 5]
    made = compile_rules(before, Options(equivalence="verdict", min_length=1))
    assert not made.gone
    assert "-j DROP" in write(made.program)


@pairs
def test_a_write_in_a_chain_that_is_entered_is_one(reader: str, writer: str, place: str) -> None:
    table, chain = place.split()
    text = (
        f"*{table}\n:{chain} ACCEPT [0:0]\n:user - [0:0]\n-A {chain} {reader} -j ACCEPT\n-A {chain} -j user\n"
        f"-A {chain} {reader} -j DROP\n-A user {writer}\nCOMMIT\n"
    )
    before, after = read(text), read(text.replace(f"-A {chain} {reader} -j DROP\n", ""))
    for engine in (exact, bdd):
        assert isinstance(engine.check(before, after, Question()), Difference)


def test_a_match_that_writes_is_asked_the_same_number_of_times() -> None:
    """Its write is made whether it holds or not: asked twice, the second may find what the first wrote."""
    once = program("mangle OUTPUT", "-m connlabel --label 1 --set", "-m connlabel --label 1 -j DROP")
    twice = program(
        "mangle OUTPUT",
        "-m connlabel --label 1 --set",
        "-m connlabel --label 1 --set",
        "-m connlabel --label 1 -j DROP",
    )
    for engine in (exact, bdd):
        assert isinstance(engine.check(once, once, Question()), Equal)
        assert isinstance(engine.check(once, twice, Question()), Difference)


def test_an_extension_without_a_row_reads_and_writes_everything() -> None:
    assert access.UNKNOWN.reads == access.UNKNOWN.writes == EVERYTHING
    (table,) = program("mangle OUTPUT", "-m ndpi --http -j FANCY --level 3").tables
    (rule,) = table["OUTPUT"].rules
    assert rule.matches[0].reads == rule.matches[0].writes == EVERYTHING
    assert rule.target is not None
    assert rule.target.writes == rule.writes == EVERYTHING


def test_every_row_names_the_source_file_that_its_access_follows() -> None:
    for row in (*MATCHES.values(), *TARGETS.values()):
        assert row.access is access.UNKNOWN or row.access.source.endswith((".c", "/")), row.name
    assert HEADER_ACCESS.source.endswith(".c")


def test_the_extensions_of_unknown_access_are_these() -> None:
    """The kernel at hand does not have them, so no packet can show what they read and write."""
    unknown = {row.name for row in (*MATCHES.values(), *TARGETS.values()) if row.access is access.UNKNOWN}
    assert unknown == {
        "quota2", "ipvs", "CLUSTERIP", "CONNSECMARK", "LED", "MIRROR", "SAME", "SECMARK", "ULOG",
    }  # fmt: skip


def probe(name: str, option: str = "") -> Match:
    """The match of a rule that iptables takes, with *option* when it is given."""
    for each in (*READERS, *WRITERS):
        if each.name == name and (not option or option in each.words):
            result = judge.rule_of(each, min(each.families)).matches
            return next(match for match in result if match.name == name)
    raise AssertionError(f"no probe of {name} {option}")


KNOWN = {name: row.access for name, row in MATCHES.items() if row.access is not access.UNKNOWN}


@pytest.mark.parametrize("name", KNOWN)
def test_a_match_that_may_write_is_an_event(name: str) -> None:
    """Engines let a write happen where a question is asked; the truth of other matches is asked for freely."""
    for option in ("", *KNOWN[name].writes_with):
        match = probe(name, option)
        assert match.writes == KNOWN[name].writes_by(match.words)
        assert not match.writes or match.role >= Role.NAMED


def test_each_state_has_a_writer_and_a_reader() -> None:
    """A state that only unknown extensions write, or read, is META, and CLASS and SECMARK for matches."""
    written = frozenset[Metadata]().union(
        *(
            row.access.writes
            for row in TARGETS.values()
            if row.ends is not Ends.SURELY and row.access is not access.UNKNOWN
        ),
        *(states for known in KNOWN.values() for states in known.writes_with.values()),
        *(known.writes for known in KNOWN.values()),
    )
    assert EVERYTHING - written == {Metadata.PAYLOAD, Metadata.META, Metadata.SECMARK}
    read_by_some = frozenset[Metadata]().union(
        *(known.reads for known in (*KNOWN.values(), HEADER_ACCESS) if known.reads != EVERYTHING)
    )
    assert EVERYTHING - read_by_some == {Metadata.CLASS, Metadata.SECMARK}


CONSTANT = [name for name, row in MATCHES.items() if row.role is Role.CONSTANT and name in KNOWN]


@pytest.mark.parametrize("name", CONSTANT)
def test_a_row_reaches_the_match_that_is_read(name: str) -> None:
    """A match whose access is unknown reads everything."""
    row = MATCHES[name]
    assert probe(name).reads == row.access.reads
    MATCHES[name] = dataclasses.replace(row, access=access.UNKNOWN)
    try:
        assert probe(name).reads == probe(name).writes == EVERYTHING
        assert probe(name).role is Role.NAMED
    finally:
        MATCHES[name] = row


def test_the_table_cannot_be_changed_by_accident() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        access.UNKNOWN.reads = frozenset()  # type: ignore[misc]


# ---- counters of ipsets ----

COUNTED = """\
*raw
:PREROUTING ACCEPT [0:0]
-A PREROUTING -m set --match-set seen src -j ACCEPT
-A PREROUTING -m set --match-set seen src -j ACCEPT
-A PREROUTING -m set --match-set other src -j ACCEPT
-A PREROUTING -m set --match-set other src -j ACCEPT
COMMIT
*filter
:INPUT ACCEPT [0:0]
-A INPUT -m set --match-set seen src --packets-gt 10 -j DROP
COMMIT
"""


def test_a_match_of_a_set_whose_counters_a_rule_reads_has_memory_in_every_table() -> None:
    (raw, filter_) = read(COUNTED).tables
    roles = [rule.matches[0].role for rule in raw["PREROUTING"].rules]
    assert roles == [Role.NAMED] * 4  # a set of sets counts in its members
    assert filter_["INPUT"].rules[0].matches[0].role is Role.NAMED
    once = COUNTED.replace("-A PREROUTING -m set --match-set seen src -j ACCEPT\n", "", 1)
    free = [each.replace(" --packets-gt 10", "") for each in (COUNTED, once)]
    for engine in (exact, bdd):
        assert isinstance(
            engine.check(read(COUNTED), read(once), Question(equivalence="verdict")), Difference
        )
        assert isinstance(engine.check(read(free[0]), read(free[1]), Question()), Equal)


def test_sflgen_takes_no_first_rule_that_reads_counters_of_a_set_in_its_trees() -> None:
    from sflgen import commands as updates
    from sflgen import planner
    from sflgen.settings import Settings

    text = COUNTED.replace(" --packets-gt 10", "")
    state = planner.start_unproved(read(text), Settings()).after
    reader = updates.CommandReader(state.master, "command")
    edits = reader.line("-A INPUT -m set --match-set seen src --packets-gt 10 -j DROP")
    with pytest.raises(Unsupported, match="counters of ipsets"):
        planner.plan_unproved(state, edits)
    state = planner.start_unproved(read(COUNTED), Settings()).after
    edits = updates.CommandReader(state.master, "command").line(
        "-A INPUT -m set --match-set seen src -j DROP"
    )
    after = planner.plan_unproved(state, edits).after
    assert after.master.table("filter")["INPUT"].rules[-1].matches[0].role is Role.NAMED
