"""User chains that surely decide, or that only count, and trees that rely on one.

A tree may ask a version of its later groups in front of a jump to such a chain, since no packet comes back
from there (analyse/reorderable.py).  When the chain ceases to decide, the trees that enter it are wrong,
though neither they nor the lists they were grown for have changed: they must be grown anew.  And what the
chain writes now comes back to its callers, and to theirs; so must the trees that enter one of these.

Jumps to chains that only count are printed in another order than that of the list (ir/commuting.py).  When
such a chain does more, the trees that enter it are wrong, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hitables.analyse.callgraph import surely_decides, writes
from hitables.ir.commuting import CountingChains
from hitables.ir.program import Program, Table
from hitables.ir.rule import Kind, Metadata

from .edits import Edit, Op
from .layout import ChainId, hide_foreign
from .settings import Settings
from .state import State


class Deciding:
    """The user chains of *table* that surely decide: no packet leaves one without a verdict.

    As `callgraph.deciding`, but each is examined when it is first asked for, as an update asks for few of
    thousands.  Nothing is known of foreign chains.
    """

    def __init__(self, table: Table, settings: Settings) -> None:
        self.table, self.settings = table, settings
        self._known: dict[str, bool] = {}

    def __contains__(self, chain: object) -> bool:
        if not isinstance(chain, str) or chain not in self.table or self.table[chain].policy is not None:
            return False
        if chain not in self._known:
            self._known[chain] = False  # for jumps in a circle, which no packet takes
            self._known[chain] = not self.settings.is_foreign(chain) and surely_decides(
                self.table[chain].rules, self
            )
        return self._known[chain]


def relying(before: State, after: Program, updates: Sequence[Edit]) -> Iterator[ChainId]:
    """The chains with trees that rely on what a chain does in *before*, and no more in the list *after*.

    Their trees enter a chain that only counted, or that decided, or one that may write more now, as packets
    come back from one that decided.
    """
    settings = before.settings
    for name in dict.fromkeys(edit.table for edit in updates):
        trees = [chain for table, chain in before.layouts if table == name]
        if not trees:
            continue
        listed, updated = before.master.table(name), after.table(name)
        yield from ((name, chain) for chain in _on_counts(before, listed, updated, trees, updates))
        edited = {edit.chain for edit in updates if edit.table == name and _may_cease(edit, listed)}
        was, now = Deciding(listed, settings), Deciding(updated, settings)
        # No other chain ceases to decide unless one of these does.
        if not any(chain in was and chain not in now for chain in edited):
            continue
        wrote, writing = (writes(hide_foreign(table, settings)) for table in (listed, updated))
        for chain in trees:
            entered = filter(None, {rule.enters for rule in listed[chain].rules})
            if any(
                (callee in was and callee not in now)
                or writing.get(callee, _NOTHING) - wrote.get(callee, _NOTHING)
                for callee in entered
            ):
                yield name, chain


def _on_counts(
    before: State, listed: Table, updated: Table, trees: Sequence[str], updates: Sequence[Edit]
) -> Iterator[str]:
    """The chains of *trees* that enter a chain which only counts in *listed*, and no more in *updated*."""
    added = {edit.chain for edit in updates if edit.table == listed.name and edit.rule is not None}
    was, now = (
        CountingChains(hide_foreign(table, before.settings), before.master.family)
        for table in (listed, updated)
    )
    # No other chain ceases to only count unless one of these does.
    if any(chain in was and chain not in now for chain in added):
        for chain in trees:
            entered = {rule.enters for rule in listed[chain].rules}
            if any(callee in was and callee not in now for callee in entered):
                yield chain


def _may_cease(edit: Edit, listed: Table) -> bool:
    """Whether a user chain may cease to decide by *edit*."""
    if edit.chain not in listed or listed[edit.chain].policy is not None:
        return False
    if edit.op in (Op.APPEND, Op.INSERT):
        return edit.rule is not None and edit.rule.target is not None and edit.rule.target.kind in _LEAVING
    return edit.op in (Op.DELETE, Op.REPLACE, Op.FLUSH, Op.REMOVE)


_LEAVING = Kind.RETURN, Kind.GOTO
_NOTHING: frozenset[Metadata] = frozenset()
