"""Counters carried over from copies of a rule that a patch deletes to copies that it inserts.

A rule of the list may have copies in several leaves and overlays; its count is their sum.  An entry that is
one rule, for a region of packets, counts for the rule of the list that decides about the region.  When a
patch deletes copies, their counts are read from the kernel just before, and set in a copy that the patch
inserts (`iptables-restore -c`), or in one that stays.  Packets that deleted copies count between the
reading and the loading are lost; no other count is.

Invariant: over equal rules of one chain of the list, the sum of the counts read is the sum of the counts
set, unless the list has no such rule any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass

from hitables.ir.program import Program
from hitables.ir.rule import Rule

from .chain_names import GeneratedNames
from .deciding import Deciding
from .edits import Count, Edit, Key, Op, jumps_to, line, rule_key
from .given_counts import own_counts
from .layout import ChainId
from .planner import Plan
from .region import Region
from .settings import Strategy
from .state import State


@dataclass(slots=True)
class _Copy:
    """A rule in a chain; *edit*: the index of the edit that inserted it, if one did."""

    rule: Rule
    count: Count
    edit: int | None = None


def deletes_copies(plan: Plan) -> bool:
    """Whether *plan* deletes copies, in trees or overlays, of rules that stay in the list."""
    changes_entries = plan.before.entry_chains != plan.after.entry_chains
    if not plan.updates and not plan.chosen and not plan.hot and not changes_entries:
        return False  # it edits chains that no packet reaches
    if plan.folds or plan.hot:  # hot rules are copies, too
        return bool(plan.edits)
    loaded = plan.before.loaded
    if any(edit.op is Op.FLUSH and loaded.find_chain(edit.table, edit.chain) for edit in plan.edits):
        return True
    holding = plan.before.entry_chains.keys()
    entries = [edit for edit in plan.edits if (edit.table, edit.chain) in holding]
    gone = {(table, rule_key(rule)) for table, rule in deleted_rules(plan.before.master, plan.updates)}
    names = GeneratedNames(plan.before.settings.prefix)
    return any(
        (table, rule_key(rule)) not in gone and not names.is_generated(jumps_to(rule))
        for table, rule in deleted_rules(loaded, entries)
    )


def deleted_rules(program: Program, edits: Sequence[Edit]) -> Iterator[tuple[str, Rule]]:
    """The rules that *edits* delete from chains of *program* or replace there, each with its table."""
    deleting = {(edit.table, edit.chain) for edit in edits if edit.op in (Op.DELETE, Op.REPLACE)}
    chains: dict[ChainId, list[Rule]] = {}
    for edit in edits:
        where = edit.table, edit.chain
        if where not in deleting:
            continue
        if where not in chains:
            chains[where] = list(program.rules_of(*where))
        if edit.op is Op.FLUSH:
            chains[where].clear()
        elif edit.op in (Op.DELETE, Op.REPLACE):
            yield edit.table, chains[where].pop(edit.at)
        if edit.rule is not None:
            chains[where].insert(len(chains[where]) if edit.op is Op.APPEND else edit.at, edit.rule)


def counting_chains(plan: Plan) -> set[ChainId]:
    """The chains whose counts `counted_text` needs."""
    chains = {(edit.table, edit.chain) for edit in plan.edits}
    if plan.folds or plan.hot:
        for table in {edit.table for edit in plan.edits}:
            for state in (plan.before, plan.after):
                chains |= {(table, chain) for chain in state.owners(table)}
    return {(table, chain) for table, chain in chains if plan.before.loaded.find_chain(table, chain)}


# Reads the counts of these chains from the kernel; a program without tables if all are zero.
Counters = Callable[[set[ChainId]], Program]


def carried_text(before: State, after: State, edits: Sequence[Edit], counters: Counters) -> str:
    """The patch *edits*, with the counts that the deleted copies have by *counters*.

    before, after  their loaded rule sets are what the kernel has, and what it has after the patch
    """
    grown = {*before.layouts, *after.layouts}
    chosen = tuple((table, chain, Strategy.FOLD) for table, chain in sorted(grown))
    plan = Plan(before, after, (), tuple(edits), chosen, counts=own_counts(edits))
    return counted_text(plan, counters)


def counted_text(plan: Plan, counters: Counters) -> str:
    """The patch of *plan*, with the counts that the deleted copies have by *counters*.

    A chain that the kernel lacks, or has with other rules, counts as zero.  If a rule has counted in copies
    that go, and those that stay are all in chains that the plan does not edit, one of these chains is needed,
    too: then all counts are read anew.
    """
    chains = counting_chains(plan)
    kernel = counters(chains)
    if not kernel.tables:
        return plan.text
    tables = [table for table in _tables(plan) if plan.before.loaded.find(table)]
    carrying = {table: _Carrying(plan, table, kernel, chains) for table in tables}
    others = {(table, chain) for table in tables for chain in carrying[table].other_chains()}
    if others:
        chains |= others
        kernel = counters(chains)
        carrying = {table: _Carrying(plan, table, kernel, chains) for table in tables}
    counts = dict(plan.counts)
    for each in carrying.values():
        counts |= each.inserted
    lines: dict[str, list[str]] = {table: [] for table in _tables(plan)}
    for number, edit in enumerate(plan.edits):
        count = counts.get(number)
        lines[edit.table].append((f"[{count[0]}:{count[1]}] " if count else "") + line(edit))
    for table in tables:
        lines[table] += carrying[table].more
    return "".join(f"*{table}\n" + "\n".join(of_table) + "\nCOMMIT\n" for table, of_table in lines.items())


def _tables(plan: Plan) -> dict[str, None]:
    return dict.fromkeys(edit.table for edit in plan.edits)


def _sum(one: Count, other: Count) -> Count:
    return one[0] + other[0], one[1] + other[1]


class _Carrying:
    """Repeats the edits of one table on lists of rules with their counts.

    Copies in trees that the plan replaces, but leaves to be removed later, count as deleted.

    inserted  by index of an edit: the count of its rule
    more      lines that set the counts of other copies
    to_set    by chain of the list and rule: counts of deleted copies; in the end, of rules without another
    """

    def __init__(self, plan: Plan, table: str, kernel: Program, counting: Set[ChainId]) -> None:
        self.plan, self.table = plan, table
        self.names = GeneratedNames(plan.before.settings.prefix)
        self.chains: dict[str, list[_Copy]] = {}
        self.to_set: dict[tuple[str, Key], Count] = {}
        self.list_keys: dict[str, set[Key]] = {}
        self.inserted: dict[int, Count] = {}
        self.more: list[str] = []
        before = plan.before.loaded.table(table)
        for chain in before.chains:
            if (table, chain.name) in counting:
                rules = kernel.rules_of(table, chain.name)
                is_same = len(rules) == len(chain.rules)
                self.chains[chain.name] = [
                    _Copy(rule, (rules[at].counters if is_same else None) or (0, 0))
                    for at, rule in enumerate(chain.rules)
                ]
        before_owners, after_owners = plan.before.owners(table), plan.after.owners(table)
        self.unreachable = before_owners.keys() - after_owners.keys()
        self.owners = before_owners | after_owners
        self.run()

    def run(self) -> None:
        for number, edit in enumerate(self.plan.edits):
            if edit.table == self.table:
                self.apply(number, edit)
        for name in self.unreachable & self.chains.keys():
            for copy in self.chains.pop(name):
                self.delete(name, copy)
        for _, copy, key in self.remaining():
            if copy.edit is not None and key in self.to_set:
                self.inserted[copy.edit] = _sum(copy.count, self.to_set.pop(key))
        if not self.to_set:
            return
        after = self.plan.after.loaded.table(self.table)
        for (name, at), copy, key in self.remaining():
            if key in self.to_set:
                packets, size = _sum(copy.count, self.to_set.pop(key))
                edit = Edit(Op.REPLACE, self.table, name, at, after[name].rules[at])
                self.more.append(f"[{packets}:{size}] {line(edit)}")

    def other_chains(self) -> set[str]:
        """A chain for each rule that has no other copy in the chains that were read, but one in the table."""
        found: dict[tuple[str, Key], str] = {}
        for chain in self.plan.after.loaded.table(self.table).chains if self.to_set else ():
            if chain.name not in self.chains and chain.name not in self.unreachable:
                for rule in chain.rules:
                    key = self.key(chain.name, rule)
                    if key in self.to_set:
                        found.setdefault(key, chain.name)
        return set(found.values())

    def apply(self, number: int, edit: Edit) -> None:
        copies = self.chains.setdefault(edit.chain, [])
        if edit.op is Op.FLUSH:
            for copy in copies:
                self.delete(edit.chain, copy)
            copies.clear()
        elif edit.op in (Op.DELETE, Op.REPLACE):
            self.delete(edit.chain, copies.pop(edit.at))
        if edit.rule is not None:
            at = len(copies) if edit.op is Op.APPEND else edit.at
            copies.insert(at, _Copy(edit.rule, self.plan.counts.get(number, (0, 0)), number))

    def delete(self, chain: str, copy: _Copy) -> None:
        target = copy.rule.target
        if copy.count == (0, 0) or (target is not None and self.names.is_generated(target.name)):
            return
        key = self.key(chain, copy.rule)
        if (self.table, chain) in self.plan.before.entry_chains and key[1] not in self.listed(key[0]):
            key = self.key(chain, self.decider(key[0], copy.rule))
        self.to_set[key] = _sum(self.to_set.get(key, (0, 0)), copy.count)

    def listed(self, chain: str) -> set[Key]:
        """The rules of a chain of the list, before the plan and after it."""
        if chain not in self.list_keys:
            self.list_keys[chain] = {
                rule_key(rule)
                for state in (self.plan.before, self.plan.after)
                for rule in state.master.rules_of(self.table, chain)
            }
        return self.list_keys[chain]

    def decider(self, chain: str, entry: Rule) -> Rule:
        """The rule of a chain of the list that decides about the region of *entry*, as the entry does."""
        before = self.plan.before
        if before.master.find_chain(self.table, chain) is None:
            return entry  # in a tree that another program has cut off
        table = before.master.table(self.table)
        region = Region(entry.matches, before.master.family, before.backends)
        deciding = Deciding(table, before.settings)
        found = next((rule for rule in table[chain].rules if region.ends_in(rule, deciding=deciding)), entry)
        return found if rule_key(found)[1] == rule_key(entry)[1] else entry  # by their targets

    def key(self, chain: str, rule: Rule) -> tuple[str, Key]:
        return self.owners.get(chain, chain), rule_key(rule)

    def remaining(self) -> Iterator[tuple[tuple[str, int], _Copy, tuple[str, Key]]]:
        """The copies in the edited chains after all edits: chain and row, copy, key."""
        for name, copies in self.chains.items():
            for at, copy in enumerate(copies):
                yield (name, at), copy, self.key(name, copy.rule)
