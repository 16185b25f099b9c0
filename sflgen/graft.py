"""Grafts: where in a tree an entry for a region may stand, instead of in front of it all.

A packet of the region goes down the tree by its decisions, passing rules that do nothing to it,
until it comes to one that may; an entry there finds it as an entry in front of the tree would
have.  So the leaves that the region meets are edited, and other packets do not pay for it.

Invariant: every packet of the region, and every packet that the entry's tests may drop, comes
to exactly one of the spots before anything was done to it.  The chains passed belong to trees
that a packet goes through once: versions of later groups are entered behind rules that the
region does not pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hitables.ir.program import Table
from hitables.ir.rule import Kind, Match, Role, Rule

from .region import Region

# A region that meets more leaves is put in front of the tree.
MOST = 8


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for an entry: before row *row* of *chain*, behind decisions that took *path*."""

    chain: str
    row: int
    path: tuple[Match, ...]


@dataclass(frozen=True, slots=True)
class Walk:
    """How to walk a tree.

    entries  the rows of a chain in which entries stand
    made     whether a name is that of a chain of ours
    fixed    chains of ours that are no part of a tree: sections, and those of rules with memory
    exact    whether no test may drop a malformed packet
    """

    table: Table
    entries: Callable[[str], frozenset[int]]
    made: Callable[[str], bool]
    fixed: frozenset[str]
    exact: bool

    def spots(self, root: str, head: int, region: Region, final: bool) -> list[Spot] | None:
        """The spots of *region* in the tree of chain *root*; None when there are more than MOST.

        *final*: the entry ends the way of all its packets and comes back to no caller, so trees
        that are called may be looked into.
        """
        wide = region.touched()
        found = self._spots(root, head, wide, final, narrowing=True)
        if found == []:
            # Two ways meet in one chain: what either knows does not hold there.
            found = self._spots(root, head, wide, final, narrowing=False)
        return found

    def _spots(self, root: str, head: int, region: Region, final: bool, narrowing: bool) -> list[Spot] | None:
        """As `spots`; [] when *narrowing* a chain is met twice."""
        found: list[Spot] = []
        seen = {root}
        todo: list[tuple[str, int, Region, tuple[Match, ...]]] = [(root, head, region, ())]
        while todo:
            chain, row, here, path = todo.pop()
            rules, entries = self.table[chain].rules, self.entries(chain)
            while row < len(rules):
                rule = rules[row]
                if here.escapes(rule):
                    row += 1
                    continue
                name = "" if row in entries else self.below(rule, here, final)
                if not name:
                    break
                if name in seen:
                    if narrowing:
                        return []
                else:
                    seen.add(name)
                    taken = (*path, *rule.matches)
                    inside = Region((*here.matches, *rule.matches), here.family, here.backends)
                    todo.append((name, 0, inside if narrowing else here, taken if narrowing else ()))
                if here.passes(rule.matches):
                    row = -1  # nothing of the region is left in this chain
                    break
                row += 1
            if row >= 0:
                found.append(Spot(chain, row, path))
                if len(found) > MOST:
                    return None
        return found

    def below(self, rule: Rule, region: Region, final: bool) -> str:
        """The chain of the tree to which *rule* leads packets, doing nothing else to them; "" for none."""
        target = rule.target
        if target is None or not target.enters:
            return ""
        if not self.made(target.name) or target.name in self.fixed:
            return ""
        if target.kind is Kind.JUMP and (rule.matches or not final):
            return ""
        if any(match.role is not Role.SPACE for match in rule.matches):
            return ""
        if self.exact and region.may_be_dropped_by(rule.matches):
            return ""
        return target.name
