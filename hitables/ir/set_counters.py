"""Matches of ipsets where some rule reads counters of one.

Each match of a set that was created with counters adds to them, in any table.  If no rule reads the counters,
they affect no packet.  If a rule reads them (`--packets-gt`), a match of a set has memory, and must be
evaluated exactly when the input evaluates it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from .program import Program
from .rule import Match, Role, Rule, word_behind

_READING = tuple(f"--{unit}-{relation}" for unit in ("packets", "bytes") for relation in ("eq", "lt", "gt"))


def set_of(match: Match) -> str | None:
    """The ipset that a match reads; None for other matches."""
    name = word_behind("--match-set", match.words) if match.name == "set" else ""
    return name or None


def reads_counters(match: Match) -> bool:
    return match.name == "set" and any(word in _READING for word in match.words)


def may_read_counters(text: str) -> bool:
    """Whether a rule of *text*, as iptables-save prints rules, may read the counters of an ipset."""
    return "--packets-" in text or "--bytes-" in text


def may_match_sets(text: str) -> bool:
    """Whether a rule of *text* may match an ipset."""
    return "set" in text


def counts(rules: Iterable[Rule]) -> bool:
    """Whether some of *rules* reads the counters of an ipset."""
    return any(reads_counters(match) for rule in rules for match in rule.matches)


def as_counted(rule: Rule) -> Rule:
    """*rule*, whose matches of ipsets have memory."""
    if not any(match.role is Role.CONSTANT and set_of(match) is not None for match in rule.matches):
        return rule
    matches = (
        match._replace(role=Role.NAMED) if match.role is Role.CONSTANT and set_of(match) else match
        for match in rule.matches
    )
    return rule._replace(matches=tuple(matches))


def with_counted_sets(program: Program) -> Program:
    """*program*, in which each match of an ipset has memory if some rule reads the counters of any.

    Of any: a set of sets counts in its members, too.
    """
    return counting(program) if counts(program.rules()) else program


def counting(program: Program) -> Program:
    """*program*, in which each match of an ipset has memory: some rule of the kernel reads counters."""
    if program.counts_sets:
        return program
    return replace(with_rules(program, as_counted), counts_sets=True)


def counted_alike(one: Program, other: Program) -> tuple[Program, Program]:
    """Both programs; if a rule of either reads counters of ipsets, each match of a set has memory in both.

    That rule may be in a chain of another program, which is not compared.
    """
    if one.counts_sets or other.counts_sets:
        return counting(one), counting(other)
    return one, other


def with_rules(program: Program, change: Callable[[Rule], Rule]) -> Program:
    """*program* with each rule changed."""
    tables = []
    for table in program:
        lists = (tuple(change(rule) for rule in chain.rules) for chain in table.chains)
        chains = (chain.with_rules(rules) for chain, rules in zip(table.chains, lists, strict=True))
        tables.append(replace(table, chains=tuple(chains)))
    return replace(program, tables=tuple(tables))
