"""The rules that packets of a region may read: of a list, and of the chains that are loaded for it.

Invariant: every rule that may have an effect on a packet of the region is selected, in its order, up to one
behind which no packet of the region reads on.  Rules are excluded by their hulls (rule_index.py) alone.

Cost: whole arrays for each level of the tree, whatever the number of its chains.
"""

from __future__ import annotations

from collections.abc import Callable, Container

import numpy as np

from hitables.ir.fields import Field
from hitables.ir.program import Table
from hitables.ir.rule import Rule

from .chain_rows import NearChains
from .region import Region
from .rule_index import RuleIndex, hull
from .rule_rows import Bools, Ints, RuleRows


class NearRules:
    """Selects the rules that packets of a region may read.

    fields    those by which rules may be excluded: nothing that the packets read may write them
    is_kept   nothing writes any field of the packets, so they pass later tests that equal the region's own
    deciding  chains that surely decide
    """

    def __init__(
        self,
        rows: RuleRows,
        region: Region,
        fields: frozenset[Field],
        is_kept: bool,
        deciding: Container[str] = (),
    ) -> None:
        self.rows, self.deciding = rows, deciding
        own = hull(Rule(region.matches, None), region.family)
        usable = {row for row, field in enumerate(RuleIndex.FIELDS) if field in fields}
        self.bounds = [(row, *ends) for row, ends in own.items() if row in usable]
        self.own_matches = [rows.numbers.number(match) for match in region.matches] if is_kept else None

    def of_list(self, rules: Ints) -> Ints:
        """Those of *rules*, which are all near, that packets of the region may read."""
        decides = np.flatnonzero(self._decides(rules))
        return rules[: decides[0] + 1] if len(decides) else rules

    def of_chains(self, table: Table, root: str, may_enter: Callable[[], Bools]) -> NearChains:
        """The chains that the packets may reach from *root*, which is the first, by the names *may_enter*.

        It is called when all rules of *table* have rows.
        """
        rows = self.rows
        chains = rows.of_table(table)
        is_open = may_enter().copy()
        level, near = np.array([rows.chain(root)], np.int64), []
        is_open[level] = False
        while len(level):
            kept, sizes = self._near(*chains.of(level))
            near.append(NearChains(level, kept, sizes))
            level = np.flatnonzero(rows.callees(kept) & is_open)
            is_open[level] = False
        return NearChains.joined(*near)

    def _near(self, rules: Ints, lengths: Ints) -> tuple[Ints, Ints]:
        """Of the *rules* of chains of these *lengths*: those that are read, and their number by chain."""
        chain = np.repeat(np.arange(len(lengths)), lengths)
        meets = np.ones(len(rules), np.bool_)
        for row, first, last in self.bounds:
            low, high = self.rows.low[row].values[rules], self.rows.high[row].values[rules]
            meets &= (low <= np.uint64(last)) & (high >= np.uint64(first))
        rules, chain = rules[meets], chain[meets]
        ends = np.full(len(lengths), len(rules), np.int64)
        decides = np.flatnonzero(self._decides(rules))[::-1]
        ends[chain[decides]] = decides  # of several, the first is written last
        is_read = np.arange(len(rules)) <= ends[chain]
        return rules[is_read], np.bincount(chain[is_read], minlength=len(lengths))

    def _decides(self, rules: Ints) -> Bools:
        """Which rules let no packet of the region read on: all their matches are the region's own."""
        rows = self.rows
        if self.own_matches is None:
            return np.zeros(len(rules), np.bool_)
        decides = rows.leaves.values[rules] | self._enters_deciding(rules)
        candidates = np.flatnonzero(decides)
        numbers, sizes = rows.matches.of(rules[candidates])
        is_own = np.zeros(len(rows.numbers.matches), np.bool_)
        is_own[self.own_matches] = True
        others = np.concatenate(([0], np.cumsum(~is_own[numbers])))
        ends = np.cumsum(sizes)
        decides[candidates] = others[ends] == others[ends - sizes]
        return decides

    def _enters_deciding(self, rules: Ints) -> Bools:
        """Which rules enter a chain that surely decides."""
        rows = self.rows
        entered = np.flatnonzero(rows.callees(rules))
        decide = np.zeros(len(rows.chain_names), np.bool_)
        decide[[number for number in entered.tolist() if rows.chain_names[number] in self.deciding]] = True
        enters = rows.enters.values[rules]
        enters[enters] = decide[rows.argument.values[rules[enters]]]
        return enters
