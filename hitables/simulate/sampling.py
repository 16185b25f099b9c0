"""Two programs compared on packets at the boundaries of both.

Fast, and able to refute, never to prove: no difference means that no packet drawn distinguishes the two.
ir/semantics.py confirms a difference before it is returned.

Malformed packets: with "stricter", the second program may drop packets that the first does not drop; its
effects until then must be the first effects of the first program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hitables.errors import Disagreement
from hitables.ir import semantics
from hitables.ir.answers import listening
from hitables.ir.choices import Malformed
from hitables.ir.headers import is_malformed
from hitables.ir.packet import Backend, Packet
from hitables.ir.packet_text import show_packet
from hitables.ir.program import Program, Table
from hitables.ir.rule import Role
from hitables.ir.semantics import DROP

from ..verify.question import Difference, Equal, Question, chain_pairs, differs, with_open_policies
from .batch import PacketBatch
from .boundary_packets import BoundarySampler
from .interpreter import BatchResult, Interner, Interpreter
from .number_pools import number_pools

PACKETS = 20_000  # for each chain; half for the rules of either program
PACKETS_PER_RULE, FEWEST = 60, 1000


def check(
    before: Program, after: Program, question: Question, *, packets: int = PACKETS, seed: int = 0
) -> Equal | Difference:
    """The first difference, or Equal (without proof) when no packet shows one.

    User chains are compared where a built-in chain reaches them.  At most *packets* packets are drawn for
    each chain and run on each backend; equal seeds draw equal packets.
    """
    chains = chain_pairs(before, after, question)
    before, after = (
        replace(program, tables=tuple(map(with_open_policies, program))) for program in (before, after)
    )
    pairs = [_Pair(before, after, backend, question) for backend in question.backends]
    drawn = 0
    for table, chain in chains:
        batch = pairs[0].draw(table, chain, packets, seed)
        drawn += len(batch)
        for pair in pairs:
            difference = pair.compare(table, chain, batch)
            if difference is not None:
                return difference
    return Equal(False, drawn)


def compare(
    before: Program,
    after: Program,
    *,
    backends: Sequence[Backend] = tuple(Backend),
    malformed: Malformed = Malformed.STRICTER,
    packets: int = PACKETS,
    seed: int = 0,
) -> Difference | None:
    """As `check`, but returns only a difference."""
    question = Question(tuple(backends), malformed)
    answer = check(before, after, question, packets=packets, seed=seed)
    return answer if isinstance(answer, Difference) else None


def _once_keys(table: Table, hits: Any) -> Counter[str]:
    """By key of a match with memory of its own: how many rules with it some packet has matched."""
    rules = (rule for chain in table.chains for rule in chain.rules)
    return Counter(
        match.key
        for rule, hit in zip(rules, hits, strict=True)
        if hit
        for match in rule.matches
        if match.role is Role.ONCE
    )


class _Pair:
    """Two programs as one backend runs them."""

    def __init__(self, before: Program, after: Program, backend: Backend, question: Question) -> None:
        self.programs = before, after
        self.backend, self.question = backend, question
        interner = Interner()
        self.interpreters = [Interpreter(program, backend, interner) for program in self.programs]

    def draw(self, table: str, chain: str, packets: int, seed: int) -> PacketBatch:
        """Packets at the boundaries of both programs; fewer where the chain reads few rules."""
        pools = number_pools(self.programs)
        samplers = [
            BoundarySampler(interpreter, table, chain, seed, pools) for interpreter in self.interpreters
        ]
        rules = max(len(each.numbers) for each in samplers)
        count = min(packets, PACKETS_PER_RULE * rules + FEWEST)
        return PacketBatch.join(each.draw(count // 2) for each in samplers)

    def compare(self, table: str, chain: str, batch: PacketBatch) -> Difference | None:
        old, new = (interpreter.run(table, chain, batch, hits=True) for interpreter in self.interpreters)
        is_same = old.verdict == new.verdict
        if not self.question.verdict_only:
            is_same &= (old.effects == new.effects) & (old.count == new.count)
        differ = np.flatnonzero(~is_same)
        if self.question.malformed == "stricter" and len(differ):
            differ = differ[~self._is_stricter(table, chain, batch.pick(differ))]
        if not len(differ):
            return self._copied_memory(table, chain, old, new)
        # The simplest packet is the best witness: well-formed, and read by few rules.
        broken = batch.malformed()[differ]
        reads = old.reads[differ].astype(np.int64) + new.reads[differ]
        return self._confirm(table, chain, batch.packet(int(differ[np.lexsort((reads, broken))[0]])))

    def _copied_memory(self, table: str, chain: str, old: BatchResult, new: BatchResult) -> Difference | None:
        """A difference if a rule's own memory was copied: then more rules with it matched in one program."""
        before, after = (
            _once_keys(interpreter.program.table(table), result.hits)
            for interpreter, result in zip(self.interpreters, (old, new), strict=True)
        )
        for key in before | after:
            if before[key] != after[key]:
                counts = f"is {before[key]} in the first, {after[key]} in the second"
                reason = f"{key!r} has memory of its own and {counts}"
                return Difference(table, chain, reason, self.backend)
        return None

    def _is_stricter(self, table: str, chain: str, batch: PacketBatch) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """By packet: whether it is malformed, and the second program drops it earlier than the first."""
        new = self.interpreters[1].run(table, chain, batch)
        old = self.interpreters[0].run(table, chain, batch, limits=np.ascontiguousarray(new.count))
        drop = self.interpreters[1].interner.number(DROP)
        allowed = batch.malformed() & (new.verdict == drop)
        stricter: np.ndarray[Any, np.dtype[np.bool_]] = (
            allowed & (old.count >= new.count) & (old.effects == new.effects)
        )
        return stricter

    def _confirm(self, table: str, chain: str, packet: Packet) -> Difference:
        recording, answers = listening(packet)
        walks = [
            semantics.run(program.table(table), chain, recording, self.backend) for program in self.programs
        ]
        may_drop = is_malformed(packet) and self.question.malformed == "stricter"
        reason = differs(walks[0], walks[1], may_drop, self.question.verdict_only)
        if reason is None:
            spelled = show_packet(packet, table, chain, answers)
            raise Disagreement(
                "the interpreter finds a difference that semantics does not; this is a fault of hitables, "
                f"please report it with the rule set ({self.backend.value}: {spelled})"
            )
        return Difference(
            table, chain, reason, self.backend, answers.given_by(packet), answers, walks[0], walks[1]
        )
