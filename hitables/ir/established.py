"""The rules up to the one that decides packets of established connections, where it is near the front.

Most packets belong to connections, and most firewalls accept them by one of their first rules.  A tree in
front of that rule would cost each of these packets its tests.
"""

from __future__ import annotations

from collections.abc import Sequence

from .fields import STATES, Field
from .rule import Match, Role, Rule

# The rule is one of so many; packets read about as many in a tree.
NEAR = 8
_FIRST, _LAST = STATES.index("ESTABLISHED"), STATES.index("ESTABLISHED+SNAT+DNAT")


def established_head(rules: Sequence[Rule]) -> int:
    """How many of *rules* there are up to the first that ends the way of all packets of connections.

    Where none does: up to the first that sends them all to a user chain; or 0.
    """
    asking = [(at, rule) for at, rule in enumerate(rules[:NEAR], 1) if _asks_established(rule)]
    ending = [at for at, rule in asking if rule.leaves]
    entering = [at for at, rule in asking if rule.enters]
    return min(ending or entering, default=0)


def _asks_established(rule: Rule) -> bool:
    """Whether the rule's matches hold of all packets of connections, and ask the state alone."""
    asked = [match for match in rule.matches if match.name != "comment"]
    return bool(asked) and all(map(_holds_of_established, asked))


def _holds_of_established(match: Match) -> bool:
    """Whether the match asks the state alone, and holds where it is ESTABLISHED, with any translation."""
    if match.role is not Role.SPACE or match.either or len(match.tests) != 1:
        return False
    field, values = match.tests[0]
    return field is Field.STATE and any(low <= _FIRST and high >= _LAST for low, high in values.pairs)
