"""Answers that need no memory and no kernel.

`-m recent --set` always holds (xt_recent.c).  Whether an address matches a mask with gaps is computed from
the address (address_mask.py).

Users: the trace of a packet, the packets of a session in apply, `hitables reach`; none has a memory to ask.
"""

from __future__ import annotations

from .address_mask import AddressMask, address_mask
from .answers import ANY, Answers
from .packet import Outcome, Packet
from .program import Program
from .rule import Match


def is_inverted(match: Match, option: str) -> bool:
    """Whether the option, which the match has, stands behind a "!"."""
    at = match.words.index(option)
    return at > 0 and match.words[at - 1] == "!"


def sure_answer(match: Match) -> bool | None:
    """Whether the match holds for every packet (True), or for none; None: that depends on its memory."""
    if match.name == "recent" and "--set" in match.words:
        return not is_inverted(match, "--set")
    return None


def sure_answers(program: Program) -> dict[str, bool]:
    """The sure answers of the matches of *program*, by key."""
    matches = {match for rule in program.rules() for match in rule.matches}
    return {match.key: sure for match in matches if (sure := sure_answer(match)) is not None}


def answer_surely(answers: Answers, program: Program, packet: Packet) -> None:
    """Add the sure answers of *packet* to the matches of *program*; those that are given stay."""
    for key, sure in sure_answers(program).items():
        answers.outcomes.setdefault((key, ANY), Outcome.YES if sure else Outcome.NO)
    for key, asked in address_masks(program).items():
        answers.facts.setdefault((key, 0), asked.holds(packet.values[asked.field]))


def address_masks(program: Program) -> dict[str, AddressMask]:
    """What the matches of *program* ask of an address under a mask, by key."""
    matches = {match for rule in program.rules() for match in rule.matches}
    return {match.key: asked for match in matches if (asked := address_mask(match)) is not None}
