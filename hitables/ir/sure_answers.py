"""Matches with memory that answer the same for every packet: `-m recent --set` always holds (xt_recent.c).

Users: the trace of a packet, which has no memory to ask.
"""

from __future__ import annotations

import re

from .packet import Outcome
from .packet_text import ANY, Answers
from .program import Program
from .rule import Role


def answer_surely(answers: Answers, program: Program) -> None:
    """Add the sure answers of the matches of *program*; those that are given stay."""
    rules = (rule for table in program for chain in table.chains for rule in chain.rules)
    keys = {match.key for rule in rules for match in rule.matches if match.role is Role.NAMED}
    for key in keys:
        if re.match(r"recent .*--set(?= |$)", key) is not None:
            negated = " ! --set" in key
            answers.outcomes.setdefault((key, ANY), Outcome.NO if negated else Outcome.YES)
