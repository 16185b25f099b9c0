"""Plans: from a state and updates to a patch and the state after it.

A chain without a tree is edited in place.  In front of a tree, an update inserts an *entry* for the
region of packets that it may concern (update_rule.py): the update buffer of "The Small, the Fast and the
Lazy", section IV, with a region where the paper has a rule.  The newest entry is read first, so a packet
reads the newest overlay of any region it is in, and the list has not changed for it since.  When the
entries of a section cost more than `delta`, or its chain has had more than `max_updates` updates, its tree is
grown anew (grow.py).

Invariant: `apply(state.loaded, plan.edits)` is `plan.after.loaded`, and the law of state.py holds for
`plan.after`.  Nothing is proved here; proof.py plans and proves.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hitables.analyse.callgraph import check_loops
from hitables.analyse.levels import levels_above
from hitables.emit.text import write
from hitables.errors import HitablesError, InvalidOption, ParseError, Unsupported
from hitables.ir.program import BUILT_IN, Chain, Program
from hitables.ir.rule import Kind, Rule
from hitables.parse.iptables import read

from .deciding import relying
from .edits import Count, Edit, Op, apply, jumps_to, replaceable, without_undone
from .edits import text as text_of
from .entries import is_crowded
from .given_counts import given_counts
from .grow import Loaded, grow
from .layout import ChainId, ChainLayout, fixed_chains, unreachable_chains
from .nesting import depth_limit
from .plan_state import PlanState
from .settings import Settings, Strategy
from .shared_memory import with_set_counters
from .state import State, bare
from .update_rule import RuleUpdate

# A chain without a tree is tried for one when it has grown to twice this many rules, and twice that …
LIST_WORTH_A_TREE = 64


@dataclass(frozen=True)
class Plan:
    """A patch, with the states before and after it.

    updates           edits of the master list
    edits             edits of the loaded rule set; `text` is their iptables-restore text
    chosen            for each update (and each fold) of a chain: table, chain, strategy
    deleted_in_place  a rule was deleted from a tree where it was, which is right only if proved
    hot               hot rules that it inserts or withdraws, each with table and chain of the list
    counts            by index in edits: the count with which the rule begins, if not with zero
    """

    before: State
    after: State
    updates: tuple[Edit, ...]
    edits: tuple[Edit, ...]
    chosen: tuple[tuple[str, str, Strategy], ...]
    deleted_in_place: bool = False
    hot: tuple[tuple[ChainId, Rule], ...] = ()
    counts: Mapping[int, Count] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """The patch, for `iptables-restore --noflush` of the state's backend."""
        return text_of(self.edits, self.counts)

    @property
    def folds(self) -> bool:
        """Whether a tree is grown anew."""
        return any(strategy is Strategy.FOLD for _, _, strategy in self.chosen)


def merged(plans: Sequence[Plan]) -> Plan:
    """Consecutive plans as one."""
    if len(plans) == 1:
        return plans[0]
    updates, edits, chosen, hot = (
        tuple(itertools.chain.from_iterable(getattr(each, part) for each in plans))
        for part in ("updates", "edits", "chosen", "hot")
    )
    starts = itertools.accumulate((len(each.edits) for each in plans), initial=0)
    counts = {
        start + number: count
        for start, each in zip(starts, plans, strict=False)
        for number, count in each.counts.items()
    }
    before, after = plans[0].before, plans[-1].after
    loadable, places = loadable_edits(before, edits)
    placed = {place: count for number, count in counts.items() if (place := places[number]) is not None}
    if len(placed) < len(counts):  # a row with a count has made way for another one
        placed = given_counts(before, after, updates, loadable)
    return Plan(before, after, updates, tuple(loadable), chosen, hot=hot, counts=placed)


def loadable_edits(before: State, edits: Sequence[Edit]) -> tuple[Sequence[Edit], Sequence[int | None]]:
    """Edits with the same effect that iptables-nft-restore takes; and where each of *edits* is in them, if it
    still is.
    """
    replacing_places: Sequence[int] = range(len(edits))
    if any(edit.op is Op.REPLACE for edit in edits):  # few patches replace a row at all
        edits, replacing_places = replaceable(before.loaded, edits)
    found, places = without_undone(before.loaded, edits)
    return found, [places[place] for place in replacing_places]


def plan_unproved(
    state: State, updates: Sequence[Edit], strategy: Strategy | None = None, *, delete_in_place: bool = False
) -> Plan:
    """Plan *updates*, which were read against `state.master`, without a proof.

    *strategy* OVERLAY or GRAFT never folds because of costs, FOLD folds each chain at once.
    *delete_in_place*: rules may be deleted from trees where they are; the plan is right only if
    a proof of it succeeds.  ParseError if chains would jump in a circle; HitablesError for
    updates that are not possible.
    """
    if not isinstance(state, State) or not all(isinstance(each, Edit) for each in updates):
        raise InvalidOption("a plan takes a State, and the Edits that read_commands or sync return")
    updates = with_set_counters(state.master, state.loaded, updates)
    master = apply(state.master, updates)
    if _adds_calls(state.master, updates):
        check_loops(master)
        _check_unreached_loops(state.master, master)
    return Planner(state, master, strategy, delete_in_place).run(updates)


def _check_unreached_loops(before: Program, after: Program) -> None:
    """Refuse chains that jump in a circle which no packet reaches yet: nothing could be proved of them."""
    known = {table.name for table in before if not table.is_acyclic()}
    for table in after:
        if not table.is_acyclic() and table.name not in known:
            raise Unsupported(
                f"table {table.name}: chains would jump in a circle; no packet reaches it, but the kernel "
                "would refuse a jump to it"
            )


def _adds_calls(master: Program, updates: Sequence[Edit]) -> bool:
    """Whether a rule of *updates* enters a chain that no rule of its own chain in *master* enters.

    Else no chain reaches another that it did not reach before.
    """
    added = {
        (edit.table, edit.chain, callee)
        for edit in updates
        if edit.rule is not None and (callee := jumps_to(edit.rule))
    }
    return any(
        all(jumps_to(rule) != callee for rule in master.rules_of(table, chain))
        for table, chain, callee in added
    )


def start_unproved(master: Program, settings: Settings) -> Plan:
    """From *master* loaded without trees to *master* compiled; `Plan.after` is the new state."""
    if not isinstance(master, Program) or not isinstance(settings, Settings):
        types = type(master).__name__, type(settings).__name__
        raise InvalidOption(f"a start takes a Program and Settings, not {' and '.join(types)}")
    return fold_unproved(bare(master, settings))


def fold_unproved(state: State, chains: Iterable[ChainId] | None = None, *, staged: bool = False) -> Plan:
    """Grow the trees of *chains* anew (if None, of all that hitables would compile), without a proof.

    *staged*: in new chains, so that these can be loaded before they take the place of the old ones.
    """
    planner = Planner(state, state.master, Strategy.FOLD, staged=staged)
    asked = None if chains is None else set(chains)
    for table in state.master:
        for chain in table.chains:
            if asked is not None:
                wanted = (table.name, chain.name) in asked
            else:
                is_long = len(chain.rules) >= state.settings.min_length
                wanted = is_long or (table.name, chain.name) in state.layouts
            if wanted and not state.settings.is_foreign(chain.name):
                planner.plan.fold_later(table.name, chain.name)
    return planner.run(())


class Planner:
    """Makes one plan: every update of *master* in order, then the folds that they require."""

    def __init__(
        self,
        state: State,
        master: Program,
        strategy: Strategy | None,
        delete_in_place: bool = False,
        staged: bool = False,
    ) -> None:
        self.plan = PlanState(state, master, strategy, delete_in_place)
        self.staged = staged
        self.folded: set[ChainId] = set()

    def run(self, updates: Sequence[Edit]) -> Plan:
        plan = self.plan
        plan.written.added = updates
        for edit in updates:
            self.check_allowed(edit)
        self.fold_busy_chains(updates)
        for chain_id in relying(plan.state, plan.master, updates):
            plan.fold_later(*chain_id)
        for edit in updates:
            self.update(edit)
        for table in dict.fromkeys(edit.table for edit in updates):
            self.fold_callers(table, updates)
        self.fold_all()
        for table in plan.deepened:
            self.check_nesting(table)
        self.check_scopes(updates)
        after = replace(
            plan.state,
            master=plan.master,
            loaded=plan.loaded,
            layouts=plan.layouts,
            entry_chains=plan.entry_chains,
            cache=plan.cache,
            version=plan.state.version + 1,
        )
        edits, chosen = tuple(loadable_edits(plan.state, plan.edits)[0]), tuple(plan.chosen)
        hot, counts = tuple(plan.hot), given_counts(plan.state, after, updates, edits)
        return Plan(plan.state, after, tuple(updates), edits, chosen, plan.deleted_in_place, hot, counts)

    def check_allowed(self, edit: Edit) -> None:
        settings = self.plan.settings
        if settings.is_foreign(edit.chain) and edit.op is not Op.NEW:  # a rule may enter a new one
            raise HitablesError(
                f"chain {edit.chain} of table {edit.table} is left alone (init --leave); "
                "update it with the tool that owns it"
            )
        if edit.op is Op.NEW and self.plan.names(edit.table).is_generated(edit.chain):
            raise HitablesError(
                f"a chain cannot be called {edit.chain}: names of {settings.prefix} and a number are reserved"
            )

    def check_scopes(self, updates: Sequence[Edit]) -> None:
        """Refuse a jump by which a built-in chain reaches a rule that the kernel does not take below it.

        The list is written and read again, so only if a jump, or a rule that one may reach, is new.
        """
        master, before = self.plan.master, self.plan.state.master
        has_jump = any(edit.rule is not None and jumps_to(edit.rule) for edit in updates)
        if not has_jump or not (_adds_calls(before, updates) or any(map(_may_be_bound, updates))):
            return
        try:
            read(write(master), family=master.family, name="the updated list")
        except ParseError as error:
            raise Unsupported(f"{error}\nThe update is refused: iptables would refuse the list.") from None

    # One update.

    def update(self, edit: Edit) -> None:
        plan, chain_id = self.plan, (edit.table, edit.chain)
        if edit.op is Op.REMOVE:
            self.remove_chain(edit)
        elif edit.op in (Op.NEW, Op.POLICY):
            plan.load(edit)
            plan.choose(chain_id, Strategy.EDIT)
        elif chain_id in self.folded:
            pass  # it was grown for the list after all updates
        elif chain_id in plan.layouts:
            if edit.op is Op.FLUSH:
                plan.fold_later(*chain_id)
                empty = tuple(replace(section, size=0) for section in plan.layouts[chain_id].sections)
                plan.layouts[chain_id] = ChainLayout(empty)
            else:
                RuleUpdate(plan, edit).run()
        elif not plan.will_fold(*chain_id):
            self.update_list(edit)

    def update_list(self, edit: Edit) -> None:
        """Edit a chain without a layout in place; fold it when it has grown long."""
        plan = self.plan
        plan.load(edit)
        if edit.rule is not None and jumps_to(edit.rule):
            plan.deepened.add(edit.table)
        plan.choose((edit.table, edit.chain), Strategy.EDIT)
        if edit.op in (Op.APPEND, Op.INSERT):
            count = len(plan.loaded.table(edit.table)[edit.chain].rules)
            is_power_of_two = count & count - 1 == 0
            if count > LIST_WORTH_A_TREE and is_power_of_two:
                plan.fold_later(edit.table, edit.chain)

    def remove_chain(self, edit: Edit) -> None:
        """Remove a user chain; trees may still hold jumps to it, in rules that no packet reaches."""
        plan, chain_id = self.plan, (edit.table, edit.chain)
        if chain_id in plan.layouts:
            plan.fold_later(*chain_id)
        for (table, chain), layout in plan.layouts.items():
            if table == edit.table and chain != edit.chain and self.jumps_below(table, layout, edit.chain):
                plan.fold_later(table, chain)
        self.fold_all(removed=chain_id)
        self.remove_stale(edit.table)
        plan.load(edit)
        self.folded.discard(chain_id)
        plan.choose(chain_id, Strategy.EDIT)

    def remove_stale(self, table_name: str) -> None:
        """Remove chains of trees that no rule enters since a deletion in place; they may jump to others."""
        plan, table = self.plan, self.plan.loaded.table(table_name)
        keep = fixed_chains(layout for (name, _), layout in plan.layouts.items() if name == table_name)
        stale = unreachable_chains(table, keep, plan.names(table_name))
        plan.load(*(Edit(Op.FLUSH, table_name, name) for name in stale if table[name].rules))
        plan.load(*(Edit(Op.REMOVE, table_name, name) for name in stale))
        if stale:
            plan.reset_names(table_name)

    def jumps_below(self, table: str, layout: ChainLayout, chain: str) -> bool:
        """Whether a loaded chain of *layout* jumps to *chain*, even in a rule that no packet reaches."""
        loaded, names = self.plan.loaded.table(table), self.plan.names(table)
        seen = {section.name for section in layout.sections} | layout.fixed_chains()
        pending = list(seen)
        while pending:
            for rule in loaded[pending.pop()].rules:
                callee = jumps_to(rule)
                if callee == chain:
                    return True
                if names.is_generated(callee) and callee not in seen:
                    seen.add(callee)
                    pending.append(callee)
        return False

    # Folds.

    def fold_busy_chains(self, updates: Sequence[Edit]) -> None:
        """Fold chains with more updates than entries are worth, or all if the strategy is FOLD."""
        plan = self.plan
        count_of = Counter((edit.table, edit.chain) for edit in updates)
        for chain_id, count in count_of.items():
            is_busy = plan.strategy is Strategy.FOLD or count > plan.settings.delta
            is_busy |= plan.strategy is None and not plan.settings.allows(count)
            if chain_id in plan.layouts and is_busy:
                plan.fold_later(*chain_id)

    def fold_all(self, removed: ChainId | None = None) -> None:
        """Grow the trees of all chains to fold, for the list after all updates.

        *removed*: a chain that is about to be removed; it is emptied, like those that the list lacks.
        """
        plan = self.plan
        to_fold, plan.to_fold = plan.to_fold, {}
        for table, chains in to_fold.items():
            regrown = grow(
                Loaded(plan.loaded, plan.layouts, plan.entry_chains),
                self.master_with_empty(table, chains, removed),
                table,
                list(chains),
                plan.settings,
                plan.state.name_range,
                self.staged,
            )
            plan.load(*regrown.edits)
            plan.reset_names(table)
            for chain_id, layout in regrown.layouts.items():
                self.replace_layout(chain_id, layout)
            for name in chains:
                plan.choose((table, name), Strategy.FOLD)
            plan.deepened.add(table)

    def master_with_empty(self, table: str, chains: Iterable[str], removed: ChainId | None) -> Program:
        """The master list, in which those of *chains* that it lacks, and *removed*, are empty."""
        master = self.plan.master
        listed = master.table(table)
        empty = {name for name in chains if name not in listed or (table, name) == removed}
        if not empty:
            return master
        others = tuple(chain for chain in listed.chains if chain.name not in empty)
        padded = replace(listed, chains=(*others, *(Chain(name, None) for name in empty)))
        return replace(master, tables=tuple(padded if each is listed else each for each in master))

    def replace_layout(self, chain_id: ChainId, layout: ChainLayout | None) -> None:
        """Record the new layout of a folded chain, which has no entries."""
        plan, table = self.plan, chain_id[0]
        before = plan.layouts.pop(chain_id, None)
        sections = {section.name for section in before.sections} if before else set()
        for name in sections:
            plan.cache.drop_section((table, name))
        for key in [key for key, each in plan.entry_chains.items() if each.section in sections]:
            if key[0] == table:
                del plan.entry_chains[key]
                plan.cache.regions.pop(key, None)
        if layout is not None:
            plan.layouts[chain_id] = layout
        self.folded.add(chain_id)

    def fold_callers(self, table: str, updates: Sequence[Edit]) -> None:
        """Fold the chains that enter a chain which may now write more than when their trees were grown."""
        plan = self.plan
        if not any(
            jumps_to(edit.rule) or plan.writes(table, edit.rule)
            for edit in updates
            if edit.table == table and edit.rule is not None
        ):
            return
        before, after = plan.written.by_chain(table, updated=False), plan.written.by_chain(table)
        widened = {chain for chain, written in after.items() if written - before.get(chain, frozenset())}
        for where, chain in list(plan.layouts):
            if where == table and any(
                rule.target is not None and rule.target.kind is Kind.JUMP and rule.target.name in widened
                for rule in plan.master.table(table)[chain].rules
            ):
                plan.fold_later(table, chain)

    def check_nesting(self, table: str) -> None:
        """Unsupported if chains nest deeper than the backend accepts."""
        plan = self.plan
        limit = depth_limit(plan.settings)
        plan.cache.nesting[table] = levels_above(plan.loaded.table(table))
        if max(plan.cache.nesting[table].values(), default=0) > limit:
            backend = "nft" if plan.settings.backend == "any" else plan.settings.backend
            raise Unsupported(
                f"table {table}: with these updates chains nest deeper than the {limit} levels that "
                f"{backend} accepts"
            )


def _may_be_bound(edit: Edit) -> bool:
    """Whether the rule of *edit* may be one that the kernel takes below some built-in chains only."""
    rule = edit.rule
    if rule is None or edit.chain in BUILT_IN.get(edit.table, ()):
        return False
    target = rule.target
    is_plain = target is None or target.kind is not Kind.VERDICT or target.name in ("ACCEPT", "DROP")
    return not is_plain or any(match.name for match in rule.matches)


# Pending entries.


def due(state: State) -> list[ChainId]:
    """The chains whose entries cost more than `delta`, or crowd a leaf, or that had too many updates."""
    outnumbered = state.outnumbered()
    delta = state.settings.delta
    costs: dict[ChainId, float] = defaultdict(float)
    for (table, _), entry_chain in state.entry_chains.items():
        cost = sum(entry.cost for entry in entry_chain.entries)
        costs[table, entry_chain.section] += cost + (
            1000 * delta + 1 if is_crowded(entry_chain, delta) else 0
        )
    sections = {key for key, cost in costs.items() if cost > 1000 * delta}
    if not sections:
        return outnumbered
    return [
        (table, chain)
        for (table, chain), layout in state.layouts.items()
        if (table, chain) in outnumbered
        or any((table, section.name) in sections for section in layout.sections)
    ]


def costs_a_fold(plan: Plan) -> bool:
    """Whether the entries of *plan* alone make packets read `delta` more rules.

    A fold in the background takes seconds, in which every packet would read them.
    """
    added: dict[ChainId, int] = defaultdict(int)
    for state, sign in ((plan.before, -1), (plan.after, 1)):
        for (table, _), entry_chain in state.entry_chains.items():
            added[table, entry_chain.section] += sign * sum(entry.cost for entry in entry_chain.entries)
    return any(cost > 1000 * plan.after.settings.delta for cost in added.values())


@dataclass(frozen=True)
class Pending:
    """The entries of one chain, and the additional rules that an average packet reads because of them.

    *updates*: since its trees were grown, if they are counted.
    """

    table: str
    chain: str
    entries: int
    cost: float
    updates: int


def pending(state: State) -> list[Pending]:
    """The pending entries of each chain with a tree: what a fold would save."""
    items = []
    for (table, chain), layout in state.layouts.items():
        sections = {section.name for section in layout.sections}
        entries = [
            entry
            for (at, _), entry_chain in state.entry_chains.items()
            if at == table and entry_chain.section in sections
            for entry in entry_chain.entries
            if not entry.hot
        ]
        cost = sum(entry.cost for entry in entries) / 1000
        items.append(Pending(table, chain, len(entries), cost, layout.updates))
    return items
