"""The meaning of programs, rule by rule; the C interpreter agrees in every case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from hitables.errors import Unsupported
from hitables.ir import semantics
from hitables.ir.answers import Answers
from hitables.ir.fields import STATES, TCP, UDP, Family, Field, Fragment
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend, Outcome, Packet
from hitables.ir.program import Chain, Program, Table
from hitables.ir.rule import EVERYTHING, Ends, Kind, Match, Metadata, Role, Rule, Target
from hitables.ir.rule import Test as FieldTest
from hitables.ir.semantics import Walk
from hitables.simulate.batch import PacketBatch, effects_hash
from hitables.simulate.interpreter import Interpreter

LEGACY, NFT = Backend.LEGACY, Backend.NFT
ACCEPT = Target("ACCEPT", Kind.VERDICT, "ACCEPT")
DROP = Target("DROP", Kind.VERDICT, "DROP")
RETURN = Target("RETURN", Kind.RETURN, "RETURN")
LOG = Target("LOG", Kind.VERDICT, "LOG", ends=Ends.NEVER)
TARPIT = Target("TARPIT", Kind.VERDICT, "TARPIT", ends=Ends.MAYBE)
MARK = Target("MARK", Kind.VERDICT, "MARK 1", ends=Ends.NEVER, writes=frozenset({Metadata.MARK}))
NOTRACK = Target("CT", Kind.VERDICT, "CT --notrack", ends=Ends.NEVER, writes=frozenset({Metadata.CT}))
UNKNOWN = Target("XYZ", Kind.VERDICT, "XYZ", ends=Ends.NEVER, writes=EVERYTHING)


def jump(chain: str) -> Target:
    return Target(chain, Kind.JUMP, f"-j {chain}")


def goto(chain: str) -> Target:
    return Target(chain, Kind.GOTO, f"-g {chain}")


def has(field: Field, *values: int) -> FieldTest:
    return FieldTest(field, Values.only(*values))


PROTO_TCP = Match("", ("-p", "tcp"), Role.SPACE, "-p tcp", (has(Field.PROTO, TCP),), native=True)
PORT_22 = Match("tcp", (), Role.SPACE, "22", (has(Field.DPORT, 22),), native=True, needs=20, strict=True)
ANY_PORT = Match("tcp", (), Role.SPACE, "tcp", needs=20, strict=True)
MULTIPORT = Match(
    "multiport",
    (),
    Role.SPACE,
    "ports 22",
    (has(Field.SPORT, 22), has(Field.DPORT, 22)),
    either=True,
    needs=4,
)
OPTION = Match("tcp", (), Role.SPACE, "option", needs=20, strict=True, option=True)
MAC = Match("mac", (), Role.SPACE, "mac", (has(Field.MAC, 1),))
NO_MAC = Match(
    "mac", (), Role.SPACE, "! mac", (FieldTest(Field.MAC, Values.only(1).complement((1 << 48) - 1)),)
)
MARKED = Match("mark", (), Role.CONSTANT, "mark 1", reads=frozenset({Metadata.MARK}))
TIME = Match("time", (), Role.CONSTANT, "time", reads=frozenset({Metadata.META}))
NEW = Match("state", (), Role.SPACE, "NEW", (has(Field.STATE, STATES.index("NEW")),))
FROM_1 = Match("", (), Role.SPACE, "-s 1", (has(Field.SRC, 1),))
LIMIT = Match("limit", (), Role.ONCE, "limit")
RECENT = Match("recent", (), Role.NAMED, "recent")

WHOLE = Packet(
    Family.IPV4,
    {
        Field.SRC: 1, Field.DST: 2, Field.PROTO: TCP, Field.FRAG: Fragment.WHOLE, Field.SPORT: 1000,
        Field.DPORT: 22, Field.FLAGS: 2, Field.IIF: 0, Field.OIF: 0, Field.MAC: 1,
        Field.STATE: STATES.index("NEW"),
    },
)  # fmt: skip


def changed(packet: Packet, without: tuple[Field, ...] = (), **values: int) -> Packet:
    kept = {field: value for field, value in packet.values.items() if field not in without}
    return replace(packet, values=kept | {Field[name.upper()]: value for name, value in values.items()})


LATER = replace(
    changed(WHOLE, (Field.SPORT, Field.DPORT, Field.FLAGS), frag=Fragment.LATER),
    raw={Field.SPORT: 1000, Field.DPORT: 22, Field.FLAGS: 2},
)


def rule(*matches: Match, to: Target | None = ACCEPT) -> Rule:
    return Rule(matches, to)


def walk(
    chains: dict[str, list[Rule]],
    packet: Packet = WHOLE,
    backend: Backend = LEGACY,
    policy: str = "DROP",
    chain: str = "INPUT",
    answers: Answers | None = None,
) -> Walk:
    """Send *packet* through *chains*; the interpreter must agree with semantics."""
    answers = answers or Answers()
    packet = answers.given_by(packet)
    table = Table(
        "filter", tuple(Chain(n, policy if n == "INPUT" else None, tuple(r)) for n, r in chains.items())
    )
    message = semantics.run(table, chain, packet, backend)
    interpreter = Interpreter(Program(packet.family, (table,)), backend)
    batch = PacketBatch.of(packet.family, [packet])
    facts = {key: _column(int(answer)) for key, answer in answers.facts.items()}
    outcomes = {key: _column(int(answer)) for (key, _), answer in answers.outcomes.items()}
    rewrites = {field: (value,) for (field, _), value in answers.rewrites.items()}
    result = interpreter.run(
        "filter", chain, PacketBatch(batch.family, batch.rows, rewrites, facts, outcomes, seeded=False)
    )
    assert result.verdict_text(0) == message.verdict
    assert (result.effects[0], result.reads[0]) == (effects_hash(message.effects), len(message.steps))
    return message


def _column(value: int) -> npt.NDArray[np.uint8]:
    return np.array([value], np.uint8)


# ---- the walk ----


def test_the_first_rule_that_matches_decides() -> None:
    message = walk({"INPUT": [rule(MULTIPORT, to=DROP), rule()]}, changed(WHOLE, dport=80))
    assert (message.verdict, len(message.steps)) == ("ACCEPT", 2)


@pytest.mark.parametrize("policy", ["ACCEPT", "DROP"])
def test_the_policy_decides_at_the_end_and_counts_as_no_rule_read(policy: str) -> None:
    message = walk({"INPUT": [rule(MAC, to=None)]}, policy=policy)
    assert (message.verdict, len(message.steps), message.effects) == (policy, 1, ("counts",))


def test_an_empty_chain_gives_its_policy() -> None:
    assert walk({"INPUT": []}) == Walk("DROP", (), (), frozenset())


def test_a_user_chain_run_alone_returns() -> None:
    assert walk({"INPUT": [], "A": [rule(to=None)]}, chain="A").verdict == "returns"


def test_a_jump_returns_to_the_next_rule() -> None:
    message = walk({"INPUT": [rule(to=jump("A")), rule(to=ACCEPT)], "A": [rule(to=LOG)]})
    assert (message.verdict, message.effects, len(message.steps)) == ("ACCEPT", ("fires LOG",), 3)


def test_a_goto_from_a_built_in_chain_ends_in_its_policy() -> None:
    assert walk({"INPUT": [rule(to=goto("A")), rule(to=ACCEPT)], "A": []}).verdict == "DROP"


def test_a_goto_returns_to_the_caller_of_its_chain() -> None:
    chains = {
        "INPUT": [rule(to=jump("A")), rule(to=ACCEPT)],
        "A": [rule(to=goto("B")), rule(to=DROP)],
        "B": [rule(to=None)],
    }
    message = walk(chains)
    assert (message.verdict, [step.chain for step in message.steps]) == (
        "ACCEPT",
        ["INPUT", "A", "B", "INPUT"],
    )


def test_a_goto_and_then_a_jump_return_to_the_right_callers() -> None:
    chains = {
        "INPUT": [rule(to=jump("A")), rule(to=ACCEPT)],
        "A": [rule(to=goto("B")), rule(to=DROP)],
        "B": [rule(to=jump("C")), rule(to=LOG)],
        "C": [rule(to=RETURN), rule(to=DROP)],
    }
    message = walk(chains)
    assert (message.verdict, [step.chain for step in message.steps]) == (
        "ACCEPT",
        ["INPUT", "A", "B", "C", "B", "INPUT"],
    )


@pytest.mark.parametrize("enter", [jump, goto])
def test_return_after_a_jump_or_a_goto(enter: Callable[[str], Target]) -> None:
    chains = {"INPUT": [rule(to=enter("A")), rule(to=ACCEPT)], "A": [rule(to=RETURN), rule(to=ACCEPT)]}
    assert walk(chains).verdict == ("ACCEPT" if enter is jump else "DROP")


def test_return_in_a_built_in_chain_gives_the_policy() -> None:
    assert walk({"INPUT": [rule(to=RETURN), rule()]}).verdict == "DROP"


def test_a_verdict_in_a_deep_chain_ends_everything() -> None:
    chains = {f"C{n}": [rule(to=jump(f"C{n + 1}")), rule(to=DROP)] for n in range(300)}
    message = walk({"INPUT": [rule(to=jump("C0"))], **chains, "C300": [rule()]})
    assert (message.verdict, len(message.steps)) == ("ACCEPT", 302)


def test_a_chain_may_be_entered_twice() -> None:
    message = walk({"INPUT": [rule(to=jump("A")), rule(to=jump("A"))], "A": [rule(to=LOG)]})
    assert message.effects == ("fires LOG", "fires LOG")


def test_a_target_that_may_end_is_an_effect_and_does_not_end() -> None:
    message = walk({"INPUT": [rule(to=TARPIT), rule()]})
    assert (message.verdict, message.effects) == ("ACCEPT", ("fires TARPIT",))


def test_a_loop_and_a_missing_chain_are_refused_by_the_interpreter() -> None:
    for chains, words in (
        ({"INPUT": [rule(to=jump("A"))], "A": [rule(to=goto("INPUT"))]}, "INPUT -> A -> INPUT"),
        ({"INPUT": [rule(to=goto("INPUT"))]}, "INPUT -> INPUT"),
        ({"INPUT": [rule(to=jump("B"))]}, "no chain B"),
    ):
        policies = {"INPUT": "ACCEPT"}
        table = Table(
            "filter", tuple(Chain(name, policies.get(name), tuple(rules)) for name, rules in chains.items())
        )
        with pytest.raises(Unsupported, match=words):
            Interpreter(Program(Family.IPV4, (table,)), LEGACY).run(
                "filter", "INPUT", PacketBatch.of(Family.IPV4, [])
            )


# ---- fields that a packet lacks ----


@pytest.mark.parametrize("match", [MAC, NO_MAC])
def test_neither_a_test_nor_its_negation_matches_a_field_that_is_missing(match: Match) -> None:
    assert walk({"INPUT": [rule(match)]}, changed(WHOLE, (Field.MAC,))).verdict == "DROP"


def test_either_of_two_tests_is_enough() -> None:
    for packet, verdict in (
        (WHOLE, "ACCEPT"),
        (changed(WHOLE, sport=22, dport=1), "ACCEPT"),
        (changed(WHOLE, dport=1), "DROP"),
    ):
        assert walk({"INPUT": [rule(MULTIPORT)]}, packet).verdict == verdict


@pytest.mark.parametrize(
    ("match", "backend", "verdict"),
    [
        (PORT_22, LEGACY, "DROP"),
        (PORT_22, NFT, "ACCEPT"),
        (MULTIPORT, LEGACY, "DROP"),
        (MULTIPORT, NFT, "DROP"),
    ],
)
def test_only_a_native_match_reads_a_later_fragments_payload(
    match: Match, backend: Backend, verdict: str
) -> None:
    assert walk({"INPUT": [rule(match)]}, LATER, backend).verdict == verdict


def test_a_later_fragment_too_short_to_be_read_as_ports_does_not_match() -> None:
    short = replace(LATER, raw={Field.SPORT: 22}, l4_bytes=3)
    assert walk({"INPUT": [rule(PORT_22)]}, short, NFT).verdict == "DROP"


def test_a_match_without_options_matches_no_later_fragment() -> None:
    for backend in Backend:
        assert walk({"INPUT": [rule(ANY_PORT)]}, LATER, backend).verdict == "DROP"


# ---- headers that are broken ----


@pytest.mark.parametrize(("backend", "dropped"), [(LEGACY, True), (NFT, False)])
def test_a_short_header_is_dropped_by_the_xtables_match_alone(backend: Backend, dropped: bool) -> None:
    short = replace(changed(WHOLE, (Field.FLAGS,)), l4_bytes=10)
    message = walk({"INPUT": [rule(PORT_22, to=LOG)]}, short, backend, policy="ACCEPT")
    assert (message.verdict, message.effects) == (("DROP", ()) if dropped else ("ACCEPT", ("fires LOG",)))
    assert message.steps[-1].outcome is (Outcome.DROPPED if dropped else Outcome.YES)


def test_matches_before_the_one_that_drops_are_evaluated_first() -> None:
    short = replace(changed(WHOLE, (Field.FLAGS,), proto=UDP), l4_bytes=10)
    assert walk({"INPUT": [rule(PROTO_TCP, PORT_22)]}, short, policy="ACCEPT").steps[-1].outcome is Outcome.NO


def test_fragment_offset_one_is_dropped_by_a_strict_match() -> None:
    one = replace(LATER, offset_one=True)
    assert walk({"INPUT": [rule(ANY_PORT)]}, one, policy="ACCEPT").steps[-1].outcome is Outcome.DROPPED
    assert walk({"INPUT": [rule(MULTIPORT)]}, one, policy="ACCEPT").steps[-1].outcome is Outcome.NO
    assert walk({"INPUT": [rule(PORT_22)]}, one, NFT).verdict == "ACCEPT"


def test_a_bad_data_offset_is_dropped_by_an_option_match_in_both_backends() -> None:
    bad = replace(WHOLE, bad_offset=True)
    for backend in Backend:
        assert walk({"INPUT": [rule(OPTION)]}, bad, backend).steps[-1].outcome is Outcome.DROPPED
        assert walk({"INPUT": [rule(ANY_PORT)]}, bad, backend).verdict == "ACCEPT"


@pytest.mark.parametrize(("backend", "outcome"), [(LEGACY, Outcome.DROPPED), (NFT, Outcome.NO)])
def test_legacy_drops_a_packet_whose_protocol_is_hidden(backend: Backend, outcome: Outcome) -> None:
    cut = replace(
        changed(WHOLE, (Field.PROTO, Field.SPORT, Field.DPORT, Field.FLAGS)),
        cut_short=True,
        family=Family.IPV6,
    )
    assert walk({"INPUT": [rule(PROTO_TCP)]}, cut, backend).steps[-1].outcome is outcome


# ---- facts, memory, writes ----


def test_an_unknown_predicate_counts_as_false_and_is_reported() -> None:
    message = walk({"INPUT": [rule(MARKED)]})
    assert (message.verdict, message.open) == ("DROP", frozenset({"mark 1"}))
    given = Answers(facts={("mark 1", 0): True})
    assert walk({"INPUT": [rule(MARKED)]}, answers=given) == replace(
        message,
        verdict="ACCEPT",
        open=frozenset(),
        steps=(semantics.Step("INPUT", 0, rule(MARKED), Outcome.YES),),
    )


def test_a_write_makes_a_new_predicate_of_one_that_reads_it() -> None:
    given = Answers(facts={("mark 1", 0): False, ("mark 1", 1): True, ("time", 0): False})
    chain = [rule(MARKED), rule(TIME), rule(to=MARK), rule(TIME), rule(MARKED, to=LOG)]
    message = walk({"INPUT": chain}, answers=given)
    assert (message.effects, message.open) == (("fires MARK 1", "fires LOG"), frozenset())


def test_an_unknown_target_makes_every_predicate_a_new_one() -> None:
    given = Answers(facts={("time", 0): False, ("time", 1): True})
    assert walk({"INPUT": [rule(TIME), rule(to=UNKNOWN), rule(TIME)]}, answers=given).verdict == "ACCEPT"


def test_notrack_changes_the_state_and_nothing_else() -> None:
    given = Answers(rewrites={(Field.STATE, 1): STATES.index("UNTRACKED"), (Field.SRC, 1): 9})
    chain = [rule(NEW, to=LOG), rule(to=NOTRACK), rule(NEW), rule(FROM_1, to=ACCEPT)]
    message = walk({"INPUT": chain}, answers=given)
    assert (message.verdict, len(message.steps)) == ("ACCEPT", 4)


def test_a_write_gives_no_field_to_a_packet_that_lacks_it() -> None:
    given = Answers(rewrites={(Field.DPORT, 1): 22})
    udp = changed(WHOLE, (Field.SPORT, Field.DPORT, Field.FLAGS), proto=47)
    port = PORT_22._replace(needs=0)
    assert walk({"INPUT": [rule(to=UNKNOWN), rule(port)]}, udp, answers=given).verdict == "DROP"
    assert walk({"INPUT": [rule(to=UNKNOWN), rule(port)]}, LATER, NFT, answers=given).verdict == "ACCEPT"


def test_a_match_with_memory_is_evaluated_only_after_matches_that_hold() -> None:
    given = Answers(outcomes={("limit", -1): Outcome.YES})
    other = changed(WHOLE, proto=UDP)
    assert walk({"INPUT": [rule(PROTO_TCP, LIMIT)]}, other, answers=given).effects == ()
    assert walk({"INPUT": [rule(LIMIT, PROTO_TCP)]}, other, answers=given).effects == (
        "evaluates limit: yes",
    )


@pytest.mark.parametrize(
    ("outcome", "verdict"), [(Outcome.NO, "returns"), (Outcome.YES, "ACCEPT"), (Outcome.DROPPED, "DROP")]
)
def test_an_evaluation_has_three_outcomes(outcome: Outcome, verdict: str) -> None:
    given = Answers(outcomes={("recent", -1): outcome})
    message = walk({"INPUT": [], "A": [rule(RECENT)]}, chain="A", answers=given)
    assert (message.verdict, message.effects) == (verdict, (f"evaluates recent: {outcome.name.lower()}",))


def test_two_evaluations_of_one_key_may_differ() -> None:
    answers = Answers(outcomes={("recent", 0): Outcome.NO, ("recent", 1): Outcome.YES})
    table = Table("filter", (Chain("INPUT", "DROP", (rule(RECENT), rule(RECENT))),))
    assert semantics.run(table, "INPUT", answers.given_by(WHOLE), LEGACY).verdict == "ACCEPT"
