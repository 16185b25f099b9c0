"""The values that header fields of a packet must have for a rule to match."""

from __future__ import annotations

from .fields import Field
from .intervals import Values
from .rule import Match, Role, Rule


def required(rule: Rule) -> dict[Field, Values]:
    """By field that the rule tests: the values with which it may match."""
    found: dict[Field, Values] = {}
    for match in rule.matches:
        if match.role is Role.SPACE and tests_all(match):
            for test in match.tests:
                known = found.get(test.field)
                found[test.field] = test.values if known is None else known.intersect(test.values)
    return found


def tests_all(match: Match) -> bool:
    """Whether all its tests must hold, as `required` has them; of an either-or, one must."""
    return not match.either or len(match.tests) == 1
