"""Matches of ipsets whose counters some rule reads.

Each match of a set that was made with counters adds to them, also in another table.  Where no rule
reads the counters of a set that is an account and no more; where one does (`--packets-gt`), a match
of that set has memory, and must be asked just when the input asks it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..ir.program import Program
from ..ir.rule import Match, Role, Rule

_READING = tuple(f"--{unit}-{relation}" for unit in ("packets", "bytes") for relation in ("eq", "lt", "gt"))


def set_of(match: Match) -> str | None:
    """The ipset that a match asks; None for other matches."""
    if match.name != "set" or "--match-set" not in match.words:
        return None
    return match.words[match.words.index("--match-set") + 1]


def reads_counters(match: Match) -> bool:
    return match.name == "set" and any(word in _READING for word in match.words)


def counted_sets(rules: Iterable[Rule]) -> frozenset[str]:
    """The ipsets whose counters some of *rules* reads."""
    found = {set_of(match) for rule in rules for match in rule.matches if reads_counters(match)}
    return frozenset(name for name in found if name is not None)


def rules_of(program: Program) -> Iterable[Rule]:
    return (rule for table in program for chain in table.chains for rule in chain.rules)


def as_counted(rule: Rule, names: frozenset[str]) -> Rule:
    """*rule*, whose matches of the ipsets *names* have memory."""
    if not any(match.role is Role.CONSTANT and set_of(match) in names for match in rule.matches):
        return rule
    matches = (
        match._replace(role=Role.NAMED) if match.role is Role.CONSTANT and set_of(match) in names else match
        for match in rule.matches
    )
    return rule._replace(matches=tuple(matches))


def with_counted_sets(program: Program) -> Program:
    """*program*, in which each match of an ipset whose counters some rule reads has memory."""
    names = counted_sets(rules_of(program))
    if not names:
        return program
    tables = []
    for table in program:
        lists = (tuple(as_counted(rule, names) for rule in chain.rules) for chain in table.chains)
        chains = (chain.with_rules(rules) for chain, rules in zip(table.chains, lists, strict=True))
        tables.append(replace(table, chains=tuple(chains)))
    return replace(program, tables=tuple(tables))
