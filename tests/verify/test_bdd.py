"""Two programs compared by decision diagrams: special cases, refusals, and the budget.

test_engines_agree.py compares this engine with trying every packet, as every engine.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from support.programs import make_program, mutate

from hitables.api import read
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.errors import HitablesError, Unsupported
from hitables.ir.fields import STATES, TCP, Family, Field
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend
from hitables.ir.program import Chain, Program, Table
from hitables.ir.rule import Ends, Kind, Match, Metadata, Role, Rule, Target
from hitables.ir.rule import Test as FieldTest
from hitables.ir.semantics import Walk
from hitables.verify import bdd
from hitables.verify.bdd import check
from hitables.verify.deadline import Deadline, TimeIsUp
from hitables.verify.question import Answer, Difference, Equal, Question, Undecided

ACCEPT = Target("ACCEPT", Kind.VERDICT, "ACCEPT")
DROPS = Target("DROP", Kind.VERDICT, "DROP")
RETURN = Target("RETURN", Kind.RETURN, "RETURN")
LOG = Target("LOG", Kind.VERDICT, "LOG", ends=Ends.NEVER)
MARK = Target("MARK", Kind.VERDICT, "MARK 1", ends=Ends.NEVER, writes=frozenset({Metadata.MARK}))
NOTRACK = Target("CT", Kind.VERDICT, "CT --notrack", ends=Ends.NEVER, writes=frozenset({Metadata.CT}))
IS_TCP = Match(
    "", ("-p", "tcp"), Role.SPACE, "-p tcp", (FieldTest(Field.PROTO, Values.only(TCP)),), native=True
)
NEVER = Match("", (), Role.SPACE, "never", (FieldTest(Field.SRC, Values(())),))
LIMIT = Match("limit", ("--limit", "1/sec"), Role.ONCE, "limit 1/sec")
CHANCE = Match("statistic", ("--mode", "random"), Role.NAMED, "statistic random")
MARKED = Match("mark", ("--mark", "1"), Role.CONSTANT, "mark 1", reads=frozenset({Metadata.MARK}))
NEW = Match("state", (), Role.SPACE, "NEW", (FieldTest(Field.STATE, Values.only(STATES.index("NEW"))),))


def jump(name: str) -> Target:
    return Target(name, Kind.JUMP, f"jump {name}")


def goto(name: str) -> Target:
    return Target(name, Kind.GOTO, f"goto {name}")


def source(low: int, high: int) -> Match:
    return Match("", (), Role.SPACE, f"src {low}-{high}", (FieldTest(Field.SRC, Values.of((low, high))),))


def ports(low: int, high: int, *, native: bool = True) -> Match:
    test = FieldTest(Field.DPORT, Values.of((low, high)))
    words = ("--dport", f"{low}:{high}")
    return Match(
        "tcp", words, Role.SPACE, f"dport {low}:{high}", (test,), native=native, needs=20, strict=True
    )


def program(
    *rules: Rule,
    policy: str = "ACCEPT",
    family: Family = Family.IPV4,
    built_in: str = "INPUT",
    **chains: tuple[Rule, ...],
) -> Program:
    lined = tuple(rule._replace(line=at + 3) for at, rule in enumerate(rules))
    user = tuple(Chain(name, None, body) for name, body in chains.items())
    return Program(family, (Table("filter", (Chain(built_in, policy, lined), *user)),))


def ask(
    before: Program,
    after: Program,
    *backends: Backend,
    malformed: str = "stricter",
    equivalence: str = "full",
) -> Answer:
    return check(before, after, Question(backends or tuple(Backend), malformed, equivalence=equivalence))


def differ(before: Program, after: Program, *backends: Backend) -> Difference:
    answer = ask(before, after, *backends)
    assert isinstance(answer, Difference)
    return answer


def test_a_difference_has_a_plain_packet_and_both_walks() -> None:
    before = program(Rule((IS_TCP, ports(20, 29)), jump("A")), A=(Rule((), DROPS),))
    after = program(Rule((IS_TCP, ports(20, 28)), jump("A")), A=(Rule((), DROPS),))
    text = differ(before, after).describe()
    assert text.splitlines()[:2] == [
        "table filter, chain INPUT, legacy: verdict DROP becomes ACCEPT",
        "packet: table=filter chain=INPUT in=eth0 src=10.0.0.1 dst=10.0.0.1 proto=tcp sport=40000 dport=29 "
        "flags=SYN state=NEW",
    ]
    assert "rule 1: -A A -j DROP" in text


def test_later_fragments_are_read_in_two_ways_by_nft_alone() -> None:
    native, xt = (
        program(Rule((IS_TCP, ports(20, 29, native=each)), DROPS), built_in="FORWARD")
        for each in (True, False)
    )
    assert isinstance(ask(native, xt, Backend.LEGACY), Equal)
    difference = differ(native, xt)
    assert difference.backend is Backend.NFT
    # In nft the native test takes a later fragment's bytes for ports, and no short header is dropped.
    assert difference.packet is not None
    assert difference.packet.is_later_fragment or difference.packet.l4_bytes < 20


@pytest.mark.parametrize(("malformed", "equal"), [("stricter", True), ("exact", False)])
def test_a_dropped_short_header_is_a_difference_only_to_exact(malformed: str, equal: bool) -> None:
    before, after = program(), program(Rule((IS_TCP, ports(9, 9), NEVER), DROPS))
    assert isinstance(ask(before, after, Backend.LEGACY, malformed=malformed), Equal) == equal
    assert isinstance(ask(before, after, Backend.NFT, malformed="exact"), Equal)
    assert isinstance(ask(after, before, Backend.LEGACY, malformed=malformed), Difference)


def test_a_malformed_packet_may_not_have_other_effects_before_it_is_dropped() -> None:
    asks, log = Rule((IS_TCP, ports(9, 9), NEVER), None), Rule((), LOG)
    assert (
        differ(program(asks, log), program(log, asks), Backend.LEGACY).reason
        == "effects (none) become fires LOG"
    )
    assert isinstance(ask(program(log, log), program(log, asks, log), Backend.LEGACY), Equal)


def test_an_ipv6_packet_without_a_protocol_is_dropped_by_p_in_legacy_alone() -> None:
    before, after = program(family=Family.IPV6), program(Rule((IS_TCP, NEVER), DROPS), family=Family.IPV6)
    assert isinstance(ask(before, after, malformed="stricter"), Equal)
    assert isinstance(ask(before, after, Backend.NFT, malformed="exact"), Equal)
    answer = ask(before, after, malformed="exact")
    assert isinstance(answer, Difference) and answer.packet is not None and answer.packet.cut_short


def test_a_state_test_before_a_write_differs_from_one_behind_it() -> None:
    before = program(Rule((), NOTRACK), Rule((NEW,), DROPS))
    same = program(Rule((), NOTRACK), Rule((NEW,), DROPS), Rule((NEW, NEVER), LOG))
    assert isinstance(ask(before, same), Equal)
    after = program(Rule((NEW,), jump("A")), Rule((), NOTRACK), A=(Rule((), NOTRACK), Rule((), DROPS)))
    assert "rewrite=" in differ(before, after).describe()


def test_a_mark_test_before_a_write_differs_from_one_behind_it() -> None:
    twice = program(Rule((MARKED,), MARK), Rule((MARKED,), ACCEPT), policy="DROP")
    once = program(Rule((MARKED,), jump("A")), A=(Rule((), MARK), Rule((), ACCEPT)), policy="DROP")
    assert "mark 1=no/1" in differ(twice, once).describe()
    kept = program(Rule((MARKED,), LOG), Rule((MARKED,), ACCEPT), policy="DROP")
    led = program(Rule((MARKED,), jump("A")), A=(Rule((), LOG), Rule((), ACCEPT)), policy="DROP")
    assert isinstance(ask(kept, led), Equal)


def test_return_leaves_the_chain_that_was_jumped_to() -> None:
    body = (Rule((IS_TCP,), RETURN), Rule((), DROPS))
    jumped = program(Rule((), jump("A")), Rule((), LOG), A=body)
    entered = program(Rule((), goto("A")), Rule((), LOG), A=body)
    assert differ(jumped, entered).reason == "effects fires LOG become (none)"
    through = program(Rule((), jump("A")), Rule((), LOG), A=(Rule((), goto("B")), Rule((), DROPS)), B=body)
    assert isinstance(ask(jumped, through), Equal)


def test_other_effects_or_another_order_of_effects_are_a_difference() -> None:
    one, other = program(Rule((), LOG), Rule((), MARK)), program(Rule((), MARK), Rule((), LOG))
    assert differ(one, other).reason.startswith(
        "effects fires LOG, fires MARK 1 become fires MARK 1, fires LOG"
    )
    assert isinstance(ask(one, other, equivalence="verdict"), Equal)
    counts = program(Rule((IS_TCP,), None), Rule((), MARK))
    assert isinstance(ask(counts, one, equivalence="verdict"), Equal)
    assert isinstance(ask(counts, program(), equivalence="verdict"), Difference)


def test_each_evaluation_of_a_match_with_chance_has_its_own_outcome() -> None:
    one = program(Rule((CHANCE,), DROPS))
    assert differ(one, program(Rule((CHANCE,), DROPS), Rule((CHANCE,), DROPS))).reason.endswith(
        "statistic random: no, evaluates statistic random: no"
    )
    assert differ(one, program(Rule((IS_TCP, CHANCE), DROPS))).packet is not None
    leaves = program(Rule((IS_TCP,), goto("A")), Rule((CHANCE,), DROPS), A=(Rule((CHANCE,), DROPS),))
    assert isinstance(ask(one, leaves), Equal)
    # The outcome decides which rule is next.
    both = program(Rule((CHANCE,), MARK), Rule((CHANCE,), DROPS))
    either = program(
        Rule((CHANCE,), jump("A")), Rule((CHANCE,), DROPS), A=(Rule((), MARK), Rule((IS_TCP,), ACCEPT))
    )
    difference = differ(both, either)
    assert difference.answers is not None and ("statistic random", 0) in difference.answers.outcomes


def test_a_rule_with_memory_must_exist_once() -> None:
    one = program(Rule((LIMIT,), LOG), Rule((NEVER, LIMIT), LOG))
    copied = program(Rule((IS_TCP,), goto("A")), Rule((LIMIT,), LOG), A=(Rule((LIMIT,), LOG),))
    for pair, message in (
        (
            (one, copied),
            "before it is line 3 of INPUT alone, after it is line 4 of INPUT for some packets and rule 1 of A for others",
        ),
        ((copied, one), "after it is line 3 of INPUT alone, before it is"),
    ):
        difference = differ(*pair)
        assert difference.packet is None and message in difference.reason
    shared = program(
        Rule((IS_TCP,), goto("A")), Rule((), jump("S")), A=(Rule((), jump("S")),), S=(Rule((LIMIT,), LOG),)
    )
    assert isinstance(ask(one, shared), Equal)
    # Two rules that limit are not one, nor may they be exchanged for some packets.
    two = program(Rule((IS_TCP, LIMIT), LOG), Rule((source(0, 9), LIMIT), LOG))
    assert isinstance(ask(two, two), Equal)
    assert differ(
        two, program(Rule((IS_TCP,), jump("S")), Rule((source(0, 9),), jump("S")), S=(Rule((LIMIT,), LOG),))
    )


def test_rules_behind_an_outcome_are_read_from_the_middle_of_a_rule() -> None:
    before = program(Rule((CHANCE, IS_TCP, LIMIT, source(1, 5)), DROPS))
    assert isinstance(ask(before, before), Equal)
    difference = differ(before, program(Rule((CHANCE, IS_TCP, LIMIT, source(1, 6)), DROPS)))
    assert difference.packet is not None and difference.packet.values[Field.SRC] == 6
    assert difference.answers is not None and len(difference.answers.outcomes) == 2


def test_the_work_grows_with_the_rules_and_not_with_the_sequences_of_effects() -> None:
    """Sixty rules that count: 2 to the 60 walks, and sixty points."""
    counting = [Rule((source(n, 2 * n),), None) for n in range(1, 61)]
    nothing = [Rule((source(n, 2 * n), NEVER), LOG) for n in range(1, 61)]
    answer = ask(program(*counting), program(*nothing, *counting))
    assert isinstance(answer, Equal) and answer.looked_at < 10_000
    assert isinstance(ask(program(*counting), program(*counting[:30], *counting[31:])), Difference)


def test_user_chains_are_compared_when_the_question_names_them() -> None:
    one, other = program(A=(Rule((IS_TCP,), DROPS),)), program(A=(Rule((IS_TCP,), RETURN),))
    assert isinstance(ask(one, other), Equal)
    answer = check(one, other, Question(chains=frozenset({"A"})))
    assert isinstance(answer, Difference) and answer.reason == "verdict DROP becomes returns"


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(HitablesError, match="only rule sets of one family"):
        ask(program(), program(family=Family.IPV6))
    loop = program(Rule((), jump("A")), A=(Rule((IS_TCP,), goto("B")),), B=(Rule((), jump("A")),))
    with pytest.raises(Unsupported, match=r"a loop of jumps: (A -> B -> A|B -> A -> B)"):
        ask(program(), loop)
    with pytest.raises(Unsupported, match="table filter, chain INPUT, line 3: there is no chain A"):
        ask(program(), program(Rule((), jump("A"))))


def test_a_loop_that_no_packet_enters_is_ignored() -> None:
    assert isinstance(ask(program(), program(A=(Rule((), jump("A")),))), Equal)


def test_the_answer_is_undecided_when_the_budget_runs_out() -> None:
    rng = random.Random(7)
    rules = [
        Rule((source(low := rng.randrange(1 << 32), low + rng.randrange(1 << 20)), ports(n, n + 100)), ACCEPT)
        for n in range(800)
    ]
    one, other = program(*rules), program(*rules[::-1], policy="DROP")
    answer = check(one, other, Question(timeout=0.0))
    assert answer == Undecided("the time is up", "filter", "INPUT", Backend.LEGACY, 0.0)
    answer = check(one, one, Question(max_memory=1 << 18))
    assert answer == Undecided("the memory is used up", "filter", "INPUT", Backend.LEGACY, 0.0)
    assert isinstance(check(one, one, Question(max_memory=1 << 28, timeout=100)), Equal)


def test_any_budget_gives_the_right_answer_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = set()
    for seed in range(24):
        rng = random.Random(seed)
        before = make_program(rng, rules=20)
        after = before if seed % 4 == 0 else mutate(rng, before)
        try:
            right = check(before, after, Question())
        except HitablesError:
            continue  # an ipset went with the rule
        for ticks in (3, 30, 60, 120, 100_000):
            left = iter(range(ticks))

            def tick(self: object, left: object = left) -> None:
                if next(left, None) is None:  # type: ignore[call-overload]
                    raise TimeIsUp

            monkeypatch.setattr(Deadline, "tick", tick)
            answer = check(before, after, Question())
            monkeypatch.undo()
            outcomes.add((type(answer), type(right)))
            if isinstance(answer, Difference) and isinstance(right, Difference):
                assert answer.describe() == right.describe()
            else:
                assert isinstance(answer, Undecided) or answer == right
            assert not isinstance(answer, Undecided) or 0.0 <= answer.done <= 1.0
    assert {(Undecided, Equal), (Undecided, Difference), (Equal, Equal), (Difference, Difference)} <= outcomes


def test_one_spelling_with_two_meanings_is_not_decided() -> None:
    other = MARKED._replace(reads=frozenset({Metadata.CT}))
    answer = ask(program(Rule((MARKED,), DROPS)), program(Rule((other,), DROPS)))
    assert isinstance(answer, Undecided) and "'mark 1' is spelt alike" in answer.reason
    sets, does_not = (
        Target("MARK", Kind.VERDICT, "MARK 1", ends=Ends.NEVER, writes=frozenset(states))
        for states in ({Metadata.MARK}, ())
    )
    answer = ask(program(Rule((), sets)), program(Rule((), does_not)))
    assert isinstance(answer, Undecided) and "'MARK 1' is spelt alike" in answer.reason


def test_the_error_for_the_missing_library_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "oxidd.bcdd", None)
    with pytest.raises(HitablesError, match=r"pip install oxidd"):
        ask(program(), program())


def test_a_difference_that_semantics_does_not_confirm_is_reported_as_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bdd.semantics, "run", lambda *_: Walk("ACCEPT", (), (), frozenset()))
    with pytest.raises(HitablesError, match="a fault of hitables"):
        ask(program(policy="ACCEPT"), program(policy="DROP"))


def test_real_rule_sets_equal_their_compiled_form(shared: Path) -> None:
    folder = shared / "corpus" / "dumps"
    sets = sorted(folder.glob("*.rules"), key=lambda path: path.stat().st_size)[:-12:8]
    assert len(sets) > 8
    for path in sets:
        before = read(path.read_text("utf-8", "surrogateescape"), name=path.name)
        after = compile_rules(before, Options()).program
        answer = check(before, after, Question())
        assert isinstance(answer, Equal), (path.name, answer)
