"""The statistics of `hitables stats`: per chain its rules, their roles, and how many rules packets read."""

from __future__ import annotations

from typing import Any

from ..analyse.callgraph import reachable
from ..errors import UnknownName, Unsupported
from ..ir.fields import Family
from ..ir.packet import Backend
from ..ir.program import Chain, Program, Table
from ..ir.rule import Role, Rule
from .profile import Costs

# Packets drawn per chain; the error of the mean is then a few per cent.
PACKETS = 4_000
COUNTED = 500  # of them, for their cost


def role_of(rule: Rule) -> Role:
    """The most restrictive role among the rule's matches."""
    return max((match.role for match in rule.matches), default=Role.SPACE)


def _chain(
    program: Program, table: Table, chain: Chain, reached: bool, costs: Costs, backend: Backend
) -> dict[str, Any]:
    from ..simulate.boundary_packets import draw_packets
    from ..simulate.interpreter import Interpreter
    from . import spent

    roles = [role_of(rule) for rule in chain.rules]
    entry: dict[str, Any] = {
        "table": table.name,
        "chain": chain.name,
        "policy": chain.policy,
        "rules": len(chain.rules),
        "roles": {role.name: roles.count(role) for role in Role},
        "reached": reached,
    }
    if chain.rules:
        batch = draw_packets(program, table.name, chain.name, PACKETS)
        reads = Interpreter(program, backend).run(table.name, chain.name, batch).reads
        entry["mean_read"] = round(float(reads.mean()), 2)
        entry["longest_read"] = int(reads.max())
        # Counting for costs is slower, and fewer packets suffice for the mean.
        some = batch.pick(slice(None, None, max(1, len(batch) // COUNTED)))
        entry["modelled_ns"] = round(spent(program, table.name, chain.name, some, costs, backend).total, 1)
    return entry


def profile(program: Program, backend: Backend, costs: Costs) -> dict[str, Any]:
    """The statistics as plain data (hitables/schema/stats.json): one entry per chain, in order.

    mean_read, longest_read: over packets drawn evenly for the rules that the chain reads.
    modelled_ns: the mean cost of these packets by *costs*.
    """
    chains = []
    for table in program:
        reached = reachable(table)
        chains += [
            _chain(program, table, chain, chain.name in reached, costs, backend) for chain in table.chains
        ]
    return {
        "format": "hitables-stats",
        "version": 1,
        "source": program.name,
        "family": int(program.family),
        "backend": backend.value,
        "costs": costs.name,
        "rules": program.rule_count(),
        "chains": chains,
    }


def read_over_trace(
    program: Program, text: str, name: str, chain: str | None, backend: Backend, costs: Costs
) -> dict[str, Any]:
    """How many rules the packets of a ClassBench trace read in a built-in chain of filter, as plain data."""
    from ..parse.trace import parse
    from ..simulate.five_tuple import batch_of
    from ..simulate.interpreter import Interpreter
    from . import spent

    if program.family is not Family.IPV4:
        raise Unsupported(f"{name}: the trace is IPv4, the rule set is not")
    try:
        table = program.table("filter")
    except KeyError:
        raise UnknownName(f"{program.name}: there is no table filter for the trace to run through") from None
    if chain is None:
        chain = max(table.chains, key=lambda each: (each.policy is not None, len(each.rules))).name
    if chain not in table:
        raise UnknownName(f"{program.name}: table filter has no chain {chain}")
    batch = batch_of(parse(text, name).headers)
    reads = Interpreter(program, backend).run("filter", chain, batch).reads
    return {
        "source": name,
        "chain": chain,
        "packets": len(batch),
        "mean_read": round(float(reads.mean()), 2),
        "longest_read": int(reads.max()),
        "modelled_ns": round(spent(program, "filter", chain, batch, costs, backend).total, 1),
    }
