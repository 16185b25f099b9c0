"""The state of sflgen at one time: the master list, the rule set loaded for it, and how they correspond.

A State is a value: a plan creates a new one, and nothing here touches files or the kernel.
Law: for every packet, the loaded rule set has the effect of the master list (proof.py checks it), whatever
the policies of built-in chains are and whatever rules foreign chains have: both change while trees stay.
Law: matches of ipsets have memory in both rule sets or in none; once they have it, they have it in all later
states, as trees of rules without it may test sets more often than the list does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hitables.ir.choices import backends_of
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.ir.set_counters import counted_alike
from hitables.verify.question import Question

from .cache import Cache
from .chain_names import GeneratedNames
from .layout import ChainId, ChainLayout, EntryChain, tree_chains
from .settings import Settings


@dataclass(frozen=True)
class State:
    """The rule list, what is loaded for it, and how the two correspond.

    master        the rule list
    loaded        the rule set that is loaded for it
    layouts       of the master chains that have trees
    entry_chains  of the loaded chains that hold entries
    version       the number of commits
    name_range    the range of names for new chains (chain_names.py)
    cache         derived items, kept for the next plan
    """

    settings: Settings
    master: Program
    loaded: Program
    layouts: Mapping[ChainId, ChainLayout]
    entry_chains: Mapping[ChainId, EntryChain] = field(default_factory=dict)
    version: int = 0
    name_range: int = field(default=0, compare=False)
    cache: Cache = field(default_factory=Cache, compare=False, repr=False)

    def __post_init__(self) -> None:
        master, loaded = counted_alike(self.master, self.loaded)
        object.__setattr__(self, "master", master)
        object.__setattr__(self, "loaded", loaded)

    @property
    def backends(self) -> tuple[Backend, ...]:
        return backends_of(self.settings.backend)

    def question(self, chains: frozenset[str] = frozenset(), timeout: float | None = None) -> Question:
        """The question whether the law holds, for all built-in chains or for *chains*."""
        return Question(self.backends, self.settings.malformed, chains=chains, timeout=timeout)

    def outnumbered(self) -> list[ChainId]:
        """The chains whose trees had more than `max_updates` updates since they were grown."""
        allows = self.settings.allows
        return [chain_id for chain_id, layout in self.layouts.items() if not allows(layout.updates)]

    def owners(self, table: str) -> dict[str, str]:
        """By generated chain of *table*: the chain of the list that it belongs to."""
        loaded = self.loaded.find(table)
        owners: dict[str, str] = {}
        if loaded is None:
            return owners
        names = GeneratedNames(self.settings.prefix)
        for (where, chain), layout in self.layouts.items():
            if where == table:
                chains = tree_chains(loaded, layout, names) | layout.fixed_chains()
                owners.update(dict.fromkeys(chains, chain))
        return owners

    def pending(self) -> int:
        """The number of entries, which the next fold removes."""
        entries = (entry for entry_chain in self.entry_chains.values() for entry in entry_chain.entries)
        return sum(not entry.hot for entry in entries)


def bare(master: Program, settings: Settings) -> State:
    """The state in which *master* is loaded without trees."""
    names = [chain.name for table in master for chain in table.chains]
    prefix = settings.prefix
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return State(replace(settings, prefix=prefix), master, master, {})
