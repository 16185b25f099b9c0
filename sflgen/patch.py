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

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hitables.analyse.callgraph import check_loops
from hitables.analyse.callgraph import writes as written_by
from hitables.compile import NESTING
from hitables.emit.chains import goto
from hitables.emit.jumps import has_memory
from hitables.errors import HitablesError, Unsupported
from hitables.ir.program import Chain, Program, Table
from hitables.ir.rule import Kind, Rule, Target
from hitables.ir.rule import State as What

from .base import (
    OTHERS,
    Front,
    Names,
    Place,
    Section,
    Served,
    Settings,
    begins_section,
    grow,
    section_lists,
    stand_in,
)
from .listing import Listing
from .region import Region
from .state import State, bare
from .updates import Edit, Op, apply, jumps_to
from .updates import text as text_of

RETURN = Target("RETURN", Kind.RETURN, "RETURN")

# A chain that is read rule by rule is looked at again when it has grown to twice this, and twice that …
WORTH_A_TREE = 64


class Strategy(enum.Enum):
    """How an update reaches the kernel."""

    EDIT = "edit"  # the chain is read rule by rule
    OVERLAY = "overlay"
    CANCEL = "cancel"  # an insertion that waits in front is taken back
    FOLD = "fold"


@dataclass(frozen=True)
class Plan:
    """A patch, and what is so once it is loaded.

    updates  what happens to the master list
    edits    what happens to what is loaded; `text` says it to iptables-restore --noflush
    chosen   for each update (and each fold) of a chain: table, chain, strategy
    """

    before: State
    after: State
    updates: tuple[Edit, ...]
    edits: tuple[Edit, ...]
    chosen: tuple[tuple[str, str, Strategy], ...]

    @property
    def text(self) -> str:
        """The patch, for `iptables-restore --noflush` of the state's backend."""
        return text_of(self.edits)


def plan(state: State, updates: Sequence[Edit], strategy: Strategy | None = None) -> Plan:
    """Plan *updates*, which were read against `state.master`.

    *strategy* OVERLAY puts off folding whatever it costs, FOLD folds each chain at once.
    ParseError when chains would jump in a circle; HitablesError for what cannot be served.
    """
    master = apply(state.master, updates)
    if any(edit.rule is not None and jumps_to(edit.rule) for edit in updates):
        check_loops(master)
    return _Planning(state, master, strategy).run(updates)


def start(master: Program, settings: Settings) -> Plan:
    """From *master* as it stands to *master* compiled."""
    return fold(bare(master, settings))


def fold(state: State, chains: Iterable[Place] | None = None) -> Plan:
    """Grow the trees of *chains* anew (all that hitables would compile, when None)."""
    planning = _Planning(state, state.master, Strategy.FOLD)
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


class _Planning:
    """One plan being made.  What changes: `loaded`, `served`, `listings`, the edits so far."""

    def __init__(self, state: State, master: Program, strategy: Strategy | None) -> None:
        self.state, self.settings, self.strategy = state, state.settings, strategy
        self.master, self.loaded = master, state.loaded
        self.served: dict[Place, Served] = dict(state.served)
        self.listings = dict(state.listings)
        self.regions = dict(state.regions)
        self.edits: list[Edit] = []
        self.chosen: list[tuple[str, str, Strategy]] = []
        self.folding: dict[str, dict[str, None]] = {}
        self.folded: set[Place] = set()
        self.levels = dict(state.levels)
        self.deepened: set[str] = set()  # tables of which levels are not known any more
        self.names: dict[str, Names] = {}
        self.written: dict[tuple[str, bool], dict[str, frozenset[What]]] = {}

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
            self.state, master=self.master, loaded=self.loaded, served=self.served, listings=self.listings,
            levels=self.levels, regions=self.regions, version=self.state.version + 1,
        )  # fmt: skip
        return Plan(self.state, after, tuple(updates), tuple(self.edits), tuple(self.chosen))

    def allowed(self, edit: Edit) -> None:
        if self.settings.is_left(edit.chain):
            raise HitablesError(
                f"chain {edit.chain} of table {edit.table} is left to others (init --leave); update it there"
            )
        if edit.op is Op.NEW and self.made(edit.table).is_made(edit.chain):
            raise HitablesError(
                f"a chain cannot be called {edit.chain}: {self.settings.prefix} and a number are ours"
            )

    # What the kernel is told.

    def load(self, *edits: Edit) -> None:
        self.loaded = apply(self.loaded, edits)
        self.edits += edits

    def made(self, table: str) -> Names:
        if table not in self.names:
            chains = self.loaded.table(table).chains if self.has(self.loaded, table) else ()
            self.names[table] = Names(self.settings.prefix, [chain.name for chain in chains])
        return self.names[table]

    @staticmethod
    def has(program: Program, table: str) -> bool:
        return any(each.name == table for each in program)

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
                _SectionUpdate(self, edit).run()
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

    def fold(self, table: str, chain: str) -> None:
        """Grow the chain's trees anew once all updates are seen."""
        self.folding.setdefault(table, {})[chain] = None

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
            grown = grow(self.loaded, master, self.served, table, list(chains), self.settings)
            self.load(*grown.edits)
            self.names.pop(table, None)
            for place, served in grown.served.items():
                before = self.served.pop(place, None)
                for section in before.sections if before else ():
                    self.listings.pop((table, section.name), None)
                    self.regions.pop((table, section.name), None)
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
        if target is None:
            return frozenset()
        if target.kind is not Kind.JUMP:
            return target.writes
        states = self.states(table, True)
        if target.name in states:
            return states[target.name]
        shared = self.loaded.table(table)[target.name].rules  # a chain of one rule with memory
        return frozenset().union(*(self.writes(table, each) for each in shared))

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
            self.levels[table] = levels(self.loaded.table(table))
        return self.levels[table].get(chain, 0)

    def check_nesting(self, table: str) -> None:
        """Unsupported when chains nest deeper than the backend takes."""
        backend = "nft" if self.settings.backend == "any" else self.settings.backend
        limit = NESTING[backend]
        self.levels[table] = levels(self.loaded.table(table))
        if max(self.levels[table].values(), default=0) > limit:
            raise Unsupported(
                f"table {table}: with these updates chains nest deeper than the {limit} that {backend} takes"
            )


class _SectionUpdate:
    """One rule inserted, deleted or replaced in a chain that is served by sections."""

    def __init__(self, planning: _Planning, edit: Edit) -> None:
        self.planning, self.edit = planning, edit
        self.place: Place = (edit.table, edit.chain)
        self.served = planning.served[self.place]
        self.number, self.at = self.locate()
        self.section = self.served.sections[self.number]
        self.family, self.backends = planning.master.family, planning.state.backends
        self.edits: list[Edit] = []
        self.lengths: dict[str, int] = {}

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
        planning, edit = self.planning, self.edit
        folding = edit.chain in planning.folding.get(edit.table, {})
        if not folding and self.changes_sections():
            planning.fold(*self.place)
            folding = True
        if folding:
            planning.served[self.place] = self.counted(None)
            return
        before = planning.listing(self.place, self.served, self.number)
        old = None if self.inserts else before.rules[self.at]
        new, shared = self.listed()
        after = before if old is None else before.without(self.at)
        after = after if new is None else after.with_rule(self.at, new)
        if self.section.tree:
            front = self.in_front(before, after, old, new)
        else:
            front = self.section
            if new is not None and jumps_to(new):
                planning.deepened.add(edit.table)
            self.edits.append(replace(edit, chain=self.section.name, at=self.at, rule=new))
            planning.chosen.append((*self.place, Strategy.EDIT))
        planning.served[self.place] = self.counted(shared, front)
        if front is None:  # dearer than a new tree
            planning.fold(*self.place)
            return
        planning.load(*self.edits)
        planning.listings[edit.table, self.section.name] = after

    def changes_sections(self) -> bool:
        rule = self.edit.rule
        if rule is not None and begins_section(rule):
            return True
        first = self.planning.listing(self.place, self.served, self.number).rules[:1]
        headed = bool(first) and begins_section(first[0])
        return headed and self.at == 0 and self.edit.op is not Op.DELETE

    def listed(self) -> tuple[Rule | None, str]:
        """The new rule as the list has it, and the shared chain that is made for it, if any."""
        rule = self.edit.rule
        if rule is None:
            return None, ""
        rule = rule._replace(notes=())
        if not has_memory(rule):
            return rule, ""
        table = self.edit.table
        name = self.planning.made(table).next()
        self.planning.load(Edit(Op.NEW, table, name), Edit(Op.APPEND, table, name, 0, rule))
        return stand_in(rule, name), name

    def counted(self, shared: str | None, section: Section | None = None) -> Served:
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
        section = section or self.section
        sections = list(self.served.sections)
        sections[self.number] = replace(section, size=section.size + step)
        return Served(tuple(sections), tuple(sorted(once)))

    # In front of a tree.

    def in_front(
        self, before: Listing, after: Listing, old: Rule | None, new: Rule | None
    ) -> Section | None:
        """The section with its fronts as they are then; None when it should be folded."""
        head = 1 if before.rules and begins_section(before.rules[0]) else 0
        self.head = head
        self.regions = self.known_regions()
        self.fronts = list(self.section.fronts)
        if old is not None and begins_section(old):
            self.edits.append(Edit(Op.DELETE, self.edit.table, self.section.name, 0))
            return self.shifted(self.fronts)
        if old is not None and new is None and self.cancelled():
            return self.shifted(self.fronts)
        if new is not None and old is None and self.at == head:
            self.put_first(new)
            return self.shifted(self.fronts, fresh=1)
        dirty = before.written_before(self.at, self.writes)
        exact = self.planning.settings.malformed == "exact"
        regions: list[Region] = []
        for rule in (old, new):
            if rule is not None:
                region = Region.of(rule, dirty, exact, self.family, self.backends)
                if all(region.matches != known.matches for known in regions):
                    regions.append(region)
        for region in regions:
            if not self.put(region, after, new is not None and old is None):
                return None
        dear = self.cost(len(after.rules)) > self.planning.settings.delta
        if dear and self.planning.strategy is not Strategy.OVERLAY:
            return None
        self.planning.chosen.append((*self.place, Strategy.OVERLAY))
        return self.shifted(self.fronts, fresh=len(regions))

    def known_regions(self) -> list[Region]:
        """The region of each front."""
        key = self.edit.table, self.section.name
        known = self.planning.regions.get(key)
        if known is None:
            rules = self.planning.loaded.table(self.edit.table)[self.section.name].rules
            known = tuple(
                Region.of(rule, frozenset(), False, self.family, self.backends)
                for rule in rules[self.head : self.head + len(self.section.fronts)]
            )
        return list(known)

    def writes(self, rule: Rule) -> frozenset[What]:
        return self.planning.writes(self.edit.table, rule)

    def shifted(self, fronts: Sequence[Front], fresh: int = 0) -> Section:
        """The section with *fronts*; the places that all but the *fresh* first name move with the update."""
        moved = list(fronts[:fresh])
        for front in fronts[fresh:]:
            at = front.at
            if at is not None:
                if self.inserts:
                    at += at >= self.at
                elif at == self.at:
                    at = None
                elif self.edit.op is Op.DELETE:
                    at -= at > self.at
            moved.append(Front(front.chain, at))
        self.planning.regions[self.edit.table, self.section.name] = tuple(self.regions)
        return replace(self.section, fronts=tuple(moved))

    def cancelled(self) -> bool:
        """Take back the insertion of the rule that is deleted, if it waits in front and nothing newer
        concerns its packets."""
        for number, front in enumerate(self.fronts):
            if front.at != self.at:
                continue
            region = self.regions[number]
            if any(newer.overlaps(region) for newer in self.regions[:number]):
                return False
            self.drop(number)
            self.planning.chosen.append((*self.place, Strategy.CANCEL))
            return True
        return False

    def drop(self, number: int) -> None:
        """Take an entry away, and its overlay."""
        table = self.edit.table
        front = self.fronts.pop(number)
        self.regions.pop(number)
        self.edits.append(Edit(Op.DELETE, table, self.section.name, self.head + number))
        if front.chain:
            self.edits += [Edit(Op.FLUSH, table, front.chain), Edit(Op.REMOVE, table, front.chain)]

    def put_first(self, rule: Rule) -> None:
        """Insert *rule* before all else: it is its own entry, and what it lets through meets the others."""
        bare = rule._replace(counters=None)
        region = Region.of(bare, frozenset(), False, self.family, self.backends)
        at: int | None = self.at
        if region.ends_in(bare):
            at = at if self.supersede(region) == 0 else None
        self.insert(bare, "", at, region)
        self.planning.chosen.append((*self.place, Strategy.OVERLAY))

    def put(self, region: Region, after: Listing, inserted: bool) -> bool:
        """Let *region* meet the list as it is after the update; False when chains would nest too deep."""
        found, ended = after.on(region, self.writes, self.head)
        at = self.at if self.supersede(region) == 0 and inserted else None
        table = self.edit.table
        if not found:
            self.insert(Rule(region.matches, RETURN), "", at, region)
        elif len(found) == 1 and ended and not region.may_be_dropped_by(found[0].matches):
            self.insert(Rule(region.matches, found[0].target), "", at, region)
        else:
            if not self.has_room(found):
                return False
            name = self.planning.made(table).next()
            self.edits.append(Edit(Op.NEW, table, name))
            self.edits += [
                Edit(Op.APPEND, table, name, place, rule._replace(counters=None, notes=()))
                for place, rule in enumerate(found)
            ]
            self.lengths[name] = len(found)
            self.insert(Rule(region.matches, goto(name)), name, at, region)
        return True

    def insert(self, rule: Rule, chain: str, at: int | None, region: Region) -> None:
        self.edits.append(Edit(Op.INSERT, self.edit.table, self.section.name, self.head, rule))
        self.fronts.insert(0, Front(chain, at))
        self.regions.insert(0, region)

    def supersede(self, region: Region) -> int:
        """Drop the entries that do nothing behind one for *region*; how many there were."""
        dead = [number for number, each in enumerate(self.regions) if each.is_behind(region)]
        for number in reversed(dead):
            self.drop(number)
        return len(dead)

    def has_room(self, found: Sequence[Rule]) -> bool:
        """Whether the chains below the overlay stand deep enough already, and it nests not too deep."""
        planning, table = self.planning, self.edit.table
        level = planning.level(table, self.section.name) + 1
        below = {name for rule in found if (name := jumps_to(rule))}
        deeper = [name for name in below if planning.level(table, name) < level + 1]
        limit = NESTING[planning.settings.backend]
        if deeper:
            name = "overlay"
            trial = (
                *self.edits,
                Edit(Op.NEW, table, name),
                *(Edit(Op.APPEND, table, name, at, rule) for at, rule in enumerate(found)),
                Edit(Op.INSERT, table, self.section.name, 0, Rule((), goto(name))),
            )
            planning.levels[table] = levels(apply(planning.loaded, trial).table(table))
            return max(planning.levels[table].values()) <= limit
        return level + bool(below) <= limit

    def cost(self, size: int) -> float:
        """What the fronts cost, in rules read."""
        held = self.planning.loaded.table(self.edit.table)
        names = [front.chain for front in self.fronts if front.chain]
        lengths = [self.lengths[name] if name in self.lengths else len(held[name].rules) for name in names]
        return extra(len(self.fronts), lengths, size)


def levels(table: Table) -> dict[str, int]:
    """How many chains nest above each chain, at most."""
    below = {chain.name: {name for rule in chain.rules if (name := jumps_to(rule))} for chain in table.chains}
    above = dict.fromkeys(below, 0)
    waiting = Counter(name for names in below.values() for name in names)
    ready = [name for name in below if not waiting[name]]
    while ready:
        name = ready.pop()
        for callee in below[name]:
            above[callee] = max(above[callee], above[name] + 1)
            waiting[callee] -= 1
            if not waiting[callee]:
                ready.append(callee)
    return above


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
        held = state.loaded.table(table)
        entries, cost = 0, 0.0
        for section in served.sections:
            lengths = [len(held[front.chain].rules) for front in section.fronts if front.chain]
            entries += len(section.fronts)
            cost += extra(len(section.fronts), lengths, section.size)
        found.append(Pending(table, chain, entries, cost))
    return found


def extra(entries: int, lengths: Iterable[int], size: int) -> float:
    """Rules that a packet reads in front of a tree, on average, more than in the tree alone.

    Each entry, and an overlay's rules by half for its share of the packets, which its share of
    the *size* rules stands for.
    """
    return entries + sum(length * length for length in lengths) / (2 * max(1, size))
