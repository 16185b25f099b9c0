"""The exact engine on matches with memory: one memory must not become two, nor be asked once more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.exact_answers import differ
from support.small_programs import (
    ACCEPT,
    DROPS,
    LOG,
    MARK,
    MARKED,
    goto,
    jump,
    on_field,
    program,
    proto,
    rule,
    source,
)

from hitables.api import read
from hitables.ir.fields import Family, Field
from hitables.ir.program import Chain, Program, Table
from hitables.ir.rule import Match, Role, Rule, Target
from hitables.verify import bdd, exact
from hitables.verify.question import Answer, Difference, Equal, Question

pytestmark = pytest.mark.engine
LIMIT = Match("limit", ("--limit", "1/sec"), Role.ONCE, "limit 1/sec")
RECENT = Match("recent", ("--set",), Role.NAMED, "recent --set")


def test_one_more_evaluation_of_a_memory_is_a_difference() -> None:
    one = program(rule(RECENT, LOG), rule(DROPS))
    assert differ(one, program(rule(RECENT, LOG), rule(RECENT, LOG), rule(DROPS))) is not None
    assert differ(one, program(rule(source(0, 9), RECENT, LOG), rule(DROPS))) is not None
    both = program(rule(source(0, 9), RECENT, LOG), rule(source(10, 2**32 - 1), RECENT, LOG), rule(DROPS))
    assert differ(program(rule(source(0, 2**32 - 1), RECENT, LOG), rule(DROPS)), both) is None


def test_one_memory_must_not_become_two() -> None:
    one = program(rule(LIMIT, LOG), rule(DROPS))
    copied = program(rule(source(0, 9), LIMIT, LOG), rule(source(10, 2**32 - 1), LIMIT, LOG), rule(DROPS))
    difference = differ(one, copied)
    assert difference is not None and "is not one memory" in difference.reason
    shared = program(
        rule(source(0, 9), jump("S")),
        rule(source(10, 2**32 - 1), jump("S")),
        rule(DROPS),
        S=(rule(LIMIT, LOG),),
    )
    assert differ(one, shared) is None


def test_what_a_rule_asks_behind_its_memory_counts() -> None:
    one, other = (program(rule(LIMIT, source(0, last), DROPS)) for last in (9, 10))
    assert differ(one, one) is None
    assert differ(one, other) is not None


@pytest.mark.parametrize("memory", [LIMIT, RECENT])
def test_what_follows_a_chain_that_drops_what_a_memory_tells_is_compared(memory: Match) -> None:
    """The only rule of the chain decides all packets, or none: the memory may say no."""
    drops, accepts = (
        program(rule(jump("asks")), rule(end), asks=(rule(memory, DROPS),)) for end in (DROPS, ACCEPT)
    )
    assert differ(drops, drops) is None
    assert differ(drops, accepts) is not None


@pytest.mark.parametrize("engine", [exact.check, bdd.check])
def test_a_memory_shared_by_two_chains_must_not_become_two(engine: Callable[..., Answer]) -> None:
    def two(first: str, second: str, **chains: tuple[Rule, ...]) -> Program:
        user = tuple(Chain(name, None, body) for name, body in chains.items())
        hooks = (
            Chain("INPUT", "ACCEPT", (rule(jump(first)),)),
            Chain("FORWARD", "ACCEPT", (rule(jump(second)),)),
        )
        return Program(Family.IPV4, (Table("filter", (*hooks, *user)),))

    body = (rule(LIMIT, DROPS),)
    one = two("few", "few", few=body)
    assert isinstance(engine(one, one, Question()), Equal)
    answer = engine(one, two("few", "few2", few=body, few2=body), Question())
    assert isinstance(answer, Difference)
    answer = engine(two("few", "few2", few=body, few2=body), one, Question())
    assert isinstance(answer, Difference)


@pytest.mark.parametrize("engine", [exact.check, bdd.check])
def test_a_memory_that_broken_headers_alone_ask_is_paired_where_they_are_dropped(
    engine: Callable[..., Answer],
) -> None:
    """In nft, UDP packets cut short pass both rules of ports; the second program drops them in the end."""
    limit = "-m limit --limit 1/hour --limit-burst 5 -j ACCEPT"
    front = "-A INPUT -f -j ACCEPT\n" + "".join(
        f"-A INPUT -p udp -m udp --dport {ports} -j ACCEPT\n" for ports in ("0:65534", "65535")
    )
    two = f"-A INPUT -p udp {limit}\n-A OUTPUT -p udp -j ACCEPT\n-A OUTPUT -p icmp {limit}\n"
    one = (
        "-A INPUT -p udp -j L\n-A INPUT -p udp -j DROP\n-A OUTPUT -p udp -j ACCEPT\n-A OUTPUT -p icmp -j L\n"
        f"-A L {limit}\n"
    )
    head = "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT DROP\n:L -\n"
    before, after = (read(f"{head}{front}{rules}COMMIT\n") for rules in (two, one))
    answer = engine(before, after, Question())
    assert isinstance(answer, Difference)
    assert "memory of its own" in answer.reason or "is not one memory" in answer.reason
    assert isinstance(engine(before, before, Question()), Equal)


def test_a_memory_asked_twice_is_not_two_memories() -> None:
    whole = on_field(Field.FRAG, (0, 1)), proto(47)  # packets of one class alone
    one = program(rule(*whole, jump("L")), rule(*whole, jump("L")), L=(rule(LIMIT, LOG),))
    other = program(rule(*whole, LIMIT, LOG), rule(*whole, LIMIT, LOG))
    assert differ(one, other) is not None and differ(other, one) is not None
    again = program(rule(*whole, jump("M")), rule(*whole, goto("M")), M=(rule(LIMIT, LOG),))
    assert differ(one, again) is None


def test_an_unreachable_copy_of_a_memory_is_no_difference() -> None:
    one = program(rule(source(0, 9), LIMIT, LOG), rule(DROPS))
    more = program(rule(source(0, 9), LIMIT, LOG), rule(DROPS), rule(LIMIT, LOG), X=(rule(LIMIT, LOG),))
    assert differ(one, more) is None
    # The covered copy is first: only a strict run shows that it is never asked.
    front = (rule(source(0, 4), ACCEPT), rule(source(5, 9), ACCEPT))
    lists = program(*front, rule(source(0, 9), LIMIT, LOG), rule(source(0, 19), LIMIT, DROPS))
    again = program(*front, rule(source(0, 19), LIMIT, DROPS))
    assert differ(lists, again) is None


MARKED_2 = MARKED._replace(key="mark 2")
PATIENCE = (
    250.0  # seconds; the proofs take a fraction of one, and would take years if every walk were followed
)


@pytest.mark.parametrize("asked", [(RECENT, MARK), (LIMIT, LOG), (MARKED, MARK)])
def test_a_row_of_questions_takes_time_by_its_length_and_not_by_its_outcomes(
    asked: tuple[Match, Target],
) -> None:
    row = [rule(asked[0]._replace(key=f"{asked[0].key} {at}"), asked[1]) for at in range(40)]
    marked = rule(MARKED, DROPS), rule(MARKED_2, DROPS)
    assert differ(program(*row, *marked), program(*row, *reversed(marked)), timeout=PATIENCE) is None
    row = [rule(asked[0]._replace(key=f"{asked[0].key} {at}"), jump("A")) for at in range(40)]
    other = [each._replace(target=jump("B")) for each in row]
    assert (
        differ(program(*row, A=(rule(asked[1]),)), program(*other, B=(rule(asked[1]),)), timeout=PATIENCE)
        is None
    )
    wrong = program(*other, *marked, B=(rule(asked[1]),))
    assert differ(program(*row, A=(rule(asked[1]),)), wrong, timeout=PATIENCE) is not None


def test_memories_pair_up_in_a_row_of_which_some_are_unreachable() -> None:
    row = [rule(LIMIT._replace(key=f"limit {at}"), LOG) for at in range(40)]
    front = rule(source(0, 4), ACCEPT), rule(source(5, 9), ACCEPT)
    one = program(*front, rule(source(0, 9), LIMIT, LOG), *row, rule(LIMIT, DROPS))
    other = program(*front, *row, rule(LIMIT, DROPS))
    assert differ(one, other, timeout=PATIENCE) is None
