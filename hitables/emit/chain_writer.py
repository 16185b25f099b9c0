"""Writing the chains of a tree: fresh names, new chains, copies of rules.  Both schemes use it.

Invariant: every rule of the input is written once with its counters and comments; further copies have
neither, so the counters of all copies add up to those of the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..ir.fields import Family
from ..ir.program import Chain
from ..ir.rule import Kind, Rule, Target


class FreshNames:
    """Names for the new chains of one table: short, numbered, and different from the user's."""

    def __init__(self, taken: Sequence[str]) -> None:
        self.prefix = "ht"
        while any(name.startswith(self.prefix) for name in taken):
            self.prefix += "_"
        self.count = 0

    def next(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count}"


@dataclass(slots=True)
class WrittenChains:
    """The new rules of a compiled chain, and the new chains that they need, in order."""

    rules: tuple[Rule, ...]
    chains: list[Chain]


@dataclass(slots=True)
class OpenChain:
    """A chain that rules are still added to; the rules that enter it share one target."""

    name: str
    rules: list[Rule] = field(default_factory=list)
    _goto: Target | None = None
    _jump: Target | None = None

    @property
    def goto(self) -> Target:
        if self._goto is None:
            self._goto = goto(self.name)
        return self._goto

    @property
    def jump(self) -> Target:
        if self._jump is None:
            self._jump = jump(self.name)
        return self._jump


class ChainWriter:
    """Opens new chains, and copies rules for them."""

    def __init__(self, family: Family, names: FreshNames) -> None:
        self.family, self.names = family, names
        self.opened: list[OpenChain] = []
        self.printed: set[int] = set()

    def open(self) -> OpenChain:
        chain = OpenChain(self.names.next())
        self.opened.append(chain)
        return chain

    def copy(self, rule: Rule) -> Rule:
        """The rule; from its second copy on without counters and comments, so that their sums stay."""
        if rule.counters is None and not rule.notes:
            return rule
        if id(rule) in self.printed:
            return rule._replace(counters=None if rule.counters is None else (0, 0), notes=())
        self.printed.add(id(rule))
        return rule

    def written(self, rules: Sequence[Rule]) -> WrittenChains:
        """The new chains, with *rules* for the chain that was compiled."""
        return WrittenChains(
            tuple(rules), [Chain(chain.name, None, tuple(chain.rules)) for chain in self.opened]
        )


def goto(name: str) -> Target:
    return Target(name, Kind.GOTO, f"-g {name}")


def jump(name: str) -> Target:
    return Target(name, Kind.JUMP, f"-j {name}")
