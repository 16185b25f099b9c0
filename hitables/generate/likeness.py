"""The similarity of two rule sets, in the statistics that determine the cost of classifiers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .seed import ANY, length_of

if TYPE_CHECKING:
    from ..parse.classbench import ClassbenchFilter

# Classes of prefix lengths, by their upper bounds: any, up to 8, 16, 24, 31, and single addresses.
BOUNDS = (0, 8, 16, 24, 31, 32)


@dataclass(frozen=True, slots=True)
class Likeness:
    """Statistics of one rule set; shares are of its rules.

    pairs     classes of (source, destination) prefix lengths
    overlap   rules that match a header drawn from a rule, on average, over the number of rules
    distinct  sources, destinations, over the number of rules
    """

    rules: int
    pairs: dict[tuple[int, int], float]
    any_source: float
    any_destination: float
    any_sport: float
    any_dport: float
    any_protocol: float
    overlap: float
    distinct: tuple[float, float]

    def parts_from(self, other: Likeness) -> float:
        """The share of rules whose pair of lengths would have to change: the total variation distance."""
        every = self.pairs.keys() | other.pairs.keys()
        return sum(abs(self.pairs.get(pair, 0) - other.pairs.get(pair, 0)) for pair in every) / 2


def likeness(filters: ClassbenchFilter, drawn: int = 400) -> Likeness:
    """The statistics of *filters*; the overlap is measured with *drawn* headers."""
    import numpy as np

    rules, count = filters.rules, len(filters)
    pairs = Counter((_class(length_of(rule.src)), _class(length_of(rule.dst))) for rule in rules)
    ranges = np.array(
        [
            (
                *rule.src,
                *rule.dst,
                *rule.sport,
                *rule.dport,
                0 if rule.proto is None else rule.proto,
                255 if rule.proto is None else rule.proto,
            )
            for rule in rules
        ],
        np.int64,
    ).reshape(count, 5, 2)
    rng = np.random.default_rng(0)
    chosen = ranges[rng.integers(0, count, drawn)]
    headers = rng.integers(chosen[:, :, 0], chosen[:, :, 1] + 1)
    matches = [
        int(((ranges[:, :, 0] <= header) & (header <= ranges[:, :, 1])).all(axis=1).sum())
        for header in headers
    ]
    wild = (ranges[:, :, 0] == 0) & (ranges[:, :, 1] == [0xFFFFFFFF, 0xFFFFFFFF, ANY[1], ANY[1], 255])
    any_source, any_destination, any_sport, any_dport, any_protocol = (
        float(share) for share in wild.mean(axis=0)
    )
    distinct = tuple(len(np.unique(ranges[:, dim], axis=0)) / count for dim in (0, 1))
    return Likeness(
        count,
        {pair: times / count for pair, times in pairs.items()},
        any_source,
        any_destination,
        any_sport,
        any_dport,
        any_protocol,
        float(np.mean(matches)) / count,
        (distinct[0], distinct[1]),
    )


def _class(length: int) -> int:
    return next(number for number, bound in enumerate(BOUNDS) if length <= bound)
