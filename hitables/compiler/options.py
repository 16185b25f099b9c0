"""How to compile: one immutable value, checked when it is made, and the limits that the backends set."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ..analyse.rule_boxes import Malformed
from ..analyse.weights import Weights
from ..build.grow import ALGORITHMS, EFFORTS
from ..costs.profile import Costs
from ..errors import HitablesError

# iptables-nft takes 15 nested user chains and no more ("Too many links"); legacy
# took 5,000, and a tree never needs so many.
NESTING = {"any": 15, "nft": 15, "legacy": 200}

# full: verdicts and effects, every rule stays; verdict: rules that change no verdict go.
EQUIVALENCES = ("full", "verdict")

NOT_ASKED = "not asked for"


@dataclass(frozen=True, slots=True)
class Options:
    """How to compile.

    backend        "legacy", "nft", or "any": right and loadable in both
    algorithm      one of build.grow.ALGORITHMS
    leaf_size      rules that a leaf may hold before it is split (binth); auto finds that by itself
    min_length     chains of fewer rules stay as they are
    max_expansion  rules printed over rules read, per chain, at most
    max_depth      chains that nest below a compiled one, at most; None: as many as the backend takes
    effort         one of build.grow.EFFORTS
    costs          what reading rules costs; None: the shipped profile
    traffic        how much each rule weighs; None: all alike
    unequal_cuts   scheme paper: cut between rules, not in equal parts
    equivalence    one of EQUIVALENCES
    as_written     rules keep all matches in their order, so a copy can be told by what it says
    tables, chains only these (empty: all)
    """

    backend: str = "any"
    malformed: Malformed = Malformed.STRICTER
    algorithm: str = "auto"
    leaf_size: int = 8
    spfac: float = 4.0
    min_length: int = 8
    max_expansion: float = 4.0
    max_depth: int | None = None
    effort: str = "normal"
    costs: Costs | None = None
    traffic: Weights | None = None
    unequal_cuts: bool = False
    equivalence: str = "full"
    as_written: bool = False
    tables: frozenset[str] = frozenset()
    chains: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.backend not in NESTING:
            raise HitablesError(f"unknown backend {self.backend!r}; there are {', '.join(NESTING)}")
        if self.algorithm not in ALGORITHMS:
            raise HitablesError(
                f"no tree builder is called {self.algorithm!r}; there are {', '.join(ALGORITHMS)}"
            )
        if self.equivalence not in EQUIVALENCES:
            raise HitablesError(
                f"unknown equivalence {self.equivalence!r}; there are {', '.join(EQUIVALENCES)}"
            )
        if self.max_expansion < 1:
            raise HitablesError(
                f"a max-expansion of {self.max_expansion} is below 1: no tree is smaller than its list"
            )
        if not self.max_expansion < inf or not 1 <= self.spfac < inf:
            raise HitablesError("max-expansion and spfac are numbers from 1, and not infinite")
        if self.max_depth is not None and self.max_depth < 1:
            raise HitablesError(f"a max-depth of {self.max_depth} is below 1: every tree nests one chain")
        if self.effort not in EFFORTS:
            raise HitablesError(f"unknown effort {self.effort!r}; there are {', '.join(EFFORTS)}")
        if self.leaf_size < 1 or self.min_length < 1:
            raise HitablesError("binth and min-length are at least 1")
