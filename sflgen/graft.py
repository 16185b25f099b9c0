"""Grafts: the spots in a tree where an entry for a region has the same effect as in front of the tree.

A packet of the region descends the tree by its decisions, and passes rules that have no effect on it,
until it reaches a rule that may have one.  An entry in front of that rule sees the packet as an entry
in front of the tree would, and packets of other leaves do not read it.

Invariant: every packet of the region, and every packet that the entry's tests may drop, reaches exactly
one of the spots, before any rule had an effect on it.  Only trees that a packet enters once are
searched: versions of later groups are entered behind rules that the region does not pass.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

from hitables.ir.program import Table
from hitables.ir.rule import Kind, Match, Role, Rule

from .region import Region

# An entry whose region meets more leaves is put in front of the tree.
MAX_SPOTS = 8


@dataclass(frozen=True, slots=True)
class Spot:
    """A position for an entry: before row *row* of *chain*, behind the decisions *path*."""

    chain: str
    row: int
    path: tuple[Match, ...]


@dataclass(frozen=True, slots=True)
class TreeWalk:
    """How to walk a tree.

    entry_rows    the rows of a chain that hold entries
    is_generated  whether a name is that of a generated chain
    fixed         generated chains that are not part of a tree: section chains and shared chains
    exact         whether no test may drop a malformed packet
    """

    table: Table
    entry_rows: Callable[[str], frozenset[int]]
    is_generated: Callable[[str], bool]
    fixed: Set[str]
    exact: bool

    def spots(self, root: str, head: int, region: Region, is_final: bool) -> list[Spot] | None:
        """The spots of *region* in the tree of chain *root*; None if there are more than MAX_SPOTS.

        *is_final*: the entry decides about all its packets and returns none to a caller, so trees that
        are called may be searched.
        """
        wide = region.touched()
        spots = self._spots(root, head, wide, is_final, narrowing=True)
        if spots == []:
            # Two paths lead to one chain, so the decisions of neither hold there.
            spots = self._spots(root, head, wide, is_final, narrowing=False)
        return spots

    def _spots(
        self, root: str, head: int, region: Region, is_final: bool, narrowing: bool
    ) -> list[Spot] | None:
        """As `spots`; with *narrowing* [] if a chain is reached twice."""
        spots: list[Spot] = []
        seen = {root}
        pending: list[tuple[str, int, Region, tuple[Match, ...]]] = [(root, head, region, ())]
        while pending:
            chain, row, here, path = pending.pop()
            rules, entry_rows = self.table[chain].rules, self.entry_rows(chain)
            while row < len(rules):
                rule = rules[row]
                if here.escapes(rule):
                    row += 1
                    continue
                is_entry = row in entry_rows and bool(rule.matches)  # without matches: a tree of entries
                subtree = "" if is_entry else self.subtree(rule, here, is_final)
                if not subtree:
                    break
                if subtree in seen:
                    if narrowing:
                        return []
                else:
                    seen.add(subtree)
                    deeper = (*path, *rule.matches)
                    inside = Region((*here.matches, *rule.matches), here.family, here.backends)
                    pending.append((subtree, 0, inside if narrowing else here, deeper if narrowing else ()))
                if here.passes(rule.matches):
                    row = -1  # no packet of the region reads on in this chain
                    break
                row += 1
            if row >= 0:
                spots.append(Spot(chain, row, path))
                if len(spots) > MAX_SPOTS:
                    return None
        return spots

    def subtree(self, rule: Rule, region: Region, is_final: bool) -> str:
        """The chain of the tree that *rule* enters without any other effect; "" if there is none."""
        target = rule.target
        if target is None or not target.enters:
            return ""
        if not self.is_generated(target.name) or target.name in self.fixed:
            return ""
        if target.kind is Kind.JUMP and (rule.matches or not is_final):
            return ""
        if any(match.role is not Role.SPACE for match in rule.matches):
            return ""
        if self.exact and region.may_be_dropped_by(rule.matches):
            return ""
        return target.name
