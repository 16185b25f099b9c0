"""All the ways that a packet can take where the answers to some questions are not known.

A question is what semantics asks of a packet besides its header: the truth of a fact, the outcome
of a match with memory or chance, what a field is after it was written.  What is known is answered;
the rest is answered in every way, the wished answer first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..ir import semantics
from ..ir.fields import STATES, Field
from ..ir.packet import Backend, Outcome, Packet
from ..ir.packet_text import Answers
from ..ir.program import Table
from ..ir.rule import Match
from ..ir.semantics import Walk

MOST_WAYS = 256  # of one packet through one chain
_STATES_WRITTEN = tuple(map(STATES.index, ("UNTRACKED", "NEW")))  # what CT targets leave behind

Question = tuple[str, str, int]  # kind, key or field, writes or evaluations before


@dataclass(frozen=True, slots=True)
class Known:
    """Answers that are known: to facts by key, before any write; to every evaluation of a key;
    *written* to what a field is after a write."""

    facts: Mapping[str, bool]
    outcomes: Mapping[str, Outcome]
    written: Mapping[Field, int]


@dataclass(frozen=True, slots=True)
class Way:
    """A walk, and the answers that led to it where they were not known."""

    walk: Walk
    guessed: Mapping[Question, Any]

    def goes_with(self, other: Way) -> bool:
        """Whether no question has two answers."""
        return all(other.guessed.get(question, answer) == answer for question, answer in self.guessed.items())


def ways(
    table: Table, chain: str, packet: Packet, backend: Backend, known: Known, wished: Answers
) -> Iterator[Way]:
    """The ways of *packet*, at most MOST_WAYS; the first gives the *wished* answers."""
    forced: list[tuple[Question, list[Any]]] = []  # choices still to be tried, the one in use first
    for _ in range(MOST_WAYS):
        guessed = {question: choices[0] for question, choices in forced}
        asked = list(forced)

        def ask(question: Question, choices: list[Any]) -> Any:
            if question not in guessed:  # noqa: B023 - called within this round
                asked.append((question, choices))  # noqa: B023
                guessed[question] = choices[0]  # noqa: B023
            return guessed[question]  # noqa: B023

        yield Way(semantics.run(table, chain, _answering(packet, known, wished, ask), backend), guessed)
        while asked and len(asked[-1][1]) == 1:
            asked.pop()
        if not asked:
            return
        question, choices = asked[-1]
        forced = [*asked[:-1], (question, choices[1:])]


def _answering(packet: Packet, known: Known, wished: Answers, ask: Any) -> Packet:
    def fact(match: Match, epoch: int) -> bool:
        if epoch == 0 and match.key in known.facts:
            return known.facts[match.key]
        first = wished.facts.get((match.key, epoch), False)
        return bool(ask(("fact", match.key, epoch), [first, not first]))

    def outcome(match: Match, ordinal: int) -> Outcome:
        if match.key in known.outcomes:
            return known.outcomes[match.key]
        first = wished.outcomes.get((match.key, ordinal), Outcome.NO)
        choices = [first, *(each for each in Outcome if each is not first)]
        return Outcome(ask(("outcome", match.key, ordinal), choices))

    def rewritten(which: Field, epoch: int) -> int | None:
        if which in known.written:
            return known.written[which]
        first = wished.rewrites.get((which, epoch))
        others = (None, *_STATES_WRITTEN) if which is Field.STATE else (None,)
        choices = [first, *(each for each in others if each != first)]
        value: int | None = ask(("rewrite", which.name, epoch), choices)
        return value

    return replace(packet, fact=fact, outcome=outcome, rewritten=rewritten)
