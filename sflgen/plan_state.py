"""What a plan is made of, as far as it is made: the state that changes, and the edits that say so.

`load` is the one way to change what is loaded, so `apply(state.loaded, edits)` is `loaded` all the time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hitables.analyse.callgraph import levels_above
from hitables.analyse.callgraph import writes as written_by
from hitables.ir.program import Program, Table
from hitables.ir.rule import Kind, Rule
from hitables.ir.rule import State as What

from .edits import Edit, Op, apply
from .layout import OTHERS, Host, Names, Place, Served, Strategy, section_lists
from .rule_index import Listing
from .state import State


class Draft:
    """What changes: `loaded`, what serves it, what is known of that, the edits so far, what is to fold."""

    def __init__(
        self, state: State, master: Program, strategy: Strategy | None, taking: bool = False
    ) -> None:
        self.state, self.settings, self.strategy = state, state.settings, strategy
        self.taking, self.taken = taking, False
        self.master, self.loaded = master, state.loaded
        self.served: dict[Place, Served] = dict(state.served)
        self.hosts: dict[Place, Host] = dict(state.hosts)
        self.costs: dict[Place, int] = dict(state.costs)
        self.listings = dict(state.listings)
        self.regions = dict(state.regions)
        self.indexes = dict(state.indexes)
        self.edits: list[Edit] = []
        self.chosen: list[tuple[str, str, Strategy]] = []
        self.unused: dict[str, dict[str, None]] = {}  # overlays that an entry less leads to
        self.folding: dict[str, dict[str, None]] = {}
        self.levels = dict(state.levels)
        self.deepened: set[str] = set()  # tables of which levels are not known any more
        self.names: dict[str, Names] = {}
        self.written: dict[tuple[str, bool], dict[str, frozenset[What]]] = {}

    def choose(self, place: Place, strategy: Strategy) -> None:
        self.chosen.append((*place, strategy))

    def mark(self) -> tuple[object, ...]:
        """What `back_to` goes back to."""
        return (
            self.loaded,
            len(self.edits),
            dict(self.hosts),
            dict(self.costs),
            dict(self.regions),
            {table: dict(names) for table, names in self.unused.items()},
            dict(self.levels),
        )

    def back_to(self, mark: tuple[Any, ...]) -> None:
        """Forget what was put in front of trees since."""
        self.loaded, count, self.hosts, self.costs, self.regions, self.unused, self.levels = mark
        del self.edits[count:]

    def cost(self, table: str, section: str) -> int:
        """What the entries of a section cost, in thousandths of a rule read."""
        key = table, section
        if key not in self.costs:
            hosts = (host for (at, _), host in self.hosts.items() if at == table and host.section == section)
            self.costs[key] = sum(front.cost for host in hosts for front in host.fronts)
        return self.costs[key]

    def add_cost(self, table: str, section: str, more: int) -> None:
        key = table, section
        if key in self.costs:
            self.costs[key] += more

    def clear_unused(self, table: str) -> None:
        """Remove the overlays to which no entry leads any more."""
        names = self.unused.pop(table, {})
        if not names:
            return
        used = {front.chain for (at, _), host in self.hosts.items() if at == table for front in host.fronts}
        for name in names:
            if name not in used:
                self.load(Edit(Op.FLUSH, table, name), Edit(Op.REMOVE, table, name))

    # What the kernel is told.

    def load(self, *edits: Edit) -> None:
        self.loaded = apply(self.loaded, edits)
        self.edits += edits

    def made(self, table: str) -> Names:
        if table not in self.names:
            held = self.loaded.table(table).by_name() if self.has(self.loaded, table) else {}
            self.names[table] = Names(self.settings.prefix, held, self.state.half)
        return self.names[table]

    @staticmethod
    def has(program: Program, table: str) -> bool:
        return any(each.name == table for each in program)

    # Folding.

    def fold(self, table: str, chain: str) -> None:
        """Grow the chain's trees anew once all updates are seen."""
        self.folding.setdefault(table, {})[chain] = None

    # What the rules around an update do.

    def states(self, table: str, after: bool) -> dict[str, frozenset[What]]:
        """What each chain of the master list may write."""
        key = table, after
        if key not in self.written:
            program = self.master if after else self.state.master
            self.written[key] = {}
            if self.has(program, table):
                found = written_by(self.as_left(program.table(table)))
                self.written[key] = found
        return self.written[key]

    def as_left(self, table: Table) -> Table:
        """The table with chains of others as chains that may do anything."""
        if not any(self.settings.is_left(chain.name) for chain in table.chains):
            return table
        return replace(
            table,
            chains=tuple(
                chain.with_rules((Rule((), OTHERS),)) if self.settings.is_left(chain.name) else chain
                for chain in table.chains
            ),
        )

    def writes(self, table: str, rule: Rule) -> frozenset[What]:
        """What *rule* may write, chains that it enters and comes back from included."""
        target = rule.target
        if target is None or target.kind is not Kind.JUMP:
            return rule.writes
        states = self.states(table, True)
        if target.name in states:
            return rule.writes | states[target.name]
        shared = self.loaded.table(table)[target.name].rules  # a chain of one rule with memory
        return rule.writes.union(*(self.writes(table, each) for each in shared))

    def listing(self, place: Place, served: Served, number: int) -> Listing:
        """The list of a section as it is before the update at hand."""
        key = place[0], served.sections[number].name
        if key not in self.listings:
            chain = self.state.master.table(place[0])[place[1]]  # as no update of it was seen so far
            lists = section_lists(chain, self.state.served[place])
            for section, listed in zip(served.sections, lists, strict=True):
                self.listings.setdefault((place[0], section.name), Listing.of(listed, self.master.family))
        return self.listings[key]

    def level(self, table: str, chain: str) -> int:
        """How many chains nest above *chain*, at most."""
        if table not in self.levels:
            self.levels[table] = levels_above(self.loaded.table(table))
        return self.levels[table].get(chain, 0)
