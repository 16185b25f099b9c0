"""The header fields and metadata of a packet (mark, connection, …) that rules and chains may write.

A rule behind one that writes a field sees the new value.  So the region of an entry, which is read first,
must not rely on tests of fields that an earlier rule of the list may write.
"""

from __future__ import annotations

from collections.abc import Sequence

from hitables.analyse.callgraph import writes as written_by_chain
from hitables.ir.program import Chain, Program
from hitables.ir.rule import Kind, Metadata, Rule

from .edits import Edit, Op, empty_table
from .layout import FOREIGN, hide_foreign
from .state import State


def written_by_chains(state: State, table: str, added: Sequence[Edit] = ()) -> dict[str, frozenset[Metadata]]:
    """What each chain of the master list, and those that it enters, may write.

    *added*: edits that add chains and rules to it.
    """
    found = state.master.find(table)
    listed = empty_table(table) if found is None else hide_foreign(found, state.settings)
    rules_of = {chain.name: _acting(state, table, chain) for chain in listed.chains}
    for edit in added:
        if edit.table == table and state.settings.is_foreign(edit.chain):
            rules_of.setdefault(edit.chain, (Rule((), FOREIGN),))
        elif edit.table == table and edit.op is not Op.REMOVE:
            rules_of.setdefault(edit.chain, ())
            rules_of[edit.chain] += () if edit.rule is None else (edit.rule,)
    known = {name: listed[name] if name in listed else Chain(name, None) for name in rules_of}
    chains = {name: known[name].with_rules(rules) for name, rules in rules_of.items()}
    return written_by_chain(listed.of(chains))


def _acting(state: State, table: str, chain: Chain) -> tuple[Rule, ...]:
    """Rules that write all that the rules of *chain* write, and enter all chains that those enter."""
    layout, indexes = state.layouts.get((table, chain.name)), state.cache.rule_indexes
    names = [] if layout is None else [section.name for section in layout.sections]
    if layout is None or any((table, name) not in indexes for name in names):
        return chain.rules
    shared = {name for _, name in layout.shared}
    acting = [rule for name in names for rule in indexes[table, name].acting()]
    own = [rule for rule in acting if rule.enters not in shared and rule.enters not in names]
    return (*own, *(chain.rules[at] for at, _ in layout.shared))


class MasterListWrites:
    """What the chains of the master list may write, before the updates of a plan and with all that they add.

    The call graph of a table is walked once, when it is first needed.
    """

    def __init__(self, before: State) -> None:
        self.before = before
        self.added: Sequence[Edit] = ()
        self._by_chain: dict[tuple[str, bool], dict[str, frozenset[Metadata]]] = {}

    def by_chain(self, table: str, updated: bool = True) -> dict[str, frozenset[Metadata]]:
        """What each chain of the master list may write, the chains that it enters included."""
        key = table, updated
        if key not in self._by_chain:
            self._by_chain[key] = written_by_chains(self.before, table, self.added if updated else ())
        return self._by_chain[key]

    def by_rule(self, table: str, rule: Rule, loaded: Program) -> frozenset[Metadata]:
        """What *rule* of *loaded* may write, the chains that it enters by -j included."""
        target = rule.target
        if target is None or target.kind is not Kind.JUMP:
            return rule.writes
        by_chain = self.by_chain(table)
        if target.name in by_chain:
            return rule.writes | by_chain[target.name]
        shared = loaded.table(table)[target.name].rules  # a shared chain: one rule with memory
        return rule.writes.union(*(self.by_rule(table, each, loaded) for each in shared))
