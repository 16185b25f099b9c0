"""The mutable state of a plan under construction.

`load` is the only operation that changes the loaded rule set, so `apply(state.loaded, edits)` is
`loaded` at any time.  Entries and layouts are changed by planner.py and the modules of one update
(update_rule.py); items of the cache are computed here when they are first asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from hitables.analyse.levels import levels_above
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.ir.rule import Metadata, Rule
from hitables.ir.set_counters import counted_alike

from .cache import Cache
from .chain_names import ChainNames
from .deciding import Deciding
from .edits import Edit, Op, apply
from .layout import ChainId, ChainLayout, EntryChain, section_lists
from .region import Region
from .rule_index import RuleIndex
from .settings import Strategy
from .state import State
from .written import MasterListWrites


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A point to which a plan can return (`PlanState.restore`)."""

    loaded: Program
    edit_count: int
    entry_chains: dict[ChainId, EntryChain]
    unused_overlays: dict[str, dict[str, None]]
    cache: Cache


class PlanState:
    """A state while a plan changes it.

    state, master         the state before the plan, and the master list after its updates
    loaded, layouts, entry_chains, cache   as in a State, after the edits so far
    edits                 of the loaded rule set, in order
    chosen                for each update or fold: table, chain, strategy
    to_fold               by table: the chains to grow anew once all updates are seen
    unused_overlays       by table: overlays that lost an entry and may now be unreferenced
    deepened              tables whose nesting has changed
    delete_in_place       whether a rule may be deleted from a tree where it is, without an entry
    deleted_in_place      whether a rule was
    hot                   hot rules inserted or withdrawn so far, each with table and chain of the list
    """

    def __init__(
        self, state: State, master: Program, strategy: Strategy | None, delete_in_place: bool = False
    ) -> None:
        self.state, self.settings, self.strategy = state, state.settings, strategy
        self.delete_in_place, self.deleted_in_place = delete_in_place, False
        self.master, self.loaded = counted_alike(master, state.loaded)
        self.layouts: dict[ChainId, ChainLayout] = dict(state.layouts)
        self.entry_chains: dict[ChainId, EntryChain] = dict(state.entry_chains)
        self.cache = state.cache.copy()
        self.written = MasterListWrites(state)
        self.edits: list[Edit] = []
        self.chosen: list[tuple[str, str, Strategy]] = []
        self.to_fold: dict[str, dict[str, None]] = {}
        self.unused_overlays: dict[str, dict[str, None]] = {}
        self.deepened: set[str] = set()
        self.hot: list[tuple[ChainId, Rule]] = []
        self._names: dict[str, ChainNames] = {}
        self._deciding: dict[str, Deciding] = {}

    @property
    def family(self) -> Family:
        return self.master.family

    @property
    def backends(self) -> tuple[Backend, ...]:
        return self.state.backends

    # Changes.

    def load(self, *edits: Edit) -> None:
        """Apply *edits* to the loaded rule set, and add them to the patch."""
        self.loaded = apply(self.loaded, edits)
        self.edits += edits
        for table in {edit.table for edit in edits if edit.op is Op.REMOVE}:
            self._forget_last_name(table)

    def choose(self, chain_id: ChainId, strategy: Strategy) -> None:
        self.chosen.append((*chain_id, strategy))

    def fold_later(self, table: str, chain: str) -> None:
        """Grow the chain's trees anew once all updates are seen."""
        self.to_fold.setdefault(table, {})[chain] = None

    def will_fold(self, table: str, chain: str) -> bool:
        return chain in self.to_fold.get(table, {})

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.loaded,
            len(self.edits),
            dict(self.entry_chains),
            {table: dict(names) for table, names in self.unused_overlays.items()},
            self.cache.copy(),
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Undo all edits, and all changes of entries, since *snapshot*."""
        self.loaded, self.entry_chains = snapshot.loaded, snapshot.entry_chains
        self.unused_overlays, self.cache = snapshot.unused_overlays, snapshot.cache
        del self.edits[snapshot.edit_count :]

    def remove_unused_overlays(self, table: str) -> None:
        """Remove the overlays that no entry enters any more, nor the copy of one in a tree of entries."""
        names = self.unused_overlays.pop(table, {})
        if not names:
            return
        entered = {
            rule.target.name
            for chain in self.loaded.table(table).chains
            for rule in chain.rules
            if rule.target is not None and rule.target.name in names
        }
        for name in names:
            if name not in entered:
                self.load(Edit(Op.FLUSH, table, name), Edit(Op.REMOVE, table, name))

    # Names.

    def names(self, table: str) -> ChainNames:
        """Fresh names for chains of *table*."""
        if table not in self._names:
            loaded = self.loaded.find(table)
            used = loaded.by_name() if loaded is not None else {}
            name_range = self.state.name_range
            last = self.cache.last_names.get((table, name_range), 0)
            self._names[table] = ChainNames(self.settings.prefix, used, name_range, last)
        return self._names[table]

    def next_name(self, table: str) -> str:
        """A fresh name for a chain of *table*."""
        names = self.names(table)
        name = names.next()
        self.cache.last_names[table, self.state.name_range] = names.last
        return name

    def reset_names(self, table: str) -> None:
        """Chains were added or removed: compute the free names anew."""
        self._names.pop(table, None)
        self._forget_last_name(table)

    def _forget_last_name(self, table: str) -> None:
        self.cache.last_names.pop((table, self.state.name_range), None)

    # Derived items.

    def writes(self, table: str, rule: Rule) -> frozenset[Metadata]:
        """What *rule* may write, the chains that it enters by -j included."""
        return self.written.by_rule(table, rule, self.loaded)

    def deciding(self, table: str) -> Deciding:
        """The user chains that surely decide once all updates are done; what relies on one that ceases to is
        folded (deciding.py)."""
        if table not in self._deciding:
            self._deciding[table] = Deciding(self.master.table(table), self.settings)
        return self._deciding[table]

    def rule_index(self, chain_id: ChainId, layout: ChainLayout, number: int) -> RuleIndex:
        """The list of section *number* as it is before the update at hand."""
        table, chain = chain_id
        key = table, layout.sections[number].name
        if key not in self.cache.rule_indexes:
            # The first update of the chain in this plan, so the list is that of the state before.
            lists = section_lists(self.state.master.table(table)[chain], self.state.layouts[chain_id])
            for section, rules in zip(layout.sections, lists, strict=True):
                self.cache.rule_indexes.setdefault(
                    (table, section.name), RuleIndex.of(rules, self.master.family)
                )
        return self.cache.rule_indexes[key]

    def regions(self, chain_id: ChainId) -> tuple[Region, ...]:
        """The regions of the entries in a chain."""
        regions = self.cache.regions.get(chain_id)
        if regions is None:
            table, chain = chain_id
            entry_chain = self.entry_chains.get(chain_id)
            rules = self.loaded.table(table)[chain].rules
            regions = tuple(
                Region.of(rules[entry.row], frozenset(), False, self.family, self.backends)
                for entry in (entry_chain.entries if entry_chain else ())
            )
            self.cache.regions[chain_id] = regions
        return regions

    def entry_cost(self, table: str, section: str) -> int:
        """The cost of a section's entries, in thousandths of a rule read."""
        key = table, section
        if key not in self.cache.entry_costs:
            self.cache.entry_costs[key] = sum(
                entry.cost
                for (at, _), entry_chain in self.entry_chains.items()
                if at == table and entry_chain.section == section
                for entry in entry_chain.entries
            )
        return self.cache.entry_costs[key]

    def add_entry_cost(self, table: str, section: str, more: int) -> None:
        if (table, section) in self.cache.entry_costs:
            self.cache.entry_costs[table, section] += more

    def nesting(self, table: str) -> dict[str, int]:
        """By loaded chain: the greatest number of chains that nest above it, or more."""
        if table not in self.cache.nesting:
            self.cache.nesting[table] = levels_above(self.loaded.table(table))
        return self.cache.nesting[table]

    def depth(self, table: str, chain: str) -> int:
        """The greatest number of chains that nest above a loaded chain, or more."""
        return self.nesting(table).get(chain, 0)
