"""How much each rule weighs: packets that matched it, from the counters of a saved rule set.

A source that gives no information about the rule set is refused: empty weights would look like weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hitables.errors import HitablesError
from hitables.ir.program import Program

# Of all weight, what is spread evenly over a chain's rules: what no packet has met so far may come yet.
EVEN = 0.1


@dataclass(frozen=True)
class Weights:
    """By table, chain and rule: packets that matched.  *source*: where they were counted."""

    source: str
    counts: dict[tuple[str, str], tuple[float, ...]]

    def of(self, table: str, chain: str, even: float | None = None) -> list[float]:
        """One weight per rule of the chain, 1 on the mean; *even* of it spread over all alike.

        By default EVEN of it, and more where few packets were met for so many rules: they say little.
        A chain that no packet met weighs its rules alike.
        """
        counted = self.counts.get((table, chain), ())
        total = sum(counted)
        if not total:
            return [1.0] * len(counted)
        if even is None:
            even = max(EVEN, len(counted) / (len(counted) + total))
        return [even + (1 - even) * count * len(counted) / total for count in counted]


def from_counters(program: Program) -> Weights:
    """From the counters of `iptables-save -c`; HitablesError when there are none, or all are 0."""
    rules = [rule for table in program for chain in table.chains for rule in chain.rules]
    if all(rule.counters is None for rule in rules):
        raise HitablesError(f"{program.name}: no rule has counters; save the rule set with iptables-save -c")
    counts = {
        (table.name, chain.name): tuple(float((rule.counters or (0, 0))[0]) for rule in chain.rules)
        for table in program
        for chain in table.chains
    }
    if not any(map(sum, counts.values())):
        raise HitablesError(f"{program.name}: all counters are 0, they say nothing about the traffic")
    return Weights(program.name, counts)


def counted(program: Program) -> Weights | None:
    """From the counters of the rule set, if it has any that say something."""
    rules = (rule for table in program for chain in table.chains for rule in chain.rules)
    if any(rule.counters and rule.counters[0] for rule in rules):
        return replace(from_counters(program), source=f"the counters of {program.name}")
    return None
