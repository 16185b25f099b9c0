"""Where packets must be drawn so that they come to a rule and match it.

An `Aim` is a box and a way: the rules that lead to the one aimed at, and that one.  It is
cut by the boxes of those on its way; and when packets are seen to leave the way by other
rules, it is cut so that it misses those (`Aim.past`).  Each cut is a choice made at
random, so an aim that comes out empty proves nothing, and another may succeed.

Invariant: a box is never empty, and a packet can be in it at the chain's hook.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hitables.ir.fields import ICMP, ICMPV6, PORT_PROTOCOLS, TCP, Family, Field, top
from hitables.ir.hooks import Box, hook_box
from hitables.ir.intervals import Values
from hitables.ir.program import Table
from hitables.ir.rule import Kind, Match, Role, Rule, Test

PATHS = 4  # ways to a chain that are kept; more would find little and cost time


@dataclass(frozen=True)
class Aim:
    """box: where the packet is; way: numbers of rules it must match, in order; holds, fails:
    keys of facts that must be true, and that must not."""

    family: Family
    box: Box
    way: tuple[int, ...] = ()
    holds: tuple[str, ...] = ()
    fails: tuple[str, ...] = ()

    def through(self, rule: Rule, number: int, rng: np.random.Generator) -> Aim | None:
        """This aim, cut so that *rule* matches; None when nothing is left."""
        box, holds = dict(self.box), self.holds
        for match in rule.matches:
            tests = match.tests
            if match.either and tests:
                tests = (tests[int(rng.integers(len(tests)))],)
            for test in tests:
                if not _cut(box, test.field, test.values, self.family):
                    return None
            if match.role is Role.CONSTANT and match.key not in holds:
                if match.key in self.fails:
                    return None
                holds += (match.key,)
        return Aim(self.family, box, (*self.way, number), holds, self.fails)

    def past(self, rule: Rule, rng: np.random.Generator) -> Aim | None:
        """This aim, cut so that *rule* does not match, if one of its matches can be made to fail."""
        for at in rng.permutation(len(rule.matches)):
            aim = self._without(rule.matches[at], rng)
            if aim is not None:
                return aim
        return None

    def _without(self, match: Match, rng: np.random.Generator) -> Aim | None:
        if match.role in (Role.NAMED, Role.ONCE):
            return self  # another packet may have more luck
        if match.role is Role.CONSTANT and match.key not in self.holds + self.fails:
            return replace(self, fails=(*self.fails, match.key))
        # Either-or: all tests must fail; else any one.
        sides = (
            [match.tests]
            if match.either
            else [(match.tests[at],) for at in rng.permutation(len(match.tests))]
        )
        for tests in sides:
            box = dict(self.box)
            if tests and all(self._cut_off(box, test) for test in tests):
                return replace(self, box=box)
        return None

    def _cut_off(self, box: Box, test: Test) -> bool:
        others = test.values.complement(top(test.field, self.family))
        return _cut(box, test.field, others, self.family)


def _cut(box: Box, field: Field, values: Values, family: Family) -> bool:
    """Cut *box* to *values* of *field*, and to protocols that have it; False when nothing is left."""
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
        return protocol.pairs[0][0] in carriers  # by far the most, and it stays as it is
    return _cut(box, Field.PROTO, carriers, family)


# The protocols whose packets have a field; a field not named here all have.
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
    """All that a chain reaches.  *numbers*: of its rules, as `Interpreter.rule` counts them."""

    def __init__(self, table: Table, start: str, family: Family, rng: np.random.Generator) -> None:
        self._rng = rng
        self._chains: dict[int, str] = {}
        self._rules: dict[int, Rule] = {}
        first, number = {}, 0
        for chain in table.chains:
            first[chain.name] = number
            number += len(chain.rules)
        order = table.callers_first(start)
        for name in order:
            for at, rule in enumerate(table[name].rules, first[name]):
                self._chains[at], self._rules[at] = name, rule
        self.numbers = list(self._rules)
        self._ways = self._find_ways(table, order, first, Aim(family, hook_box(start, family)))

    def aims(self, number: int, most: int) -> list[Aim]:
        """Aims at rule *number*, at most so many; none when none was found."""
        rule, ways = self._rules[number], self._ways[self._chains[number]]
        if not any(match.either for match in rule.matches):
            most = min(most, len(ways))
        if not ways:
            return []
        first = int(self._rng.integers(len(ways))) if len(ways) > 1 else 0
        tries = [ways[(first + at) % len(ways)].through(rule, number, self._rng) for at in range(most)]
        return [aim for aim in tries if aim is not None]

    def astray(self, aim: Aim, matched: Sequence[int]) -> list[Rule]:
        """By which rules a packet that matched *matched* left the way of *aim*; none: by none,
        something on the way did not match."""
        at = passed = 0
        for index, number in enumerate(matched):
            if at < len(aim.way) and number == aim.way[at]:
                at, passed = at + 1, index + 1
        if at == len(aim.way):
            return []
        here = self._chains[aim.way[at]]
        jump: Rule | None = None
        for number in matched[passed:]:
            if number < 0 or number not in self._rules:
                break
            rule = self._rules[number]
            if self._chains[number] != here:
                if rule.is_final:
                    return [rule] if jump is None else [rule, jump]
            elif number > aim.way[at]:
                break
            elif rule.target is not None and rule.target.kind is Kind.JUMP:
                jump = rule
            elif rule.is_final or (rule.target is not None and rule.target.kind is not Kind.VERDICT):
                return [rule]
        return []

    def _find_ways(
        self, table: Table, order: list[str], first: dict[str, int], start: Aim
    ) -> dict[str, list[Aim]]:
        """Some aims at each chain of *order*, which has callers first."""
        entries: dict[str, list[tuple[str, int]]] = {name: [] for name in order}
        ways: dict[str, list[Aim]] = {}
        for name in order:
            found = [start] if name == order[0] else []
            for at in self._rng.permutation(len(entries[name])):
                if len(found) == PATHS:
                    break
                caller, number = entries[name][at]
                for way in ways[caller]:
                    aim = way.through(self._rules[number], number, self._rng)
                    if aim is not None:
                        found.append(aim)
                        break
            ways[name] = found
            for number, rule in enumerate(table[name].rules, first[name]):
                if rule.enters is not None:
                    entries[rule.enters].append((name, number))
        return ways
