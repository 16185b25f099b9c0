"""What the evolving rules and the rule cache of Storm did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class EvolvingStatistics:
    """samples = contained + expanded + created.

    contained  in a rule as it was; expanded: a rule grew; created: a new rule
    tried      boxes that were checked for conflicts, expanded ones included
    leaves     of the tree that these checks visited
    dropped    evolving rules ended by changes of the rules
    rules      now; most_rules: at most so far
    """

    samples: int
    contained: int
    expanded: int
    created: int
    tried: int
    leaves: int
    dropped: int
    rules: int
    most_rules: int


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """What the rule cache of a plan storm(A) did.

    packets    searched; hits: answered by the cache
    published  how often the cache was renewed; deferred: put off, since the older copy was still read
    evolving   the rules behind it
    """

    packets: int
    hits: int
    published: int
    deferred: int
    evolving: EvolvingStatistics

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.packets if self.packets else 0.0

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        evolving = EvolvingStatistics(**values["evolve"])
        names = ("packets", "hits", "published", "deferred")
        return cls(**{name: values[name] for name in names}, evolving=evolving)
