"""One rule inserted, deleted or replaced in a chain that is served by sections.

In a section without a tree the rule is edited in place.  Otherwise an *entry* sends the packets
that the update may concern to what the list says for them now: to an *overlay*, a chain of those
rules in order, up to the first that ends the way of them all; or the entry is that one rule.  It
stands in front of the tree, or, as a *graft*, in the leaves that its region meets: the cost model
says which, by the nanoseconds that packets spend on reading it and by the lines of the patch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hitables import costs
from hitables.analyse.callgraph import levels_above
from hitables.compiler.options import NESTING
from hitables.emit.chain_writer import goto
from hitables.emit.jumps import leaves_chain, stand_in
from hitables.ir.packet import Backend
from hitables.ir.rule import Kind, Rule, Target
from hitables.ir.rule import State as What

from .copy_index import MOST as MOST_COPIES
from .copy_index import index, likeness, spelling
from .edits import Edit, Op, apply, jumps_to, rule_key
from .graft import Spot, Walk
from .layout import Front, Host, Place, Served, Strategy, begins_section
from .plan_state import Draft
from .region import Region
from .rule_index import Listing

RETURN = Target("RETURN", Kind.RETURN, "RETURN")

# Nanoseconds per packet that a line more in a patch is worth.  Loading one takes 0.1 ms, which at ten
# changes a second is what a thousandth of a processor does; at a million packets a second so is 1 ns.
LINE = 1.0

# Entries in a leaf, over what an average packet may read more, before the tree is grown anew.
LEAF = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry to be put.  *rule* is what stands in the host, *listed* what its overlay holds, if it has one.

    nth    see base.Front
    final  it ends the way of all its packets, and comes back to no caller
    whole  the older entries for its region are not needed any more
    """

    region: Region
    rule: Rule
    listed: tuple[Rule, ...]
    nth: int | None
    final: bool
    whole: bool


class SectionUpdate:
    """What one edit does to the section that it concerns; `run` does it to the plan being made."""

    def __init__(self, draft: Draft, edit: Edit) -> None:
        self.draft, self.edit = draft, edit
        self.place: Place = (edit.table, edit.chain)
        self.served = draft.served[self.place]
        self.number, self.at = self.locate()
        self.section = self.served.sections[self.number]
        self.head = 0
        self.family, self.backends = draft.master.family, draft.state.backends
        self.exact = draft.settings.malformed == "exact"
        self.grafted = False
        self.hosted: list[str] = []  # chains that got an entry

    @property
    def inserts(self) -> bool:
        return self.edit.op in (Op.APPEND, Op.INSERT)

    def locate(self) -> tuple[int, int]:
        """The section, and the place in its list; what comes before its first rule ends the one before."""
        start = 0
        for number, section in enumerate(self.served.sections):
            inside = self.edit.at - start
            if inside < section.size or (self.inserts and inside == section.size):
                return number, inside
            start += section.size
        raise AssertionError("a place beyond the chain")

    def run(self) -> None:
        draft, edit = self.draft, self.edit
        folding = edit.chain in draft.folding.get(edit.table, {})
        if not folding and self.changes_sections():
            draft.fold(*self.place)
            folding = True
        if folding:
            draft.served[self.place] = self.counted(None)
            return
        before = draft.listing(self.place, self.served, self.number)
        old = None if self.inserts else before.rules[self.at]
        new, shared = self.listed()
        after = before if old is None else before.without(self.at)
        after = after if new is None else after.with_rule(self.at, new)
        draft.served[self.place] = self.counted(shared)
        if not self.section.tree:
            if new is not None and jumps_to(new):
                draft.deepened.add(edit.table)
            draft.load(replace(edit, chain=self.section.name, at=self.at, rule=new))
            draft.choose(self.place, Strategy.EDIT)
        else:
            mark = draft.mark()
            if not self.in_front(before, after, old, new):  # dearer than a new tree
                draft.back_to(mark)
                draft.fold(*self.place)
                return
        draft.listings[edit.table, self.section.name] = after

    def changes_sections(self) -> bool:
        rule = self.edit.rule
        if rule is not None and begins_section(rule):
            return True
        first = self.draft.listing(self.place, self.served, self.number).rules[:1]
        headed = bool(first) and begins_section(first[0])
        return headed and self.at == 0 and self.edit.op is not Op.DELETE

    def listed(self) -> tuple[Rule | None, str]:
        """The new rule as the list has it, and the shared chain that is made for it, if any."""
        rule = self.edit.rule
        if rule is None:
            return None, ""
        rule = rule._replace(notes=())
        if not rule.has_memory:
            return rule, ""
        table = self.edit.table
        name = self.draft.made(table).next()
        self.draft.load(Edit(Op.NEW, table, name), Edit(Op.APPEND, table, name, 0, rule))
        return stand_in(rule, name), name

    def counted(self, shared: str | None) -> Served:
        """The chain with one rule more or less."""
        at, op = self.edit.at, self.edit.op
        step = 1 if self.inserts else -1 if op is Op.DELETE else 0
        once = [
            (place + step if place >= at + (step < 0) else place, name)
            for place, name in self.served.once
            if self.inserts or place != at
        ]
        if step == 0:
            once = [(place, name) for place, name in self.served.once if place != at]
        if shared:
            once.append((at, shared))
        sections = list(self.served.sections)
        sections[self.number] = replace(self.section, size=self.section.size + step)
        return Served(tuple(sections), tuple(sorted(once)))

    # Entries.

    def in_front(self, before: Listing, after: Listing, old: Rule | None, new: Rule | None) -> bool:
        """Put what the update needs in front of the tree, or in its leaves; False to fold instead."""
        draft = self.draft
        self.head = 1 if before.rules and begins_section(before.rules[0]) else 0
        if old is not None and begins_section(old):
            # The first row of the chain: what stands in others moves up.
            self.edit_host(self.section.name, [Edit(Op.DELETE, self.edit.table, self.section.name, 0)], 0, -1)
            return True
        if old is not None and new is None and self.cancelled(before, old):
            draft.choose(self.place, Strategy.CANCEL)
            return True
        if old is not None and self.taken_out(before, old):
            old = None
            if new is None:
                draft.choose(self.place, Strategy.EDIT)
                return True
        if new is not None and old is None and self.at == self.head:
            done = self.put(self.first(new), after)
        else:
            dirty = before.written_before(self.at, self.writes)
            regions: list[Region] = []
            for rule in (old, new):
                if rule is not None:
                    region = Region.of(rule, dirty, self.exact, self.family, self.backends)
                    if all(region.matches != known.matches for known in regions):
                        regions.append(region)
            inserted = new is not None and old is None
            done = all(self.put(self.entry(region, after, inserted), after) for region in regions)
        if not done:
            return False
        if draft.strategy not in (Strategy.OVERLAY, Strategy.GRAFT) and self.too_dear():
            return False
        draft.choose(self.place, Strategy.GRAFT if self.grafted else Strategy.OVERLAY)
        return True

    def writes(self, rule: Rule) -> frozenset[What]:
        return self.draft.writes(self.edit.table, rule)

    def first(self, rule: Rule) -> Entry:
        """A rule before all others: it is its own entry, and what it lets through meets the others."""
        bare = rule._replace(counters=None)
        region = Region.of(bare, frozenset(), False, self.family, self.backends)
        ends = region.ends_in(bare)
        return Entry(region, bare, (), 0, ends and not leaves_chain(bare), ends)

    def entry(self, region: Region, after: Listing, inserted: bool) -> Entry:
        """What lets *region* meet the list as it is after the update."""
        places, ended = after.on(region, self.writes, self.head)
        found = [after.rules[place] for place in places]
        nth = places.index(self.at) if inserted and self.at in places else None
        final = ended and not any(leaves_chain(rule) for rule in found)
        if not found:
            return Entry(region, Rule(region.matches, RETURN), (), nth, False, True)
        if len(found) == 1 and ended and not region.may_be_dropped_by(found[0].matches):
            return Entry(region, Rule(region.matches, found[0].target), (), nth, final, True)
        listed = tuple(rule._replace(counters=None, notes=()) for rule in found)
        return Entry(region, Rule(region.matches, None), listed, nth, final, True)

    def put(self, entry: Entry, after: Listing) -> bool:
        """Put *entry* where it costs least; False when chains would nest too deep."""
        spots = self.choose(entry, after)
        if spots is None:
            return False
        table, name = self.edit.table, ""
        rule = entry.rule
        if entry.listed:
            name = self.draft.made(table).next()
            rule = rule._replace(target=goto(name))
            self.draft.load(
                Edit(Op.NEW, table, name),
                *(Edit(Op.APPEND, table, name, at, each) for at, each in enumerate(entry.listed)),
            )
        # Packets of the region read half of its overlay.
        inside = round(500 * len(entry.listed) * after.share(entry.region)) if name else 0
        costs = [max(1, round(1000 * self.share(spot, after))) for spot in spots]
        gone = [self.supersede(spot, entry) if entry.whole else 0 for spot in spots]
        nth = None if any(gone) else entry.nth
        for number, (spot, cost) in enumerate(zip(spots, costs, strict=True)):
            edit = Edit(Op.INSERT, table, spot.chain, spot.row, rule)
            if spot.row == len(self.draft.loaded.table(table)[spot.chain].rules):
                edit = replace(edit, op=Op.APPEND)
            front = Front(spot.row, name, nth, cost + (0 if number else inside))
            self.edit_host(spot.chain, [edit], spot.row, 1, front, entry.region)
            self.hosted.append(spot.chain)
        self.draft.clear_unused(table)
        return True

    def choose(self, entry: Entry, after: Listing) -> list[Spot] | None:
        """Where the entry goes: before the tree, or where its region comes to; None when neither has room."""
        in_front = Spot(self.section.name, self.head, ())
        if self.draft.strategy is not Strategy.OVERLAY:
            spots = self.walk().spots(self.section.name, self.head, entry.region, entry.final)
            if spots is not None and spots != [in_front]:
                reading = self.nanoseconds(entry.rule)
                saved = reading * (1 - sum(self.share(spot, after) for spot in spots))
                if saved > LINE * (len(spots) - 1) and self.has_room(entry, spots):
                    self.grafted = True
                    return spots
        return [in_front] if self.has_room(entry, [in_front]) else None

    def nanoseconds(self, rule: Rule) -> float:
        """What a packet spends on reading an entry that does not concern it."""
        backend = Backend.LEGACY if self.draft.settings.backend == "legacy" else Backend.NFT
        return costs.default().rule(rule, backend, costs.Reading.MISS, self.family)

    def walk(self) -> Walk:
        draft, table = self.draft, self.edit.table
        fixed = frozenset().union(*(how.names() for (at, _), how in draft.served.items() if at == table))

        def entries(chain: str) -> frozenset[int]:
            host = draft.hosts.get((table, chain))
            return frozenset(front.row for front in host.fronts) if host else frozenset()

        made = draft.made(table).is_made
        return Walk(draft.loaded.table(table), entries, made, fixed, self.exact)

    def share(self, spot: Spot, after: Listing) -> float:
        """The share of the packets that come to a spot, taken for the share of the rules that do."""
        if not spot.path:
            return 1.0
        return after.share(Region(spot.path, self.family, self.backends))

    def regions(self, chain: str) -> tuple[Region, ...]:
        """The regions of the entries in a chain."""
        key = self.edit.table, chain
        known = self.draft.regions.get(key)
        if known is None:
            host = self.draft.hosts.get(key)
            rules = self.draft.loaded.table(self.edit.table)[chain].rules
            known = tuple(
                Region.of(rules[front.row], frozenset(), False, self.family, self.backends)
                for front in (host.fronts if host else ())
            )
            self.draft.regions[key] = known
        return known

    def edit_host(
        self,
        chain: str,
        edits: Sequence[Edit],
        row: int,
        step: int,
        front: Front | None = None,
        region: Region | None = None,
    ) -> None:
        """Do *edits* to a host: what stands from *row* on moves by *step*; *front* (of *region*) comes in."""
        draft, key = self.draft, (self.edit.table, chain)
        regions = self.regions(chain)
        draft.load(*edits)
        host = draft.hosts.get(key, Host(self.section.name, ()))
        kept = [
            (replace(each, row=each.row + step * (each.row >= row)), known)
            for each, known in zip(host.fronts, regions, strict=True)
            if step > 0 or each.row != row
        ]
        if front is not None and region is not None:
            kept.append((front, region))
            kept.sort(key=lambda each: each[0].row)
        draft.regions[key] = tuple(known for _, known in kept)
        if kept:
            draft.hosts[key] = Host(self.section.name, tuple(each for each, _ in kept))
        else:
            draft.hosts.pop(key, None)
        cost = sum(each.cost for each, _ in kept) - sum(each.cost for each in host.fronts)
        draft.add_cost(self.edit.table, self.section.name, cost)

    def drop(self, chain: str, row: int) -> None:
        """Take the entry in *row* away; its overlay goes with the last entry that leads there."""
        fronts = self.draft.hosts[self.edit.table, chain].fronts
        name = next(front.chain for front in fronts if front.row == row)
        self.edit_host(chain, [Edit(Op.DELETE, self.edit.table, chain, row)], row, -1)
        if name:
            self.draft.unused.setdefault(self.edit.table, {})[name] = None

    def supersede(self, spot: Spot, entry: Entry) -> int:
        """Drop the entries that do nothing behind one at *spot*; how many there were."""
        host = self.draft.hosts.get((self.edit.table, spot.chain))
        fronts = host.fronts if host else ()
        dead = [
            front.row
            for front, region in zip(fronts, self.regions(spot.chain), strict=True)
            if front.row >= spot.row and region.is_behind(entry.region)
        ]
        for row in reversed(dead):
            self.drop(spot.chain, row)
        return len(dead)

    def cancelled(self, before: Listing, rule: Rule) -> bool:
        """Take back the insertion of the rule that is deleted, if it waits in an entry and nothing newer
        concerns its packets."""
        dirty = before.written_before(self.at, self.writes)
        region = Region.of(rule, dirty, self.exact, self.family, self.backends)
        if not self.is_pending(region):
            return False
        places, _ = before.on(region, self.writes, self.head)
        if self.at not in places:
            return False
        nth = places.index(self.at)
        table = self.edit.table
        spots = self.walk().spots(self.section.name, self.head, region, final=True)
        if spots is None or not all(self.is_entry(spot, region, nth, rule) for spot in spots):
            return False
        for spot in spots:
            self.drop(spot.chain, spot.row)
        self.draft.clear_unused(table)
        return True

    def taken_out(self, before: Listing, rule: Rule) -> bool:
        """Delete *rule* where it stands in the tree and its entries, if that may be and takes few lines.

        What it hid is not looked for: a proof has to follow.
        """
        draft, table = self.draft, self.edit.table
        if not draft.taking or draft.strategy in (Strategy.OVERLAY, Strategy.FOLD):
            return False
        region = Region.around(rule, self.family, self.backends)
        is_like = likeness(rule)
        alike = [int(at) for at in before.near(region, frozenset()) if is_like(before.rules[at])]
        copies = self.copies(rule, region)
        if len(alike) > 1:
            # Where all of them stand, each is known by its turn.
            counts = Counter(chain for chain, _ in copies)
            if set(counts.values()) != {len(alike)}:
                return False
            copies = copies[len(alike) - 1 - alike.index(self.at) :: len(alike)]
        if len(copies) > MOST_COPIES:
            return False
        hosts = {chain for chain, _ in copies if (table, chain) in draft.hosts}
        for chain in hosts:
            self.regions(chain)  # as the rows are now
        draft.load(*(Edit(Op.DELETE, table, chain, row) for chain, row in copies))
        for chain, row in copies:
            if chain in hosts:
                self.edit_host(chain, (), row, -1)
        self.forget_places(copies)
        draft.taken = True
        return True

    def copies(self, rule: Rule, region: Region) -> list[tuple[str, int]]:
        """The chains and rows in which *rule* stands, from the last row of a chain up."""
        draft, table = self.draft, self.edit.table
        held, key = draft.loaded.table(table), (table, self.section.name)
        mine = {
            at: host
            for (where, at), host in draft.hosts.items()
            if where == table and host.section == self.section.name
        }
        if key not in draft.indexes:
            entries = {at: {front.row for front in host.fronts} for at, host in mine.items()}
            draft.indexes[key] = index(held, self.section.name, self.is_part, entries)
        chains = dict.fromkeys(sorted(draft.indexes[key].get(spelling(rule), ())))
        for at, host in mine.items():
            for front, known in zip(host.fronts, self.regions(at), strict=True):
                if known.overlaps(region):
                    chains[front.chain or at] = None
        is_like = likeness(rule)
        return [
            (chain, row)
            for chain in chains
            for row in range(len(held[chain].rules) - 1, -1, -1)
            if is_like(held[chain].rules[row])
        ]

    def is_part(self, chain: str) -> bool:
        """Whether a chain is of a tree or an overlay: ours, but no section, and of no rule with memory."""
        return self.draft.made(self.edit.table).is_made(chain) and chain not in self.served.names()

    def forget_places(self, gone: Sequence[tuple[str, int]]) -> None:
        """Rules left these rows of overlays: what stood behind them there moves up."""
        draft, table = self.draft, self.edit.table
        rows: dict[str, list[int]] = {}
        for chain, row in gone:
            rows.setdefault(chain, []).append(row)

        def moved(front: Front) -> Front:
            if front.nth is None or front.chain not in rows:
                return front
            before = sum(row < front.nth for row in rows[front.chain])
            return replace(front, nth=None if front.nth in rows[front.chain] else front.nth - before)

        for key, host in list(draft.hosts.items()):
            if key[0] == table and any(front.chain in rows for front in host.fronts):
                draft.hosts[key] = replace(host, fronts=tuple(moved(front) for front in host.fronts))

    def is_pending(self, region: Region) -> bool:
        """Whether an entry of just this region says the insertion of a rule and nothing else."""
        return any(
            front.nth is not None and known.matches == region.matches
            for (table, chain), host in self.draft.hosts.items()
            if table == self.edit.table and host.section == self.section.name
            for front, known in zip(host.fronts, self.regions(chain), strict=True)
        )

    def is_entry(self, spot: Spot, region: Region, nth: int, rule: Rule) -> bool:
        """Whether at *spot* stands the entry of *region* that says the insertion of *rule*."""
        host = self.draft.hosts.get((self.edit.table, spot.chain))
        fronts = host.fronts if host else ()
        for front, known in zip(fronts, self.regions(spot.chain), strict=True):
            if front.row == spot.row and front.nth == nth and known.matches == region.matches:
                return self.says(spot.chain, front, rule)
        return False

    def says(self, chain: str, front: Front, rule: Rule) -> bool:
        """Whether the entry is the insertion of a rule equal to *rule*."""
        held = self.draft.loaded.table(self.edit.table)
        if front.chain:
            listed = held[front.chain].rules
            return front.nth is not None and rule_key(listed[front.nth]) == rule_key(rule)
        entry = held[chain].rules[front.row]
        short = rule._replace(matches=entry.matches)  # where the region passes all others
        return rule_key(entry) in (rule_key(rule), rule_key(short))

    def too_dear(self) -> bool:
        """Whether the entries of the section cost more than a new tree, or crowd a leaf."""
        draft, table = self.draft, self.edit.table
        delta = draft.settings.delta
        if draft.cost(table, self.section.name) > 1000 * delta:
            return True
        return any(
            len(draft.hosts[table, chain].fronts) > LEAF * delta
            for chain in self.hosted
            if (table, chain) in draft.hosts
        )

    def has_room(self, entry: Entry, spots: Sequence[Spot]) -> bool:
        """Whether the chains below the entry stand deep enough already, and it nests not too deep."""
        draft, table = self.draft, self.edit.table
        level = max(draft.level(table, spot.chain) for spot in spots) + bool(entry.listed)
        rules = entry.listed or (entry.rule,)
        below = {name for rule in rules if (name := jumps_to(rule))}
        limit = NESTING[draft.settings.backend]
        if all(draft.level(table, name) > level for name in below):
            return level + bool(below) <= limit
        name, trial = "overlay", []
        if entry.listed:
            rules_of = enumerate(rules)
            trial = [Edit(Op.NEW, table, name), *(Edit(Op.APPEND, table, name, at, r) for at, r in rules_of)]
        rule = Rule((), goto(name)) if entry.listed else entry.rule
        trial += [Edit(Op.INSERT, table, spot.chain, 0, rule) for spot in spots]
        deeper = levels_above(apply(draft.loaded, trial).table(table))
        if max(deeper.values()) > limit:
            return False
        draft.levels[table] = deeper
        return True
