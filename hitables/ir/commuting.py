"""Rules of one action, one behind the other: they may be read in any order.

The action is none (the rule only counts, or calls a chain whose rules only count), or a target that ends no
packet's way and cannot change whether the rules match: NOTRACK, one mark, NFLOG, LOG with one prefix.  No
match of such a rule keeps, writes or drops anything.

A list that has each host as source and as destination is read to its end by every packet, and a
tree over both addresses would have their product.  So the rules of such a run are put in order by the field
in which they tell packets apart.  Each group has a tree over one field, and packets read one after the other.

Law: a packet that matches k rules of the run meets the action k times, whichever order they have; equality
compares how many rules count a packet, not which.  So a list is equal to itself in this order.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .dependence import may_change
from .fields import Family, Field
from .narrow_fields import may_drop
from .program import Chain, Table
from .rule import Ends, Kind, Match, Role, Rule, Target

# Least rules of a group.  The order must follow from the list and its table alone, so it does not depend on
# options.
GROUP = 8
# Chains that only count may nest so deep.
DEPTH = 8


@dataclass(frozen=True, slots=True)
class Regrouped:
    """An order of a list that does what the list does.

    order  indices of the rules
    cuts   where groups begin and end in that order, ascending
    """

    order: tuple[int, ...]
    cuts: tuple[int, ...]


class CountingChains:
    """The user chains of a table whose rules only count, and come back from them; found when asked for."""

    def __init__(self, table: Table, family: Family) -> None:
        self._table, self._family = table, family
        self._known: dict[str, bool] = {}
        self._looks: dict[int, bool] = {}

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._only_counts(name, DEPTH) is True

    def _only_counts(self, name: str, depth: int) -> bool | None:
        """None: not known, as chains nest deeper than *depth*."""
        known = self._known.get(name)
        if known is not None:
            return known
        if not depth:
            return None
        found: bool | None = False
        if name in self._table and self._table[name].policy is None:
            answers = (self._counts(rule, depth) for rule in self._table[name].rules)
            found = next((answer for answer in answers if not answer), True)
        if found is not None:
            self._known[name] = found
        return found

    def _counts(self, rule: Rule, depth: int) -> bool | None:
        target = rule.target
        if not all(map(self.only_looks, rule.matches)):
            return False
        if rule.enters:
            return self._only_counts(rule.enters, depth - 1)
        return target is None or target.kind is Kind.RETURN

    def only_looks(self, match: Match) -> bool:
        looks = self._looks.get(id(match))
        if looks is None:
            looks = self._looks[id(match)] = _only_looks(match, self._family)
        return looks


def grouped(table: Table, family: Family) -> Table:
    """The table with the rules of each chain regrouped; the table itself where that changes nothing."""
    counting = CountingChains(table, family)
    orders = {chain.name: regrouped(chain.rules, counting) for chain in table.chains}
    if not any(orders.values()):
        return table
    return table.of({chain.name: _in_order(chain, orders[chain.name]) for chain in table.chains})


def _in_order(chain: Chain, regrouped: Regrouped | None) -> Chain:
    if regrouped is None:
        return chain
    return chain.with_rules(tuple(chain.rules[at] for at in regrouped.order))


def regrouped(rules: Sequence[Rule], counting: CountingChains) -> Regrouped | None:
    """The rules with those of one action in groups; None where no run has two groups of GROUP rules."""
    if len(rules) < 2 * GROUP:
        return None
    if sum(_passes(rule.target) or _calls(rule.target) for rule in rules) < 2 * GROUP:
        return None
    order: list[int] = []
    cuts: list[int] = []
    for moves, places in _runs(rules, counting):
        groups = _groups([rules[at] for at in places]) if moves else []
        if not groups:
            order += places
            continue
        for group in groups:
            cuts.append(len(order))
            order += [places[at] for at in group]
        cuts.append(len(order))
    return Regrouped(tuple(order), tuple(dict.fromkeys(cuts))) if cuts else None


def _runs(rules: Sequence[Rule], counting: CountingChains) -> Iterator[tuple[bool, list[int]]]:
    """The places of the rules, cut into runs; and whether those of the run may change places."""
    changes: dict[tuple[str, int], bool] = {}

    def action(at: int) -> str | None:
        """The key of the rule's action, "" for none; None if the rule must stay where it is."""
        matches, target = rules[at].matches, rules[at].target
        if _calls(target) and rules[at].enters in counting:
            target = None
        if not _passes(target):
            return None
        key = "" if target is None else target.key
        for match in matches:
            if not counting.only_looks(match):
                return None
            if target is not None:
                changed = changes.get((key, id(match)))
                if changed is None:
                    changed = changes[key, id(match)] = may_change(target, match)
                if changed:
                    return None
        return key

    for key, run in itertools.groupby(range(len(rules)), action):
        yield key is not None, list(run)


def _passes(target: Target | None) -> bool:
    """Whether every packet goes on behind the target, which enters no chain."""
    return target is None or (target.ends is Ends.NEVER and target.kind is Kind.VERDICT)


def _calls(target: Target | None) -> bool:
    return target is not None and target.kind is Kind.JUMP


def _only_looks(match: Match, family: Family) -> bool:
    return match.role in (Role.SPACE, Role.CONSTANT) and not may_drop(match, family)


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
