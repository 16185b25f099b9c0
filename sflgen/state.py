"""What sflgen knows at one time: the master list, what is loaded for it, and how the two belong.

A State is a value: planning makes a new one, and nothing here touches files or the kernel.
Law: for every packet, what is loaded does what the master list says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hitables.errors import HitablesError, NotEquivalent
from hitables.ir.choices import backends_of
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.ir.rule import Rule
from hitables.verify.portfolio import check
from hitables.verify.question import Answer, Difference, Equal, Question

from .copy_index import Index
from .layout import Host, Place, Served, Settings
from .region import Region
from .rule_index import Listing

# By chain: its rules, and the hull of each (listing.py).
Hulls = dict[Place, tuple[tuple[Rule, ...], list[dict[int, tuple[int, int]]]]]


@dataclass(frozen=True)
class State:
    """*version* counts the commits; *half*: what names new chains get (base.Names).  What stands behind it
    is kept from plan to plan, and says nothing new; *hulls* is filled as proofs look at chains."""

    settings: Settings
    master: Program
    loaded: Program
    served: Mapping[Place, Served]
    hosts: Mapping[Place, Host] = field(default_factory=dict)
    version: int = 0
    half: int = field(default=0, compare=False)
    levels: Mapping[str, Mapping[str, int]] = field(default_factory=dict, compare=False, repr=False)
    listings: Mapping[Place, Listing] = field(default_factory=dict, compare=False, repr=False)
    regions: Mapping[Place, tuple[Region, ...]] = field(default_factory=dict, compare=False, repr=False)
    indexes: Mapping[Place, Index] = field(default_factory=dict, compare=False, repr=False)
    costs: Mapping[Place, int] = field(default_factory=dict, compare=False, repr=False)
    hulls: Hulls = field(default_factory=dict, compare=False, repr=False)

    @property
    def backends(self) -> tuple[Backend, ...]:
        return backends_of(self.settings.backend)

    def question(self, chains: frozenset[str] = frozenset(), timeout: float | None = None) -> Question:
        """What a proof of the law asks, of all built-in chains or of *chains*."""
        return Question(self.backends, self.settings.malformed, chains=chains, timeout=timeout)

    def pending(self) -> int:
        """Entries that wait to be folded."""
        return sum(len(host.fronts) for host in self.hosts.values())


def bare(master: Program, settings: Settings) -> State:
    """The state in which *master* is loaded as it stands."""
    if settings.delta < 0:
        raise HitablesError("delta is at least 0")
    names = [chain.name for table in master for chain in table.chains]
    prefix = settings.prefix
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return State(replace(settings, prefix=prefix), master, master, {})


def verify(state: State, timeout: float | None = None) -> Answer:
    """Hold what is loaded against the master list: a proof, or a packet."""
    return check(state.master, state.loaded, state.question(timeout=timeout))


def prove(state: State, timeout: float | None = None) -> None:
    """NotEquivalent, with a packet, unless the law holds; HitablesError when time runs out."""
    answer = verify(state, timeout)
    if isinstance(answer, Difference):
        raise NotEquivalent(
            "what would be loaded treats a packet differently; nothing is changed "
            "(this is a fault of sflgen: please report it with the rule set and the updates)",
            answer.describe(),
        )
    if not isinstance(answer, Equal):
        raise HitablesError(f"{answer.reason} while proving (table {answer.table}, chain {answer.chain})")
