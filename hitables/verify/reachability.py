"""Which chains of a table packets reach, and by which jumps.

Invariant: a chain is reached when some chain with a policy (a *root*) enters it, directly or through
others; the matches of the rules are not looked at.

Cost: linear in the rules; `reaching` and `reached_from` in the jumps that they follow.

The compiler has a call graph of its own, analyse/callgraph.py: verify/ imports nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter

from hitables.ir.program import Table
from hitables.ir.rule import Kind


class Reachability:
    """The jumps of a table; *roots*: the built-in chains."""

    def __init__(self, table: Table) -> None:
        callers: dict[str, set[str]] = {chain.name: set() for chain in table.chains}
        callees: dict[str, set[str]] = {chain.name: set() for chain in table.chains}
        for chain in table.chains:
            for rule in chain.rules:
                if rule.enters is not None:
                    callers.setdefault(rule.enters, set()).add(chain.name)
                    callees[chain.name].add(rule.enters)
        self.roots = [chain.name for chain in table.chains if chain.policy is not None]
        self._callers, self._callees = callers, callees
        self._roots_of: dict[str, list[str]] = {}
        for root in self.roots:
            for name in self.reached_from([root]):
                self._roots_of.setdefault(name, []).append(root)

    def roots_of(self, chain: str) -> list[str]:
        """The roots from which packets reach *chain*."""
        return self._roots_of.get(chain, [])

    def reaching(self, chain: str) -> set[str]:
        """All chains from which packets reach *chain*, itself among them."""
        return _closure([chain], self._callers)

    def reached_from(self, chains: Iterable[str]) -> set[str]:
        """All chains that packets of *chains* reach, themselves among them."""
        return _closure(chains, self._callees)

    def callees_first(self) -> list[str]:
        """The chains that packets reach, each behind those that it enters."""
        reached = {name: self._callers[name] for name in self._callers if self.roots_of(name)}
        order = TopologicalSorter(
            {name: callers & reached.keys() for name, callers in reached.items()}
        ).static_order()
        return list(order)[::-1]


def policies_behind(table: Table, callers_first: Iterable[str]) -> dict[str, str | None]:
    """By chain: the policy that decides all packets which its rules leave; None: rules may, elsewhere.

    callers_first  the chains that packets reach
    """
    behind: dict[str, set[str | None]] = {}
    found: dict[str, str | None] = {}
    for name in callers_first:
        chain = table[name]
        ways = behind.pop(name, {None}) if chain.policy is None else {chain.policy}
        found[name] = own = ways.pop() if len(ways) == 1 else None
        for rule in chain.rules:
            if rule.enters is not None:
                is_last = rule is chain.rules[-1] or (rule.target and rule.target.kind is Kind.GOTO)
                behind.setdefault(rule.enters, set()).add(own if is_last else None)
    return found


def unreached(table: Table, chains: Iterable[str]) -> frozenset[str]:
    """Those of *chains*, user chains of *table*, that packets reach from no built-in chain."""
    own = {name for name in chains if name in table and table[name].policy is None}
    if not own:
        return frozenset()
    reach = Reachability(table)
    return frozenset(name for name in own if not reach.roots_of(name))


def _closure(starts: Iterable[str], following: Mapping[str, set[str]]) -> set[str]:
    found = set(starts)
    waiting = list(found)
    while waiting:
        new = following.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found
