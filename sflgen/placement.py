"""Where a new entry is inserted: in front of the tree, or in the leaves that its region meets.

In front of the tree every packet of the section reads the entry; in the leaves (a *graft*, graft.py)
only packets that reach them do, at one line of the patch for each leaf.  The cost model decides: the
nanoseconds that packets spend on reading the entry, against the lines of the patch.
"""

from __future__ import annotations

from collections.abc import Sequence

from hitables import costs
from hitables.ir.packet import Backend
from hitables.ir.rule import Rule

from .edits import jumps_to
from .entries import NewEntry, SectionEntries
from .graft import Spot, TreeWalk
from .layout import fixed_chains
from .nesting import depth_limit, raised
from .plan_state import PlanState
from .region import Region
from .rule_index import RuleIndex
from .settings import Strategy

# The price of one more line in a patch, in nanoseconds per packet.  Loading a line takes 0.1 ms, which
# at ten changes a second is a thousandth of a processor; so is 1 ns at a million packets a second.
LINE = 1.0


class Placement:
    """The spots for new entries of one section.

    head   the number of rules in front of the tree and of the entries: a rule with memory that begins the
           section, or those up to the one that decides packets of established connections
    exact  whether no test of an entry may drop a malformed packet
    """

    def __init__(
        self, plan: PlanState, entries: SectionEntries, table: str, section: str, head: int, exact: bool
    ) -> None:
        self.plan, self.entries, self.table = plan, entries, table
        self.section, self.head, self.exact = section, head, exact
        self.in_front = Spot(section, head, ())

    def spots(self, new: NewEntry, after: RuleIndex) -> list[Spot] | None:
        """The cheapest spots for *new*; None if chains would nest too deep everywhere.

        *after* is the list of the section after the update.
        """
        if self.plan.strategy is not Strategy.OVERLAY:
            leaves = self.leaves(new.region, new.is_final)
            if leaves is not None and leaves != [self.in_front]:
                share = sum(self.share(spot, after) for spot in leaves)
                saved = self.reading_time(new.rule) * (1 - share)
                if saved > LINE * (len(leaves) - 1) and self.has_room(new, leaves):
                    return leaves
        return [self.in_front] if self.has_room(new, [self.in_front]) else None

    def leaves(self, region: Region, is_final: bool) -> list[Spot] | None:
        """The spots of *region* in the tree; None if there are too many."""
        plan, table = self.plan, self.table
        fixed = fixed_chains(layout for (name, _), layout in plan.layouts.items() if name == table)
        is_generated = plan.names(table).is_generated
        walk = TreeWalk(plan.loaded.table(table), self.entries.rows, is_generated, fixed, self.exact)
        return walk.spots(self.section, self.head, region, is_final)

    def share(self, spot: Spot, after: RuleIndex) -> float:
        """The share of packets that reach a spot, estimated by the share of rules that do."""
        if not spot.path:
            return 1.0
        return after.share(Region(spot.path, self.plan.family, self.plan.backends))

    def reading_time(self, rule: Rule) -> float:
        """The nanoseconds that a packet spends on reading an entry whose region it is not in."""
        backend = Backend.LEGACY if self.plan.settings.backend == "legacy" else Backend.NFT
        return costs.default().rule(rule, backend, costs.Reading.MISS, self.plan.family)

    def has_room(self, new: NewEntry, spots: Sequence[Spot]) -> bool:
        """Whether chains nest no deeper than the backend accepts with *new* at *spots*.

        The depths of the chains that the entry makes deeper are kept.
        """
        plan, table = self.plan, self.table
        depth = max(plan.depth(table, spot.chain) for spot in spots) + bool(new.overlay)
        rules = new.overlay or (new.rule,)
        callees = {name for rule in rules if (name := jumps_to(rule))}
        limit = depth_limit(plan.settings)
        if all(plan.depth(table, name) > depth for name in callees):
            return depth + bool(callees) <= limit
        deeper = raised(plan.loaded.table(table), plan.nesting(table), callees, depth + 1, limit)
        if deeper is None:
            return False
        plan.cache.nesting[table] = deeper
        return True
