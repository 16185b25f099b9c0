"""The entries of one section with a tree: inserting, removing and moving them, and their cost.

Invariant: `entry_chains` of the plan names the row of every entry in the loaded chains, and the cached
regions of a chain are those of its entries, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hitables.emit.chain_writer import goto
from hitables.ir.rule import Rule

from .edits import Edit, Op
from .graft import Spot
from .layout import ChainId, Entry, EntryChain
from .plan_state import PlanState
from .region import Region

# A chain holds at most this many entries for each rule of delta before its tree is grown anew: more
# entries in a leaf cost the few packets that reach it too much.
ENTRIES_PER_DELTA = 4


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry to be inserted.

    rule             the entry's rule, without a target if an overlay is to be made
    overlay          the rules of its overlay; none if the rule itself decides
    rank_in_overlay  as in layout.Entry
    is_final         it decides about all its packets, and returns none to a caller
    supersedes       older entries for its region become unnecessary
    """

    region: Region
    rule: Rule
    overlay: tuple[Rule, ...]
    rank_in_overlay: int | None
    is_final: bool
    supersedes: bool


class SectionEntries:
    """The entries of one section, in a plan under construction."""

    def __init__(self, plan: PlanState, table: str, section: str) -> None:
        self.plan, self.table, self.section = plan, table, section
        self.changed: list[str] = []  # chains that got an entry

    def chains(self) -> Iterator[tuple[str, EntryChain]]:
        """The section's chains with entries."""
        for (table, chain), entry_chain in self.plan.entry_chains.items():
            if table == self.table and entry_chain.section == self.section:
                yield chain, entry_chain

    def of_chain(self, chain: str) -> Iterator[tuple[Entry, Region]]:
        """The entries of a chain with their regions."""
        entry_chain = self.plan.entry_chains.get((self.table, chain))
        entries = entry_chain.entries if entry_chain else ()
        return zip(entries, self.plan.regions((self.table, chain)), strict=True)

    def rows(self, chain: str) -> frozenset[int]:
        """The rows of a chain that hold entries."""
        entry_chain = self.plan.entry_chains.get((self.table, chain))
        return frozenset(entry.row for entry in entry_chain.entries) if entry_chain else frozenset()

    # Hot rules.

    def hot_rules(self) -> list[tuple[int, Rule]]:
        """The hot rules in front of the section's tree, with their rows."""
        key = self.table, self.section
        entry_chain = self.plan.entry_chains.get(key)
        rules = self.plan.loaded.table(self.table)[self.section].rules
        return [
            (each.row, rules[each.row]) for each in (entry_chain.entries if entry_chain else ()) if each.hot
        ]

    def withdraw_hot(self, chain_id: ChainId, updated: Sequence[Rule]) -> None:
        """Remove the hot rules that may share a packet with one of *updated*, or with one that is removed.

        A hot rule may be right only behind another, with which it then shares packets.
        """
        plan = self.plan
        left = self.hot_rules()
        regions = {row: Region.around(rule, plan.family, plan.backends) for row, rule in left}
        touched = [Region.around(rule, plan.family, plan.backends) for rule in updated]
        gone: list[int] = []
        while touched:
            region = touched.pop()
            for row in [row for row in regions if region.overlaps(regions[row])]:
                gone.append(row)
                touched.append(regions.pop(row))
        rule_of = dict(left)
        for row in sorted(gone, reverse=True):
            plan.hot.append((chain_id, rule_of[row]))
            self.remove(self.section, row)

    def insert_hot(self, chain_id: ChainId, rules: Sequence[Rule], at: int) -> None:
        """Insert hot rules from row *at* on."""
        plan, table = self.plan, self.table
        for rule in reversed(rules):
            region = Region.of(rule, frozenset(), False, plan.family, plan.backends)
            edit = Edit(Op.INSERT, table, self.section, at, rule)
            self.shift(self.section, [edit], at, 1, (Entry(at, "", None, 0, True), region))
            plan.hot.append((chain_id, rule))

    # Changes.

    def insert(self, new: NewEntry, spots: Sequence[Spot], costs: Sequence[int], overlay_cost: int) -> None:
        """Insert *new* at *spots*, each with its cost, and remove the entries that it supersedes."""
        table, plan = self.table, self.plan
        rule, overlay = new.rule, ""
        if new.overlay:
            overlay = plan.next_name(table)
            rule = rule._replace(target=goto(overlay))
            plan.load(
                Edit(Op.NEW, table, overlay),
                *(Edit(Op.APPEND, table, overlay, at, each) for at, each in enumerate(new.overlay)),
            )
        superseded = sum([self.remove_superseded(spot, new) for spot in spots]) if new.supersedes else 0
        rank = None if superseded else new.rank_in_overlay
        for number, (spot, cost) in enumerate(zip(spots, costs, strict=True)):
            edit = Edit(Op.INSERT, table, spot.chain, spot.row, rule)
            if spot.row == len(plan.loaded.table(table)[spot.chain].rules):
                edit = replace(edit, op=Op.APPEND)
            entry = Entry(spot.row, overlay, rank, cost + (0 if number else overlay_cost))
            self.shift(spot.chain, [edit], spot.row, 1, (entry, new.region))
            self.changed.append(spot.chain)
        plan.remove_unused_overlays(table)

    def remove_superseded(self, spot: Spot, new: NewEntry) -> int:
        """Remove the entries that have no effect behind *new* at *spot*; their number."""
        rows = [
            entry.row
            for entry, region in self.of_chain(spot.chain)
            if entry.row >= spot.row and region.is_behind(new.region)
        ]
        for row in reversed(rows):
            self.remove(spot.chain, row)
        return len(rows)

    def remove(self, chain: str, row: int) -> None:
        """Remove the entry in *row*; its overlay is removed with the last entry that leads to it."""
        entries = self.plan.entry_chains[self.table, chain].entries
        overlay = next(entry.overlay for entry in entries if entry.row == row)
        self.shift(chain, [Edit(Op.DELETE, self.table, chain, row)], row, -1)
        if overlay:
            self.plan.unused_overlays.setdefault(self.table, {})[overlay] = None

    def shift(
        self,
        chain: str,
        edits: Sequence[Edit],
        row: int,
        step: int,
        added: tuple[Entry, Region] | None = None,
    ) -> None:
        """Perform *edits*, which insert (*step* 1) or delete (-1) *row* of a chain; move its entries.

        *added*: the entry in the inserted row.  The entry in a deleted row is forgotten.
        """
        plan, key = self.plan, (self.table, chain)
        regions = plan.regions(key)
        plan.load(*edits)
        before = plan.entry_chains.get(key, EntryChain(self.section, ()))
        entries = [
            (replace(entry, row=entry.row + step * (entry.row >= row)), region)
            for entry, region in zip(before.entries, regions, strict=True)
            if step > 0 or entry.row != row
        ]
        if added is not None:
            entries.append(added)
            entries.sort(key=lambda each: each[0].row)
        plan.cache.regions[key] = tuple(region for _, region in entries)
        if entries:
            plan.entry_chains[key] = EntryChain(self.section, tuple(entry for entry, _ in entries))
        else:
            plan.entry_chains.pop(key, None)
        cost = sum(entry.cost for entry, _ in entries) - sum(entry.cost for entry in before.entries)
        plan.add_entry_cost(self.table, self.section, cost)

    def rules_deleted(self, copies: Sequence[tuple[str, int]]) -> None:
        """The rules in these chains and rows were deleted: correct the ranks in overlays."""
        rows: dict[str, list[int]] = {}
        for chain, row in copies:
            rows.setdefault(chain, []).append(row)

        def corrected(entry: Entry) -> Entry:
            rank = entry.rank_in_overlay
            if rank is None or entry.overlay not in rows:
                return entry
            deleted = rows[entry.overlay]
            lower = sum(row < rank for row in deleted)
            return replace(entry, rank_in_overlay=None if rank in deleted else rank - lower)

        for key, entry_chain in list(self.plan.entry_chains.items()):
            if key[0] == self.table and any(entry.overlay in rows for entry in entry_chain.entries):
                entries = tuple(corrected(entry) for entry in entry_chain.entries)
                self.plan.entry_chains[key] = replace(entry_chain, entries=entries)

    # Cost.

    def cost_too_much(self) -> bool:
        """Whether the section's entries cost more than a new tree, or crowd a chain that got one."""
        plan, delta = self.plan, self.plan.settings.delta
        if plan.entry_cost(self.table, self.section) > 1000 * delta:
            return True
        return any(
            is_crowded(plan.entry_chains[key], delta)
            for chain in self.changed
            if (key := (self.table, chain)) in plan.entry_chains
        )


def is_crowded(entry_chain: EntryChain, delta: int) -> bool:
    """Whether the chain holds so many entries that its tree is due for a fold."""
    return sum(not entry.hot for entry in entry_chain.entries) > ENTRIES_PER_DELTA * delta
