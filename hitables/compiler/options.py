"""How to compile: one immutable value, checked when it is made, and the limits that the backends set."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ..analyse.weights import Weights
from ..build.grow import ALGORITHMS, EFFORTS
from ..costs.profile import Costs
from ..errors import InvalidOption
from ..ir.choices import BackendChoice, Equivalence, Malformed, backend_choice, choose

# iptables-nft takes 15 nested user chains and no more ("Too many links"); legacy
# took 5,000, and a tree never needs so many.
NESTING = {"any": 15, "nft": 15, "legacy": 200}

NOT_ASKED = "not asked for"


@dataclass(frozen=True, slots=True)
class Options:
    """How to compile.

    backend        the iptables that loads the result; "any": right and loadable in both
    algorithm      one of build.grow.ALGORITHMS
    leaf_size      rules that a leaf may hold before it is split (binth); auto finds that by itself
    min_length     chains of fewer rules stay as they are
    max_expansion  rules printed over rules read, per chain, at most
    max_depth      chains that nest below a compiled one, at most; None: as many as the backend takes
    effort         one of build.grow.EFFORTS
    costs          what reading rules costs; None: the shipped profile
    traffic        how much each rule weighs; None: all alike
    unequal_cuts   scheme paper: cut between rules, not in equal parts
    equivalence    full: every rule stays; verdict: rules that change no verdict are removed
    as_written     rules keep all matches in their order, so a copy can be told by what it says
    tables, chains only these (empty: all)
    """

    backend: BackendChoice = "any"
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
    equivalence: Equivalence = Equivalence.FULL
    as_written: bool = False
    tables: frozenset[str] = frozenset()
    chains: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        # The enums are strings: callers may write the words.
        object.__setattr__(self, "backend", backend_choice(self.backend))
        object.__setattr__(self, "malformed", choose(Malformed, self.malformed))
        object.__setattr__(self, "equivalence", choose(Equivalence, self.equivalence))
        if self.algorithm not in ALGORITHMS:
            raise InvalidOption(
                f"no tree builder is called {self.algorithm!r}; there are {', '.join(ALGORITHMS)}"
            )
        if self.max_expansion < 1:
            raise InvalidOption(
                f"a max-expansion of {self.max_expansion} is below 1: no tree is smaller than its list"
            )
        if not self.max_expansion < inf or not 1 <= self.spfac < inf:
            raise InvalidOption("max-expansion and spfac are numbers from 1, and not infinite")
        if self.max_depth is not None and self.max_depth < 1:
            raise InvalidOption(f"a max-depth of {self.max_depth} is below 1: every tree nests one chain")
        if self.effort not in EFFORTS:
            raise InvalidOption(f"unknown effort {self.effort!r}; there are {', '.join(EFFORTS)}")
        if self.leaf_size < 1 or self.min_length < 1:
            raise InvalidOption("binth and min-length are at least 1")
