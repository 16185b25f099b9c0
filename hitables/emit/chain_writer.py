"""Chains being written, for whatever scheme writes them.

Invariant: every rule of the input is printed with its counters and comments once;
further copies have neither, so sums over all copies stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..ir.fields import Family
from ..ir.program import Chain
from ..ir.rule import Kind, Rule, Target


class Names:
    """Names for the chains of one table: short, in order, and none that the user has."""

    def __init__(self, taken: Sequence[str]) -> None:
        self.prefix = "ht"
        while any(name.startswith(self.prefix) for name in taken):
            self.prefix += "_"
        self.count = 0

    def next(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count}"


@dataclass(slots=True)
class Planted:
    """The compiled chain's own rules, and the chains made for it, in order."""

    rules: tuple[Rule, ...]
    chains: list[Chain]


@dataclass(slots=True)
class Written:
    """A chain being written."""

    name: str
    rules: list[Rule] = field(default_factory=list)


class Planter:
    """Opens chains and copies rules into them."""

    def __init__(self, family: Family, names: Names) -> None:
        self.family, self.names = family, names
        self.made: list[Written] = []
        self.printed: set[int] = set()

    def open(self) -> Written:
        made = Written(self.names.next())
        self.made.append(made)
        return made

    def copy(self, rule: Rule) -> Rule:
        """The rule; from its second copy on without counters and comments, so that sums stay."""
        if rule.counters is None and not rule.notes:
            return rule
        if id(rule) in self.printed:
            return rule._replace(counters=None if rule.counters is None else (0, 0), notes=())
        self.printed.add(id(rule))
        return rule

    def planted(self, rules: Sequence[Rule]) -> Planted:
        """What was written, with *rules* for the chain that was compiled."""
        return Planted(tuple(rules), [Chain(made.name, None, tuple(made.rules)) for made in self.made])


def goto(name: str) -> Target:
    return Target(name, Kind.GOTO, f"-g {name}")


def jump(name: str) -> Target:
    return Target(name, Kind.JUMP, f"-j {name}")
