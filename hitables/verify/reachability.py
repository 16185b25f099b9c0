"""Which chains of a table packets reach, and by which jumps.

Invariant: a chain is reached when some chain with a policy (a *root*) enters it, directly or through
others; the matches of the rules are not looked at.

Users: lint.py.  (The compiler has a call graph of its own, analyse/callgraph.py; verify/ imports nothing of
it.)
"""

from __future__ import annotations

from graphlib import TopologicalSorter

from hitables.ir.program import Table


class Reachability:
    """The jumps of a table.

    roots     the built-in chains
    reaching  by chain: all chains from which packets reach it, itself among them
    """

    def __init__(self, table: Table) -> None:
        callers: dict[str, set[str]] = {chain.name: set() for chain in table.chains}
        for chain in table.chains:
            for rule in chain.rules:
                if rule.enters is not None:
                    callers.setdefault(rule.enters, set()).add(chain.name)
        self.reaching: dict[str, frozenset[str]] = {}
        for chain in table.chains:
            reaching, waiting = {chain.name}, [chain.name]
            while waiting:
                new = callers[waiting.pop()] - reaching
                reaching |= new
                waiting += new
            self.reaching[chain.name] = frozenset(reaching)
        self.roots = [chain.name for chain in table.chains if chain.policy is not None]
        self._callers = callers

    def roots_of(self, chain: str) -> list[str]:
        """The roots from which packets reach *chain*."""
        return [root for root in self.roots if root in self.reaching[chain]]

    def callees_first(self) -> list[str]:
        """The chains that packets reach, each behind those that it enters."""
        reached = {name: self._callers[name] for name in self._callers if self.roots_of(name)}
        order = TopologicalSorter(
            {name: callers & reached.keys() for name, callers in reached.items()}
        ).static_order()
        return list(order)[::-1]
