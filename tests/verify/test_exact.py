"""The exact engine agrees with trying every packet, and each difference has a confirmed packet."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.exact_answers import differ
from support.programs import make_program, mutate, programs
from support.scale import examples
from support.small_programs import (
    ACCEPT,
    DROPS,
    LOG,
    MARK,
    MARKED,
    RETURN,
    dport,
    every_packet,
    goto,
    jump,
    on_field,
    program,
    proto,
    rule,
    small_program,
    source,
)

import hitables
from hitables.core.prover import Prover, ProveStatus
from hitables.errors import HitablesError, Unsupported
from hitables.ir import semantics
from hitables.ir.fields import TCP, UDP, Family, Field, Fragment
from hitables.ir.headers import inconsistency, is_malformed
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend
from hitables.ir.program import Program, Table
from hitables.ir.rule import EVERYTHING, Ends, Kind, Match, Metadata, Role, Rule, Target
from hitables.ir.rule import Test as FieldTest
from hitables.simulate import sampling
from hitables.simulate.interpreter import Interner, Interpreter
from hitables.verify import bdd, exact
from hitables.verify.deadline import Deadline
from hitables.verify.encoding import Encoding
from hitables.verify.question import Answer, Difference, Equal, Question, Undecided, differs

pytestmark = pytest.mark.engine
NOTRACK = Target("CT", Kind.VERDICT, "CT --notrack", ends=Ends.NEVER, writes=frozenset({Metadata.CT}))
ANYTHING = Target("X", Kind.VERDICT, "X", ends=Ends.NEVER, writes=EVERYTHING)
TARPIT = Target("TARPIT", Kind.VERDICT, "TARPIT", ends=Ends.MAYBE)
LIMIT = Match("limit", ("--limit", "1/sec"), Role.ONCE, "limit 1/sec")
RECENT = Match("recent", ("--set",), Role.NAMED, "recent --set")


def confirms(difference: Difference, before: Program, after: Program) -> bool:
    """Whether semantics finds the same difference."""
    packet, backend = difference.packet, difference.backend
    assert packet is not None and backend is not None and inconsistency(packet) is None
    walks = [
        semantics.run(each.table(difference.table), difference.chain, packet, backend)
        for each in (before, after)
    ]
    assert walks == [difference.before, difference.after]
    return differs(walks[0], walks[1], is_malformed(packet)) is not None


# ---- every packet ----


def differ_on_some_packet(before: Program, after: Program, question: Question) -> bool:
    """Whether some packet is treated differently."""
    batch = every_packet()
    for backend in question.backends:
        interner = Interner()
        old, new = (
            Interpreter(each, backend, interner).run("filter", "FORWARD", batch) for each in (before, after)
        )
        apart = (old.verdict != new.verdict) | (old.effects != new.effects)
        if question.malformed == "stricter":
            limited = Interpreter(before, backend, interner).run("filter", "FORWARD", batch, limits=new.count)
            drop = interner.number("DROP")
            apart &= ~(batch.malformed() & (new.verdict == drop) & (limited.effects == new.effects))
        if apart.any():
            return True
    return False


@settings(max_examples=examples(120))
@given(st.randoms(use_true_random=False), st.sampled_from(Backend), st.sampled_from(["stricter", "exact"]))
def test_it_agrees_with_trying_every_packet(rng: random.Random, backend: Backend, malformed: str) -> None:
    before = small_program(rng)
    after = mutate(rng, before) if rng.random() < 0.9 else small_program(rng)
    question = Question((backend,), malformed)
    answer = exact.check(before, after, question)
    if isinstance(answer, Equal):
        assert not differ_on_some_packet(before, after, question)
    else:
        assert isinstance(answer, Difference)  # semantics confirmed it


@settings(max_examples=examples(60))
@given(before=programs())
def test_a_program_is_proved_equal_to_itself(before: Program) -> None:
    assert differ(before, before) is None


@settings(max_examples=examples(50))
@given(st.integers(0, 10**6))
def test_it_finds_every_difference_that_sampling_finds(seed: int) -> None:
    rng = random.Random(seed)
    before = make_program(rng)
    after = mutate(rng, before)
    try:
        answer = exact.check(before, after, Question())
    except HitablesError as error:
        assert "ipset" in str(error)
        return
    if isinstance(answer, Equal):
        other = sampling.check(before, after, Question(), packets=1500, seed=seed)
        assert isinstance(other, Equal) or other.packet is None, other.describe()
    else:
        assert isinstance(answer, Difference)
        assert answer.packet is None or confirms(answer, before, after)


# ---- cases ----


def test_order_of_disjoint_rules_and_split_ranges_do_not_matter() -> None:
    before = program(rule(source(0, 9), ACCEPT), rule(source(10, 19), DROPS), rule(source(20, 29), ACCEPT))
    after = program(
        rule(source(20, 29), ACCEPT),
        rule(source(0, 4), ACCEPT),
        rule(source(10, 19), DROPS),
        rule(source(5, 9), ACCEPT),
    )
    assert differ(before, after) is None


def test_the_witness_is_as_plain_as_possible() -> None:
    before = program(rule(proto(UDP), source(0, 9), DROPS))
    difference = differ(before, program(rule(proto(UDP), source(0, 8), DROPS)))
    assert difference is not None and confirms(
        difference, before, program(rule(proto(UDP), source(0, 8), DROPS))
    )
    packet = difference.packet
    assert packet is not None and packet.l4_bytes == 64 and packet.values[Field.FRAG] == Fragment.WHOLE
    assert packet.values[Field.SRC] == 9 and packet.values[Field.DPORT] == 443
    assert Field.MAC not in packet.values


@pytest.mark.parametrize("reverse", [False, True])
def test_a_return_in_a_called_chain_is_not_a_verdict(reverse: bool) -> None:
    caller = (rule(jump("A")), rule(source(0, 9), DROPS))
    one = program(*caller, A=(rule(source(5, 5), RETURN), rule(source(0, 9), ACCEPT)))
    other = program(*caller, A=(rule(source(5, 5), ACCEPT), rule(source(0, 9), ACCEPT)))
    pair = (other, one) if reverse else (one, other)
    difference = differ(*pair)
    assert difference is not None and difference.packet is not None and confirms(difference, *pair)
    assert difference.packet.values[Field.SRC] == 5


def test_jump_and_goto_differ_where_something_follows() -> None:
    body = (rule(source(0, 9), DROPS),)
    one = program(rule(jump("A")), rule(DROPS), A=body)
    assert differ(one, program(rule(goto("A")), rule(DROPS), A=body)) is not None
    assert differ(program(rule(jump("A")), A=body), program(rule(goto("A")), A=body)) is None


def test_a_goto_falls_to_the_policy_of_its_own_program() -> None:
    one = program(rule(source(1, 1), goto("X")), X=(rule(LOG),))
    other = program(rule(source(1, 1), goto("X")), rule(ACCEPT), policy="DROP", X=(rule(LOG),))
    for pair in ((one, other), (other, one)):
        difference = differ(*pair)
        assert difference is not None and confirms(difference, *pair)


ENDS = (rule(source(0, 3), LOG), rule(DROPS))


@pytest.mark.parametrize("enter", [jump, goto])
def test_nothing_is_compared_behind_a_jump_to_a_chain_that_surely_ends(
    enter: Callable[[str], Target],
) -> None:
    many = [rule(source(at, at), on_field(Field.DST, (at, at)), DROPS) for at in range(40)]
    one = program(rule(enter("E")), *many, E=ENDS)
    other = program(rule(jump("T")), *reversed(many), T=(rule(enter("E")), *many[:9]), E=ENDS)
    answer = exact.check(one, other, Question())
    assert isinstance(answer, Equal)
    assert answer.looked_at < 40


def test_what_follows_a_chain_that_may_return_is_compared() -> None:
    for body in (
        (rule(source(0, 3), RETURN), rule(DROPS)),
        (rule(source(0, 3), goto("X")), rule(DROPS)),
        (rule(LOG),),
        (rule(source(0, 9), DROPS),),
    ):
        chains = {"E": body, "X": (rule(LOG),)}
        one = program(rule(jump("E")), rule(source(1, 2), ACCEPT), rule(source(20, 22), ACCEPT), **chains)
        other = program(rule(jump("E")), policy="DROP", **chains)
        for pair in ((one, other), (other, one)):
            difference = differ(*pair)
            assert difference is not None and confirms(difference, *pair)


RETURNS_AT_ONCE = """\
*filter
:FORWARD ACCEPT [0:0]
:check - [0:0]
:log - [0:0]
-A FORWARD -f -j ACCEPT
-A FORWARD -p tcp -j check
-A FORWARD -j ACCEPT
-A check -s 10.0.0.0/8 -g log
-A log -j LOG
COMMIT
"""
# multiport drops packets whose ports are cut off, but those from 10.0.0.0/8 come back to be rejected.
RETURNS_BEHIND_A_DROP = (
    RETURNS_AT_ONCE.replace("check", "ports")
    .replace(
        "-A FORWARD -j ACCEPT\n",
        "-A FORWARD -p tcp -m tcp --dport 0:79 -j ACCEPT\n"
        "-A FORWARD -p tcp -m tcp --dport 80:65535 -j ACCEPT\n"
        "-A FORWARD -p tcp -j REJECT\n",
    )
    .replace("-g log\n", "-g log\n-A ports -p tcp -m multiport --dports 0:65535 -j ACCEPT\n")
)


def test_a_drop_of_malformed_packets_decides_none_that_return_behind_it() -> None:
    pair = hitables.read(RETURNS_AT_ONCE), hitables.read(RETURNS_BEHIND_A_DROP)
    difference = differ(*pair, backends=(Backend.NFT,))
    assert difference is not None and confirms(difference, *pair)
    assert difference.packet is not None and difference.packet.values[Field.SRC] >> 24 == 10


def test_chains_that_nest_in_another_order_are_read_before_they_are_compared() -> None:
    body = (rule(source(4, 4), DROPS), rule(source(1, 1), ACCEPT), rule(source(2, 2), DROPS))
    first, second, third = (on_field(Field.DST, (at, at)) for at in (1, 2, 3))
    top = (rule(first, jump("Z")), rule(third, jump("V")))
    nine = rule(source(9, 9), DROPS)
    one = program(*top, Z=(nine,), W=(rule(jump("V")),), V=body)
    other = program(*top, Z=(nine, rule(second, jump("W"))), W=(), V=(body[0], rule(jump("Z")), *body[1:]))
    for pair in ((one, other), (other, one)):
        difference = differ(*pair)
        assert difference is not None and confirms(difference, *pair)


def test_chains_of_other_names_and_shapes_are_entered() -> None:
    one = program(rule(proto(TCP), jump("A")), rule(DROPS), A=(rule(source(0, 9), ACCEPT),))
    other = program(rule(proto(TCP), source(0, 9), ACCEPT), rule(DROPS))
    assert differ(one, other) is None
    third = program(
        rule(jump("X")), rule(DROPS), X=(rule(proto(TCP), goto("Y")),), Y=(rule(source(0, 9), ACCEPT),)
    )
    assert differ(one, third) is None


def test_a_difference_of_a_chain_outside_the_packets_of_its_callers_is_none() -> None:
    one = program(rule(source(0, 9), jump("A")), A=(rule(source(20, 29), DROPS), rule(source(0, 3), DROPS)))
    other = program(rule(source(0, 9), jump("A")), A=(rule(source(0, 3), DROPS),))
    assert differ(one, other) is None
    assert differ(one, other, chains=frozenset({"A"})) is not None


def test_another_order_of_effects_is_a_difference() -> None:
    assert differ(program(rule(LOG), rule(MARK)), program(rule(MARK), rule(LOG))) is not None
    assert differ(program(rule(LOG)), program(rule(LOG), rule(LOG))) is not None
    assert differ(program(Rule((), None)), program()) is not None


def test_verdict_only_ignores_effects_that_change_nothing() -> None:
    logs = program(rule(LOG), Rule((), None), rule(source(0, 9), DROPS))
    bare = program(rule(source(0, 9), DROPS))
    assert differ(logs, bare) is not None and differ(logs, bare, equivalence="verdict") is None
    tarpit = program(rule(TARPIT), rule(source(0, 9), DROPS))
    assert differ(tarpit, bare, equivalence="verdict") is not None  # it may end a packet's way
    marks = program(rule(MARK), rule(MARKED, DROPS))
    assert differ(marks, program(rule(MARKED, DROPS)), equivalence="verdict") is not None


def test_a_write_gives_a_fact_a_new_truth_value() -> None:
    before = program(rule(MARKED, LOG), rule(MARK), rule(MARKED, DROPS))
    assert differ(before, program(rule(MARK), rule(MARKED, DROPS))) is not None
    difference = differ(
        program(rule(MARKED, LOG), rule(MARKED, DROPS)), program(rule(MARKED, LOG), rule(DROPS))
    )
    assert difference is not None
    assert (
        differ(
            program(rule(MARKED, LOG), rule(MARKED, LOG), rule(MARKED, DROPS)),
            program(rule(MARKED, LOG), rule(MARKED, LOG), rule(MARKED, LOG), rule(MARKED, DROPS)),
        )
        is not None
    )


def test_notrack_before_a_state_test_is_not_notrack_behind_it() -> None:
    new = on_field(Field.STATE, (2, 5), name="state")
    before = program(rule(new, ACCEPT), rule(NOTRACK), rule(DROPS))
    after = program(rule(NOTRACK), rule(new, ACCEPT), rule(DROPS))
    difference = differ(before, after)
    assert difference is not None and confirms(difference, before, after)
    twice = program(rule(NOTRACK), rule(new, ACCEPT), rule(new, DROPS))
    assert differ(twice, program(rule(NOTRACK), rule(new, ACCEPT))) is None


def test_either_of_two_ports_is_read_again_behind_a_chain_that_writes_for_other_packets() -> None:
    five = (5, 5)
    either = tuple(FieldTest(field, Values.of(five)) for field in (Field.SPORT, Field.DPORT))
    from_five, to_five = on_field(Field.SPORT, five), on_field(Field.DPORT, five)
    writes = (rule(on_field(Field.ICMP, (8, 8)), ANYTHING),)
    one = program(
        rule(from_five, jump("W")),
        rule(Match("multiport", (), Role.SPACE, "", either, either=True), DROPS),
        W=writes,
    )
    other = program(rule(from_five, DROPS), rule(to_five, DROPS), rule(from_five, jump("V")), V=writes)
    assert differ(one, other) is None and differ(other, one) is None


def test_a_packet_of_which_neither_port_is_listed_has_neither() -> None:
    def of(*rules: str) -> Program:
        lines = "".join(f"-A FORWARD -p tcp -m multiport {each}\n" for each in rules)
        return hitables.read(f"*filter\n{lines}COMMIT\n")

    one_by_one = of("--sports 5 -j ACCEPT", "--dports 5 -j ACCEPT", "! --sports 5 -j DROP")
    assert differ(of("! --ports 5 -j DROP"), one_by_one) is None
    assert differ(of("--ports 5 -j ACCEPT", "! --dports 5 -j DROP"), one_by_one) is None


def test_what_the_backends_read_differently_is_a_difference() -> None:
    native = program(rule(proto(TCP), dport(5, 5), DROPS), built_in="FORWARD")
    xtables = program(rule(proto(TCP), dport(5, 5)._replace(native=False), DROPS), built_in="FORWARD")
    assert differ(native, xtables, backends=(Backend.LEGACY,)) is None
    difference = differ(native, xtables, backends=(Backend.NFT,))
    assert difference is not None and difference.packet is not None and difference.packet.is_later_fragment


@pytest.mark.parametrize(("malformed", "differs_onward"), [("stricter", False), ("exact", True)])
def test_a_header_cut_off_may_be_dropped_earlier_but_never_let_through(
    malformed: str, differs_onward: bool
) -> None:
    before = program(rule(proto(TCP), source(0, 9), ACCEPT), rule(proto(TCP), dport(5, 5), DROPS))
    after = program(
        rule(proto(TCP), dport(0, 4), source(0, 9), ACCEPT),
        rule(proto(TCP), source(0, 9), dport(5, 65535), ACCEPT),
        rule(proto(TCP), dport(5, 5), DROPS),
    )
    legacy = (Backend.LEGACY,)
    back = differ(after, before, backends=legacy, malformed=malformed)
    assert back is not None and back.packet is not None and is_malformed(back.packet)
    onward = differ(before, after, backends=legacy, malformed=malformed)
    # A later fragment has no ports, so it is no longer accepted by name; the policy accepts it.
    assert (onward is not None) == differs_onward


@pytest.mark.parametrize("engine", [exact.check, bdd.check])
def test_a_fragment_at_offset_1_is_dropped_by_the_tcp_match_alone(engine: Callable[..., Answer]) -> None:
    """Both matches drop what is too short."""
    drops, passes = (
        program(
            rule(proto(TCP), dport(5, 5)._replace(native=False, strict=strict), DROPS), built_in="FORWARD"
        )
        for strict in (True, False)
    )
    lost = engine(drops, passes, Question())
    assert isinstance(lost, Difference) and lost.packet is not None and lost.packet.offset_one
    assert isinstance(engine(passes, drops, Question()), Equal)
    assert isinstance(engine(passes, drops, Question(malformed="exact")), Difference)


def test_no_packet_may_be_dropped_that_is_read_as_a_malformed_one() -> None:
    """nft finds no port in a tcp header that is cut off, nor in one of GRE, which is none."""
    before = program(rule(proto(TCP), dport(5, 5), DROPS))
    after = program(rule(proto(TCP), dport(5, 5), DROPS), rule(proto(47), DROPS))
    difference = differ(before, after)
    assert difference is not None and difference.packet is not None
    assert difference.packet.values[Field.PROTO] == 47 and not is_malformed(difference.packet)


def test_a_write_changes_a_port_of_a_short_header_if_not_of_a_later_fragment() -> None:
    """nft reads both alike: of two or three bytes, they have a source port, and no other."""
    first = (
        "-p udp -m udp --dport 5 -j ACCEPT",
        "-p udp -m udp ! --dport 5 -j ACCEPT",
        "-p udp -m udp --sport 5 -j ACCEPT",
        "-j UNHEARD --of",
    )
    drops = "-p udp -m udp --sport 5 -j DROP"
    before, after = (
        hitables.read("*filter\n" + "".join(f"-A FORWARD {each}\n" for each in rules) + "COMMIT\n")
        for rules in ((*first, drops), first)
    )
    difference = differ(before, after, backends=(Backend.NFT,))
    assert difference is not None and difference.packet is not None
    assert is_malformed(difference.packet) and not difference.packet.is_later_fragment


def test_different_policies_differ_for_the_packets_that_reach_the_end() -> None:
    difference = differ(program(rule(proto(TCP), ACCEPT)), program(rule(proto(TCP), ACCEPT), policy="DROP"))
    assert difference is not None and difference.packet is not None
    assert difference.packet.values[Field.PROTO] != TCP


def test_the_answer_is_undecided_when_the_budget_runs_out() -> None:
    rng = random.Random(1)
    rules = [
        rule(
            source(low := rng.randrange(1 << 20), low + rng.randrange(1 << 19)),
            on_field(
                Field.DST, (other := rng.randrange(1 << 20), other + rng.randrange(1 << 19)), native=True
            ),
            rng.choice((ACCEPT, DROPS)),
        )
        for _ in range(400)
    ]
    before, after = program(*rules), program(*rules[:-1], rules[-1], rule(LOG))
    swapped = program(*reversed(rules))
    answer = exact.check(before, after, Question(timeout=1e-6))
    assert isinstance(answer, Undecided) and answer.reason == "out of time" and 0 <= answer.done < 1
    answer = exact.check(before, swapped, Question(max_memory=1 << 12))
    assert isinstance(answer, Undecided) and answer.reason == "out of memory"


def test_chains_that_nest_too_deep_are_undecided() -> None:
    def nest(name: str) -> Program:
        chains = {
            f"{name}{at}": (rule(source(0, 30_000 - at), goto(f"{name}{at + 1}")),) for at in range(19_000)
        }
        return program(rule(goto(f"{name}0")), **chains, **{f"{name}19000": (rule(DROPS),)})

    answer = exact.check(nest("A"), nest("B"), Question((Backend.LEGACY,)))
    assert isinstance(answer, Undecided) and answer.reason == "the rules nest too deep"


def test_fields_that_no_rule_tests_make_no_classes() -> None:
    one = program(rule(source(0, 9), DROPS))
    tables = one.table("filter"), one.table("filter")
    encoding = Encoding(tables, one.family, Backend.LEGACY)
    assert [each.later for each in encoding.classes()] == [False, True]


def test_it_can_be_stopped() -> None:
    """From another thread, as an interrupt does."""
    rules = [
        rule(source(n, n + 50), on_field(Field.DST, (n * 7 % 997, n * 7 % 997 + 50)), DROPS)
        for n in range(900)
    ]
    before = program(*rules, rule(LOG))
    after = program(*reversed(rules), rule(MARK))
    tables = before.table("filter"), after.table("filter")
    encoding = Encoding(tables, before.family, Backend.LEGACY)
    pair = exact.TableProver(tables, encoding, Question(), Deadline())
    timer = threading.Timer(0.05, pair.prover.stop)
    timer.start()
    status, _ = pair.run("INPUT", pair.classes[0], 10**9)
    timer.join()
    assert status in (ProveStatus.STOPPED, ProveStatus.DIFFER)
    # A stop may come before the run begins; the run must still end.
    assert pair.run("INPUT", pair.classes[0], 10**9)[0] == ProveStatus.STOPPED


def test_no_run_begins_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine looks at its clock now and then, and may answer before."""

    def run(*_: object, **__: object) -> ProveStatus:
        return ProveStatus.EQUAL

    monkeypatch.setattr(Prover, "run", run)
    one, other = program(rule(source(1, 2), DROPS)), program(rule(source(1, 3), DROPS))
    for after in (one, other):
        assert isinstance(exact.check(one, after, Question(timeout=1e-6)), Undecided)


def test_what_cannot_be_compared_is_refused() -> None:
    one = program()
    with pytest.raises(HitablesError, match="of one family"):
        exact.check(one, Program(Family.IPV6, one.tables), Question())
    with pytest.raises(HitablesError, match="table mangle is only in -"):
        exact.check(one, Program(Family.IPV4, (*one.tables, Table("mangle", ()))), Question())
    with pytest.raises(Unsupported, match="a loop of jumps"):
        exact.check(one, program(rule(jump("A")), A=(rule(jump("A")),)), Question())
    with pytest.raises(Unsupported, match="there is no chain B"):
        exact.check(one, program(rule(jump("B"))), Question())
