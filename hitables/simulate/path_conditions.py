"""Path conditions: what a packet must have so that it reaches a rule and matches it.

A `PathCondition` is a box and a path: the rules that lead to a rule, and that rule.  The box is the
intersection of boxes of the rules on the path.  When packets in it leave the path by other rules, it is
narrowed so that it misses those rules (`PathCondition.past`).  Each step chooses one of several possible
narrowings at random, so an empty condition proves nothing: another choice may succeed.

Invariant: a box is never empty, and packets at the chain's hook can lie in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hitables.ir.fact import Fact
from hitables.ir.fields import ICMP, ICMPV6, PORT_PROTOCOLS, TCP, Family, Field, top
from hitables.ir.hooks import Box, hook_box
from hitables.ir.intervals import Values
from hitables.ir.program import Table
from hitables.ir.rule import Kind, Match, Role, Rule, Test

KEPT_PATHS = 4  # paths to a chain that are kept; more cost time and reach few more rules
EXAMINED = 64  # matched rules examined to see where a packet left its path


@dataclass(frozen=True)
class PathCondition:
    """A condition on packets.

    box           values of the packet's fields; fields left out are free
    path          numbers of the rules that the packet must match, in order: the first EXAMINED + 1
    facts         facts (Match.fact) that must hold
    """

    family: Family
    box: Box
    path: tuple[int, ...] = ()
    facts: tuple[Fact, ...] = ()

    def through(self, rule: Rule, number: int, rng: np.random.Generator) -> PathCondition | None:
        """This condition and that *rule* matches; None when the box would be empty."""
        box, condition = dict(self.box), self
        for match in rule.matches:
            tests = match.tests
            if match.either and tests:
                tests = (tests[int(rng.integers(len(tests)))],)
            for test in tests:
                if not _cut(box, test.field, test.values, self.family):
                    return None
            if match.role is Role.CONSTANT:
                stricter = condition._where(match.fact)
                if stricter is None:
                    return None
                condition = stricter
        # The rest is never compared with matched rules, and a path may be as long as the table has chains.
        path = self.path if len(self.path) > EXAMINED else (*self.path, number)
        return PathCondition(self.family, box, path, condition.facts)

    def _where(self, fact: Fact) -> PathCondition | None:
        """This condition and that *fact* holds; None when it cannot."""
        if any(each.implies(fact) for each in self.facts):
            return self
        if any(each.implies(fact.negation) for each in self.facts):
            return None
        return replace(self, facts=(*self.facts, fact))

    def past(self, rule: Rule, rng: np.random.Generator) -> PathCondition | None:
        """This condition and that *rule* does not match; None when no match of it can fail in the box."""
        for at in rng.permutation(len(rule.matches)):
            condition = self._without(rule.matches[at], rng)
            if condition is not None:
                return condition
        return None

    def _without(self, match: Match, rng: np.random.Generator) -> PathCondition | None:
        if match.role in (Role.NAMED, Role.ONCE):
            return self  # it may fail for another packet
        if match.role is Role.CONSTANT:
            condition = self._where(match.fact.negation)
            if condition is not None:
                return condition
        # With *either* all tests must fail, else any one.
        choices = (
            [match.tests]
            if match.either
            else [(match.tests[at],) for at in rng.permutation(len(match.tests))]
        )
        for tests in choices:
            box = dict(self.box)
            if tests and all(self._cut_off(box, test) for test in tests):
                return replace(self, box=box)
        return None

    def _cut_off(self, box: Box, test: Test) -> bool:
        others = test.values.complement(top(test.field, self.family))
        return _cut(box, test.field, others, self.family)


def _cut(box: Box, field: Field, values: Values, family: Family) -> bool:
    """Narrow *box* to *values* of *field*, and to protocols that have the field; False when it is empty."""
    before = box.get(field)
    if before is not values:
        box[field] = values if before is None else before.intersect(values)
        if not box[field]:
            return False
    carriers = _CARRIERS[family].get(field)
    if carriers is None:
        return True
    protocol = box.get(Field.PROTO)
    if protocol is not None and len(protocol.pairs) == 1 and protocol.pairs[0][0] == protocol.pairs[0][1]:
        return protocol.pairs[0][0] in carriers  # the common case: the box stays as it is
    return _cut(box, Field.PROTO, carriers, family)


# The protocols whose packets have a field; packets of all protocols have the other fields.
_CARRIERS = {
    family: {
        Field.SPORT: Values.only(*PORT_PROTOCOLS),
        Field.DPORT: Values.only(*PORT_PROTOCOLS),
        Field.FLAGS: Values.only(TCP),
        Field.ICMP: Values.only(ICMP if family is Family.IPV4 else ICMPV6),
    }
    for family in Family
}


class Reach:
    """The rules that a chain reaches, and paths to them; *numbers*: those of `Interpreter.rule`.

    *first*: by chain of the table, the number of its first rule.  Cost: linear in the rules that are reached.
    """

    def __init__(
        self, table: Table, start: str, family: Family, rng: np.random.Generator, first: Mapping[str, int]
    ) -> None:
        self._rng = rng
        self._chains: dict[int, str] = {}
        self._rules: dict[int, Rule] = {}
        order = table.callers_first(start)
        for name in order:
            for at, rule in enumerate(table[name].rules, first[name]):
                self._chains[at], self._rules[at] = name, rule
        self.numbers = list(self._rules)
        self._paths = self._find_paths(table, order, first, PathCondition(family, hook_box(start, family)))

    def conditions(self, number: int, most: int) -> list[PathCondition]:
        """At most *most* conditions that lead to rule *number*; none when no path to it was found."""
        rule, paths = self._rules[number], self._paths[self._chains[number]]
        if not any(match.either for match in rule.matches):
            most = min(most, len(paths))
        if not paths:
            return []
        first = int(self._rng.integers(len(paths))) if len(paths) > 1 else 0
        tries = [paths[(first + at) % len(paths)].through(rule, number, self._rng) for at in range(most)]
        return [condition for condition in tries if condition is not None]

    def diverting_rules(self, condition: PathCondition, matched: Sequence[int]) -> list[Rule]:
        """The rules of *matched* by which a packet left the path of *condition*.

        None: a rule on the path did not match.
        """
        at = passed = 0
        for index, number in enumerate(matched):
            if at < len(condition.path) and number == condition.path[at]:
                at, passed = at + 1, index + 1
        if at == len(condition.path):
            return []
        here = self._chains[condition.path[at]]
        jump: Rule | None = None
        for number in matched[passed:]:
            if number < 0 or number not in self._rules:
                break
            rule = self._rules[number]
            if self._chains[number] != here:
                if rule.is_final:
                    return [rule] if jump is None else [rule, jump]
            elif number > condition.path[at]:
                break
            elif rule.target is not None and rule.target.kind is Kind.JUMP:
                jump = rule
            elif rule.is_final or (rule.target is not None and rule.target.kind is not Kind.VERDICT):
                return [rule]
        return []

    def _find_paths(
        self, table: Table, order: list[str], first: Mapping[str, int], start: PathCondition
    ) -> dict[str, list[PathCondition]]:
        """Some conditions that lead to each chain of *order*, which has callers first."""
        entries: dict[str, list[tuple[str, int]]] = {name: [] for name in order}
        paths: dict[str, list[PathCondition]] = {}
        for name in order:
            conditions = [start] if name == order[0] else []
            for at in self._rng.permutation(len(entries[name])):
                if len(conditions) == KEPT_PATHS:
                    break
                caller, number = entries[name][at]
                for path in paths[caller]:
                    condition = path.through(self._rules[number], number, self._rng)
                    if condition is not None:
                        conditions.append(condition)
                        break
            paths[name] = conditions
            for number, rule in enumerate(table[name].rules, first[name]):
                if rule.enters is not None:
                    entries[rule.enters].append((name, number))
        return paths
