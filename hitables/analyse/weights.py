"""The weights of rules: packets that matched each, from the counters of a saved rule set.

Counters that are missing or all 0 are an error, because equal weights would look like a measurement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from hitables.errors import HitablesError
from hitables.ir.fields import Field
from hitables.ir.program import Program

from .boxes import Axis, Words

# The share of the weight that is spread evenly over a chain's rules: rules without packets so far may get
# some.
EVEN = 0.1


@dataclass(frozen=True, eq=False)
class Packets:
    """The headers of packets, in the order in which they came.

    words    [packets, fields, 2] the values, the high word first
    present  [packets] bit f is set when the packet has field f
    """

    words: Words
    present: npt.NDArray[np.uint16]

    def points(self, axes: Sequence[Axis]) -> Words:
        """Points [packets, axes, 2]; a field that a packet lacks is "none", or 0 where it is not optional."""
        points = np.zeros((len(self.words), len(axes), 2), np.uint64)
        for at, axis in enumerate(axes):
            assert isinstance(axis.field, Field), "no mark is recorded of packets"
            has = (self.present >> np.uint16(axis.field) & np.uint16(1)).astype(bool)
            points[has, at] = self.words[has, axis.field]
            points[has, at, 1] += np.uint64(axis.optional)
        return points


@dataclass(frozen=True)
class Weights:
    """By table, chain and rule: packets that matched; *source*: where they were counted.

    packets  by table and chain: some of the packets that it decided, or, in a built-in chain, that entered
             it; no chain has any when counters are the source
    """

    source: str
    counts: dict[tuple[str, str], tuple[float, ...]]
    packets: Mapping[tuple[str, str], Packets] = field(default_factory=dict)

    def of(self, table: str, chain: str, even: float | None = None) -> list[float]:
        """One weight per rule of the chain, 1 on the mean; a share of *even* is spread over all rules.

        By default the share is EVEN, and more for a chain with few packets for its number of rules, whose
        counts are unreliable.  The rules of a chain without packets get equal weights.
        """
        counted = self.counts.get((table, chain), ())
        total = sum(counted)
        if not total:
            return [1.0] * len(counted)
        if even is None:
            even = max(EVEN, len(counted) / (len(counted) + total))
        return [even + (1 - even) * count * len(counted) / total for count in counted]


def from_counters(program: Program) -> Weights:
    """The weights by the counters of `iptables-save -c`; HitablesError when there are none, or all are 0."""
    if all(rule.counters is None for rule in program.rules()):
        raise HitablesError(f"{program.name}: no rule has counters; save the rule set with iptables-save -c")
    counts = {
        (table.name, chain.name): tuple(float((rule.counters or (0, 0))[0]) for rule in chain.rules)
        for table in program
        for chain in table.chains
    }
    if not any(map(sum, counts.values())):
        raise HitablesError(f"{program.name}: all counters are 0, so they give no weights")
    return Weights(program.name, counts)


def counted(program: Program) -> Weights | None:
    """The weights by the counters of the rule set; None when it has none above 0."""
    if any(rule.counters and rule.counters[0] for rule in program.rules()):
        return replace(from_counters(program), source=f"the counters of {program.name}")
    return None
