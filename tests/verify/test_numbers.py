"""No packet has two marks: matches of one number are related, and so is what targets make of it."""

from __future__ import annotations

import pytest

import hitables
from hitables.ir import attributes, semantics
from hitables.ir.packet_reader import read_packet
from hitables.verify import exact
from hitables.verify.lint import NEVER
from hitables.verify.question import Difference, Equal, Question, Undecided

ENGINES = ("exact", "diagrams", "sample")

EQUAL = [
    # rules, and others that decide alike since no packet has two marks, lengths, owners, ...
    (["-m mark --mark 1 -j ACCEPT", "-m mark --mark 2 -j DROP"],
     ["-m mark --mark 2 -j DROP", "-m mark --mark 1 -j ACCEPT"]),
    (["-m mark --mark 1/3 -j ACCEPT", "-m mark --mark 2/2 -j DROP", "-m mark --mark 5 -j LOG"],
     ["-m mark --mark 1/3 -j ACCEPT", "-m mark --mark 2/2 -j DROP"]),
    (["-m mark --mark 0x10000/0xff0000 -j ACCEPT", "-m mark --mark 0x20000/0xff0000 -j DROP"],
     ["-m mark --mark 0x20000/0xff0000 -j DROP", "-m mark --mark 0x10000/0xff0000 -j ACCEPT"]),
    (["-m length --length 0:99 -j ACCEPT", "-m length --length 50:60 -j LOG"],
     ["-m length --length 0:99 -j ACCEPT"]),
    (["-m ttl --ttl-lt 9 -j DROP", "-m ttl --ttl-gt 8 -j ACCEPT", "-j LOG"],
     ["-m ttl --ttl-gt 8 -j ACCEPT", "-j DROP"]),
    (["-m tos --tos 0x10 -j DROP", "-m dscp --dscp 4 -j LOG"],
     ["-m dscp ! --dscp 4 -j RETURN", "-m tos --tos 0x10 -j DROP", "-j LOG"]),
    (["-m addrtype --dst-type LOCAL -j ACCEPT", "-m addrtype --dst-type BROADCAST,MULTICAST -j DROP"],
     ["-m addrtype --dst-type MULTICAST,BROADCAST -j DROP", "-m addrtype --dst-type LOCAL -j ACCEPT"]),
    (["-m pkttype --pkt-type broadcast -j DROP", "-m pkttype --pkt-type multicast -j ACCEPT"],
     ["-m pkttype --pkt-type multicast -j ACCEPT", "-m pkttype --pkt-type broadcast -j DROP"]),
    (["-m connmark --mark 1 -j DROP", "-m connmark --mark 2 -j ACCEPT"],
     ["-m connmark --mark 2 -j ACCEPT", "-m connmark --mark 1 -j DROP"]),
    # targets
    (["-j MARK --set-mark 5", "-m mark --mark 5 -j ACCEPT", "-j DROP"],
     ["-j MARK --set-mark 5", "-j ACCEPT"]),
    (["-j MARK --or-mark 4", "-m mark --mark 4/4 -j ACCEPT", "-j DROP"],
     ["-j MARK --or-mark 4", "-j ACCEPT"]),
    (["-m mark --mark 7 -j LOG", "-j MARK --xor-mark 1", "-m mark --mark 6 -j DROP"],
     ["-m mark --mark 7 -j LOG", "-j MARK --xor-mark 1", "-m mark --mark 7 -j RETURN",
      "-m mark --mark 6/0xfffffffe -j DROP"]),
    (["-m mark --mark 1 -j LOG", "-j CONNMARK --save-mark", "-m mark --mark 1 -j DROP"],
     ["-m mark ! --mark 1 -j CONNMARK --save-mark", "-m mark ! --mark 1 -j RETURN",
      "-j LOG", "-j CONNMARK --save-mark", "-j DROP"]),
    (["-j CONNMARK --set-mark 3", "-m connmark --mark 4 -j DROP"], ["-j CONNMARK --set-mark 3"]),
    (["-j TOS --set-tos 0x10/0x10", "-m tos --tos 0x10/0x10 -j DROP"],
     ["-j TOS --set-tos 0x10/0x10", "-j DROP"]),
    (["-j DSCP --set-dscp-class EF", "-m dscp --dscp-class EF -j DROP"],
     ["-j DSCP --set-dscp-class EF", "-j DROP"]),
    (["-j TTL --ttl-set 3", "-m ttl --ttl-lt 4 -j DROP"], ["-j TTL --ttl-set 3", "-j DROP"]),
]  # fmt: skip
DIFFERENT = [
    (["-m mark --mark 1 -j ACCEPT", "-m mark --mark 1/1 -j DROP"],
     ["-m mark --mark 1/1 -j DROP", "-m mark --mark 1 -j ACCEPT"]),
    (["-m mark --mark 1 -j ACCEPT", "-m connmark --mark 2 -j DROP"],
     ["-m connmark --mark 2 -j DROP", "-m mark --mark 1 -j ACCEPT"]),
    # without a conntrack entry there is no mark of a connection, with and without a !
    (["-m connmark --mark 1 -j DROP", "-m connmark ! --mark 1 -j DROP"], ["-j DROP"]),
    (["-j CONNMARK --set-mark 3", "-m connmark --mark 3 -j DROP"], ["-j CONNMARK --set-mark 3", "-j DROP"]),
    (["-m addrtype --dst-type LOCAL -j ACCEPT", "-m addrtype --dst-type LOCAL --limit-iface-in -j DROP"],
     ["-m addrtype --dst-type LOCAL --limit-iface-in -j DROP", "-m addrtype --dst-type LOCAL -j ACCEPT"]),
    (["-m addrtype --dst-type LOCAL -j ACCEPT", "-m addrtype --dst-type LOCAL --limit-iface-in -j DROP"],
     ["-m addrtype --dst-type LOCAL -j ACCEPT"]),
    (["-j MARK --or-mark 4", "-m mark --mark 5 -j ACCEPT", "-j DROP"], ["-j MARK --or-mark 4", "-j DROP"]),
    (["-j TTL --ttl-inc 3", "-m ttl --ttl-lt 4 -j DROP"], ["-j TTL --ttl-inc 3", "-j DROP"]),
    (["-j CONNMARK --restore-mark", "-m mark --mark 1 -j DROP"],
     ["-m mark --mark 1 -j LOG", "-j CONNMARK --restore-mark", "-m mark --mark 1 -j DROP"]),
]  # fmt: skip


def read(rules: list[str]) -> hitables.Program:
    lines = "".join(f"-A PREROUTING {rule}\n" for rule in rules)
    return hitables.read(f"*mangle\n:PREROUTING ACCEPT\n{lines}COMMIT\n")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("before", "after"), EQUAL)
def test_rules_that_no_number_tells_apart_are_equal(before: list[str], after: list[str], engine: str) -> None:
    assert hitables.check(read(before), read(after), engine=engine).result is hitables.Result.EQUAL
    assert hitables.check(read(after), read(before), engine=engine).result is hitables.Result.EQUAL


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("before", "after"), DIFFERENT)
def test_rules_that_some_number_tells_apart_are_not(before: list[str], after: list[str], engine: str) -> None:
    found = hitables.check(read(before), read(after), engine=engine)
    assert found.result is hitables.Result.DIFFERENT
    (shown, *_) = found.differences
    assert shown.packet is not None
    line = shown.describe().split("packet: ")[1].splitlines()[0]
    again = read_packet(line, read(before).family)  # the packet in words is the packet
    assert shown.backend is not None
    walks = [
        semantics.run(program.table("mangle"), "PREROUTING", again.packet, shown.backend)
        for program in (read(before), read(after))
    ]
    assert walks == [shown.before, shown.after]


def test_owners_are_related() -> None:
    def of(*rules: str) -> hitables.Program:
        return hitables.read("*filter\n" + "".join(f"-A OUTPUT {rule}\n" for rule in rules) + "COMMIT\n")

    first = of("-m owner --uid-owner 99 -j ACCEPT", "-m owner --uid-owner 1000 -j DROP")
    other = of("-m owner --uid-owner 1000 -j DROP", "-m owner --uid-owner 99 -j ACCEPT")
    assert hitables.check(first, other).result is hitables.Result.EQUAL
    # In a user namespace the kernel maps the ends of a range, and compares with these.
    parts = of("-m owner --uid-owner 0 -j DROP", "-m owner --uid-owner 1 -j DROP")
    assert hitables.check(of("-m owner --uid-owner 0-1 -j DROP"), parts).result is hitables.Result.DIFFERENT
    all_owners = of("-m owner --uid-owner 0-4294967294 -j DROP")
    assert hitables.check(all_owners, of("-j DROP")).result is hitables.Result.DIFFERENT, (
        "no socket, no owner"
    )


@pytest.mark.parametrize("option", ["--uid-owner 5", "--gid-owner 5", "--socket-exists"])
@pytest.mark.parametrize("engine", ["exact", "diagrams"])
def test_a_packet_without_a_socket_has_another_owner(option: str, engine: str) -> None:
    def drops(*options: str) -> hitables.Program:
        lines = "".join(f"-A OUTPUT {option} -j DROP\n" for option in options)
        return hitables.read(f"*filter\n:OUTPUT ACCEPT\n{lines}COMMIT\n")

    every = hitables.check(drops(f"-m owner {option}", f"-m owner ! {option}"), drops(""), engine=engine)
    assert every.result is hitables.Result.EQUAL
    # With --suppl-groups neither matches it.
    groups = (f"-m owner {sign}--gid-owner 5 --suppl-groups" for sign in ("", "! "))
    assert hitables.check(drops(*groups), drops(""), engine=engine).result is hitables.Result.DIFFERENT


def test_numbers_that_the_cells_cannot_relate_are_no_proof_and_no_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attributes, "MOST_MADE", 4)
    bits = [f"-j MARK --or-mark {1 << bit:#x}" for bit in range(6)]
    before = read([*bits, "-m mark --mark 0x3f/0x3f -j ACCEPT", "-j DROP"])
    after = read([*bits, "-j ACCEPT"])
    answer = exact.check(before, after, Question())
    assert isinstance(answer, Undecided) and "too many values of mark" in answer.reason
    assert hitables.check(before, after, engine="diagrams").result is hitables.Result.EQUAL
    assert hitables.check(before, after).result is hitables.Result.EQUAL, "the other engine decides"


def test_a_group_of_bits_that_is_not_followed_is_not_forgotten_behind_one_that_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attributes, "MOST_MADE", 4)
    made = [f"-j MARK --or-mark {1 << bit:#x}" for bit in range(6)]
    before = read([*made, "-m mark --mark 0x3f/0x3f -j DROP", "-m mark --mark 0x80/0x80 -j ACCEPT"])
    after = read([*made, "-j DROP"])
    assert isinstance(exact.check(before, after, Question()), Undecided)
    changes = hitables.diff(before, after)
    assert not changes.regions and changes.undecided


def test_a_mark_with_too_many_values_hides_no_difference_that_does_not_depend_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attributes, "MOST_MADE", 4)
    made = [f"-j MARK --or-mark {1 << bit:#x}" for bit in range(6)]
    marked = [*made, "-m mark --mark 0x3f/0x3f -j ACCEPT"]
    before = read([*marked, "-s 10.0.0.1 -m dscp --dscp 8 -j DROP"])
    after = read(marked)
    changes = hitables.diff(before, after)
    assert not changes.regions and changes.undecided, (
        "whether a packet comes to this rule depends on its mark"
    )
    before, after = read(["-s 10.0.0.1 -m dscp --dscp 8 -j DROP", *marked]), read(marked)
    assert isinstance(exact.check(before, after, Question()), Difference)
    changes = hitables.diff(before, after)
    assert changes.complete
    assert {change.facts for change in changes.regions} == {(("dscp --dscp 0x08", True),)}


def test_many_marks_that_are_set_and_a_mask_are_related() -> None:
    marks = [f"-m mark --mark {mark:#x} -j {'ACCEPT' if mark % 3 else 'DROP'}" for mark in range(1, 121)]
    masked = "-m mark --mark 0x10000/0x10000 -j DROP"
    made = [f"-s 10.0.{mark}.0/24 -j MARK --set-mark {mark:#x}" for mark in range(1, 121)]
    before, after = read([*marks, masked, *made]), read([marks[1], marks[0], *marks[2:], masked, *made])
    assert isinstance(exact.check(before, after, Question()), Equal)


def test_many_marks_of_some_bits_and_the_whole_mark_are_related() -> None:
    made = [f"-s 10.0.{mark}.0/24 -j MARK --set-xmark {mark:#x}/0xff" for mark in range(1, 121)]
    restored = ["-j CONNMARK --restore-mark", *made]
    before = read([*restored, "-m mark --mark 0 -j DROP"])
    after = read([*restored, "-s 10.0.64.0/24 -m mark --mark 64 -j DROP", "-m mark --mark 0 -j DROP"])
    changes = hitables.diff(before, after)
    assert changes.complete
    assert {change.facts for change in changes.regions} == {
        (("mark 0x0/0xffffff00 after 1 write of what it reads", True),)
    }


def test_that_a_packet_lacks_the_number_is_said_in_words() -> None:
    def keys(before: list[str], after: list[str]) -> set[tuple[str, bool]]:
        return {fact for change in hitables.diff(read(before), read(after)).regions for fact in change.facts}

    made = "-j CONNMARK --set-xmark 0x3/0xf"
    known = keys([made, "-m connmark --mark 3/0xf -j DROP"], [made, "-j DROP"])
    assert known == {("the packet has a connmark", False)}
    told = keys(
        [made, "-m connmark --mark 0x3/0xff -j DROP", "-m connmark ! --mark 0x3/0xff -j ACCEPT"], [made]
    )
    assert ("connmark 0x0/0xf0", True) in told
    assert not any("0x1000000" in key for key, _ in told)


def test_without_a_number_for_its_facts_a_packet_is_no_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attributes, "MOST_CELLS", 64)
    bits = [
        f"-m mark --mark {1 << bit:#x}/{1 << bit:#x} -j {('DROP', 'ACCEPT')[bit % 2]}" for bit in range(7)
    ]
    first = "-m mark --mark 0x0 -j ACCEPT"
    assert isinstance(exact.check(read([first, *bits]), read(bits), Question()), Undecided)
    found = exact.check(read([*bits[1:], first]), read([*bits, first]), Question())
    assert isinstance(found, Difference) and found.answers is not None
    assert found.answers.numbers["mark", 0] & 1, "a number for its facts"


def test_diff_and_reach_tell_a_mark_before_a_rule_changed_it() -> None:
    made = "-j MARK --or-mark 1"
    before, after = read([made, "-m mark --mark 3/3 -j DROP"]), read([made, "-m mark --mark 1/1 -j DROP"])
    assert {change.facts for change in hitables.diff(before, after).regions} == {(("mark 0x2/0x2", False),)}


def test_lint_knows_that_no_packet_has_two_marks() -> None:
    program = read(
        [
            "-m mark --mark 1/3 -j ACCEPT",
            "-m mark --mark 5 -j DROP",
            "-m length --length 100:200 -m length --length 300:400 -j DROP",
            "-m mark --mark 1/1 -m mark --mark 2/3 -j DROP",
            "-m mark --mark 7 -j DROP",
        ]
    )
    flaws = {flaw.line: flaw for flaw in hitables.lint(program).flaws if flaw.kind == NEVER}
    assert set(flaws) == {4, 5, 6}
    assert flaws[4].covering == (3,)
    assert "exclude each other" in flaws[5].why and "exclude each other" in flaws[6].why


def test_diff_names_the_marks_of_packets_that_change() -> None:
    before = read(["-m mark --mark 1 -j ACCEPT", "-m mark --mark 2 -j ACCEPT", "-j DROP"])
    after = read(["-m mark --mark 1 -j ACCEPT", "-m mark --mark 3 -j ACCEPT", "-j DROP"])
    changes = {
        change.facts: (change.before.verdict, change.after.verdict)
        for change in hitables.diff(before, after).regions
    }
    assert changes == {
        (("mark --mark 0x2", True),): ("ACCEPT", "DROP"),
        (("mark --mark 0x3", True),): ("DROP", "ACCEPT"),
    }


def test_diff_tells_marks_that_no_rule_names_by_those_that_they_are_not() -> None:
    before = read(["-m mark --mark 1 -j ACCEPT", "-m mark --mark 2/2 -j ACCEPT", "-j DROP"])
    after = read(["-m mark --mark 1 -j ACCEPT", "-m mark --mark 2/2 -j ACCEPT", "-j LOG", "-j ACCEPT"])
    found = {(change.packets, change.facts) for change in hitables.diff(before, after).regions}
    others = ("mark --mark 0x1", False), ("mark --mark 0x2/0x2", False)
    assert found == {("whole", others), ("later fragments", others)}
