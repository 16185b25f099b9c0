"""One rule inserted, deleted or replaced in a chain that has trees.

In a section without a tree the rule is edited in place.  In a section with a tree a deletion may need
no entry (deletion.py).  Otherwise an *entry* leads the packets that the update may concern to an
*overlay*: a chain of the rules that the list now has for them, in order, up to the first that decides
about all of them, without those that change no answer (overlay_rules.py); or the entry is that one rule.
placement.py decides where entries are inserted, entries.py inserts them.  If the entries cost more than a
new tree, the chain is folded instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hitables.emit.jumps import stand_in
from hitables.ir.choices import Malformed
from hitables.ir.established import established_head
from hitables.ir.rule import Kind, Match, Metadata, Rule, Target, leaves_chain

from .deletion import Deletion
from .edits import Edit, Op, jumps_to, rule_key
from .entries import NewEntry, SectionEntries
from .layout import ChainId, ChainLayout, begins_section
from .overlay_rules import needed
from .placement import Placement
from .plan_state import PlanState
from .region import Region
from .rule_index import RuleIndex
from .settings import Strategy

RETURN = Target("RETURN", Kind.RETURN, "RETURN")


class RuleUpdate:
    """One edit of the master list, performed on the section that it concerns."""

    def __init__(self, plan: PlanState, edit: Edit) -> None:
        self.plan, self.edit = plan, edit
        self.chain_id: ChainId = (edit.table, edit.chain)
        self.layout = plan.layouts[self.chain_id]
        self.number, self.at = self.locate()
        self.section = self.layout.sections[self.number]

    @property
    def inserts(self) -> bool:
        return self.edit.op in (Op.APPEND, Op.INSERT)

    def locate(self) -> tuple[int, int]:
        """The section of the edit and the index in its list.

        A rule inserted before the first rule of a section is added to the end of the section before, but for
        the section that ends with a jump to a foreign chain: it has no tree, and should not become longer.
        """
        start = 0
        for number, section in enumerate(self.layout.sections):
            at = self.edit.at - start
            if at < section.size or (self.inserts and at == section.size and not self.is_fixed(number)):
                return number, at
            start += section.size
        raise AssertionError("the position is within the chain")

    def is_fixed(self, number: int) -> bool:
        """Whether section *number* ends with a jump to a foreign chain, and others follow."""
        size = self.layout.sections[0].size
        if number or len(self.layout.sections) == 1 or not size:
            return False
        rules = self.plan.rule_index(self.chain_id, self.layout, 0).rules
        return self.plan.settings.is_foreign(jumps_to(rules[size - 1]))

    def run(self) -> None:
        plan, edit = self.plan, self.edit
        if not plan.will_fold(*self.chain_id) and self.changes_sections():
            plan.fold_later(*self.chain_id)
        if plan.will_fold(*self.chain_id):
            plan.layouts[self.chain_id] = self.resized(None)
            return
        before = plan.rule_index(self.chain_id, self.layout, self.number)
        old = None if self.inserts else before.rules[self.at]
        new, shared = self.load_shared()
        after = before if old is None else before.without(self.at)
        after = after if new is None else after.with_rule(self.at, new)
        plan.layouts[self.chain_id] = self.resized(shared)
        if self.is_one_too_many():
            plan.fold_later(*self.chain_id)
            return
        if self.section.tree:
            snapshot = plan.snapshot()
            if not TreeUpdate(self, before, after).run(old, new):
                plan.restore(snapshot)
                plan.fold_later(*self.chain_id)
                return
        else:
            if new is not None and jumps_to(new):
                plan.deepened.add(edit.table)
            plan.load(replace(edit, chain=self.section.name, at=self.at, rule=new))
            plan.choose(self.chain_id, Strategy.EDIT)
        plan.cache.rule_indexes[edit.table, self.section.name] = after

    def is_one_too_many(self) -> bool:
        """Whether this update is beyond `max_updates`, and the strategy allows to fold."""
        if self.plan.strategy in (Strategy.OVERLAY, Strategy.GRAFT) or not self.section.tree:
            return False
        return not self.plan.settings.allows(self.plan.layouts[self.chain_id].updates)

    def changes_sections(self) -> bool:
        """Whether the chain must be divided anew: a rule that begins a section is inserted or replaced, or a
        jump to a foreign chain.
        """
        rule = self.edit.rule
        if rule is not None and (begins_section(rule) or self.plan.settings.is_foreign(jumps_to(rule))):
            return True
        first = self.plan.rule_index(self.chain_id, self.layout, self.number).rules[:1]
        has_head = bool(first) and begins_section(first[0])
        return has_head and self.at == 0 and self.edit.op is not Op.DELETE

    def load_shared(self) -> tuple[Rule | None, str]:
        """The new rule as it is in the section's list, and the shared chain loaded for it, if any."""
        rule = self.edit.rule
        if rule is None:
            return None, ""
        rule = rule._replace(notes=())
        if not rule.has_memory:
            return rule, ""
        table = self.edit.table
        name = self.plan.next_name(table)
        self.plan.load(Edit(Op.NEW, table, name), Edit(Op.APPEND, table, name, 0, rule))
        return stand_in(rule, name), name

    def resized(self, shared: str | None) -> ChainLayout:
        """The layout after the update; *shared*: the shared chain of the new rule."""
        at, op = self.edit.at, self.edit.op
        step = 1 if self.inserts else -1 if op is Op.DELETE else 0
        kept = [(index, name) for index, name in self.layout.shared if self.inserts or index != at]
        if step:
            kept = [(index + step if index >= at else index, name) for index, name in kept]
        if shared:
            kept.append((at, shared))
        sections = list(self.layout.sections)
        sections[self.number] = replace(self.section, size=self.section.size + step)
        counted = self.section.tree and self.plan.settings.max_updates is not None
        return ChainLayout(tuple(sections), tuple(sorted(kept)), self.layout.updates + counted)


class TreeUpdate:
    """A rule update in a section with a tree; *before* and *after* are the section's lists."""

    def __init__(self, update: RuleUpdate, before: RuleIndex, after: RuleIndex) -> None:
        self.plan, self.edit, self.layout = update.plan, update.edit, update.layout
        self.chain_id = update.chain_id
        self.at, self.section = update.at, update.section.name
        self.before, self.after = before, after
        self.exact = self.plan.settings.malformed is Malformed.EXACT
        self.entries = SectionEntries(self.plan, self.edit.table, self.section)
        self.head = self.rules_in_front()
        self.placement = Placement(
            self.plan, self.entries, self.edit.table, self.section, self.head, self.exact
        )
        self.is_grafted = False

    def rules_in_front(self) -> int:
        """How many rules in front, all earlier than the updated one, are in front of the entries, too.

        One with memory that begins the section; or those up to the rule that decides packets of established
        connections, if the chain begins with them and they write nothing.
        """
        rules = self.before.rules
        if rules and begins_section(rules[0]):
            return 1
        count = established_head(rules)
        loaded = self.plan.loaded.table(self.edit.table)[self.section].rules[:count]
        is_free = all(row >= count for row in self.entries.rows(self.section))
        is_same = [*map(rule_key, loaded)] == [*map(rule_key, rules[:count])]
        writes = any(map(self.writes, rules[:count]))
        return count if self.at >= count and is_free and is_same and not writes else 0

    def run(self, old: Rule | None, new: Rule | None) -> bool:
        """Patch the tree or its entries; False if the chain must be folded instead."""
        plan = self.plan
        self.entries.withdraw_hot(self.chain_id, [rule for rule in (old, new) if rule is not None])
        if old is not None and begins_section(old):
            # It is the first rule of the section's chain, in front of the entries and the tree.
            self.entries.shift(self.section, [Edit(Op.DELETE, self.edit.table, self.section, 0)], 0, -1)
            return True
        if old is not None:
            deletion = Deletion(plan, self.entries, self.placement, self.layout, self.before, self.at)
            if new is None and deletion.cancel():
                plan.choose(self.chain_id, Strategy.CANCEL)
                return True
            if deletion.delete_in_place():
                old = None
                if new is None:
                    plan.choose(self.chain_id, Strategy.EDIT)
                    return True
        if not all(self.insert(entry) for entry in self.new_entries(old, new)):
            return False
        if plan.strategy not in (Strategy.OVERLAY, Strategy.GRAFT) and self.entries.cost_too_much():
            return False
        plan.choose(self.chain_id, Strategy.GRAFT if self.is_grafted else Strategy.OVERLAY)
        return True

    def new_entries(self, old: Rule | None, new: Rule | None) -> list[NewEntry]:
        """The entries for a rule that is deleted, and one that is inserted."""
        if new is not None and old is None and self.at == self.head:
            return [self.first_rule_entry(new)]
        plan = self.plan
        dirty = self.before.written_before(self.at, self.writes)
        regions: list[Region] = []
        for rule in (old, new):
            if rule is not None:
                region = Region.of(rule, dirty, self.exact, plan.family, plan.backends)
                if all(region.matches != other.matches for other in regions):
                    regions.append(region)
        inserted = new is not None and old is None
        return [self.region_entry(region, inserted) for region in regions]

    def first_rule_entry(self, rule: Rule) -> NewEntry:
        """A rule before all others is its own entry; packets that it lets through read on in the tree."""
        rule = rule._replace(counters=None)
        region = Region.of(rule, frozenset(), False, self.plan.family, self.plan.backends)
        decides = region.ends_in(rule, deciding=self.plan.deciding(self.edit.table))
        return NewEntry(region, rule, (), 0, decides and not leaves_chain(rule), decides)

    def region_entry(self, region: Region, inserted: bool) -> NewEntry:
        """The entry whose packets read the list as it is after the update."""
        deciding = self.plan.deciding(self.edit.table)
        concerned, decided = self.after.relevant(region, self.writes, self.head, deciding)
        rules = [self.after.rules[at] for at in concerned]
        kept = needed(region, rules, decided, self.writes, self.exact, deciding)
        concerned, rules = [concerned[at] for at in kept], [rules[at] for at in kept]
        rank = concerned.index(self.at) if inserted and self.at in concerned else None
        is_final = decided and not any(leaves_chain(rule) for rule in rules)
        matches = _with_comments(region.matches, rules[0].matches if len(rules) == 1 else ())
        if not rules:
            return NewEntry(region, Rule(matches, RETURN), (), rank, False, True)
        if len(rules) == 1 and decided and not region.may_be_dropped_by(rules[0].matches):
            return NewEntry(region, Rule(matches, rules[0].target), (), rank, is_final, True)
        overlay = tuple(map(_without_notes, rules))
        return NewEntry(region, Rule(matches, None), overlay, rank, is_final, True)

    def insert(self, entry: NewEntry) -> bool:
        """Insert *entry* where it costs least; False if chains would nest too deep."""
        spots = self.placement.spots(entry, self.after)
        if spots is None:
            return False
        self.is_grafted |= spots != [self.placement.in_front]
        # A packet of the region reads half of its overlay on average.
        overlay_cost = (
            round(500 * len(entry.overlay) * self.after.share(entry.region)) if entry.overlay else 0
        )
        costs = [max(1, round(1000 * self.placement.share(spot, self.after))) for spot in spots]
        self.entries.insert(entry, spots, costs, overlay_cost)
        return True

    def writes(self, rule: Rule) -> frozenset[Metadata]:
        return self.plan.writes(self.edit.table, rule)


def _with_comments(matches: Sequence[Match], of: Sequence[Match]) -> tuple[Match, ...]:
    """*matches* with the comments of the rule *of*, which the entry stands for, in place of their own."""
    comments = [match for match in of if match.name == "comment"]
    if comments == [match for match in matches if match.name == "comment"]:
        return tuple(matches)
    return (*(match for match in matches if match.name != "comment"), *comments)


def _without_notes(rule: Rule) -> Rule:
    """The rule without counters and comment lines; the same object if it has none."""
    return rule._replace(counters=None, notes=()) if rule.counters is not None or rule.notes else rule
