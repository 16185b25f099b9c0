"""The call graph of a table: circles of jumps, nesting, order of chains, unreachable chains.

Nodes are chain names; an edge has the lines of the rules that jump.  `-j` and `-g` count alike, because both
nest in nf_tables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeAlias

import networkx as nx

from ..errors import ParseError
from ..ir.program import Program, Table
from ..ir.rule import Kind, State

Graph: TypeAlias = Any  # a networkx DiGraph, which brings no types


def graph(table: Table) -> Graph:
    """The table's chains as a directed graph without circles; an edge's *lines* are those of its rules.

    The kernel accepts chains that jump in a circle as long as no packet reaches them.  The edges of such a
    circle are left out, since no caller needs the effect of these chains.
    """
    jumps = _jumps(table)
    if not nx.is_directed_acyclic_graph(jumps):
        for chains in list(nx.strongly_connected_components(jumps)):
            jumps.remove_edges_from([edge for edge in jumps.subgraph(chains).edges])
    return jumps


def _jumps(table: Table) -> Graph:
    jumps = nx.DiGraph()
    lines: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for chain in table.chains:
        jumps.add_node(chain.name, rules=len(chain.rules), built_in=chain.policy is not None)
        for rule in chain.rules:
            if rule.target is not None and rule.target.enters:
                lines[chain.name, rule.target.name].append(rule.line)
    jumps.add_edges_from((*edge, {"lines": numbers}) for edge, numbers in lines.items())
    return jumps


def check_loops(program: Program) -> None:
    """ParseError when chains that a packet may reach jump in a circle; the kernel refuses them, too."""
    for table in program:
        if not _jumps_in_circles(table):
            continue
        jumps = _jumps(table)
        reached = jumps.subgraph(_descend(jumps, table))
        if nx.is_directed_acyclic_graph(reached):
            continue
        circle = [start for start, _ in nx.find_cycle(reached)]
        line = reached.edges[circle[-1], circle[0]]["lines"][0]
        raise ParseError(
            f"chains jump in a circle: {' -> '.join([*circle, circle[0]])} (table {table.name})",
            source=program.name,
            line=line,
            hint="the kernel refuses such a rule set",
        )


def _jumps_in_circles(table: Table) -> bool:
    entering = (Kind.JUMP, Kind.GOTO)
    after = {
        chain.name: {
            target.name
            for target in {id(rule.target): rule.target for rule in chain.rules}.values()
            if target is not None and target.kind in entering
        }
        for chain in table.chains
    }
    try:
        TopologicalSorter(after).prepare()
    except CycleError:
        return True
    return False


def reachable(table: Table) -> frozenset[str]:
    """The chains that a packet can reach: the built-in ones and all that they enter, directly or not."""
    return _descend(graph(table), table)


def _descend(jumps: Graph, table: Table) -> frozenset[str]:
    reached = {chain.name for chain in table.chains if chain.policy is not None}
    for name in list(reached):
        reached |= nx.descendants(jumps, name)
    return frozenset(reached)


def levels(
    callees: Mapping[str, Iterable[str]], nesting: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """How many chains nest above each chain, and how many below its rules, at most.

    *callees*: by chain, the chains that its rules enter.  *nesting*: by chain, the nesting of its own tree; 0
    when left out.  Chains on or behind a circle of jumps count as if the circle ended before them.
    """
    above, below = dict.fromkeys(callees, 0), dict.fromkeys(callees, 0)
    calls = Counter(callee for name in callees for callee in callees[name])
    ready = [name for name in callees if not calls[name]]
    for name in ready:  # which grows: callers first
        for callee in callees[name]:
            above[callee] = max(above[callee], above[name] + nesting.get(name, 0) + 1)
            calls[callee] -= 1
            if not calls[callee]:
                ready.append(callee)
    for name in reversed(ready):
        below[name] = max((1 + nesting.get(each, 0) + below[each] for each in callees[name]), default=0)
    return above, below


def levels_above(table: Table) -> dict[str, int]:
    """How many chains nest above each chain of the table, at most."""
    callees = {
        chain.name: {name for rule in chain.rules if (name := rule.enters) is not None}
        for chain in table.chains
    }
    return levels(callees, {})[0]


def writes(table: Table) -> dict[str, frozenset[State]]:
    """By chain: the state that its rules, and those of the chains that it reaches, may write."""
    jumps = graph(table)
    written: dict[str, frozenset[State]] = {}
    for name in reversed(list(nx.topological_sort(jumps))):
        states: set[State] = set()
        for rule in table[name].rules:
            states |= rule.writes
        for callee in jumps.successors(name):
            states |= written[callee]
        written[name] = frozenset(states)
    return written
