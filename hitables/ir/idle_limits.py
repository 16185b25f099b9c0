"""Rules with a limit that limits nothing: packets beyond it get the same verdict from what follows.

-A INPUT -p tcp --dport 80 -m limit --limit 60/min -j ACCEPT
-A INPUT -p tcp --dport 80 -j ACCEPT
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .fields import Field
from .intervals import Values
from .program import Chain, Table
from .required import required, tests_all
from .rule import Role, Rule

_LIMITS = ("limit", "hashlimit", "connlimit", "quota")
_LOOKED_AT = 32  # rules behind one with a limit


@dataclass(frozen=True, slots=True)
class IdleLimit:
    """*by*: the line of the rule that gives packets beyond the limit the same verdict; 0: the policy does."""

    table: str
    chain: str
    line: int
    name: str
    by: int


def idle_limits(table: Table) -> Iterator[IdleLimit]:
    """The rules of *table* whose limits limit nothing, as far as the rules behind tell at once."""
    for chain in table.chains:
        for at, rule in enumerate(chain.rules):
            name = next((match.name for match in rule.matches if match.name in _LIMITS), "")
            if name and rule.target is not None and rule.target.is_final:
                by = _same_verdict(chain, at)
                if by is not None:
                    yield IdleLimit(table.name, chain.name, rule.line, name, by)


def _same_verdict(chain: Chain, at: int) -> int | None:
    """The line of the rule behind that all packets of the rule meet with its verdict; 0: the policy."""
    rule = chain.rules[at]
    assert rule.target is not None
    asked = required(rule)
    keys = {match.key for match in rule.matches if match.role is Role.CONSTANT}
    behind = chain.rules[at + 1 : at + 1 + _LOOKED_AT]
    for later in behind:
        its = required(later)
        if any(field in its and not values.intersect(its[field]) for field, values in asked.items()):
            continue
        if (
            later.target is None
            or later.target.key != rule.target.key
            or not _takes_all(later, its, asked, keys)
        ):
            return None
        return later.line
    is_end = at + 1 + len(behind) == len(chain.rules)
    return 0 if is_end and chain.policy == rule.target.name and not rule.target.words else None


def _takes_all(
    rule: Rule, its: Mapping[Field, Values], asked: Mapping[Field, Values], keys: set[str]
) -> bool:
    """Whether the rule, which asks for *its*, matches all packets with *asked* for which *keys* hold."""
    return all(
        match.role is Role.SPACE and tests_all(match)
        if match.role is not Role.CONSTANT
        else match.key in keys
        for match in rule.matches
    ) and all(field in asked and values.covers(asked[field]) for field, values in its.items())
