"""`hitables trace`: a packet's path through a program as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import __version__
from ..emit.text import rule_text
from ..ir.answers import Answers
from ..ir.log_prefix import Placed
from ..ir.packet import Backend, Outcome
from ..ir.packet_log import assumed_of_bits
from ..ir.program import Table
from ..ir.semantics import RETURNS, Step, Walk
from ..nouns import MAX_LINES, counted, lines_named
from ..sources.known import Known
from ..verify.question import KERNEL_POLICY, decided_by

_NOT_SAID = "which a log line does not say"
_OUTCOMES = {Outcome.NO: "no", Outcome.YES: "yes", Outcome.DROPPED: "dropped"}


def assumed_of_log(placed: Placed, table: Table) -> tuple[str, ...]:
    """What a log line does not say, and why that was taken."""
    taken, wrote = " ".join(placed.assumed), placed.wrote
    if taken and wrote is not None:
        why = f"so the packet comes to line {wrote.rule.line} (table {wrote.table}), which wrote the line"
        of_place = [f"{taken}; {why}"]
    else:
        whys = {"table": "which TRACE names", "chain": "by the interfaces", "state": _NOT_SAID}
        of_place = [f"{each}, {whys[each.partition('=')[0]]}" for each in placed.assumed]
    return (*placed.line.assumed, *of_place, *assumed_of_bits(placed.line, table))


def not_written(placed: Placed) -> str:
    """A note where the packet comes to none of the rules that may have written its line; or ""."""
    if placed.lacks:
        return f"the line is of table {placed.lacks}, which the file does not have"
    if not placed.others:
        return ""
    lines = " or ".join(f"line {each.rule.line} (table {each.table})" for each in placed.others[:MAX_LINES])
    return (
        f"{lines} writes this prefix, but the packet does not come there in any state: words are missing "
        "(number=, fact=), or these are not the rules that wrote the line"
    )


def missing(word: str, lines: Sequence[int], chain: str) -> str:
    """A note of a word that was left out, though packets of the chain have it."""
    which = "packets" if word == "mac" else "all packets"
    asking = lines_named(dict.fromkeys(lines))
    return f"{word}= is missing, which {which} of {chain} have: it is asked for in {asking}"


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
