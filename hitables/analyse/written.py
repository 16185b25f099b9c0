"""What the rules of a list may write: states that matches read (ir/rule.py, Metadata)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain as row
from operator import attrgetter

from ..ir.fields import Field
from ..ir.rule import Kind, Match, Metadata, Rule
from ..ir.semantics import FIELDS_WRITTEN

# Changes of what trees test: of connection states, which are written as well, no tree tells packets apart.
_REWRITES = frozenset(state for state, fields in FIELDS_WRITTEN.items() if fields - {Field.STATE})


def states_written(rule: Rule, writes: Mapping[str, frozenset[Metadata]]) -> frozenset[Metadata]:
    """What the rule, and the user chain that it jumps to, may write before a packet reaches the next rule.

    *writes*: by user chain (callgraph.writes).
    """
    target = rule.target
    called = target.name if target is not None and target.kind is Kind.JUMP else ""
    return rule.writes | writes.get(called, frozenset())


def behind_rewrites(rules: Sequence[Rule], writes: Mapping[str, frozenset[Metadata]]) -> list[int]:
    """Where rules follow one that may rewrite what trees test: a target or a match that is not known."""
    if _REWRITES.isdisjoint(written_in(rules, writes)):
        return []
    return [at for at, rule in enumerate(rules, 1) if not _REWRITES.isdisjoint(states_written(rule, writes))]


def written_in(rules: Sequence[Rule], writes: Mapping[str, frozenset[Metadata]]) -> frozenset[Metadata]:
    """What the rules, and the user chains that they jump to, may write."""
    return written_by(matches_of(rules), one_per_target(rules).values(), writes)


def matches_of(rules: Sequence[Rule]) -> dict[int, Match]:
    """The matches of *rules* by id.  Rules share equal matches, so each need be looked at once."""
    matches = list(row.from_iterable(map(attrgetter("matches"), rules)))
    return dict(zip(map(id, matches), matches, strict=True))


def one_per_target(rules: Sequence[Rule]) -> dict[int, Rule]:
    """One rule for each target, by its id: it matches everything."""
    return {id(target): Rule((), target) for target in map(attrgetter("target"), rules)}


def written_by(
    matches: Mapping[int, Match], by_target: Iterable[Rule], writes: Mapping[str, frozenset[Metadata]]
) -> frozenset[Metadata]:
    written = {state for match in matches.values() if match.writes for state in match.writes}
    for rule in by_target:
        written |= rule.writes
        written |= writes.get(rule.enters or "", frozenset())
    return frozenset(written)
