"""The rules that packets of a region may read: of a list, and of the chains that are loaded for it.

Invariant: every rule that may have an effect on a packet of the region is selected, in its order, up to one
behind which no packet of the region reads on.  Rules are excluded by their hulls (rule_index.py) alone.

Cost: whole arrays for each level of the tree, whatever the number of its chains.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hitables.ir.fields import Field
from hitables.ir.program import Table
from hitables.ir.rule import Rule

from .region import Region
from .region_encoding import NearChain
from .rule_index import RuleIndex, hull
from .rule_rows import Bools, Ints, RuleRows


class NearRules:
    """
    fields   those by which rules may be excluded: nothing that the packets read may write them
    is_kept  nothing writes any field of the packets, so they pass later tests that equal the region's own
    """

    def __init__(self, rows: RuleRows, region: Region, fields: frozenset[Field], is_kept: bool) -> None:
        self.rows = rows
        own = hull(Rule(region.matches, None), region.family)
        usable = {row for row, field in enumerate(RuleIndex.FIELDS) if field in fields}
        self.bounds = [(row, *ends) for row, ends in own.items() if row in usable]
        self.own_matches = [rows.numbers.number(match) for match in region.matches] if is_kept else None

    def of_list(self, rules: Ints) -> Ints:
        """Those of *rules*, which are all near, that packets of the region may read."""
        decides = np.flatnonzero(self._decides(rules))
        return rules[: decides[0] + 1] if len(decides) else rules

    def of_chains(self, table: Table, root: str, is_generated: Callable[[str], bool]) -> list[NearChain]:
        """The generated chains that the packets may reach from *root*, which is the first."""
        rows, near = self.rows, [NearChain(root, np.empty(0, np.int64))]
        level, seen = [root], {root}
        while level:
            chains = [rows.of_chain(table.name, name, table[name].rules) for name in level]
            kept, sizes = self._near(chains)
            selected = np.split(kept, np.cumsum(sizes)[:-1])
            near += [NearChain(name, own) for name, own in zip(level, selected, strict=True)]
            callees = rows.callees(kept)
            level = [name for name in callees if name not in seen and is_generated(name)]
            seen.update(level)
        return near[1:]

    def _near(self, chains: list[Ints]) -> tuple[Ints, Ints]:
        """The rules of all *chains* that are read, and their number by chain."""
        rules = np.concatenate(chains)
        chain = np.repeat(np.arange(len(chains)), [len(each) for each in chains])
        meets = np.ones(len(rules), np.bool_)
        for row, first, last in self.bounds:
            low, high = self.rows.low[row].values[rules], self.rows.high[row].values[rules]
            meets &= (low <= np.uint64(last)) & (high >= np.uint64(first))
        rules, chain = rules[meets], chain[meets]
        ends = np.full(len(chains), len(rules), np.int64)
        decides = np.flatnonzero(self._decides(rules))[::-1]
        ends[chain[decides]] = decides  # of several, the first is written last
        is_read = np.arange(len(rules)) <= ends[chain]
        return rules[is_read], np.bincount(chain[is_read], minlength=len(chains))

    def _decides(self, rules: Ints) -> Bools:
        """Which rules let no packet of the region read on: all their matches are the region's own."""
        rows = self.rows
        decides = rows.leaves.values[rules].copy()
        if self.own_matches is None:
            return decides & False
        candidates = np.flatnonzero(decides)
        numbers, sizes = rows.matches.of(rules[candidates])
        is_own = np.zeros(len(rows.numbers.matches), np.bool_)
        is_own[self.own_matches] = True
        others = np.concatenate(([0], np.cumsum(~is_own[numbers])))
        ends = np.cumsum(sizes)
        decides[candidates] = others[ends] == others[ends - sizes]
        return decides
