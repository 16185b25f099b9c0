"""Which rules a tree may evaluate out of list order, in groups.

A rule of a later group is evaluated late, perhaps more than once for one packet, and after rules that follow
it in the list.  Such a rule therefore has no memory; it surely decides the packet by itself (no RETURN, no
jump, whose effect depends on the place of the rule); nothing that the chain writes changes its answer; and,
where malformed packets must be treated exactly as in the input, it drops none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.choices import Malformed
from ..ir.rule import Match, Metadata, Role, Rule
from ..ir.semantics import FIELDS_WRITTEN
from .boxes import Reorder
from .rule_boxes import BoxReader


def written_in(rules: Sequence[Rule], writes: Mapping[str, frozenset[Metadata]]) -> frozenset[Metadata]:
    """What the rules, and the user chains that they jump to, may write."""
    written: set[Metadata] = set()
    for rule in rules:
        written |= rule.writes
        if rule.target is not None and rule.target.enters:
            written |= writes.get(rule.target.name, frozenset())
    return frozenset(written)


def reorderability(
    rules: Sequence[Rule], writes: Mapping[str, frozenset[Metadata]], reader: BoxReader
) -> list[Reorder]:
    """What may be done with each of *rules*, which make up one list."""
    written = written_in(rules, writes)
    fields = frozenset(field for state in written for field in FIELDS_WRITTEN.get(state, ()))

    def is_free(match: Match) -> bool:
        if match.role not in (Role.SPACE, Role.CONSTANT):
            return False
        if match.role is Role.CONSTANT and match.reads & written:
            return False
        if any(test.field in fields for test in match.tests):
            return False
        return not (reader.malformed is Malformed.EXACT and reader.may_drop(match))

    # Matches are shared by rules: each is looked at once.
    free = {id(match): match for rule in rules for match in rule.matches}
    bound = {key for key, match in free.items() if not is_free(match)}
    movable, none = Reorder.DEFERRABLE | Reorder.SPLITTABLE, Reorder(0)
    return [movable if rule.is_final and bound.isdisjoint(map(id, rule.matches)) else none for rule in rules]
