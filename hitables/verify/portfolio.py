"""Both exact engines in turn: what one takes long for is often quick work for the other.

Cutting regions (exact.py) takes about what compiling took, and finds the plainest packet, but
two rule sets that cross each other wildly come to very many regions.  Decision diagrams
(diagrams.py) mind that little; they need a library that may not be installed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from math import inf

from hitables.ir.program import Program

from . import exact
from .exact import Tell
from .question import Answer, Question, Undecided

# Seconds for the first turn of exact.py: at least so many, and one per so many rules; for diagrams.
FIRST, RULES_PER_SECOND, SECOND = 3.0, 5000, 120.0


def check(before: Program, after: Program, question: Question, *, tell: Tell = lambda stage: None) -> Answer:
    """Proved equal, a packet, or undecided, as `exact.check`; raises as it does."""
    ends = inf if question.timeout is None else time.monotonic() + question.timeout
    answer: Answer | None = None
    for turn in _turns(before, after):
        left = min(turn, ends - time.monotonic())
        if answer is not None and left <= 0:
            return answer
        limited = replace(question, timeout=None if left == inf else max(left, 1e-6))
        if turn == SECOND:
            from . import bdd

            tell("again, by decision diagrams")
            answer = bdd.check(before, after, limited)
        else:
            answer = exact.check(before, after, limited, tell=tell)
        if not isinstance(answer, Undecided):
            return answer
    assert answer is not None, "there is a first turn"
    return answer


def _turns(before: Program, after: Program) -> Iterator[float]:
    """How many seconds each engine gets, in turn; SECOND is that of the diagrams."""
    if find_spec("oxidd") is not None:
        yield max(FIRST, (before.rule_count() + after.rule_count()) / RULES_PER_SECOND) + 1e-3
        yield SECOND
    yield inf
