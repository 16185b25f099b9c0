"""Rules without a target in a chain that decides packets, where their author perhaps forgot `-j DROP`.

-A INPUT -p tcp -m tcp --tcp-flags SYN,FIN SYN,FIN
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT

Such a rule only counts.  Rules are left out that have another use: those with a match that has a memory, such
as `-m recent --set`, or with a comment; those without matches, which count all packets; and all of a chain in
which no packet's way ends, as chains that account have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .program import Table
from .rule import Role, Rule


@dataclass(frozen=True, slots=True)
class NoTarget:
    """The lines of such rules of one chain, in its order."""

    table: str
    chain: str
    lines: tuple[int, ...]


def no_targets(table: Table) -> Iterator[NoTarget]:
    """The chains of *table* that have such rules."""
    deciding: set[str] | None = None
    for chain in table.chains:
        lines = tuple(dict.fromkeys(rule.line for rule in chain.rules if _only_counts(rule)))
        if not lines:
            continue
        deciding = _deciding(table) if deciding is None else deciding
        if chain.name in deciding:
            yield NoTarget(table.name, chain.name, lines)


def _only_counts(rule: Rule) -> bool:
    return (
        rule.target is None
        and bool(rule.matches)
        and all(match.role <= Role.CONSTANT and match.name != "comment" for match in rule.matches)
    )


def _deciding(table: Table) -> set[str]:
    """The chains in which a packet's way may end, by a rule of their own or of a chain that they enter."""
    callers: dict[str, list[str]] = {}
    for chain in table.chains:
        for rule in chain.rules:
            if rule.enters is not None:
                callers.setdefault(rule.enters, []).append(chain.name)
    waiting = [chain.name for chain in table.chains if any(rule.is_final for rule in chain.rules)]
    deciding = set(waiting)
    while waiting:
        for name in callers.get(waiting.pop(), ()):
            if name not in deciding:
                deciding.add(name)
                waiting.append(name)
    return deciding
