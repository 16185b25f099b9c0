"""A chain on its way to be printed: its list, its segments with what they cost, and the plan of the whole."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ..build.grow import SIZE_PENALTY
from ..emit.chain_writer import WrittenChains
from ..emit.jumps import Segment
from ..ir.arrangement import Arrangement
from ..ir.program import Chain
from .hot import HotRules

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Grown:
    """A chain's segments, and what packets of their rules read before and after (rows of the arrays).

    The columns are rules read, then nanoseconds in each backend.

    total    the sum over the rules of the segments so far, by their weights
    passing  cost of a packet that falls through every segment so far
    longest  most rules that a packet reads
    nesting  chains that nest
    open     the weight of the rules of segments so far that no packet ends in
    returns  rules whose RETURN is printed as the policy of the chain
    gated    whether a tree only turns away packets of no rule (build/gate.py)
    why      why there is no tree
    """

    total: Floats
    passing: Floats
    segments: list[Segment] = field(default_factory=list)
    longest: int = 0
    nesting: int = 0
    open: float = 0.0
    returns: int = 0
    gated: bool = False
    why: str = "its rules test nothing that a tree could tell packets apart by"

    def add(self, weight: Floats, mean: Floats, longest: int, passing: Floats | None, ends: bool) -> None:
        """Add a segment: rules of *weight*, whose packets read *mean*, and afterwards at most *longest*.

        *passing*: what packets read that it does not decide; None: not known, so that a bound stands for it.
        *ends*: whether a rule of it ends the way of a packet.
        """
        if passing is None:
            passing = mean * (np.array([[len(weight)], [longest]]) / mean[:, :1])
        self.total += (self.passing + mean) * weight.sum() + passing * self.open
        self.passing += passing
        self.longest += longest
        self.open += 0.0 if ends else float(weight.sum())


@dataclass(frozen=True, slots=True)
class List:
    """Rules that do what a chain does, and the weight of each.

    arrangement  the parts that it is read in (ir/arrangement.py); None: it is read as it is
    simplified   it lacks rules of the chain, or has them in another order
    """

    chain: Chain
    weights: list[float]
    arrangement: Arrangement | None = None
    simplified: bool = False

    @property
    def cuts(self) -> tuple[int, ...]:
        """Where its parts begin and end."""
        return () if self.arrangement is None else self.arrangement.cuts


@dataclass(slots=True)
class ListPlan:
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

    def with_hot(self, hot: HotRules) -> ListPlan:
        rules = (*self.written.rules[: self.fixed], *hot.rules, *self.written.rules[self.fixed :])
        return replace(
            self, written=WrittenChains(rules, self.written.chains), size=self.size + len(hot.rules), hot=hot
        )

    @property
    def in_groups(self) -> bool:
        """Whether a tree of it has groups."""
        return any(segment.tree is not None and segment.tree.in_groups() for segment in self.grown.segments)

    @property
    def read(self) -> float:
        """The mean of rules read by packets of its rules."""
        return float(self.grown.total[1, 0]) / len(self.listed.chain.rules)

    @property
    def cost(self) -> tuple[float, int]:
        """Nanoseconds of the packets of all rules, and the worth of a smaller output; then rules printed."""
        spent = self.grown.total[1, 1:]
        return float(spent.sum() + SIZE_PENALTY * self.size * len(spent)), self.size
