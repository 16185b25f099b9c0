"""The header fields and metadata of a packet (mark, connection, …) that rules and chains may write.

A rule behind one that writes a field sees the new value.  So the region of an entry, which is read first,
must not rely on tests of fields that an earlier rule of the list may write.
"""

from __future__ import annotations

from hitables.analyse.callgraph import writes as written_by_chain
from hitables.ir.program import Program
from hitables.ir.rule import Kind, Metadata, Rule

from .layout import hide_foreign
from .settings import Settings


def has_table(program: Program, table: str) -> bool:
    return any(each.name == table for each in program)


class Written:
    """What the chains of the master list may write, *before* and *after* the updates of a plan.

    The call graph of a table is walked once, when it is first needed.
    """

    def __init__(self, before: Program, after: Program, settings: Settings) -> None:
        self.before, self.after, self.settings = before, after, settings
        self._by_chain: dict[tuple[str, bool], dict[str, frozenset[Metadata]]] = {}

    def by_chain(self, table: str, updated: bool = True) -> dict[str, frozenset[Metadata]]:
        """What each chain of the master list may write, the chains that it enters included."""
        key = table, updated
        if key not in self._by_chain:
            program = self.after if updated else self.before
            self._by_chain[key] = (
                written_by_chain(hide_foreign(program.table(table), self.settings))
                if has_table(program, table)
                else {}
            )
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
