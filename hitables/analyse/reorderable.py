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
from .written import matches_of, one_per_target, written_by


def reorderability(
    rules: Sequence[Rule], writes: Mapping[str, frozenset[Metadata]], reader: BoxReader
) -> list[Reorder]:
    """What may be done with each of *rules*, which make up one list."""
    matches, by_target = matches_of(rules), one_per_target(rules)
    written = written_by(matches, by_target.values(), writes)
    fields = frozenset(field for state in written for field in FIELDS_WRITTEN.get(state, ()))
    exact = reader.malformed is Malformed.EXACT

    def is_free(match: Match) -> bool:
        if match.role is not Role.SPACE and (match.role is not Role.CONSTANT or match.reads & written):
            return False
        if fields and any(test.field in fields for test in match.tests):
            return False
        return not (exact and reader.may_drop(match))

    def of(rule: Rule) -> tuple[Reorder, Reorder]:
        """Of a rule with this target: if all its matches are free, and if some are not."""
        if reader.decides(rule):
            return Reorder.DEFERRABLE | Reorder.SPLITTABLE, Reorder.LATE
        if rule.leaves:  # RETURN in a chain that is called would come back
            return Reorder.SPLITTABLE, Reorder(0)
        return Reorder.LATE, Reorder.LATE

    bound = {key for key, match in matches.items() if not is_free(match)}
    reorder = {key: of(rule) for key, rule in by_target.items()}
    if not bound:
        return [reorder[id(rule.target)][0] for rule in rules]
    return [reorder[id(rule.target)][not bound.isdisjoint(map(id, rule.matches))] for rule in rules]
