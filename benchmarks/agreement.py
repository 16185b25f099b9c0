"""One rule set, before and after compiling, compared with the kernel: packets through each of its built-in
chains.

For each chain and backend, the kernel with the set before, the kernel with the set after, and the C
interpreter must agree: on the verdict of every packet that the interpreter can predict, on the counter of
every rule, and on the sum of the counters of a rule's copies.  Some packets go through ir.semantics, too.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables.emit.text import rule_text, write
from hitables.ir import semantics
from hitables.ir.fields import Field
from hitables.ir.packet import Backend
from hitables.ir.packet_text import show_packet
from hitables.ir.program import BUILT_IN, Program, Table
from hitables.kernel.agreement import (
    alone,
    answer_sets,
    consulted,
    counted,
    follows_connections,
    predicates_of,
    predict,
)
from hitables.kernel.craft import Trim
from hitables.kernel.experiment import PacketResult, Trial, furnish, prepare, send_trials
from hitables.kernel.load_save import clear, ip_sets_named, load, make_ip_sets, save
from hitables.kernel.make_sendable import interfaces_of, make_sendable, misread, open_connections
from hitables.kernel.match_truth import Traits, arrange, truth
from hitables.kernel.namespace import Namespace
from hitables.kernel.testbed import local_address
from hitables.simulate.batch import PacketBatch, drawn_facts
from hitables.simulate.boundary_packets import BoundarySampler
from hitables.simulate.interpreter import Interner, Interpreter

SEED = 1
SLOWLY = 1_000  # packets that go through ir.semantics
LEAST = 1_000  # packets for a chain, however few rules it has
MOST = 60_000
SHOWN = 3  # differences printed of each kind

Bools = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]


@dataclass
class Line:
    """The result for one rule set.  *failures*: a text for each fault; empty: none was found."""

    name: str
    rules: int = 0
    compiled: int = 0
    chains: int = 0
    packets: int = 0  # that reached the rules: the least number over backends and programs
    open: int = 0
    equal: int = 0
    slow: int = 0
    reachable: int = 0
    reached: int = 0  # of these
    states: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    def forget_packets(self) -> None:
        """Forget what packets showed, but no failure."""
        self.packets = self.open = self.equal = self.slow = self.reachable = self.reached = self.states = 0

    def text(self) -> str:
        share = self.open / self.packets if self.packets else 0.0
        reach = self.reached / self.reachable if self.reachable else 1.0
        summary = (
            f"{'FAIL' if self.failures else 'ok  '} {self.name}: {self.rules} rules, "
            f"{self.compiled} compiled; "
            f"{self.packets} packets in {self.chains} chains, {self.states} states, {share:.1%} open; "
            f"rules reached {self.reached}/{self.reachable} ({reach:.0%}); {self.slow} slowly; "
            f"{self.seconds:.1f} s"
        )
        return "\n".join([summary, *(f"     {failure}" for failure in self.failures)])


@dataclass
class _Chain:
    """One chain to try, and the packets for it."""

    table: str
    name: str
    batch: PacketBatch
    traits: Traits | None = None
    trials: list[Trial] = field(default_factory=list)
    reachable: set[int] = field(default_factory=set)  # lines of the text
    reached: set[int] = field(default_factory=set)


def try_packets(program: Program, compiled: Program, count: int, line: Line) -> None:
    """Send about *count* packets through *program* and *compiled*, and record the results in *line*."""
    chains = _drawn(program, count)
    line.chains = len(chains)
    if not chains:
        line.failures.append("(c) there is no built-in chain")
        return
    names = interfaces_of(chain.batch for chain in chains)
    interfaces = sorted(set(names.values()))
    own = frozenset(local_address(program.family, at) for at in range(len(interfaces)))
    seen_states: set[int] = set()
    with Namespace() as namespace:
        furnish(namespace, program.family, interfaces)
        for chain in chains:
            _realised(chain, program, names, own)
            follows = follows_connections(program.table(chain.table))
            prepare(namespace, chain.table, chain.name, chain.trials, follows)
            slow = SLOWLY * len(chain.trials) // sum(len(each.batch) for each in chains) + 2
            _try_chain(namespace, chain, (program, compiled), slow, seen_states, line)
    line.states = len(seen_states)
    for table in {chain.table for chain in chains}:
        mine = [chain for chain in chains if chain.table == table]
        reached = set[int]().union(*(chain.reached for chain in mine))
        line.reached += len(reached)
        line.reachable += len(reached.union(*(chain.reachable for chain in mine)))


def _drawn(program: Program, count: int) -> list[_Chain]:
    """Packets for each built-in chain that has rules: more where more rules are.

    Where none has any, packets for all of them: there are still the policies.
    """
    machine = Interpreter(program, Backend.LEGACY)
    places = [(table, name) for table in program for name in BUILT_IN[table.name] if name in table]
    ruled = [(table, name) for table, name in places if table[name].rules]
    chosen = [
        (table.name, name, BoundarySampler(machine, table.name, name, SEED))
        for table, name in ruled or places
    ]
    weights = [len(edges.numbers) + 1 for *_, edges in chosen]
    shares = [max(LEAST, count * weight // max(sum(weights), 1)) for weight in weights]
    return [
        _Chain(table, name, edges.draw(min(share, MOST)))
        for (table, name, edges), share in zip(chosen, shares, strict=True)
    ]


def _realised(chain: _Chain, program: Program, names: dict[int, str], own: frozenset[int]) -> None:
    """Make the packets such that they can be sent, and the facts of them as wished."""
    table = program.table(chain.table)
    nat = chain.table == "nat"
    batch = make_sendable(chain.batch, chain.name, names, fragments=not nat)
    if nat:
        # Only whole headers are rewritten.
        batch = batch.pick(batch.rows["l4_bytes"] >= 20)
        open_connections(batch)
    traits = Traits(batch, chain.name, own)
    asked = predicates_of(table)
    for key, match in asked.items():
        arrange(traits, match, drawn_facts(batch.rows["seed"], key))
    misread(batch, traits.tos)
    chain.batch, chain.traits = batch, traits
    columns = (
        traits.mark, traits.connection_mark, traits.uid, traits.gid, traits.tos, traits.ttl
    )  # fmt: skip
    chain.trials = [
        Trial(packet, mark, ctmark, (uid, gid), Trim(tos=tos, ttl=ttl))
        for packet, mark, ctmark, uid, gid, tos, ttl in zip(
            batch, *(column.tolist() for column in columns), strict=True
        )
    ]
    # A rule is reachable if one of these packets reaches it, under any answers to the open questions.
    machine = Interpreter(alone(program, chain.table, chain.name), Backend.LEGACY)
    wide = [batch]
    rng = np.random.default_rng(SEED)
    for _ in range(3):
        rows = batch.rows.copy()
        rows["seed"] = rng.integers(1 << 64, size=len(rows), dtype=np.uint64)
        wide.append(replace(batch, rows=rows))
    for one in wide:
        result = machine.run(chain.table, chain.name, one, hits=True)
        assert result.hits is not None
        chain.reachable |= _lines_hit(machine.program.table(chain.table), result.hits)


def _lines_hit(table: Table, hits: npt.NDArray[Any]) -> set[int]:
    rules = [rule for chain in table.chains for rule in chain.rules]
    return {rule.line for rule, count in zip(rules, hits.tolist(), strict=True) if count}


def _try_chain(
    namespace: Namespace,
    chain: _Chain,
    programs: tuple[Program, Program],
    slow: int,
    seen_states: set[int],
    line: Line,
) -> None:
    assert chain.traits is not None
    family = programs[0].family
    counts = []
    for backend in Backend:
        interner = Interner()
        verdicts, sums = [], []
        for which, program in zip(("before", "after"), programs, strict=True):
            tried = alone(program, chain.table, chain.name)
            text = write(tried)
            types = ip_sets_named(text)
            make_ip_sets(types, family, namespace, chain.traits.entries(types))
            load(text, family, backend, namespace)
            results = send_trials(namespace)
            saved = save(family, backend, namespace, counters=True)
            clear(family, backend, namespace)
            asked = consulted(chain.table, results)
            seen_states.update(result.state for result in results if result.arrived)
            batch = _as_seen(chain.batch, results).pick(asked)
            facts = _facts(chain, tried, asked, results)
            machine = Interpreter(tried, backend, interner)
            prediction = predict(machine, chain.table, chain.name, batch, facts)
            passed = np.array([result.passed for result in results], bool)[asked]
            place = f"(c) {chain.table} {chain.name}, {backend.value}, {which}"
            _compare_verdicts(place, batch, passed, prediction.passes, prediction.closed, asked, line)
            kernel = counted(saved, tried.table(chain.table))
            _compare_counters(place, tried, chain, kernel, prediction.hits, prediction.hits_closed, line)
            counts.append((int(asked.sum()), int((~prediction.closed).sum())))
            verdicts.append((passed, prediction.closed, asked))
            guess = answer_sets(tried.table(chain.table), batch, facts)[0]
            sums.append(_by_line(tried, chain, kernel, prediction.hits_closed, machine, guess))
            if which == "before":
                chain.reached |= _lines_hit(tried.table(chain.table), kernel)
            _slowly(place, tried, chain, guess, machine, backend, slow, line)
        place = f"(c) {chain.table} {chain.name}, {backend.value}"
        _compare_programs(place, chain.batch, verdicts, line)
        if (verdicts[0][2] == verdicts[1][2]).all():
            _compare_sums(place, sums[0], sums[1], line)
    line.packets += min(arrived for arrived, _ in counts)
    line.open += max(unknown for _, unknown in counts)


def _as_seen(batch: PacketBatch, results: Sequence[PacketResult]) -> PacketBatch:
    """The packets with the connection states that they had in the kernel."""
    rows = batch.rows.copy()
    rows["low"][:, Field.STATE] = [result.state for result in results]
    return replace(batch, rows=rows, seeded=False)


def _facts(
    chain: _Chain, program: Program, asked: Bools, results: Sequence[PacketResult]
) -> dict[str, npt.NDArray[np.uint8]]:
    assert chain.traits is not None
    seen = copy.copy(chain.traits)
    seen.batch = _as_seen(chain.batch, results)
    return {
        key: truth(seen, match)[asked] for key, match in predicates_of(program.table(chain.table)).items()
    }


def _compare_verdicts(
    place: str,
    batch: PacketBatch,
    passed: Bools,
    predicted: Bools,
    closed: Bools,
    asked: Bools,
    line: Line,
) -> None:
    differs = np.flatnonzero((passed != predicted) & closed)
    line.equal += int((closed & (passed == predicted)).sum())
    if len(differs):
        line.failures.append(f"{place}: {len(differs)} of {len(passed)} verdicts differ")
        for at in differs[:SHOWN]:
            outcome = "passed" if passed[at] else "did not pass"
            number = int(np.flatnonzero(asked)[at]) + 1
            line.failures.append(f"     packet {number} {outcome} in the kernel: {describe(batch, int(at))}")


def _compare_counters(
    place: str,
    program: Program,
    chain: _Chain,
    kernel: Counts,
    predicted: Counts,
    closed: Bools,
    line: Line,
) -> None:
    differs = np.flatnonzero((kernel != predicted) & closed)
    if len(differs):
        line.failures.append(f"{place}: the counters of {len(differs)} of {len(kernel)} rules differ")
        for at in differs[:SHOWN]:
            name, _, rule = Interpreter(program, Backend.LEGACY).rule(chain.table, int(at))
            line.failures.append(
                f"     {kernel[at]} in the kernel, {predicted[at]} predicted: line {rule.line}: "
                + rule_text(rule, name)
            )


def _compare_programs(
    place: str, batch: PacketBatch, verdicts: Sequence[tuple[Bools, Bools, Bools]], line: Line
) -> None:
    """The kernel before against the kernel after, on packets that reached both."""
    (before, closed, asked), (after, closed_after, asked_after) = verdicts
    both = asked & asked_after
    full = np.zeros((2, len(asked)), bool)
    known = np.zeros(len(asked), bool)
    full[0, asked], full[1, asked_after] = before, after
    known[asked] = closed
    sure = np.zeros(len(asked), bool)
    sure[asked_after] = closed_after
    stricter = batch.malformed() & ~full[1]
    differs = np.flatnonzero(both & known & sure & (full[0] != full[1]) & ~stricter)
    if len(differs):
        line.failures.append(f"{place}: {len(differs)} packets changed their verdict in the kernel")
        line.failures += [f"     {describe(batch, int(at))}" for at in differs[:SHOWN]]


def _by_line(
    program: Program,
    chain: _Chain,
    kernel: Counts,
    closed: Bools,
    machine: Interpreter,
    batch: PacketBatch,
) -> dict[int, int | None]:
    """The kernel's count for each line of the source: copies added up, without malformed packets.

    None where the count depends on an unknown answer.
    """
    lost = machine.run(chain.table, chain.name, batch.pick(batch.malformed()), hits=True).hits
    assert lost is not None
    sums: dict[int, int | None] = {}
    rules = [rule for each in program.table(chain.table).chains for rule in each.rules]
    counts = (kernel - lost.astype(np.int64)).tolist()
    for rule, count, known in zip(rules, counts, closed.tolist(), strict=True):
        before = sums.get(rule.line, 0)
        sums[rule.line] = before + count if known and before is not None else None
    sums.pop(0, None)  # made to find the way
    return sums


def _compare_sums(
    place: str, before: dict[int, int | None], after: dict[int, int | None], line: Line
) -> None:
    for source, count in before.items():
        copies = after.get(source, 0)
        if count is not None and copies is not None and count != copies:
            line.failures.append(f"{place}: the rule of line {source} counted {count}, its copies {copies}")


def _slowly(
    place: str,
    program: Program,
    chain: _Chain,
    batch: PacketBatch,
    machine: Interpreter,
    backend: Backend,
    count: int,
    line: Line,
) -> None:
    """Some of the packets through ir.semantics too."""
    table = program.table(chain.table)
    count = min(count, len(batch))
    picked = batch.pick(np.arange(count) * len(batch) // max(count, 1))
    result = machine.run(chain.table, chain.name, picked)
    for at in range(len(picked)):
        walk = semantics.run(table, chain.name, picked.packet(at), backend)
        if walk.verdict != result.verdict_text(at) or len(walk.steps) != result.reads[at]:
            line.failures.append(
                f"{place}: ir.semantics says {walk.verdict} after {len(walk.steps)} rules, the interpreter "
                f"{result.verdict_text(at)} after {result.reads[at]}: {describe(picked, at)}"
            )
            break
    if place.endswith("legacy, before"):
        line.slow += len(picked)


def describe(batch: PacketBatch, at: int) -> str:
    """A packet in words."""
    return show_packet(batch.packet(at))
