"""Plans: from a state and updates to a patch and the state after it.

A chain that is read rule by rule is edited in place.  In front of a tree goes, for the region
that an update touches, an entry that leads by `-g` to an *overlay*: what the list says now for
that region, in order, up to the first rule that ends the way of all its packets (the update
buffer of "The Small, the Fast and the Lazy", section IV, with a region of packets where the
paper has a rule).  The newest entry stands first, so a packet meets the newest overlay of a
region it is in, and the list has not changed for it since.  When the entries cost more rules
read than `delta`, the tree is grown anew (base.py), and only what differs is said.

Invariant: `apply(state.loaded, plan.edits)` is `plan.after.loaded`, and the law of state.py
holds for it.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hitables.analyse.callgraph import check_loops, levels_above
from hitables.compiler.options import NESTING
from hitables.errors import HitablesError, Unsupported
from hitables.ir.program import Chain, Program
from hitables.ir.rule import Kind

from .edits import Edit, Op, apply, jumps_to, with_memory
from .edits import text as text_of
from .layout import Place, Served, Settings, Strategy, grow
from .plan_state import Draft
from .state import State, bare
from .update_rule import LEAF, SectionUpdate

# A chain that is read rule by rule is looked at again when it has grown to twice this, and twice that …
WORTH_A_TREE = 64


@dataclass(frozen=True)
class Plan:
    """A patch, and what is so once it is loaded.

    updates  what happens to the master list
    edits    what happens to what is loaded; `text` says it to iptables-restore --noflush
    chosen   for each update (and each fold) of a chain: table, chain, strategy
    taken    rules were taken out where they stand, which a proof has to show to be right
    """

    before: State
    after: State
    updates: tuple[Edit, ...]
    edits: tuple[Edit, ...]
    chosen: tuple[tuple[str, str, Strategy], ...]
    taken: bool = False

    @cached_property
    def text(self) -> str:
        """The patch, for `iptables-restore --noflush` of the state's backend."""
        return text_of(self.edits)


def merged(plans: Sequence[Plan]) -> Plan:
    """Plans, each for the state behind the one before, as one."""
    if len(plans) == 1:
        return plans[0]
    updates, edits, chosen = (
        tuple(itertools.chain.from_iterable(getattr(each, part) for each in plans))
        for part in ("updates", "edits", "chosen")
    )
    return Plan(plans[0].before, plans[-1].after, updates, edits, chosen)


def plan(
    state: State, updates: Sequence[Edit], strategy: Strategy | None = None, *, taking: bool = False
) -> Plan:
    """Plan *updates*, which were read against `state.master`.

    *strategy* OVERLAY puts off folding whatever it costs, FOLD folds each chain at once.  *taking*: rules
    that are deleted may be taken out where they stand; the law is then for a proof to show (local.py).
    ParseError when chains would jump in a circle; HitablesError for what cannot be served.
    """
    updates = with_memory(state.master, updates)
    master = apply(state.master, updates)
    if any(edit.rule is not None and jumps_to(edit.rule) for edit in updates):
        check_loops(master)
    return Planning(state, master, strategy, taking).run(updates)


def start(master: Program, settings: Settings) -> Plan:
    """From *master* as it stands to *master* compiled."""
    return fold(bare(master, settings))


def fold(state: State, chains: Iterable[Place] | None = None, *, aside: bool = False) -> Plan:
    """Grow the trees of *chains* anew (all that hitables would compile, when None).

    *aside*: in chains of their own, so that they can be loaded before they take the place of the old.
    """
    planning = Planning(state, state.master, Strategy.FOLD)
    planning.aside = aside
    for table in state.master:
        for chain in table.chains:
            if chains is not None:
                wanted = (table.name, chain.name) in chains
            else:
                long = len(chain.rules) >= state.settings.min_length
                wanted = long or (table.name, chain.name) in state.served
            if wanted and not state.settings.is_left(chain.name):
                planning.fold(table.name, chain.name)
    return planning.run(())


class Planning(Draft):
    """One plan being made."""

    def __init__(
        self, state: State, master: Program, strategy: Strategy | None, taking: bool = False
    ) -> None:
        super().__init__(state, master, strategy, taking)
        self.folded: set[Place] = set()
        self.aside = False

    def run(self, updates: Sequence[Edit]) -> Plan:
        for edit in updates:
            self.allowed(edit)
        busy = Counter((edit.table, edit.chain) for edit in updates)
        for place, count in busy.items():
            if place in self.served and (self.strategy is Strategy.FOLD or count > self.settings.delta):
                self.fold(*place)
        for edit in updates:
            self.update(edit)
        for table in dict.fromkeys(edit.table for edit in updates):
            self.fold_callers(table, updates)
        self.fold_all()
        for table in self.deepened:
            self.check_nesting(table)
        after = replace(
            self.state,
            master=self.master,
            loaded=self.loaded,
            served=self.served,
            hosts=self.hosts,
            listings=self.listings,
            levels=self.levels,
            regions=self.regions,
            costs=self.costs,
            indexes=self.indexes,
            version=self.state.version + 1,
        )
        return Plan(self.state, after, tuple(updates), tuple(self.edits), tuple(self.chosen), self.taken)

    def allowed(self, edit: Edit) -> None:
        if self.settings.is_left(edit.chain):
            raise HitablesError(
                f"chain {edit.chain} of table {edit.table} is left to others (init --leave); update it there"
            )
        if edit.op is Op.NEW and self.made(edit.table).is_made(edit.chain):
            raise HitablesError(
                f"a chain cannot be called {edit.chain}: {self.settings.prefix} and a number are ours"
            )

    # One update.

    def update(self, edit: Edit) -> None:
        place = edit.table, edit.chain
        if edit.op is Op.REMOVE:
            self.remove(edit)
        elif edit.op in (Op.NEW, Op.POLICY):
            self.load(edit)
            self.chosen.append((*place, Strategy.EDIT))
        elif place in self.folded:
            pass  # it is already as it will be after all updates
        elif place in self.served:
            if edit.op is Op.FLUSH:
                self.fold(*place)
                emptied = tuple(replace(each, size=0) for each in self.served[place].sections)
                self.served[place] = Served(emptied)
            else:
                SectionUpdate(self, edit).run()
        elif edit.chain not in self.folding.get(edit.table, {}):
            self.load(edit)
            if edit.rule is not None and jumps_to(edit.rule):
                self.deepened.add(edit.table)
            self.chosen.append((*place, Strategy.EDIT))
            if edit.op in (Op.APPEND, Op.INSERT):
                count = len(self.loaded.table(edit.table)[edit.chain].rules)
                if count > WORTH_A_TREE and count & count - 1 == 0:
                    self.fold(*place)

    def remove(self, edit: Edit) -> None:
        """Remove a user chain; trees in which nobody comes to its jumps any more may still hold them."""
        if (edit.table, edit.chain) in self.served:
            self.fold(edit.table, edit.chain)
        for (table, chain), served in self.served.items():
            if table == edit.table and chain != edit.chain and self.enters(table, served, edit.chain):
                self.fold(table, chain)
        self.fold_all(emptied=(edit.table, edit.chain))
        self.load(edit)
        self.folded.discard((edit.table, edit.chain))
        self.chosen.append((edit.table, edit.chain, Strategy.EDIT))

    def enters(self, table: str, served: Served, chain: str) -> bool:
        """Whether what serves a chain jumps to *chain*, be it where no packet comes."""
        held, made = self.loaded.table(table), self.made(table)
        seen = {section.name for section in served.sections} | served.names()
        todo = list(seen)
        while todo:
            for rule in held[todo.pop()].rules:
                name = jumps_to(rule)
                if name == chain:
                    return True
                if made.is_made(name) and name not in seen:
                    seen.add(name)
                    todo.append(name)
        return False

    # Folding.

    def fold_all(self, emptied: Place | None = None) -> None:
        """Grow what is to be folded, as it is after all updates.

        *emptied* is about to be removed, and so is what the list does not have any more.
        """
        folding, self.folding = self.folding, {}
        for table, chains in folding.items():
            master = self.master
            held = master.table(table)
            gone = {name for name in chains if name not in held or (table, name) == emptied}
            if gone:
                others = tuple(chain for chain in held.chains if chain.name not in gone)
                left = replace(held, chains=(*others, *(Chain(name, None) for name in gone)))
                master = replace(master, tables=tuple(left if each is held else each for each in master))
            grown = grow(
                self.loaded,
                master,
                self.served,
                self.hosts,
                table,
                list(chains),
                self.settings,
                self.state.half,
                self.aside,
            )
            self.load(*grown.edits)
            self.names.pop(table, None)
            for place, served in grown.served.items():
                before = self.served.pop(place, None)
                gone_sections = {section.name for section in before.sections} if before else set()
                for name in gone_sections:
                    self.listings.pop((table, name), None)
                    self.costs.pop((table, name), None)
                    self.indexes.pop((table, name), None)
                for key in [key for key, host in self.hosts.items() if host.section in gone_sections]:
                    if key[0] == table:
                        del self.hosts[key]
                        self.regions.pop(key, None)
                if served is not None:
                    self.served[place] = served
                self.folded.add(place)
            self.chosen += [(table, name, Strategy.FOLD) for name in chains]
            self.deepened.add(table)

    def fold_callers(self, table: str, updates: Sequence[Edit]) -> None:
        """Fold the chains whose trees were laid out for a callee that writes less than it does now."""
        if not any(
            jumps_to(edit.rule) or self.writes(table, edit.rule)
            for edit in updates
            if edit.table == table and edit.rule is not None
        ):
            return
        before, after = self.states(table, False), self.states(table, True)
        more = {chain for chain, states in after.items() if states - before.get(chain, frozenset())}
        for where, chain in list(self.served):
            if where == table and any(
                rule.target is not None and rule.target.kind is Kind.JUMP and rule.target.name in more
                for rule in self.master.table(table)[chain].rules
            ):
                self.fold(table, chain)

    def check_nesting(self, table: str) -> None:
        """Unsupported when chains nest deeper than the backend takes."""
        backend = "nft" if self.settings.backend == "any" else self.settings.backend
        limit = NESTING[backend]
        self.levels[table] = levels_above(self.loaded.table(table))
        if max(self.levels[table].values(), default=0) > limit:
            raise Unsupported(
                f"table {table}: with these updates chains nest deeper than the {limit} that {backend} takes"
            )


def due(state: State) -> list[Place]:
    """The chains whose entries cost more than what is let wait for new trees."""
    delta = state.settings.delta
    costs: dict[Place, float] = defaultdict(float)
    for (table, _), host in state.hosts.items():
        crowded = len(host.fronts) > LEAF * delta
        more = sum(front.cost for front in host.fronts)
        costs[table, host.section] += more + (1000 * delta + 1 if crowded else 0)
    sections = {key for key, cost in costs.items() if cost > 1000 * delta}
    if not sections:
        return []
    return [
        (table, chain)
        for (table, chain), served in state.served.items()
        if any((table, section.name) in sections for section in served.sections)
    ]


@dataclass(frozen=True)
class Pending:
    """What waits in front of one chain: entries, and the rules read more for them, on average."""

    table: str
    chain: str
    entries: int
    cost: float


def pending(state: State) -> list[Pending]:
    """What a fold would gain, by chain with a tree."""
    found = []
    for (table, chain), served in state.served.items():
        names = {section.name for section in served.sections}
        hosts = [host for (at, _), host in state.hosts.items() if at == table and host.section in names]
        fronts = [front for host in hosts for front in host.fronts]
        found.append(Pending(table, chain, len(fronts), sum(front.cost for front in fronts) / 1000))
    return found
