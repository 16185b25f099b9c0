"""`hitables trace`: a packet's path through a program as text."""

from __future__ import annotations

from ..emit.text import rule_text
from ..ir.packet import Outcome
from ..ir.semantics import Walk

_OUTCOMES = {Outcome.NO: "no", Outcome.YES: "yes", Outcome.DROPPED: "dropped"}


def describe_walk(walk: Walk) -> str:
    """A line for each rule read (its line in the file, the outcome, the rule), then effects and verdict."""
    lines = []
    for step in walk.steps:
        place = str(step.rule.line) if step.rule.line else "-"
        lines.append(f"{place:>6}  {_OUTCOMES[step.outcome]:<7}  {rule_text(step.rule, step.chain)}")
    lines += [f"        effect   {effect}" for effect in walk.effects]
    lines.append(f"verdict: {walk.verdict} after {len(walk.steps)} rules")
    return "\n".join(lines)
