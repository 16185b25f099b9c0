"""All executions of a packet where the answers to some questions are unknown: nondeterministic execution.

A question is what `semantics.run` asks of a packet besides its header: the truth of a predicate, the
outcome of a match with memory or chance, the value of a field after a write.  Fixed answers are used; every
other question gets each of its answers in turn, the preferred answer first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..ir import semantics
from ..ir.answers import Answers
from ..ir.fields import STATES, Field
from ..ir.packet import Backend, Outcome, Packet
from ..ir.program import Table
from ..ir.rule import Match
from ..ir.semantics import Walk

MAX_EXECUTIONS = 256  # of one packet through one chain
_STATES_WRITTEN = tuple(map(STATES.index, ("UNTRACKED", "NEW")))  # the states that CT targets write

Question = tuple[str, str, int]  # kind, key or field, writes or evaluations before


@dataclass(frozen=True, slots=True)
class FixedAnswers:
    """Answers that are known.

    facts     by key: the truth of a predicate before any write
    outcomes  by key: the outcome of every evaluation of a match
    written   the value of a field after a write
    numbers   by attribute: its value before any write
    """

    facts: Mapping[str, bool]
    outcomes: Mapping[str, Outcome]
    written: Mapping[Field, int]
    numbers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Execution:
    """A walk, and the answers that were chosen for it."""

    walk: Walk
    guessed: Mapping[Question, Any]

    def is_compatible(self, other: Execution) -> bool:
        """Whether no question has two answers in the two executions."""
        return all(other.guessed.get(question, answer) == answer for question, answer in self.guessed.items())


def executions(
    table: Table, chain: str, packet: Packet, backend: Backend, fixed: FixedAnswers, preferred: Answers
) -> Iterator[Execution]:
    """The executions of *packet*, at most MAX_EXECUTIONS; the first has the *preferred* answers."""
    pending: list[tuple[Question, list[Any]]] = []  # the choices that remain, the current one first
    for _ in range(MAX_EXECUTIONS):
        guessed = {question: choices[0] for question, choices in pending}
        open_choices = list(pending)

        def choose(question: Question, choices: list[Any]) -> Any:
            if question not in guessed:  # noqa: B023 - called within this round
                open_choices.append((question, choices))  # noqa: B023
                guessed[question] = choices[0]  # noqa: B023
            return guessed[question]  # noqa: B023

        yield Execution(
            semantics.run(table, chain, _answering(packet, fixed, preferred, choose), backend), guessed
        )
        while open_choices and len(open_choices[-1][1]) == 1:
            open_choices.pop()
        if not open_choices:
            return
        question, choices = open_choices[-1]
        pending = [*open_choices[:-1], (question, choices[1:])]


def _answering(packet: Packet, fixed: FixedAnswers, preferred: Answers, choose: Any) -> Packet:
    def fact(match: Match, epoch: int) -> bool:
        if epoch == 0 and match.key in fixed.facts:
            return fixed.facts[match.key]
        first = preferred.facts.get((match.key, epoch), False)
        return bool(choose(("fact", match.key, epoch), [first, not first]))

    def number(attribute: str, epoch: int) -> int | None:
        return None if epoch else fixed.numbers.get(attribute)

    def outcome(match: Match, ordinal: int) -> Outcome:
        if match.key in fixed.outcomes:
            return fixed.outcomes[match.key]
        first = preferred.outcomes.get((match.key, ordinal), Outcome.NO)
        choices = [first, *(each for each in Outcome if each is not first)]
        return Outcome(choose(("outcome", match.key, ordinal), choices))

    def rewritten(which: Field, epoch: int) -> int | None:
        if which in fixed.written:
            return fixed.written[which]
        first = preferred.rewrites.get((which, epoch))
        others = (None, *_STATES_WRITTEN) if which is Field.STATE else (None,)
        choices = [first, *(each for each in others if each != first)]
        value: int | None = choose(("rewrite", which.name, epoch), choices)
        return value

    return replace(packet, fact=fact, number=number, outcome=outcome, rewritten=rewritten)
