"""Rules that only count: one behind the other they may be read in any order.

Such a rule has no target, and no match of it keeps, writes or drops anything, so it does nothing to a packet
but count it.  A list that counts each host as source and as destination is read to its end by every packet,
and a tree over both addresses would have their product.  So the rules of such a run are put in order by the
field in which they tell packets apart.  Each group has a tree over one field, and packets read one after the
other.

Law: equality compares how many rules count a packet, not which.  So a list is equal to itself in this order.

Callers: compiler/tables.py, verify/exact.py.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .fields import Family, Field
from .narrow_fields import may_drop
from .program import Chain, Table
from .rule import Match, Role, Rule

# Least rules of a group.  The order must follow from the list alone, so it does not depend on options.
GROUP = 8


@dataclass(frozen=True, slots=True)
class Regrouped:
    """An order of a list that does what the list does.

    order  indices of the rules
    cuts   where groups begin and end in that order, ascending
    """

    order: tuple[int, ...]
    cuts: tuple[int, ...]


def only_counts(rule: Rule, family: Family) -> bool:
    """Whether the rule does nothing but count, to malformed packets, too."""
    return rule.target is None and all(_only_looks(match, family) for match in rule.matches)


def _only_looks(match: Match, family: Family) -> bool:
    return match.role in (Role.SPACE, Role.CONSTANT) and not may_drop(match, family)


def grouped(table: Table, family: Family) -> Table:
    """The table with the rules of each chain regrouped; the table itself where that changes nothing."""
    orders = {chain.name: regrouped(chain.rules, family) for chain in table.chains}
    if not any(orders.values()):
        return table
    return table.of({chain.name: _in_order(chain, orders[chain.name]) for chain in table.chains})


def _in_order(chain: Chain, regrouped: Regrouped | None) -> Chain:
    if regrouped is None:
        return chain
    return chain.with_rules(tuple(chain.rules[at] for at in regrouped.order))


def regrouped(rules: Sequence[Rule], family: Family) -> Regrouped | None:
    """The rules with those that only count in groups; None where no run has two groups of GROUP rules."""
    if sum(rule.target is None for rule in rules) < 2 * GROUP:
        return None
    order: list[int] = []
    cuts: list[int] = []
    for counts, run in itertools.groupby(range(len(rules)), lambda at: only_counts(rules[at], family)):
        places = list(run)
        groups = _groups([rules[at] for at in places]) if counts else []
        if not groups:
            order += places
            continue
        for group in groups:
            cuts.append(len(order))
            order += [places[at] for at in group]
        cuts.append(len(order))
    return Regrouped(tuple(order), tuple(dict.fromkeys(cuts))) if cuts else None


def _groups(rules: Sequence[Rule]) -> list[list[int]]:
    """The places of the rules by the field of most values that they test; small groups are one, the last.

    There are none where fewer than two fields have a group.
    """
    if len(rules) < 2 * GROUP:
        return []
    tests = [
        {test.field: test.values.pairs for match in rule.matches for test in match.tests} for rule in rules
    ]
    values: dict[Field, set[tuple[tuple[int, int], ...]]] = {}
    for of_rule in tests:
        for field, pairs in of_rule.items():
            values.setdefault(field, set()).add(pairs)
    ranked = sorted(values, key=lambda field: (-len(values[field]), field))
    telling = [next((field for field in ranked if field in of_rule), None) for of_rule in tests]
    sizes = Counter(telling)
    large = [field for field in ranked if sizes[field] >= GROUP]
    if len(large) < 2:
        return []
    groups = [[at for at, field in enumerate(telling) if field is each] for each in large]
    rest = [at for at, field in enumerate(telling) if field not in large]
    return [*groups, rest] if rest else groups
