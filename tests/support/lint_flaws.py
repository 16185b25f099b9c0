"""What lint says of the rules of table filter."""

from __future__ import annotations

import hitables
from hitables.verify.lint import Flaw, lint
from hitables.verify.question import Question

WHOLE = Question()


def flaws(rules: str, *, chains: str = "", question: Question = WHOLE) -> list[Flaw]:
    text = f"*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{chains}{rules}COMMIT\n"
    result = lint(hitables.read(text), question, tell=lambda stage: None)
    assert result.undecided == ""
    return result.flaws


def summary(rules: str, **more: str) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(flaw.kind, flaw.line, flaw.covering) for flaw in flaws(rules, **more)]
