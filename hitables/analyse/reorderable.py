"""Which rules may be kept in groups, out of the order of their list.

A rule of a later group is asked late, perhaps more than once for one packet, and behind
rules that stood after it.  So it has no memory, it surely ends the packet's way by itself
(no RETURN, no jump: what is left then depends on where it stands), nothing that the chain
writes changes its answer, and, where malformed packets must be treated exactly alike, it
drops none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.choices import Malformed
from ..ir.rule import Ends, Kind, Match, Role, Rule, State, Target
from ..ir.semantics import FIELDS_WRITTEN
from .boxes import Free
from .rule_boxes import Sides


def written_in(rules: Sequence[Rule], writes: Mapping[str, frozenset[State]]) -> frozenset[State]:
    """What the rules, and the user chains that they jump to, may write."""
    found: set[State] = set()
    for rule in rules:
        found |= rule.writes
        if rule.target is not None and rule.target.enters:
            found |= writes.get(rule.target.name, frozenset())
    return frozenset(found)


def freedom(rules: Sequence[Rule], writes: Mapping[str, frozenset[State]], sides: Sides) -> list[Free]:
    """What may be done with each of *rules*, which make up one list."""
    written = written_in(rules, writes)
    fields = frozenset(field for state in written for field in FIELDS_WRITTEN.get(state, ()))

    def ends(target: Target | None) -> bool:
        return target is not None and target.kind is Kind.VERDICT and target.ends is Ends.SURELY

    def is_free(match: Match) -> bool:
        if match.role not in (Role.SPACE, Role.CONSTANT):
            return False
        if match.role is Role.CONSTANT and match.reads & written:
            return False
        if any(test.field in fields for test in match.tests):
            return False
        return not (sides.malformed is Malformed.EXACT and sides.may_drop(match))

    # Matches are shared by rules: each is looked at once.
    free = {id(match): match for rule in rules for match in rule.matches}
    bound = {key for key, match in free.items() if not is_free(match)}
    movable, none = Free.MOVABLE | Free.SENDABLE, Free(0)
    return [
        movable if ends(rule.target) and bound.isdisjoint(map(id, rule.matches)) else none for rule in rules
    ]
