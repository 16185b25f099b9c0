"""Matches with memory that answer the same for every packet: `-m recent --set` always holds (xt_recent.c).

Users: the trace of a packet, and the packets of a session in apply; neither has a memory to ask.
"""

from __future__ import annotations

from .packet import Outcome
from .packet_text import ANY, Answers
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


def answer_surely(answers: Answers, program: Program) -> None:
    """Add the sure answers of the matches of *program*; those that are given stay."""
    for match in {match for rule in program.rules() for match in rule.matches}:
        sure = sure_answer(match)
        if sure is not None:
            answers.outcomes.setdefault((match.key, ANY), Outcome.YES if sure else Outcome.NO)
