"""A chain on its way to be printed: its list, its segments with what they cost, and the plan of the whole.

Caller: tables.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ..emit.chain_writer import WrittenChains
from ..emit.jumps import Segment
from ..ir.program import Chain
from .hot import HotRules

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Grown:
    """A chain's segments, and what packets of their rules read before and after (rows of the arrays).

    The columns are rules read, then nanoseconds in each backend.

    total    the sum over the rules of the segments so far, by their weights
    passing  cost of a packet that falls through every segment so far (after compiling: an upper bound)
    nesting  chains that nest
    returns  rules whose RETURN is printed as the policy of the chain
    why      why there is no tree
    """

    total: Floats
    passing: Floats
    segments: list[Segment] = field(default_factory=list)
    nesting: int = 0
    returns: int = 0
    why: str = "its rules test nothing that a tree could tell packets apart by"

    def add(self, weight: Floats, mean: Floats, longest: int) -> None:
        """Add a segment: rules of *weight*, whose packets read *mean*, and afterwards at most *longest*."""
        self.total += (self.passing + mean) * weight.sum()
        self.passing += mean * (np.array([[len(weight)], [longest]]) / mean[:, :1])


@dataclass(frozen=True, slots=True)
class List:
    """Rules that do what a chain does, and the weight of each."""

    chain: Chain
    weights: list[float]


@dataclass(slots=True)
class Plan:
    """The list *listed* with trees as it would be printed; *names*: the number of names used until then.

    fixed  rules that stay in front of everything
    """

    listed: List
    grown: Grown
    written: WrittenChains
    size: int
    memory: bool
    names: int
    fixed: int
    hot: HotRules | None = None

    def with_hot(self, hot: HotRules) -> Plan:
        rules = (*self.written.rules[: self.fixed], *hot.rules, *self.written.rules[self.fixed :])
        return replace(
            self, written=WrittenChains(rules, self.written.chains), size=self.size + len(hot.rules), hot=hot
        )

    @property
    def cost(self) -> tuple[float, int]:
        """Nanoseconds of the packets of all rules, summed over the backends; then rules printed."""
        return float(self.grown.total[1, 1:].sum()), self.size
