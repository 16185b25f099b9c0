"""What a packet answers besides its header fields: truths of predicates, numbers, outcomes, rewrites."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .fact import ordinary
from .fields import Field
from .packet import Outcome, Packet
from .rule import Match

ANY = -1  # in place of a number of evaluations: all of them


@dataclass(frozen=True, slots=True)
class Answers:
    """The values of a packet that semantics needs besides header fields.

    facts     truths of CONSTANT matches, by key and number of writes before
    outcomes  results of matches with memory, by key and ordinal, or ANY
    rewrites  values of fields, by field and number of writes to it
    numbers   values of attributes, by name and number of writes before; they answer facts that are not given
    closed    attributes that are not given are as in an ordinary packet; else they are unknown
    """

    facts: dict[tuple[str, int], bool] = field(default_factory=dict)
    outcomes: dict[tuple[str, int], Outcome] = field(default_factory=dict)
    rewrites: dict[tuple[Field, int], int] = field(default_factory=dict)
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    closed: bool = False

    def given_by(self, packet: Packet) -> Packet:
        """*packet* with these answers and no others."""
        # Methods, not closures: a packet can be pickled with its answers.
        return replace(
            packet, fact=self.fact, number=self.number, outcome=self.outcome, rewritten=self.rewritten
        )

    def fact(self, match: Match, epoch: int) -> bool | None:
        own = self.facts.get((match.key, epoch))
        if own is not None:
            return own
        negated = self.facts.get((match.negates, epoch))
        if negated is not None:
            return not negated
        number = self.number(match.fact.attribute, epoch)
        return None if number is None else match.fact.holds(number)

    def number(self, attribute: str, epoch: int) -> int | None:
        return self.numbers.get((attribute, epoch), ordinary(attribute) if self.closed else None)

    def outcome(self, match: Match, ordinal: int) -> Outcome:
        every = self.outcomes.get((match.key, ANY), Outcome.NO)
        return self.outcomes.get((match.key, ordinal), every)

    def rewritten(self, which: Field, epoch: int) -> int | None:
        return self.rewrites.get((which, epoch))


def listening(packet: Packet) -> tuple[Packet, Answers]:
    """A copy of *packet*, and a record of the answers that semantics takes from the copy later."""
    record = Answers()
    facts, outcomes, rewrites, numbers = record.facts, record.outcomes, record.rewrites, record.numbers

    def fact(match: Match, epoch: int) -> bool | None:
        answer = packet.fact(match, epoch)
        if answer is None:
            return None
        known = None if match.number is None else number(match.number.attribute, epoch)
        # A list may compare hundreds of numbers: the packet's number says which matches hold.
        if match.number is None or known is None or match.number.holds(known) != answer:
            facts[match.key, epoch] = answer
        return answer

    def number(attribute: str, epoch: int) -> int | None:
        answer = packet.number(attribute, epoch)
        if answer is not None:
            numbers[attribute, epoch] = answer
        return answer

    def outcome(match: Match, ordinal: int) -> Outcome:
        outcomes[match.key, ordinal] = answer = packet.outcome(match, ordinal)
        return answer

    def rewritten(which: Field, epoch: int) -> int | None:
        answer = packet.rewritten(which, epoch)
        if answer is not None:
            rewrites[which, epoch] = answer
        return answer

    return replace(packet, fact=fact, number=number, outcome=outcome, rewritten=rewritten), record
