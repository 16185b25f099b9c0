"""Which rules a tree may evaluate out of list order, in groups.

A rule of a later group is evaluated late, perhaps more than once for one packet, and after rules that follow
it in the list.  Such a rule (DEFERRABLE) therefore has no memory; it surely decides the packet, by a verdict
or by a jump to a user chain that surely does, whatever else that chain does; nothing that the chain of the
rule writes changes its answer; and, where malformed packets must be treated exactly as in the input, it drops
none of them.

Of the other rules, those that stay within the chain, or decide, may be in the last group (LATE).  A packet
reaches the trees of the last group once: when it matches a rule of another group (then only the rules before
that one), or when it matches none.  So they are evaluated once, in list order, for the packets that no
earlier rule decides, as in the list.  RETURN and `-g` leave the chain, and must not be in a chain that is
called.  (RETURN of a built-in chain comes here as a verdict, its policy: compiler/policy_returns.py.)
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

    def of(rule: Rule) -> Reorder:
        is_bound = not bound.isdisjoint(map(id, rule.matches))
        if reader.decides(rule):
            return Reorder.LATE if is_bound else Reorder.DEFERRABLE | Reorder.SPLITTABLE
        if rule.leaves:  # RETURN in a chain that is called would come back
            return Reorder(0) if is_bound else Reorder.SPLITTABLE
        return Reorder.LATE

    return list(map(of, rules))
