"""The options of compiling, as one immutable value that is checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ..analyse.rule_boxes import Malformed
from ..analyse.weights import Weights
from ..build.grow import ALGORITHMS, EFFORTS
from ..costs.profile import Costs
from ..errors import HitablesError

# Most user chains that may nest.  iptables-nft accepts 15 ("Too many links" beyond); legacy accepted 5,000,
# more than a tree ever needs.
NESTING = {"any": 15, "nft": 15, "legacy": 200}

# full: verdicts and effects, every rule stays; verdict: rules that affect no verdict are removed.
EQUIVALENCES = ("full", "verdict")

NOT_ASKED = "not asked for"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of compiling.

    backend        "legacy", "nft", or "any": correct and loadable in both
    algorithm      one of build.grow.ALGORITHMS
    leaf_size      rules of a leaf that is not split (binth); the algorithm auto chooses this itself
    min_length     leave chains of fewer rules as they are
    max_expansion  most rules printed per rule of the input, for each chain
    max_depth      most chains that nest below a compiled one; None: as many as the backend accepts
    effort         one of build.grow.EFFORTS
    costs          the cost of reading rules; None: the shipped profile
    traffic        the weights of rules; None: all equal
    unequal_cuts   scheme paper: cut between rules, not in equal parts
    equivalence    one of EQUIVALENCES
    as_written     rules keep all matches in their order, so a copy can be identified by its text
    tables, chains compile only these (empty: all)
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
