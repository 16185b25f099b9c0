"""Which rules may be kept in groups, out of the order of their list.

A rule of a later group is asked late, perhaps more than once for one packet, and behind
rules that stood after it.  So it has no memory, it surely ends the packet's way by itself
(no RETURN, no jump: what is left then depends on where it stands), nothing that the chain
writes changes its answer, and, where malformed packets must be treated exactly alike, it
drops none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..build.tree import Free
from ..ir.rule import Ends, Kind, Role, Rule, State
from ..ir.semantics import FIELDS_WRITTEN
from .sides import Malformed, Sides


def written_in(rules: Sequence[Rule], writes: Mapping[str, frozenset[State]]) -> frozenset[State]:
    """What the rules, and the user chains that they jump to, may write."""
    found: set[State] = set()
    for rule in rules:
        if rule.target is not None:
            found |= writes.get(rule.target.name, frozenset()) if rule.target.kind in (
                Kind.JUMP, Kind.GOTO
            ) else rule.target.writes  # fmt: skip
    return frozenset(found)


def freedom(
    rules: Sequence[Rule], writes: Mapping[str, frozenset[State]], sides: Sides
) -> list[Free]:
    """What may be done with each of *rules*, which make up one list."""
    written = written_in(rules, writes)
    fields = frozenset(field for state in written for field in FIELDS_WRITTEN.get(state, ()))

    def is_free(rule: Rule) -> bool:
        target = rule.target
        if target is None or target.kind is not Kind.VERDICT or target.ends is not Ends.SURELY:
            return False
        for match in rule.matches:
            if match.role not in (Role.SPACE, Role.CONSTANT):
                return False
            if match.reads & written or (written and State.ANYTHING in {*match.reads, *written}):
                return False
            if any(test.field in fields for test in match.tests):
                return False
            if sides.malformed is Malformed.EXACT and sides.may_drop(match):
                return False
        return True

    return [Free.MOVABLE | Free.SENDABLE if is_free(rule) else Free(0) for rule in rules]
