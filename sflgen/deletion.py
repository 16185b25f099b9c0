"""Deletions without a new entry.

cancel           the rule was inserted by an entry that still waits: that entry is removed
delete in place  the copies of the rule are deleted from the tree and its entries

Cancelling is right because no newer entry concerns the packets of the rule.  Deleting in place is right
only if the rule did not hide others, which were left out of the tree behind it; that is not known here,
so a proof of the patch must follow (proof.py), and the planner does it only on request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hitables.ir.rule import Kind, Metadata, Rule

from .copy_index import MAX_COPIES, CopyIndex, index_copies, led
from .edits import Edit, Op, jumps_to, rule_key
from .entries import SectionEntries
from .graft import Spot
from .layout import ChainLayout, Entry
from .overlay_rules import needed
from .placement import Placement
from .plan_state import PlanState
from .region import Region
from .rule_index import RuleIndex
from .rule_rows import Bools, spelling
from .settings import Strategy


class Deletion:
    """The deletion of *rule*, which is at index *at* of the list *before*, from one section."""

    def __init__(
        self,
        plan: PlanState,
        entries: SectionEntries,
        placement: Placement,
        layout: ChainLayout,
        before: RuleIndex,
        at: int,
    ) -> None:
        self.plan, self.entries, self.placement, self.layout = plan, entries, placement, layout
        self.table, self.section = entries.table, entries.section
        self.before, self.at, self.rule = before, at, before.rules[at]

    # Cancelling.

    def cancel(self) -> bool:
        """Remove the entries that insert the rule; False if there are none, or newer ones before them."""
        plan, head = self.plan, self.placement.head

        def writes(rule: Rule) -> frozenset[Metadata]:
            return plan.writes(self.table, rule)

        dirty = self.before.written_before(self.at, writes)
        exact = self.placement.exact
        region = Region.of(self.rule, dirty, exact, plan.family, plan.backends)
        if not self.has_insertion_entry(region):
            return False
        deciding = plan.deciding(self.table)
        concerned, decided = self.before.relevant(region, writes, head, deciding)
        rules = [self.before.rules[at] for at in concerned]
        kept = [concerned[at] for at in needed(region, rules, decided, writes, exact, deciding)]
        if self.at not in kept:
            return False
        rank = kept.index(self.at)
        spots = self.placement.leaves(region, is_final=True)
        if spots is None or not all(self.is_insertion_at(spot, region, rank) for spot in spots):
            return False
        for spot in spots:
            self.entries.remove(spot.chain, spot.row)
        plan.remove_unused_overlays(self.table)
        return True

    def has_insertion_entry(self, region: Region) -> bool:
        """Whether an entry of exactly this region expresses the insertion of one rule."""
        return any(
            entry.rank_in_overlay is not None and entry_region.matches == region.matches
            for chain, _ in self.entries.chains()
            for entry, entry_region in self.entries.of_chain(chain)
        )

    def is_insertion_at(self, spot: Spot, region: Region, rank: int) -> bool:
        """Whether the entry at *spot* is of *region* and expresses the insertion of the rule."""
        for entry, entry_region in self.entries.of_chain(spot.chain):
            is_wanted = entry.row == spot.row and entry.rank_in_overlay == rank
            if is_wanted and entry_region.matches == region.matches:
                return self.inserts_rule(spot.chain, entry)
        return False

    def inserts_rule(self, chain: str, entry: Entry) -> bool:
        """Whether the rule that the entry inserts is equal to the rule."""
        loaded = self.plan.loaded.table(self.table)
        if entry.overlay:
            rules, rank = loaded[entry.overlay].rules, entry.rank_in_overlay
            return rank is not None and rule_key(rules[rank]) == rule_key(self.rule)
        own = loaded[chain].rules[entry.row]
        shortened = self.rule._replace(matches=own.matches)  # where its region passes the other matches
        return rule_key(own) in (rule_key(self.rule), rule_key(shortened))

    # Deleting in place.

    def delete_in_place(self) -> bool:
        """Delete the copies of the rule; False if this is not allowed, or takes too many lines."""
        plan, table = self.plan, self.table
        if not plan.delete_in_place or plan.strategy in (Strategy.OVERLAY, Strategy.FOLD):
            return False
        region = Region.around(self.rule, plan.family, plan.backends)
        near = self.before.near(region, frozenset())
        copies = self.own_copies(region, near)
        # The overlay of an entry may hold all rules that are near.
        if copies is None or len(copies) > max(MAX_COPIES, len(near)):
            return False
        copies = self.with_forms(copies)
        edited = {chain for chain, _ in copies if (table, chain) in plan.entry_chains}
        for chain in edited:
            plan.regions((table, chain))  # computed while the rows are those of the entries
        plan.load(*(Edit(Op.DELETE, table, chain, row) for chain, row in copies))
        for chain, row in copies:
            if chain in edited:
                self.entries.shift(chain, (), row, -1)
        self.entries.rules_deleted(copies)
        plan.deleted_in_place = True
        return True

    def with_forms(self, copies: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """*copies*, and the call of a version of later groups in front of each.

        A packet of the deleted rule reads these groups behind its leaf, so it must not read them twice.
        """
        table, rows = self.plan.loaded.table(self.table), []
        own = [match.key for match in self.rule.matches]
        for chain, row in copies:
            rows.append((chain, row))
            if row == 0 or row - 1 in self.entries.rows(chain):
                continue
            rule = table[chain].rules[row - 1]
            is_call = rule.target is not None and rule.target.kind is Kind.JUMP
            if is_call and self.is_tree_chain(jumps_to(rule)) and [m.key for m in rule.matches] == own:
                rows.append((chain, row - 1))
        return rows

    def own_copies(self, region: Region, near: npt.NDArray[np.intp]) -> list[tuple[str, int]] | None:
        """Chains and rows of the copies of the rule; None if copies of equal rules are mixed with them.

        *near*: the rules of the list that may meet *region*, which is around the rule.
        """
        near = self.before.with_bounds_of(self.at, near)  # equal rules have equal bounds, and few others have
        equal = near[self.is_spelt_alike([self.before.rules[at] for at in near])].tolist()
        copies = self.copies(region)
        if len(equal) > 1:
            # Chains that hold all of the equal rules hold them in the order of the list.
            counts = Counter(chain for chain, _ in copies)
            if set(counts.values()) != {len(equal)}:
                return None
            return copies[len(equal) - 1 - equal.index(self.at) :: len(equal)]
        return copies + self.jumps_for_rule()

    def copies(self, region: Region) -> list[tuple[str, int]]:
        """Chains and rows of all rules equal to the rule, from the last row of a chain up."""
        table = self.plan.loaded.table(self.table)
        chains = dict.fromkeys(sorted(self.copy_index().get(spelling(self.rule), ())))
        for chain, _ in self.entries.chains():
            for entry, entry_region in self.entries.of_chain(chain):
                if entry_region.overlaps(region):
                    chains[entry.overlay or chain] = None
        return [
            (chain, row)
            for chain in chains
            if chain in table
            for row in np.flatnonzero(self.is_spelt_alike(table[chain].rules, chain))[::-1].tolist()
        ]

    def jumps_for_rule(self) -> list[tuple[str, int]]:
        """Chains and rows of the jumps that lead the rule's packets to chains which end with its target."""
        table, own = self.plan.loaded.table(self.table), led(self.rule)

        def leads_to_target(rule: Rule) -> bool:
            chain = jumps_to(rule)
            if led(rule) != own or not self.is_tree_chain(chain):
                return False
            last = table[chain].rules[-1:]
            return bool(last) and not last[0].matches and spelling(last[0])[0] == spelling(self.rule)[0]

        return [
            (chain, row)
            for chain in sorted(self.copy_index().get(own, ()))
            if chain in table
            for row, rule in reversed(list(enumerate(table[chain].rules)))
            if row not in self.entries.rows(chain) and leads_to_target(rule)
        ]

    def copy_index(self) -> CopyIndex:
        """The index of the section's tree."""
        key, indexes = (self.table, self.section), self.plan.cache.copy_indexes
        if key not in indexes:
            table = self.plan.loaded.table(self.table)
            rows = {chain: self.entries.rows(chain) for chain, _ in self.entries.chains()}
            indexes[key] = index_copies(table, self.section, self.is_tree_chain, rows)
        return indexes[key]

    def is_spelt_alike(self, rules: Sequence[Rule], chain: str = "") -> Bools:
        """Which of *rules*, those of a loaded *chain*, are spelt like the rule."""
        table = self.plan.cache.rule_rows(self.plan.family)
        rows = table.of_chain(self.table, chain, tuple(rules)) if chain else table.of(rules)
        (own,) = table.of([self.rule])
        all_spellings = table.spelling.values
        alike: Bools = all_spellings[rows] == all_spellings[own]
        return alike

    def is_tree_chain(self, chain: str) -> bool:
        """Whether a chain belongs to a tree or an overlay."""
        is_generated = self.plan.names(self.table).is_generated
        return is_generated(chain) and chain not in self.layout.fixed_chains()
