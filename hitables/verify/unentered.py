"""Chains that two programs have with other rules, and that no packet enters in either.

-N DOCKER-USER
-A DOCKER-USER -i eth0 -j DROP

A text may be a part of a rule set: another program has the jump.  Then the two are equal as they are given,
and not as they are meant.

Cost: the rules of user chains are compared one by one, by what is spelled, until two differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hitables.ir.marker import is_marker
from hitables.ir.program import Chain, Program, Table

from .question import Question
from .reachability import Reachability


@dataclass(frozen=True, slots=True)
class Unentered:
    """A chain that differs; *in_both*: both programs have it, so that it can be compared by itself."""

    table: str
    chain: str
    in_both: bool


def unentered(before: Program, after: Program, question: Question) -> Iterator[Unentered]:
    """The chains that differ and that *question* compares in no way; none if it names chains."""
    if question.chains:
        return
    sides = [{table.name: table for table in program} for program in (before, after)]
    for name in dict.fromkeys((*sides[0], *sides[1])):
        if question.tables and name not in question.tables:
            continue
        tables = [side[name] for side in sides if name in side]
        differing = _differing(tables)
        if not differing:
            continue
        compared = [chain for table, chain in question.entered if table == name]
        reached = set[str]()
        for table in tables:
            reach = Reachability(table)
            reached |= reach.reached_from([*reach.roots, *(each for each in compared if each in table)])
        for chain in differing:
            if chain not in reached:
                yield Unentered(name, chain, len(tables) == 2 and all(chain in table for table in tables))


def _differing(tables: list[Table]) -> list[str]:
    """The user chains whose rules are not the same in all *tables*; one that is missing has none."""
    user = [
        {chain.name: chain for chain in table.chains if chain.policy is None and not is_marker(chain.name)}
        for table in tables
    ]
    names = dict.fromkeys(name for chains in user for name in chains)
    rules = [{name: _spelled(chains.get(name)) for name in names} for chains in user]
    if len(tables) == 1:
        return [name for name in names if rules[0][name]]
    return [name for name in names if rules[0][name] != rules[1][name]]


def _spelled(chain: Chain | None) -> list[object]:
    """What the rules of *chain* are, without their lines, counters and notes."""
    return [
        (tuple(match.key for match in rule.matches), rule.target and (rule.target.kind, rule.target.key))
        for rule in (chain.rules if chain is not None else ())
    ]
