"""The result of `hitables reach` as text and as JSON.

The regions that one rule decides form a group; the groups of packets that pass come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .. import __version__
from ..emit.text import rule_text
from ..ir.fields import Family, Field
from ..ir.intervals import Values
from ..ir.packet import Backend
from ..ir.program import Program
from ..nouns import counted, lines_named
from ..sources.known import Known
from ..verify.earlier_rules import DROPS, UNTRACKS, Earlier
from ..verify.question import KERNEL_POLICY
from ..verify.reach import Reached, ReachedBox
from .region_text import Condition, conditions, describe, describe_conditions

REGIONS = 3  # of one rule that the text describes

# By target: what becomes of the packets that it takes.
_REMARKS = {"SYNPROXY": ", which answers them itself", "TPROXY": ", if a socket listens; else dropped"}

Box = Mapping[Field, Values]


def show(reached: Reached, program: Program, box: Box, limit: int, known: Known | None = None) -> str:
    """An entry for each rule, the one of most headers first; rules beyond *limit* are only counted."""
    lines = [f"{describe(box, program.family)}:"]
    groups = _groups(reached)
    shared = _shared_conditions(reached, known)
    place: tuple[str, str] | None = None
    for group in groups[:limit]:
        first = group[0]
        if place != (first.table, first.entered):
            place = first.table, first.entered
            lines.append(f"table {first.table}, chain {first.entered}{describe_conditions(shared[place])}:")
        own = [_without(_conditions(each, known), shared[place]) for each in group]
        of_all = _common(own) if len(own) > 1 else []
        colon = ":" if of_all else ""
        lines.append(
            f"  {first.verdict} {_decider(first, program, known)}{describe_conditions(of_all)}{colon}"
        )
        lines += [
            f"    {_words(each, box, program.family, known, [*shared[place], *of_all])}"
            for each in group[:REGIONS]
        ]
        if len(group) > REGIONS:
            lines.append(f"    … and {counted(len(group) - REGIONS, 'smaller region')}")
    if not any(outcome.passes for outcome in reached.outcomes):
        lines.append("no such packet passes" if reached.complete else "no such packet was found to pass")
    if len(groups) > limit:
        lines.append(f"… and {counted(len(groups) - limit, 'more rule')} (--limit)")
    for passes in sorted(reached.cut_off, reverse=True):
        which = "pass" if passes else "do not pass"
        lines.append(
            f"There are more regions of packets that {which} than can be listed; these are some of them."
        )
    for each in reached.undecided:
        lines.append(
            f"undecided: {each.reason} in table {each.table}, chain {each.chain}, {each.backend.value}"
        )
    return "\n".join(lines)


def _groups(reached: Reached) -> list[list[ReachedBox]]:
    """The outcomes by rule and chain, in their order, chain after chain."""
    groups: dict[tuple[object, ...], list[ReachedBox]] = {}
    for each in reached.outcomes:
        groups.setdefault((each.table, each.entered, each.chain, each.at, each.verdict), []).append(each)
    places = list(dict.fromkeys(key[:2] for key in groups))
    return [groups[key] for key in sorted(groups, key=lambda key: places.index(key[:2]))]


def _decider(outcome: ReachedBox, program: Program, known: Known | None) -> str:
    if outcome.at < 0 and (outcome.chain or outcome.verdict == KERNEL_POLICY):
        return "may let them pass"
    if outcome.at < 0:
        return "at the end" if outcome.verdict == "returns" else "by policy"
    source = known.place(outcome.table, outcome.chain, outcome.at) if known else ""
    place = source or f"{program.name}:{outcome.line}: {_rule(outcome, program)}"
    return f"by {place}{_REMARKS.get(outcome.verdict.split(' ')[0], '')}"


def _rule(outcome: ReachedBox, program: Program) -> str:
    rule = program.table(outcome.table)[outcome.chain].rules[outcome.at]
    return rule_text(rule._replace(counters=None), outcome.chain)


def _conditions(outcome: ReachedBox, known: Known | None) -> list[Condition]:
    """Those of a memory with the line of the rule that asks, in the source if it is known.

    Other rules may ask the same; and a rule asks again where two others enter its chain.
    """
    words = conditions(outcome.facts, ())
    times: Counter[str] = Counter()
    for one in outcome.asked:
        origin = known.origin(outcome.table, one.chain, one.at) if known else None
        place = f" of line {one.line}" if one.line else ""
        if known and origin:
            place = f" of {known.file(outcome.table)}:{origin.rule.line}"
        asking = f'"{one.key}"{place}'
        times[asking] += 1
        again = f" (evaluation {times[asking]})" if times[asking] > 1 else ""
        words.append(("when", f"{asking}{again}", one.held))
    return words


def _shared_conditions(reached: Reached, known: Known | None) -> dict[tuple[str, str], list[Condition]]:
    """By table and chain the conditions of all its outcomes, if it has several."""
    by_place: dict[tuple[str, str], list[list[Condition]]] = {}
    for each in reached.outcomes:
        by_place.setdefault((each.table, each.entered), []).append(_conditions(each, known))
    return {place: _common(lists) if len(lists) > 1 else [] for place, lists in by_place.items()}


def _common(lists: Sequence[Sequence[Condition]]) -> list[Condition]:
    """The conditions that all *lists* have, each as often as all have it."""
    counts = Counter(lists[0])
    for each in lists[1:]:
        counts &= Counter(each)
    return list(counts.elements())


def _without(given: Sequence[Condition], said: Sequence[Condition]) -> list[Condition]:
    return list((Counter(given) - Counter(said)).elements())


def _words(
    outcome: ReachedBox, box: Box, family: Family, known: Known | None, said: Sequence[Condition] = ()
) -> str:
    """The packets of *outcome* in words that do not repeat the question, nor the conditions *said* before."""
    own = {field: values for field, values in outcome.box.items() if box.get(field) != values}
    words = describe(own, family)
    if Field.PROTO not in own:
        words = words.removeprefix("any protocol").strip()
    rest = _without(_conditions(outcome, known), said)
    words = (words or ("all" if rest else "all of them")) + describe_conditions(rest)
    if set(outcome.backends) != set(Backend):
        words += f" ({outcome.backends[0].value} only)"
    return words


def describe_earlier(earlier: Earlier) -> str:
    """A note of what an earlier table does with packets of the question."""
    who = [lines_named(earlier.lines)] if earlier.lines else []
    who += [f"the policy of {chain}" for chain in earlier.policies]
    s = "" if len(earlier.lines) + len(earlier.policies) > 1 else "s"
    does = f"set{s} the {earlier.kind} of some of these packets before: the answer speaks of it"
    if earlier.kind == DROPS:
        does = f"drop{s} some of these packets before"
    elif earlier.kind == UNTRACKS:
        does = f"leave{s} some of these packets untracked: ask for them with --ctstate UNTRACKED"
    return f"{' and '.join(who)} (table {earlier.table}) {does}"


def as_json(reached: Reached, program: Program, box: Box, known: Known | None = None) -> dict[str, Any]:
    """All regions (hitables/schema/reach.json); numbers that may exceed 64 bits are decimal strings."""
    return {
        "format": "hitables-reach",
        "version": 1,
        "hitables": __version__,
        "file": program.name,
        "family": int(program.family),
        "question": _box(box),
        "complete": reached.complete,
        "regions": [_region(each, program, box, known) for each in reached.outcomes],
    }


def _region(outcome: ReachedBox, program: Program, box: Box, known: Known | None) -> dict[str, Any]:
    origin = known.origin(outcome.table, outcome.chain, outcome.at) if known and outcome.at >= 0 else None
    return {
        "table": outcome.table,
        "chain": outcome.entered,
        "backends": [backend.value for backend in outcome.backends],
        "passes": outcome.passes,
        "verdict": outcome.verdict,
        "decided_by": None
        if outcome.at < 0
        else {"line": outcome.line, "chain": outcome.chain, "rule": _rule(outcome, program)},
        "source": None
        if origin is None or known is None
        else {
            "file": known.file(outcome.table),
            "line": origin.rule.line,
            "chain": origin.chain,
            "rule": origin.text,
        },
        "words": _words(outcome, box, program.family, known),
        "box": _box(outcome.box),
        "no_mac": outcome.no_mac,
        "facts": [{"key": key, "holds": holds} for key, holds in outcome.facts],
        "asked": [{"key": one.key, "yes": one.held, "line": one.line} for one in outcome.asked],
        "headers": str(outcome.headers),
    }


def _box(box: Box) -> dict[str, list[list[str]]]:
    return {
        field.name.lower(): [[str(low), str(high)] for low, high in values.pairs]
        for field, values in box.items()
    }
