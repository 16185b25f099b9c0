"""Both proof engines in turn: a pair of programs that is slow for one is often quick for the other.

Cutting regions (exact.py) takes about as long as compiling took, and finds the plainest packet, but two
rule sets whose rules cross in many ways have very many regions.  Decision diagrams (bdd.py) are less
sensitive to that; they need a library that may not be installed.

Cost: at most the first turn more than the engine that answers.  Where one class of packets is proved in
time, the next one often is, too; so the first turn has a limit for each class, and one for all of them.

This is the `check` to use by default.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from math import inf
from typing import NamedTuple

from hitables.ir.program import Program

from . import exact
from .exact import Tell
from .question import Answer, Difference, Equal, Question, Undecided
from .reachability import unreached

# The processor's seconds: in the first turn, of each class of packets (at least FIRST, one per
# RULES_PER_SECOND rules), and of ALL_CLASSES times as many of all; and of the turn of diagrams.
# 10,000 rules of ufw in another order take 7 s in 24 classes; diagrams take 18 s, and four times the memory.
FIRST, RULES_PER_SECOND, ALL_CLASSES, SECOND = 3.0, 5000, 4, 120.0


def check(before: Program, after: Program, question: Question, *, tell: Tell = lambda stage: None) -> Answer:
    """Compare two programs; answers and errors are those of `exact.check`."""
    deadline = inf if question.timeout is None else time.monotonic() + question.timeout
    answer: Answer | None = None
    for turn in _turns(before, after):
        if answer is not None and deadline <= time.monotonic():
            return answer
        limited = replace(
            question,
            timeout=None if deadline == inf else max(deadline - time.monotonic(), 1e-6),
            processor=turn.processor,
            each_class=turn.each_class,
        )
        if turn.by_diagrams:
            from . import bdd

            tell("again, by decision diagrams")
            by_regions = answer.by_regions if isinstance(answer, Undecided) else ()
            answer = bdd.check(before, after, limited)
            if not isinstance(answer, Difference):
                answer = replace(answer, by_regions=by_regions)
        else:
            answer = exact.check(before, after, limited, tell=tell)
        if not isinstance(answer, Undecided):
            return answer
    assert answer is not None, "there is a first turn"
    return answer


def check_with_unreached(
    before: Program, after: Program, question: Question, chains: Iterable[tuple[str, str]]
) -> Answer:
    """As `check`; of *chains* (table, chain), those that no built-in chain reaches are compared, too.

    A rule may enter such a chain later.  The question names no tables and no chains.
    """
    deadline = inf if question.timeout is None else time.monotonic() + question.timeout
    answer = check(before, after, question)
    by_table: dict[str, list[str]] = {}
    for table, chain in chains:
        by_table.setdefault(table, []).append(chain)
    for table, names in by_table.items():
        lone = unreached(before.table(table), names)
        if not lone or not isinstance(answer, Equal):
            continue
        left = None if deadline == inf else max(deadline - time.monotonic(), 1e-6)
        alone = replace(question, tables=frozenset({table}), chains=lone, timeout=left)
        of_table = check(before, after, alone)
        if isinstance(of_table, Equal):
            by_regions = tuple(dict.fromkeys((*answer.by_regions, *of_table.by_regions)))
            of_table = replace(answer, looked_at=answer.looked_at + of_table.looked_at, by_regions=by_regions)
        answer = of_table
    return answer


class _Turn(NamedTuple):
    """A turn of diagrams, or of exact.py, and its limits (Question)."""

    by_diagrams: bool = False
    processor: float | None = None
    each_class: float | None = None


def _turns(before: Program, after: Program) -> Iterator[_Turn]:
    if _has_diagrams():
        each_class = max(FIRST, (before.rule_count() + after.rule_count()) / RULES_PER_SECOND)
        yield _Turn(processor=ALL_CLASSES * each_class, each_class=each_class)
        yield _Turn(by_diagrams=True, processor=SECOND)
    yield _Turn()


@functools.cache
def _has_diagrams() -> bool:
    return find_spec("oxidd") is not None
