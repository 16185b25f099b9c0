"""What a rule set costs the packets of a batch, in nanoseconds.

The interpreter counts how often each test of each rule is evaluated and holds; the profile gives the cost of
each. The packets count as flows that take turns.  Two costs come on top:

Cache misses: a rule that was not read recently is fetched from a farther cache.  The reuse distance (other
rules read since) follows from how often the rule is read: between two readings of a rule that one packet in a
thousand reads, a thousand packets pass, and read what they read.

Branch misses: the processor predicts the result of a test of an address or a port, and loses time when the
prediction is wrong.  It learns the results of few flows at few tests by heart; of many it knows only the
common result of a test of that kind.  (It learns the results of protocol tests, as there are few protocols.)

Cost: one run of the interpreter that counts, about a microsecond a rule read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..ir.fields import Family
from ..ir.packet import Backend
from ..ir.program import Program, Table
from ..simulate.batch import PacketBatch
from ..simulate.interpreter import Interpreter
from . import test_kinds
from .profile import Costs, Figures, MatchCost

Floats = npt.NDArray[np.float64]

# Tests per round of all flows: up to the first number the processor learns all results, from the second none.
LEARNT, UNLEARNT = 2_000, 16_000

# Branch misses for each rule of a list that names a source where the previous one named none, or the reverse:
# ClassBench's acl_1k costs 0.5 more, fw_1k 0.25 more (legacy, 64 flows and 2,000).
CHANGES = 0.4

# A rule that enters no chain fetches only its target and its counter, about half (ClassBench's sets of 10,000
# rules, compiled, 2,000 flows: without this the modelled cost of legacy is a quarter too high).
ENTERS_NONE = 0.5

# Cost of fetching a taken rule in a tree over a whole rule set, relative to calibration's trees, where no
# packet continues in line: some of legacy's short rules are prefetched.  The public sets of 10,000 rules,
# compiled: 0.75 on the mean, from 0.62 (acl1, 2,000 flows) to 0.92 (ipc1, 64).
FETCHED = {Backend.LEGACY: 0.75, Backend.NFT: 1.0}

# After this many rules of a chain the processor prefetches the next ones, which are adjacent in memory.
RUN = 64


@dataclass(frozen=True, slots=True)
class Spent:
    """Means over packets.

    reads       rules read
    cached      nanoseconds if all rules were in the nearest cache
    cache_miss  nanoseconds that fetching rules adds
    """

    reads: float
    cached: float
    cache_miss: float

    @property
    def total(self) -> float:
        return self.cached + self.cache_miss


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """How packets use the memory of each rule.

    rules       times read per packet
    ahead       whether the processor prefetches it
    taken       times taken per packet, weighed by ENTERS_NONE if the rule enters no chain
    *_distance  reuse distance: other rules read or taken since the last time
    """

    rules: Floats
    ahead: npt.NDArray[np.bool_]
    rule_distance: Floats
    taken: Floats
    taken_distance: Floats


def spent(
    program: Program, table: str, chain: str, batch: PacketBatch, costs: Costs, backend: Backend
) -> Spent:
    """What the packets of *batch* spend in *chain* of *table*."""
    return TableCosts(program_of(program, table, backend), table, costs.of(backend), backend).spent(
        chain, batch
    )


def cached_cost(
    read: Program, table: str, chain: str, batch: PacketBatch, figures: Figures, backend: Backend
) -> tuple[float, MemoryUse]:
    """Nanoseconds per packet if all rules were in the nearest cache, and the use of memory.

    *read*: from `program_of`.
    """
    return TableCosts(read, table, figures, backend).cached(chain, batch)


def program_of(program: Program, table: str, backend: Backend) -> Program:
    """*table* alone, its rules as the kernel reads them."""
    alone = Program(program.family, (program.table(table),), program.name)
    return test_kinds.program_as_read(alone, backend)


class TableCosts:
    """What packets spend in a table, for many batches; *read*: from `program_of`.

    Reading the table is linear in its rules.  A batch then costs what its packets read, and a little for each
    rule of the chains that are *counted*: all that its packets enter, or None for the whole table.
    """

    def __init__(self, read: Program, table: str, figures: Figures, backend: Backend) -> None:
        self._interpreter, self._name = Interpreter(read, backend), table
        self._table = self._interpreter.program.table(table)
        self._figures, self._backend = figures, backend
        self._miss, self._holds, self._group = _figure_arrays(self._table, figures, backend, read.family)
        self._changes, self._entering = _changes(self._table), _entering(self._table)
        lengths = (len(rule.matches) + 1 for chain in self._table.chains for rule in chain.rules)
        self._start = np.cumsum(np.array([0, *lengths], np.int64))

    def spent(self, chain: str, batch: PacketBatch, counted: Sequence[str] | None = None) -> Spent:
        """What the packets of *batch* spend in *chain*."""
        cached, memory = self.cached(chain, batch, counted)
        reads, figures = float(memory.rules.sum()), self._figures
        cached += figures.start if reads else 0.0
        return Spent(reads, cached, _cache_miss(memory, figures, self._backend))

    def cached(
        self, chain: str, batch: PacketBatch, counted: Sequence[str] | None = None
    ) -> tuple[float, MemoryUse]:
        """Nanoseconds per packet if all rules were in the nearest cache, and the use of memory."""
        names = [each.name for each in self._table.chains] if counted is None else counted
        visited = self._interpreter.run(
            self._name, chain, batch, match_counts=True, counted=names
        ).match_counts
        assert visited is not None
        first = self._interpreter.first_rules(self._name)
        sizes = [len(self._table[name].rules) for name in names]
        none = np.zeros(0, np.int64)
        position = np.concatenate([none, *map(np.arange, sizes)])
        rules = position + np.repeat([first[name] for name in names], sizes).astype(np.int64)
        tests = np.concatenate([
            none,
            *(
                np.arange(self._start[first[name]], self._start[first[name] + size])
                for name, size in zip(names, sizes, strict=True)
            ),
        ])  # fmt: skip
        counts = visited.counts.astype(np.float64) / max(len(batch), 1)
        ends = visited.start[1:] - 1
        passed = np.append(counts[1:], 0.0)
        passed[ends] = counts[ends]  # a target: all packets that reach it
        cached = float(((counts - passed) * self._miss[tests] + passed * self._holds[tests]).sum())
        reads = counts[visited.start[:-1]]
        legacy = self._backend is Backend.LEGACY
        changes = CHANGES * float(reads[self._changes[rules]].sum()) if legacy else 0.0
        misses = _branch_misses(self._group[tests], counts, passed) + changes
        cached += self._figures.branch_miss * misses * _unlearnt(reads, len(batch))
        taken = counts[ends]
        every = np.concatenate([reads, taken])
        weighed = taken * np.where(self._entering[rules], 1.0, ENTERS_NONE)
        memory = MemoryUse(reads, position >= RUN, _distance(reads, every), weighed, _distance(taken, every))
        return cached, memory

    def taken(self, chain: str, batch: PacketBatch) -> Floats:
        """By rule of *chain*: how often its target is applied, per packet of *batch*."""
        run = self._interpreter.run(self._name, chain, batch, match_counts=True, counted=(chain,))
        assert run.match_counts is not None
        return run.match_counts.counts[run.match_counts.start[1:] - 1] / max(len(batch), 1)


def _entering(table: Table) -> npt.NDArray[np.bool_]:
    """Which rules enter another chain when they are taken."""
    entering = (test_kinds.JUMP, test_kinds.GOTO)
    rules = (rule for chain in table.chains for rule in chain.rules)
    return np.array([test_kinds.target_kind(rule.target) in entering for rule in rules], bool)


def _unlearnt(reads: Floats, packets: int) -> float:
    """The share of the tests of a round of all packets whose results the processor has not learnt."""
    tests = max(float(reads.sum()) * packets, 1.0)
    return float(np.interp(np.log(tests), np.log([LEARNT, UNLEARNT]), [0.0, 1.0]))


def _branch_misses(group: npt.NDArray[np.int64], counts: Floats, passed: Floats) -> float:
    """Wrong predictions per packet; tests of one *group* are predicted alike, those of group -1 correctly."""
    tests = group >= 0
    evaluated = np.bincount(group[tests], counts[tests])
    true = np.bincount(group[tests], passed[tests])
    return float(np.minimum(true, evaluated - true).sum())


def _changes(table: Table) -> npt.NDArray[np.bool_]:
    """Which rules name a source where the previous rule of their chain does not, or the reverse.

    Legacy tests the source of every rule; the test of a rule without a source holds.
    """
    changes: list[bool] = []
    for chain in table.chains:
        before = None
        for rule in chain.rules:
            named = any(match.words[-2:-1] == ("-s",) for match in rule.matches[:1])
            changes.append(before is not None and named != before)
            before = named
    return np.array(changes, bool)


def _distance(rates: Floats, every: Floats) -> Floats:
    """The reuse distances of rules of *rates* (reads per packet) among rules of the rates *every*."""
    often = np.clip(every[every > 0], 0.0, 1.0)
    if not len(often):
        return np.zeros(len(rates))
    levels, sizes = np.unique(np.round(np.log2(often), 2), return_counts=True)
    often = np.exp2(levels)
    between = np.exp2(np.arange(0.0, 33.0, 0.5))  # packets
    # A rule read by a share p of the packets is read by one of n with chance 1 - (1 - p)^n.
    with np.errstate(divide="ignore"):
        unread = np.exp(between[:, None] * np.log1p(-np.minimum(often, 1 - 1e-12))[None])
    seen = ((1 - unread) * sizes).sum(1)
    distance: Floats = np.interp(-np.log2(np.clip(rates, 2.0**-33, 1.0)), np.log2(between), seen)
    return distance


def _cache_miss(memory: MemoryUse, figures: Figures, backend: Backend) -> float:
    """Nanoseconds per packet for fetching rules."""
    knots = figures.cache_miss
    if not knots:
        return 0.0
    at = np.log2([max(knot.distance, 1.0) for knot in knots])
    taken = np.interp(np.log2(memory.taken_distance + 1), at, [knot.taken for knot in knots])
    distance = np.log2(memory.rule_distance + 1)
    read = np.interp(distance, at, [knot.read for knot in knots])
    ahead = np.interp(distance, at, [knot.ahead for knot in knots])
    fetched = FETCHED[backend] * float((memory.taken * taken).sum())
    return fetched + float((memory.rules * np.where(memory.ahead, ahead, read)).sum())


def _figure_arrays(
    table: Table, figures: Figures, backend: Backend, family: Family
) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """In the order of `MatchCounts.counts`: the costs of a miss and of a hold, and the group of the test.

    Tests of one kind and option are one group; -1: its results are not mispredicted.
    """
    by_match: dict[int, tuple[MatchCost, int]] = {}
    groups: dict[tuple[str, str], int] = {}
    miss: list[float] = []
    holds: list[float] = []
    group: list[int] = []
    for chain in table.chains:
        for rule in chain.rules:
            for match in rule.matches:
                entry = by_match.get(id(match))
                if entry is None:
                    kind = test_kinds.kind(match, backend, family)
                    cost = figures.test(kind) if kind else MatchCost(0.0, 0.0)
                    option = match.name or "".join(match.words[-2:-1])
                    is_predicted = kind in _PREDICTED
                    entry = cost, -1 if is_predicted else groups.setdefault((kind, option), len(groups))
                    by_match[id(match)] = entry
                miss.append(entry[0].miss)
                holds.append(entry[0].holds)
                group.append(entry[1])
            miss.append(0.0)
            holds.append(figures.target(test_kinds.target_kind(rule.target)))
            group.append(-1)
    return np.array(miss), np.array(holds), np.array(group, np.int64)


# Tests whose results depend on little of a packet, and so come in few patterns.
_PREDICTED = frozenset({"protocol", "interface", "fragment"})
