"""What a rule set costs under given packets.

The interpreter counts how often each test of each rule is tried and holds; the profile says what
each costs.  The packets are taken for flows that take turns.  Two things come on top:

Memory: a rule that was not read for long is fetched from afar.  How long ago follows from how often it
is read: between two readings of a rule that one packet in a thousand reads, a thousand packets pass,
and read what they read.

Surprise: the processor guesses how a test of an address or a port will end and is set back when it
guessed wrong.  It learns by heart what few flows do at few tests; of many it knows what is usual for a
test of that kind.  (What a protocol test does it learns: there are few protocols.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..ir.fields import Family
from ..ir.packet import Backend
from ..ir.program import Program, Table
from ..simulate.batch import PacketBatch
from ..simulate.interpreter import Interpreter, MatchCounts
from . import test_kinds
from .profile import Costs, Figures, MatchCost

Floats = npt.NDArray[np.float64]

# Tests that a round of all flows makes: so many the processor learns by heart, and of so many nothing.
LEARNT, UNLEARNT = 2_000, 16_000

# Wrong guesses for each rule of a list that names a source where the one before named none, or the other
# way round: ClassBench's acl_1k costs 0.5 more, fw_1k 0.25 more (legacy, 64 flows and 2,000).
CHANGES = 0.4

# A rule that enters no chain fetches its target and its counter alone, about half (ClassBench's sets of
# 10,000 rules, compiled, 2,000 flows: legacy was modelled a quarter too dear without this).
ENTERS_NONE = 0.5

# What fetching a taken rule costs in a tree over a whole rule set, over what it costs in calibration's
# trees, where no packet goes on in line: legacy's short rules are fetched ahead a little.  The public
# sets of 10,000 rules, compiled: 0.75 on the mean, from 0.62 (acl1, 2,000 flows) to 0.92 (ipc1, 64).
FETCHED = {Backend.LEGACY: 0.75, Backend.NFT: 1.0}

# Rules of a chain behind this many lie in a row, so that the processor fetches them ahead.
RUN = 64


@dataclass(frozen=True, slots=True)
class Spent:
    """Means over packets: *reads* in rules, *near* in nanoseconds as if all lay in the near cache,
    *far* what fetching adds."""

    reads: float
    near: float
    far: float

    @property
    def total(self) -> float:
        return self.near + self.far


@dataclass(frozen=True, slots=True)
class Way:
    """What memory sees of the packets.

    rules       by rule: times read per packet
    ahead       by rule: whether it is fetched ahead
    taken       by rule: times taken per packet, ENTERS_NONE times as much if it enters no chain
    *_distance  how many other rules were read or taken since the last time
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
    figures = costs.of(backend)
    near, way = near_cost(program_of(program, table, backend), table, chain, batch, figures, backend)
    reads = float(way.rules.sum())
    return Spent(reads, near + (figures.start if reads else 0.0), _far(way, figures, backend))


def near_cost(
    read: Program, table: str, chain: str, batch: PacketBatch, figures: Figures, backend: Backend
) -> tuple[float, Way]:
    """Nanoseconds per packet as if all were near, and what memory sees; *read*: from `program_of`."""
    counts = Interpreter(read, backend).run(table, chain, batch, match_counts=True).match_counts
    assert counts is not None
    return _near(read.table(table), counts, len(batch), figures, backend, read.family)


def program_of(program: Program, table: str, backend: Backend) -> Program:
    """*table* alone, its rules as the kernel reads them."""
    alone = Program(program.family, (program.table(table),), program.name)
    return test_kinds.program_as_read(alone, backend)


def _near(
    table: Table, match_counts: MatchCounts, packets: int, figures: Figures, backend: Backend, family: Family
) -> tuple[float, Way]:
    """Nanoseconds per packet, and what memory sees."""
    miss, holds, group = _figures_in_a_row(table, figures, backend, family)
    counts = match_counts.counts.astype(np.float64) / max(packets, 1)
    ends = match_counts.start[1:] - 1
    passed = np.append(counts[1:], 0.0)
    passed[ends] = counts[ends]  # a target: all that come to it
    near = float(((counts - passed) * miss + passed * holds).sum())
    reads = counts[match_counts.start[:-1]]
    changes = CHANGES * float(reads[_changes(table)].sum()) if backend is Backend.LEGACY else 0.0
    near += figures.surprise * (_surprises(group, counts, passed) + changes) * _unlearnt(reads, packets)
    position = np.concatenate([np.zeros(0, np.int64), *(np.arange(len(each.rules)) for each in table.chains)])
    taken = counts[ends]
    every = np.concatenate([reads, taken])
    weighed = taken * np.where(_entering(table), 1.0, ENTERS_NONE)
    way = Way(reads, position >= RUN, _distance(reads, every), weighed, _distance(taken, every))
    return near, way


def _entering(table: Table) -> npt.NDArray[np.bool_]:
    """Which rules enter another chain when they are taken."""
    entering = (test_kinds.JUMP, test_kinds.GOTO)
    rules = (rule for chain in table.chains for rule in chain.rules)
    return np.array([test_kinds.target_kind(rule.target) in entering for rule in rules], bool)


def _unlearnt(reads: Floats, packets: int) -> float:
    """The share of what a round of all packets does that the processor does not know by heart."""
    tests = max(float(reads.sum()) * packets, 1.0)
    return float(np.interp(np.log(tests), np.log([LEARNT, UNLEARNT]), [0.0, 1.0]))


def _surprises(group: npt.NDArray[np.int64], counts: Floats, passed: Floats) -> float:
    """Wrong guesses per packet, at tests of the same *group*; -1: none is made."""
    tests = group >= 0
    tried = np.bincount(group[tests], counts[tests])
    held = np.bincount(group[tests], passed[tests])
    return float(np.minimum(held, tried - held).sum())


def _changes(table: Table) -> npt.NDArray[np.bool_]:
    """Which rules name a source and the one before does not, or the other way round.

    Legacy tests the source of every rule; where none is named the test holds.
    """
    found: list[bool] = []
    for chain in table.chains:
        before = None
        for rule in chain.rules:
            named = any(match.words[-2:-1] == ("-s",) for match in rule.matches[:1])
            found.append(before is not None and named != before)
            before = named
    return np.array(found, bool)


def _distance(which: Floats, every: Floats) -> Floats:
    """How many of *every* a packet in 1 / *which* packets finds read since the one before it."""
    often = np.clip(every[every > 0], 0.0, 1.0)
    if not len(often):
        return np.zeros(len(which))
    levels, sizes = np.unique(np.round(np.log2(often), 2), return_counts=True)
    often = np.exp2(levels)
    between = np.exp2(np.arange(0.0, 33.0, 0.5))  # packets
    # A rule read by a share p of the packets is read by one of n with chance 1 - (1 - p)^n.
    with np.errstate(divide="ignore"):
        unread = np.exp(between[:, None] * np.log1p(-np.minimum(often, 1 - 1e-12))[None])
    seen = ((1 - unread) * sizes).sum(1)
    found: Floats = np.interp(-np.log2(np.clip(which, 2.0**-33, 1.0)), np.log2(between), seen)
    return found


def _far(way: Way, figures: Figures, backend: Backend) -> float:
    if not figures.far:
        return 0.0
    at = np.log2([max(far.distance, 1.0) for far in figures.far])
    taken = np.interp(np.log2(way.taken_distance + 1), at, [far.taken for far in figures.far])
    place = np.log2(way.rule_distance + 1)
    read = np.interp(place, at, [far.read for far in figures.far])
    ahead = np.interp(place, at, [far.ahead for far in figures.far])
    fetched = FETCHED[backend] * float((way.taken * taken).sum())
    return fetched + float((way.rules * np.where(way.ahead, ahead, read)).sum())


def _figures_in_a_row(
    table: Table, figures: Figures, backend: Backend, family: Family
) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """In the order of `MatchCounts.counts`: what a miss and what a hold costs, and a number for tests of one
    kind and option, -1 where nothing is guessed."""
    by_match: dict[int, tuple[MatchCost, int]] = {}
    groups: dict[tuple[str, str], int] = {}
    miss: list[float] = []
    holds: list[float] = []
    group: list[int] = []
    for chain in table.chains:
        for rule in chain.rules:
            for match in rule.matches:
                found = by_match.get(id(match))
                if found is None:
                    kind = test_kinds.kind(match, backend, family)
                    cost = figures.test(kind) if kind else MatchCost(0.0, 0.0)
                    option = match.name or "".join(match.words[-2:-1])
                    foreseen = kind in _FORESEEN
                    found = cost, -1 if foreseen else groups.setdefault((kind, option), len(groups))
                    by_match[id(match)] = found
                miss.append(found[0].miss)
                holds.append(found[0].holds)
                group.append(found[1])
            miss.append(0.0)
            holds.append(figures.target(test_kinds.target_kind(rule.target)))
            group.append(-1)
    return np.array(miss), np.array(holds), np.array(group, np.int64)


# Outcomes that hang on few things about a packet, and so come in few patterns.
_FORESEEN = frozenset({"protocol", "interface", "fragment"})
