"""Which chain enters which: circles, depth, order, chains that no packet reaches.

`-j` and `-g` count alike: both nest in nf_tables.

Invariant: a `CallGraph` has no circles.  The kernel accepts chains that jump in a circle as long as no
packet reaches them; the edges on such a circle are left out, because no packet ever takes them.

Cost: each function is linear in rules and edges.  Plain dictionaries: a graph library takes longer to
import than a small rule set takes to compile.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

from ..errors import ParseError
from ..ir.program import Program, Table
from ..ir.rule import Kind, Metadata, Rule, Target

Callees: TypeAlias = dict[str, tuple[str, ...]]  # by chain, the chains that its rules enter, in order


@dataclass(frozen=True, slots=True)
class CallGraph:
    """The chains of a table and their jumps, without circles.

    order  every chain after all chains that enter it
    """

    callees: Callees
    order: tuple[str, ...]


def graph(table: Table) -> CallGraph:
    """The call graph of *table*."""
    callees = _callees(table)
    order = _order(callees)
    if order is None:
        component = _components(callees)
        callees = {
            name: tuple(callee for callee in below if component[callee] != component[name])
            for name, below in callees.items()
        }
        order = _order(callees)
        assert order is not None, "every circle lies within one component"
    return CallGraph(callees, order)


def check_loops(program: Program) -> None:
    """ParseError when chains that a packet may reach jump in a circle; the kernel refuses that too."""
    for table in program:
        if table.is_acyclic():
            continue
        callees = _callees(table)
        entered = _descendants(callees, _built_in(table))
        circle = _circle({name: below for name, below in callees.items() if name in entered})
        if circle is None:
            continue
        jumps = (rule for rule in table[circle[-1]].rules if _entered(rule.target) == circle[0])
        raise ParseError(
            f"chains jump in a circle: {' -> '.join([*circle, circle[0]])} (table {table.name})",
            source=program.name,
            line=next(jumps).line,
            hint="the kernel refuses such a rule set",
        )


def reachable(table: Table) -> frozenset[str]:
    """The chains that a packet can reach: the built-in ones and all that these enter."""
    return frozenset(_descendants(_callees(table), _built_in(table)))


def deciding(table: Table) -> frozenset[str]:
    """The user chains that surely decide: no packet that enters one leaves it without a verdict."""
    chains = {chain.name: chain for chain in table.chains if chain.policy is None}
    decides: set[str] = set()
    for name in reversed(graph(table).order):
        if name in chains and surely_decides(chains[name].rules, decides):
            decides.add(name)
    return frozenset(decides)


def surely_decides(rules: Sequence[Rule], decides: Container[str]) -> bool:
    """Whether a chain of *rules* surely decides; *decides* holds those that do of the chains it enters."""
    for rule in rules:
        target = rule.target
        if target is None:
            continue
        is_sure = target.is_final or (target.enters and target.name in decides)
        if target.kind in (Kind.RETURN, Kind.GOTO) and not is_sure:
            return False
        if is_sure and not rule.matches:
            return True
    return False


def writes(table: Table) -> dict[str, frozenset[Metadata]]:
    """The state that each chain may have written when a packet comes back from it.

    It includes what the chains write that it enters.  Nothing comes back from a deciding chain.
    """
    calls, decides = graph(table), deciding(table)
    written: dict[str, frozenset[Metadata]] = {}
    for name in reversed(calls.order):
        if name in decides:
            written[name] = frozenset()
            continue
        states: set[Metadata] = set()
        for rule in table[name].rules:
            states |= rule.writes
        for callee in calls.callees[name]:
            states |= written[callee]
        written[name] = frozenset(states)
    return written


# ---- graphs as dictionaries, which may have circles ----


def _callees(table: Table) -> Callees:
    callees = dict(table.entered())
    for entered in list(callees.values()):
        for name in entered:
            callees.setdefault(name, ())
    return callees


def _entered(target: Target | None) -> str:
    """The chain that a rule with *target* enters; "" when it enters none."""
    return target.name if target is not None and target.enters else ""


def _built_in(table: Table) -> list[str]:
    return [chain.name for chain in table.chains if chain.policy is not None]


def _order(callees: Callees) -> tuple[str, ...] | None:
    """Callers before callees; None when there is a circle."""
    try:
        return tuple(TopologicalSorter(callees).static_order())[::-1]
    except CycleError:
        return None


def _descendants(callees: Callees, starts: Iterable[str]) -> set[str]:
    """*starts*, and all chains that they reach."""
    reached = set(starts)
    waiting = list(reached)
    while waiting:
        new = set(callees[waiting.pop()]) - reached
        reached |= new
        waiting += new
    return reached


def _circle(callees: Callees) -> list[str] | None:
    """The first circle that a depth-first search meets, in the order of its jumps; None: there is none."""
    finished: set[str] = set()
    for start in callees:
        if start in finished:
            continue
        path, rest = [start], [iter(callees[start])]
        while path:
            callee = next(rest[-1], None)
            if callee is None:
                finished.add(path.pop())
                rest.pop()
            elif callee in path:
                return path[path.index(callee) :]
            elif callee not in finished:
                path.append(callee)
                rest.append(iter(callees[callee]))
    return None


def _components(callees: Callees) -> dict[str, int]:
    """For each chain the number of its strongly connected component (Kosaraju's algorithm)."""
    entered: set[str] = set()
    finished: list[str] = []  # in the order in which a depth-first search leaves the chains
    for start in callees:
        waiting = [(start, False)]
        while waiting:
            name, is_left = waiting.pop()
            if is_left:
                finished.append(name)
            elif name not in entered:
                entered.add(name)
                waiting.append((name, True))
                waiting += [(callee, False) for callee in callees[name]]
    callers: dict[str, list[str]] = {name: [] for name in callees}
    for name, below in callees.items():
        for callee in below:
            callers[callee].append(name)
    component: dict[str, int] = {}
    for number, root in enumerate(reversed(finished)):
        same = [root] if root not in component else []
        while same:
            name = same.pop()
            component[name] = number
            same += [caller for caller in callers[name] if caller not in component]
    return component
