"""`hitables trace`: a packet's path through a program as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import __version__
from ..emit.text import rule_text
from ..ir.answers import Answers
from ..ir.packet import Backend, Outcome
from ..ir.semantics import RETURNS, Step, Walk
from ..nouns import counted
from ..sources.known import Known
from ..verify.question import KERNEL_POLICY, decided_by

_OUTCOMES = {Outcome.NO: "no", Outcome.YES: "yes", Outcome.DROPPED: "dropped"}


def open_conditions(walk: Walk, answers: Answers) -> list[str]:
    """The conditions of which *answers* tell nothing: they are assumed not to hold."""
    told = {key for key, _ in answers.outcomes}
    failed = {key for key, outcome in walk.asked if outcome is Outcome.NO}
    return sorted(walk.open | (failed - told))


def describe_walk(walk: Walk, place: tuple[str, str], known: Known | None = None) -> str:
    """A line for each rule read (its line in the file, the outcome, the rule), then effects and verdict.

    *place*: table and chain that the packet enters.  With *known*, below a copy that matched, the rule of the
    source with its file and line.
    """
    table = place[0]
    lines = []
    for step in walk.steps:
        line = str(step.rule.line) if step.rule.line else "-"
        lines.append(f"{line:>6}  {_OUTCOMES[step.outcome]:<7}  {rule_text(step.rule, step.chain)}")
        source = known.place(table, step.chain, step.index) if known else ""
        if source and step.outcome is not Outcome.NO:
            lines.append(f"{'':>17}{source}")
    lines += [f"        effect   {effect}" for effect in walk.effects]
    rules = counted(len(walk.steps), "rule")
    lines.append(f"verdict: {walk.verdict} after {rules}{_decided(walk, place, known)}")
    return "\n".join(lines)


def _decided(walk: Walk, place: tuple[str, str], known: Known | None) -> str:
    """By what the packet was decided, if that has a name."""
    step, (table, chain) = decided_by(walk), place
    if step is None:
        at_end = walk.verdict in (RETURNS, KERNEL_POLICY)
        return f", at the end of {chain}" if at_end else f", by the policy of {chain}"
    source = known.place(table, step.chain, step.index) if known else ""
    if not source and step.rule.line:
        source = f"line {step.rule.line}"
    return f", by {source}" if source else ""


def as_json(
    walk: Walk,
    file: str,
    place: tuple[str, str],
    packet: str,
    backend: Backend,
    unknown: Sequence[str],
    assumed: tuple[str, ...] = (),
    known: Known | None = None,
) -> dict[str, Any]:
    """The walk as data (hitables/schema/trace.json).

    *place*: table and chain that *packet* enters.  *unknown*: `open_conditions`.
    """
    step = decided_by(walk)
    return {
        "format": "hitables-trace",
        "version": 1,
        "hitables": __version__,
        "file": file,
        "backend": backend.value,
        "table": place[0],
        "chain": place[1],
        "packet": packet,
        "assumed": list(assumed),
        "verdict": walk.verdict,
        "effects": list(walk.effects),
        "rules": [_step(each, place[0], known) for each in walk.steps],
        "decided_by": None if step is None else _step(step, place[0], known),
        "open": list(unknown),
    }


def _step(step: Step, table: str, known: Known | None) -> dict[str, Any]:
    origin = known.origin(table, step.chain, step.index) if known else None
    return {
        "line": step.rule.line,
        "chain": step.chain,
        "rule": rule_text(step.rule._replace(counters=None), step.chain),
        "outcome": _OUTCOMES[step.outcome],
        "source": None
        if known is None or origin is None
        else {
            "file": known.file(table),
            "line": origin.rule.line,
            "chain": origin.chain,
            "rule": origin.text,
        },
    }
