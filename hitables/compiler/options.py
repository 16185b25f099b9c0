"""The options of compiling, as one immutable value that is checked when it is created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from ..analyse.weights import Weights
from ..build.grow import ALGORITHMS, EFFORTS
from ..costs.profile import Costs
from ..errors import InvalidOption
from ..ir.choices import BackendChoice, Equivalence, Malformed, backend_choice, choose

# Most user chains that may nest.  iptables-nft accepts 15 ("Too many links" beyond); legacy accepted 5,000,
# more than a tree ever needs.
NESTING = {"any": 15, "nft": 15, "legacy": 200}

# Rules that a leaf may hold before it is split, unless given; 16 is that of the CoNEXT 2014 paper.
LEAF_SIZE = {"tree": 8, "paper": 16}

# What scheme paper alone chooses; the first of each is the default.  Where the paper and its tool of 2014
# differ: the paper's dispatch never prints or reads more; of runs the tool's, for with the paper's the trees
# of the sets fw1 grow beyond use (docs/conext2014.md).
PAPER_CHOICES = {
    "cuts": ("equal", "unequal"),
    "dispatch": ("paper", "tool"),
    "runs": ("tool", "paper"),
    "dim_choice": ("max-dist", "least-max"),
}

NOT_ASKED = "not asked for"
LEFT = "left to another program (--leave)"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of compiling.

    backend        the iptables that loads the result; "any": right and loadable in both
    algorithm      one of build.grow.ALGORITHMS
    leaf_size      rules of a leaf that is not split (binth); the algorithm auto chooses this itself
    min_length     leave chains of fewer rules as they are
    max_expansion  most rules printed per rule of the input, for each chain; a rule of several ports
                   (multiport) counts as one for each two of them
    max_depth      most chains that nest below a compiled one; None: as many as the backend accepts
    effort         one of build.grow.EFFORTS
    costs          the cost of reading rules; None: the shipped profile
    traffic        the weights of rules; None: all equal
    hot            most hot rules in front of the tree of a chain (hot.py); they need traffic
    unequal_cuts   scheme paper: cut between rules, not in equal parts
    dispatch       scheme paper: enter a lone child at once (paper), or by a chain of its own (tool)
    runs           scheme paper: rules of tcp and udp are transformable (tool), or all of five fields (paper)
    dim_choice     scheme paper: cut the axis on which most rules lie apart (max-dist), or the one whose
                   largest part has the fewest rules (least-max), which needs equal cuts
    equivalence    full: every rule stays; verdict: rules that affect no verdict are removed
    as_written     rules keep all matches in their order, so a copy can be identified by its text
    tables, chains compile only these (empty: all)
    leave          patterns of foreign chains: not compiled, and nothing of their rules is relied on
    marked         compiled tables get a marker (ir/marker.py)
    before_jumps   put trees before the last jump to a foreign chain, too, not only behind it
    careful        tables and chains in whose trees a rule stays that others hide from whole packets, and that
                   drops broken ones which those let by; where some rules take such packets, legacy drops them
                   in front of the tree; set by the pipeline behind a fault
    unchanged      by table and chain: why it is printed as it is; set by the pipeline
    """

    backend: BackendChoice = "any"
    malformed: Malformed = Malformed.STRICTER
    algorithm: str = "auto"
    leaf_size: int = LEAF_SIZE["tree"]
    spfac: float = 4.0
    min_length: int = 8
    max_expansion: float = 4.0
    max_depth: int | None = None
    effort: str = "normal"
    costs: Costs | None = None
    traffic: Weights | None = None
    hot: int = 0
    unequal_cuts: bool = False
    dispatch: str = PAPER_CHOICES["dispatch"][0]
    runs: str = PAPER_CHOICES["runs"][0]
    dim_choice: str = PAPER_CHOICES["dim_choice"][0]
    equivalence: Equivalence = Equivalence.FULL
    as_written: bool = False
    tables: frozenset[str] = frozenset()
    chains: frozenset[str] = frozenset()
    leave: tuple[str, ...] = ()
    marked: bool = True
    before_jumps: bool = True
    careful: frozenset[tuple[str, str]] = frozenset()
    unchanged: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The enums are strings: callers may write the words.
        object.__setattr__(self, "backend", backend_choice(self.backend))
        object.__setattr__(self, "malformed", choose(Malformed, self.malformed))
        object.__setattr__(self, "equivalence", choose(Equivalence, self.equivalence))
        if self.algorithm not in ALGORITHMS:
            raise InvalidOption(
                f"no tree builder is called {self.algorithm!r}; use one of {', '.join(ALGORITHMS)}"
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
            raise InvalidOption(f"unknown effort {self.effort!r}; use one of {', '.join(EFFORTS)}")
        for name in ("dispatch", "runs", "dim_choice"):
            check_paper_choice(name, getattr(self, name))
        if self.unequal_cuts and self.dim_choice == "least-max":
            raise InvalidOption("dim-choice least-max compares the parts of equal cuts: it needs cuts equal")
        if self.hot < 0:
            raise InvalidOption(f"{self.hot} hot rules: the number is 0 or more")
        if self.leaf_size < 1 or self.min_length < 1:
            raise InvalidOption("leaf-size and min-length are at least 1")


def check_paper_choice(name: str, word: str) -> None:
    """InvalidOption for a *word* that the option *name* of PAPER_CHOICES does not have."""
    if word not in PAPER_CHOICES[name]:
        known = " or ".join(PAPER_CHOICES[name])
        raise InvalidOption(f"unknown {name.replace('_', '-')} {word!r}; use {known}")
