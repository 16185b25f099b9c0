"""The statistics of `hitables stats`: per chain its rules, their roles, and how many rules packets read.

Idea: packets are drawn for the rules that a chain reads.  A built-in chain is read with all that it enters.
A user chain is read with the chains that it enters where these are small.  The figures of one that enters
larger chains follow from theirs: for each rule of such a chain a packet reads the rules up to the jump, and
then the mean of that chain.  So the figures of user chains that enter one another cost no more than their
rules, however deep they nest.

Cost: linear in rules and chains: PACKETS packets for each built-in chain, and for each user chain PER_RULE
for each rule that it reads, AT_LEAST, and at most PACKETS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..analyse.callgraph import graph, reachable
from ..errors import Unsupported
from ..ir.fields import Family
from ..ir.packet import Backend
from ..ir.program import Chain, Program, Table
from ..ir.rule import Role, Rule
from .profile import Costs

if TYPE_CHECKING:
    from ..simulate.batch import PacketBatch
    from ..simulate.interpreter import Interpreter
    from .packet_cost import TableCosts

# Packets drawn per chain; the error of the mean is then a few per cent.
PACKETS = 4_000
PER_RULE, AT_LEAST = 16, 128
COUNTED = 500  # of them, for their cost

# Rules that a small user chain reads, with all that it enters.  In a table of few chains more, so that most
# are read whole: reading SMALL_IN_ALL rules once takes two seconds.
SMALL, SMALL_IN_ALL = 256, 100_000


def role_of(rule: Rule) -> Role:
    """The most restrictive role among the rule's matches."""
    return max((match.role for match in rule.matches), default=Role.SPACE)


class _Figures(NamedTuple):
    """Rules read by packets of a chain, and nanoseconds that they spend, on the mean.

    rules  for which packets were drawn, counted as often as jumps lead to them
    """

    mean: float
    longest: int
    nanoseconds: float
    rules: float


_NOTHING = _Figures(0.0, 0, 0.0, 0.0)


class _Entered(NamedTuple):
    """A large chain that rule *at* (from 0) enters, with so many packets per packet of the entering chain."""

    at: int
    share: float
    figures: _Figures


class _TableFigures:
    """The figures of the chains of one table that have rules, by name in *of*."""

    def __init__(self, program: Program, name: str, costs: Costs, backend: Backend) -> None:
        from ..simulate.interpreter import Interpreter

        # Without circles of jumps, which no packet reaches.
        whole = Interpreter(program, backend).program
        self._family, self._name, self._table = program.family, name, whole.table(name)
        self._costs, self._backend = costs.of(backend), backend
        self._callees = graph(self._table)
        self._sizes = self._small_sizes()
        self.of: dict[str, _Figures] = {}
        with_stubs = self._with_stubs()
        self._add_user_chains(with_stubs)
        same = with_stubs is self._table
        self._add_built_in_chains(self._measured(with_stubs) if same else self._measured(self._table))

    # ---- which chains are small ----

    def _small_sizes(self) -> dict[str, int]:
        """By small user chain: the rules that it reads, counted as often as jumps lead to them."""
        chains = self._table.chains
        limit = max(SMALL, SMALL_IN_ALL // len(chains)) if chains else 0
        sizes: dict[str, int] = {}
        for name in reversed(self._callees.order):  # callees first
            chain, callees = self._table[name], self._callees.callees[name]
            if chain.policy is None and all(callee in sizes for callee in callees):
                size = len(chain.rules) + sum(sizes[callee] for callee in callees)
                if size <= limit:
                    sizes[name] = size
        return sizes

    def _with_stubs(self) -> Table:
        """The table with an empty chain in place of each large one that a user chain enters."""
        stubs: dict[str, Chain] = {}
        chains = []
        for chain in self._table.chains:
            large = [each for each in self._callees.callees[chain.name] if each not in self._sizes]
            if chain.policy is None and large:
                for name in large:
                    stubs.setdefault(name, Chain(_stub(name), None))
                chain = chain.with_rules(tuple(map(self._entering_stub, chain.rules)))
            chains.append(chain)
        return replace(self._table, chains=(*chains, *stubs.values())) if stubs else self._table

    def _entering_stub(self, rule: Rule) -> Rule:
        target, name = rule.target, rule.enters
        if target is None or name is None or name in self._sizes:
            return rule
        return rule._replace(target=replace(target, name=_stub(name)))

    # ---- figures ----

    def _measured(self, table: Table) -> tuple[Interpreter, TableCosts]:
        from ..simulate.interpreter import Interpreter
        from .packet_cost import TableCosts, program_of

        program = Program(self._family, (table,))
        read = program_of(program, self._name, self._backend)
        return Interpreter(program, self._backend), TableCosts(read, self._name, self._costs, self._backend)

    def _add_user_chains(self, table: Table) -> None:
        from ..simulate.chain_packets import draw_for_user_chains

        counts = {}
        for name in reversed(self._callees.order):
            chain = table[name]
            if chain.policy is None and chain.rules:
                counts[name] = min(PACKETS, max(AT_LEAST, PER_RULE * self._rules_measured(chain)))
        if not counts:
            return
        interpreter, costs = self._measured(table)
        for name, batch in draw_for_user_chains(interpreter, self._name, counts):
            counted = table.callers_first(name)
            figures = self._read(interpreter, costs, name, batch, counted)
            large = [
                (at, each)
                for at, rule in enumerate(self._table[name].rules)
                if (each := rule.enters) is not None and each not in self._sizes
            ]
            if large:
                taken = costs.taken(name, batch)
                entered = [_Entered(at, float(taken[at]), self.of.get(each, _NOTHING)) for at, each in large]
                figures = self._and_entered(figures, entered)
            self.of[name] = figures

    def _add_built_in_chains(self, measured: tuple[Interpreter, TableCosts]) -> None:
        from ..simulate.boundary_packets import BoundarySampler

        interpreter, costs = measured
        for chain in self._table.chains:
            if chain.policy is not None and chain.rules:
                batch = BoundarySampler(interpreter, self._name, chain.name).draw(PACKETS)
                self.of[chain.name] = self._read(interpreter, costs, chain.name, batch, None)

    def _read(
        self,
        interpreter: Interpreter,
        costs: TableCosts,
        chain: str,
        batch: PacketBatch,
        counted: Sequence[str] | None,
    ) -> _Figures:
        reads = interpreter.run(self._name, chain, batch).reads
        # Counting for costs is slower, and fewer packets suffice for the mean.
        some = batch.pick(slice(None, None, max(1, len(batch) // COUNTED)))
        spent = costs.spent(chain, some, counted)
        rules = self._rules_measured(self._table[chain])
        return _Figures(float(reads.mean()), int(reads.max()), spent.total, rules)

    def _rules_measured(self, chain: Chain) -> int:
        """The rules of the chain, and of the small ones that it enters."""
        entered = (self._sizes.get(name, 0) for name in self._callees.callees[chain.name])
        return len(chain.rules) + sum(entered)

    def _and_entered(self, own: _Figures, entered: list[_Entered]) -> _Figures:
        """The figures of packets for the rules of the chain (*own*) and for those that it enters."""
        started = self._costs.start  # once for a packet
        per_rule = max(0.0, own.nanoseconds - started) / max(own.mean, 1.0)
        rules = own.rules
        mean, nanoseconds = own.mean, own.nanoseconds
        for each in entered:
            mean += each.share * each.figures.mean
            nanoseconds += each.share * max(0.0, each.figures.nanoseconds - started)
        mean, nanoseconds = mean * rules, nanoseconds * rules
        for each in entered:
            rules += each.figures.rules
            mean += each.figures.rules * (each.at + 1 + each.figures.mean)
            nanoseconds += each.figures.rules * (per_rule * (each.at + 1) + each.figures.nanoseconds)
        longest = own.longest + max(each.figures.longest for each in entered)
        return _Figures(mean / rules, longest, nanoseconds / rules, rules)


def _stub(name: str) -> str:
    return f"{name} as a mean"  # not the name of a chain: these have no spaces


def _entry(table: Table, chain: Chain, reached: bool, figures: _Figures | None) -> dict[str, Any]:
    roles = [role_of(rule) for rule in chain.rules]
    entry: dict[str, Any] = {
        "table": table.name,
        "chain": chain.name,
        "policy": "-" if chain.kept else chain.policy,
        "rules": len(chain.rules),
        "roles": {role.name: roles.count(role) for role in Role},
        "reached": reached,
    }
    if figures is not None:
        entry["mean_read"] = round(figures.mean, 2)
        entry["longest_read"] = figures.longest
        entry["modelled_ns"] = round(figures.nanoseconds, 1)
    return entry


def profile(program: Program, backend: Backend, costs: Costs) -> dict[str, Any]:
    """The statistics as plain data (hitables/schema/stats.json): one entry per chain, in order.

    mean_read, longest_read: over packets drawn evenly for the rules that the chain reads; a user chain that
    enters large chains has these by theirs.
    modelled_ns: the mean cost of these packets by *costs*.
    """
    chains = []
    for table in program:
        reached = reachable(table)
        figures = _TableFigures(program, table.name, costs, backend).of
        chains += [
            _entry(table, chain, chain.name in reached, figures.get(chain.name)) for chain in table.chains
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
    from ..simulate.traffic import busiest_chain
    from . import spent

    if program.family is not Family.IPV4:
        raise Unsupported(f"{name}: the trace is IPv4, the rule set is not")
    chain = busiest_chain(program, chain)
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
