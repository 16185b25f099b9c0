"""Two programs, compared on packets at the edges of both.

Fast and able to refute, never to prove: None means that no packet of those drawn tells
the two apart.  What is found is confirmed by ir/semantics.py before anyone is told.

Malformed packets: with "stricter", the second program may drop what the first does not;
its effects up to there are then the beginning of the first's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hitables.errors import HitablesError
from hitables.ir import semantics
from hitables.ir.headers import is_malformed
from hitables.ir.packet import Backend, Outcome, Packet
from hitables.ir.program import Program, Table
from hitables.ir.rule import Kind, Role, Rule
from hitables.ir.semantics import DROP, Walk
from hitables.ir.spelling import Answers, listening, show_packet

from .edges import Edges
from .machine import Interner, Machine
from .packets import PacketBatch

Malformed = Literal["stricter", "exact"]
PACKETS = 20_000  # for each chain; half aimed at either program
PACKETS_PER_RULE, FEWEST = 60, 1000


@dataclass(frozen=True)
class Difference:
    """Where two programs differ.  Without a packet, *reason* says it all.

    packet, answers  what went in, and what it said when it was asked for more than its header
    before, after    its ways through both
    """

    table: str
    chain: str
    reason: str
    backend: Backend | None = None
    packet: Packet | None = None
    answers: Answers | None = None
    before: Walk | None = None
    after: Walk | None = None

    def describe(self) -> str:
        """The packet in words, as `--packet` takes it, and what each program does with it."""
        place = f"table {self.table}" + (f", chain {self.chain}" if self.chain else "")
        if self.packet is None or self.backend is None:
            return f"{place}: {self.reason}"
        spelled = show_packet(self.packet, self.table, self.chain, self.answers)
        lines = [f"{place}, {self.backend.value}: {self.reason}", f"packet: {spelled}"]
        for name, walk in (("before", self.before), ("after", self.after)):
            if walk is not None:
                lines += [f"{name}: {walk.verdict}, rules read: {len(walk.steps)}", *_show_walk(walk)]
        return "\n".join(lines)


def compare(
    before: Program, after: Program, *, backends: Sequence[Backend] = tuple(Backend),
    malformed: Malformed = "stricter", packets: int = PACKETS, seed: int = 0,
) -> Difference | None:  # fmt: skip
    """The first difference found in any built-in chain of any table, or None.

    User chains count where a built-in chain reaches them.  At most *packets* are drawn for
    each chain, and run as each backend would; equal seeds draw equal packets.
    """
    if before.family is not after.family:
        raise ValueError("programs of two families")
    difference = next(_missing_parts(before, after), None)
    if difference is not None:
        return difference
    for table in before:
        again = after.table(table.name)
        difference = _once_difference(table, again)
        if difference is not None:
            return difference
    pairs = [_Pair(before, after, backend, malformed) for backend in backends]
    for table in before:
        for chain in table.chains:
            if chain.policy is None:
                continue
            batch = pairs[0].draw(table.name, chain.name, packets, seed)
            for pair in pairs:
                difference = pair.compare(table.name, chain.name, batch)
                if difference is not None:
                    return difference
    return None


def _missing_parts(before: Program, after: Program) -> Iterator[Difference]:
    tables = [{table.name: table for table in program} for program in (before, after)]
    for name in tables[0].keys() ^ tables[1].keys():
        yield Difference(name, "", f"the table stands {_where(name in tables[0])} only")
    for name in tables[0].keys() & tables[1].keys():
        chains = [{c.name for c in table[name].chains if c.policy is not None} for table in tables]
        for chain in chains[0] ^ chains[1]:
            yield Difference(name, chain, f"the chain stands {_where(chain in chains[0])} only")


def _where(is_before: bool) -> str:
    return "before" if is_before else "after"


def _once_difference(before: Table, after: Table) -> Difference | None:
    """Memory that belongs to a rule must not be copied, nor vanish."""
    counts = [_once_keys(table) for table in (before, after)]
    for key in counts[0] | counts[1]:
        was, now = counts[0][key], counts[1][key]
        if was != now:
            reason = f"{key!r} has memory of its own and stands {was} times before, {now} times after"
            return Difference(before.name, "", reason)
    return None


def _once_keys(table: Table) -> Counter[str]:
    return Counter(
        match.key
        for chain in table.chains
        for rule in chain.rules
        for match in rule.matches
        if match.role is Role.ONCE
    )


class _Pair:
    """Two programs as one backend runs them."""

    def __init__(self, before: Program, after: Program, backend: Backend, malformed: Malformed) -> None:
        self.programs = before, after
        self.backend, self.malformed = backend, malformed
        interner = Interner()
        self.machines = [Machine(program, backend, interner) for program in self.programs]

    def draw(self, table: str, chain: str, packets: int, seed: int) -> PacketBatch:
        """Packets at the edges of both programs; few where the chain reads few rules."""
        edges = [Edges(machine, table, chain, seed) for machine in self.machines]
        rules = max(len(each.numbers) for each in edges)
        count = min(packets, PACKETS_PER_RULE * rules + FEWEST)
        return PacketBatch.join(each.draw(count // 2) for each in edges)

    def compare(self, table: str, chain: str, batch: PacketBatch) -> Difference | None:
        old, new = (machine.run(table, chain, batch) for machine in self.machines)
        same = (old.verdict == new.verdict) & (old.effects == new.effects) & (old.count == new.count)
        differ = np.flatnonzero(~same)
        if self.malformed == "stricter" and len(differ):
            differ = differ[~self._is_stricter(table, chain, batch.pick(differ))]
        if not len(differ):
            return None
        # The plainest packet tells most: whole, and past few rules.
        broken = batch.malformed()[differ]
        reads = old.reads[differ].astype(np.int64) + new.reads[differ]
        return self._confirm(table, chain, batch.packet(int(differ[np.lexsort((reads, broken))[0]])))

    def _is_stricter(self, table: str, chain: str, batch: PacketBatch) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Malformed packets that the second program drops, after the first's first effects."""
        new = self.machines[1].run(table, chain, batch)
        old = self.machines[0].run(table, chain, batch, limits=np.ascontiguousarray(new.count))
        drop = self.machines[1].interner.number(DROP)
        allowed = batch.malformed() & (new.verdict == drop)
        stricter: np.ndarray[Any, np.dtype[np.bool_]] = (
            allowed & (old.count >= new.count) & (old.effects == new.effects)
        )
        return stricter

    def _confirm(self, table: str, chain: str, packet: Packet) -> Difference:
        asked, answers = listening(packet)
        walks = [semantics.run(program.table(table), chain, asked, self.backend) for program in self.programs]
        reason = differs(walks[0], walks[1], is_malformed(packet) and self.malformed == "stricter")
        if reason is None:
            spelled = show_packet(packet, table, chain, answers)
            raise HitablesError(
                "the interpreter finds a difference that semantics does not; this is a fault of hitables, "
                f"please report it with the rule set ({self.backend.value}: {spelled})"
            )
        return Difference(
            table, chain, reason, self.backend, answers.given_by(packet), answers, walks[0], walks[1]
        )


def differs(before: Walk, after: Walk, may_drop: bool) -> str | None:
    """How two walks of one packet differ; None when they do not, or *after* may drop it and does."""
    if may_drop and after.verdict == DROP and before.effects[: len(after.effects)] == after.effects:
        return None
    if before.verdict != after.verdict:
        return f"verdict {before.verdict} becomes {after.verdict}"
    if before.effects != after.effects:
        return f"effects {_list(before.effects)} become {_list(after.effects)}"
    return None


def _list(effects: tuple[str, ...]) -> str:
    return ", ".join(effects) if effects else "(none)"


def _show_walk(walk: Walk) -> list[str]:
    """The rules that decided something, by line; those that did not match are counted."""
    lines: list[str] = []
    passed = 0
    for step in walk.steps:
        if step.outcome is Outcome.NO:
            passed += 1
            continue
        if passed:
            lines.append(f"  … {passed} that do not match")
            passed = 0
        place = f"line {step.rule.line}" if step.rule.line else f"rule {step.index + 1}"
        dropped = " drops it" if step.outcome is Outcome.DROPPED else ""
        lines.append(f"  {place}: -A {step.chain} {show_rule(step.rule)}{dropped}")
    if passed:
        lines.append(f"  … {passed} that do not match")
    return lines


def show_rule(rule: Rule) -> str:
    """A rule for people to read; emit/ prints it for iptables."""
    words = []
    for match in rule.matches:
        words += [*(["-m", match.name] if match.name else []), *match.words]
    if rule.target is not None:
        words += ["-g" if rule.target.kind is Kind.GOTO else "-j", rule.target.name, *rule.target.words]
    return " ".join(words)
