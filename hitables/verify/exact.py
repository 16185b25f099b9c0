"""Exact equivalence of two programs: a proof, or a packet that they treat differently.

The work is done in core/c/prove/prove.c, once for each chain, backend and class of packets
(classes.py); what it finds is turned into a packet here (witness.py), and confirmed by
ir/semantics.py before anyone is told.

Equality is that of docs/semantics.md: the same verdict and the same effects in the same
order, whatever the facts, and whatever the matches with memory or chance say; a match with
a memory of its own stands for one match of the other program.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hitables.core._engine import ffi, lib
from hitables.errors import Disagreement, Unsupported
from hitables.ir import semantics
from hitables.ir.fields import Field
from hitables.ir.headers import is_malformed
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend, Outcome
from hitables.ir.packet_text import listening, show_packet
from hitables.ir.program import Program, Table
from hitables.ir.rule import Role, Rule

from ..ir.hooks import hook_box
from . import merged_classes
from .encoding import NOTHING, Lowering, Place
from .merged_classes import words as _words
from .packet_classes import PacketClass
from .question import Answer, Difference, Equal, Question, Undecided, differs, places
from .witness import Draft, choose, ordinary, plainer

Tell = Callable[[str], None]

WHY = {
    lib.PROVE_NO_TIME: "out of time",
    lib.PROVE_NO_MEMORY: "out of memory",
    lib.PROVE_STOPPED: "stopped",
    lib.PROVE_TOO_DEEP: "the rules nest too deep",
}


def _silent(stage: str) -> None:
    """Nobody is told how far it came."""


def check(before: Program, after: Program, question: Question, *, tell: Tell = _silent) -> Answer:
    """Hold *after* against *before*: Equal (proved), the plainest packet found that they
    treat differently, or Undecided when the budget of *question* runs out.

    NotComparable when the two cannot be compared (`question.places`).  *tell* hears what is
    being compared.
    """
    regions = 0
    for comparison in comparisons(before, after, question):
        tell(f"{comparison.table} {comparison.chain}, {comparison.backend.value}")
        answer = comparison.first_difference()
        if not isinstance(answer, Equal):
            return answer
        regions += answer.looked_at
    return Equal(True, regions)


def comparisons(before: Program, after: Program, question: Question) -> Iterator[Comparison]:
    """Each pair of chains, as each backend reads it."""
    deadline = None if question.timeout is None else time.monotonic() + question.timeout
    pairs = places(before, after, question)
    lowered: dict[str, Lowering] = {}
    proved: dict[str, merged_classes.AtOnce] = {}
    for backend in question.backends:
        prover: Prover | None = None
        for table, chain in pairs:
            if prover is None or prover.table != table:
                tables = before.table(table), after.table(table)
                if table not in lowered:
                    lowered[table] = Lowering(tables, before.family, backend, question.verdict_only)
                    proved[table] = merged_classes.AtOnce(lowered[table], question, deadline)
                own = lowered[table].read_by(backend)
                prover = Prover(tables, before, backend, question, deadline, own)
            yield Comparison(prover, chain, proved[table])


@dataclass(frozen=True)
class Region:
    """Packets that two chains treat differently, all in the same way.

    sets      by dimension and number of writes before: low, high, low, high, ... as coordinates
    asked     keys of the matches with memory that were asked so far, and what they said
    places    the rules at which the two part; None: the end of the chain
    alone     rules that had an effect in one program only, before that; None: none had
    same      what follows those effects is the same
    """

    packets: PacketClass
    sets: dict[tuple[int, int], tuple[int, ...]]
    asked: tuple[tuple[str, bool], ...]
    places: tuple[Place | None, Place | None]
    alone: tuple[Place | None, Place | None] = (None, None)
    same: bool = False


class Prover:
    """Two tables of one name in the engine, for one backend."""

    def __init__(
        self,
        tables: tuple[Table, Table],
        program: Program,
        backend: Backend,
        question: Question,
        deadline: float | None,
        lowering: Lowering | None = None,
    ) -> None:
        self.table, self.tables, self.backend, self.question = tables[0].name, tables, backend, question
        self.family = program.family
        self.deadline = deadline
        self.lowering = lowering or Lowering(tables, program.family, backend, question.verdict_only)
        self.classes = self.lowering.classes()
        self.strict = 0
        self._runs: list[tuple[str, PacketClass]] = []

    @cached_property
    def handle(self) -> Any:
        made, held = self.lowering.input()
        handle = lib.prover_new(made, self.question.max_memory or 0)
        del held
        if handle == ffi.NULL:
            raise MemoryError(f"table {self.table}")
        return ffi.gc(handle, lib.prover_free)

    def run(self, chain: str, packets: PacketClass, most: int) -> tuple[int, list[Region]]:
        """Hold the two chains against each other for packets of a class: a status, what differs."""
        status = self._run(chain, packets, most)
        if status == lib.PROVE_PAIRS:
            # Whose memory is whose was noted for rules that may never be asked.  From the
            # first run on it is noted again, for those that are.
            self.strict = 1
            for before in self._runs:
                status = self._run(*before, most)
                if status != lib.PROVE_EQUAL and (most == 1 or status != lib.PROVE_DIFFER):
                    return status, list(self._found(before[1]))
            status = self._run(chain, packets, most)
        self._runs.append((chain, packets))
        return status, list(self._found(packets))

    def _run(self, chain: str, packets: PacketClass, most: int) -> int:
        low = self.lowering
        class_words, sets = low.class_words(packets)
        if self.question.malformed != "stricter":
            class_words.may_drop = 0
        status = int(lib.prover_enter(self.handle, class_words, *_words(sets)))
        if status != lib.PROVE_EQUAL:
            return status
        hook = low.set_words(hook_box(chain, self.family))
        return merged_classes.interruptible(
            self.handle,
            low.chain(0, chain),
            low.chain(1, chain),
            low.end(0, chain),
            low.end(1, chain),
            *_words(hook),
            merged_classes.seconds_left(self.deadline),
            self.strict,
            most,
        )

    @property
    def regions(self) -> int:
        return int(lib.prover_regions(self.handle))

    @property
    def done(self) -> float:
        return float(lib.prover_done(self.handle))

    @property
    def bytes(self) -> int:
        return int(lib.prover_bytes(self.handle))

    def _found(self, packets: PacketClass) -> Iterator[Region]:
        count = ffi.new("size_t *")
        pointer = lib.prover_found(self.handle, count)
        words = array("I", ffi.unpack(pointer, count[0])) if count[0] else array("I")
        at = 0
        keys = self.lowering.keys
        while at < len(words):
            end = at + words[at]
            place = self.lowering.place
            rules = place(words[at + 1]), place(words[at + 2])
            alone = place(words[at + 3]), place(words[at + 4])
            same_rest = bool(words[at + 5])
            sets, here = {}, at + 7
            for _ in range(words[at + 6]):
                dim, epoch, pairs = words[here : here + 3]
                sets[dim, epoch] = tuple(words[here + 3 : here + 3 + 2 * pairs])
                here += 3 + 2 * pairs
            asked = words[here + 1 : here + 1 + 2 * words[here]]
            said = tuple((keys[asked[i] >> 1], bool(asked[i + 1])) for i in range(0, len(asked), 2))
            yield Region(packets, sets, said, rules, alone, same_rest)
            at = end


class Comparison:
    """One pair of chains, as one backend reads them."""

    def __init__(self, prover: Prover, chain: str, proved: merged_classes.AtOnce | None = None) -> None:
        self.prover, self.chain, self.proved = prover, chain, proved
        self.table, self.backend = prover.table, prover.backend

    def first_difference(self) -> Equal | Difference | Undecided:
        regions, known = self.proved.proved(self.chain) if self.proved else (0, frozenset())
        left = [packets for packets in self.prover.classes if (self.backend, packets) not in known]
        before = self.prover.regions if left else 0
        for packets in left:
            status, found = self.prover.run(self.chain, packets, 1)
            if found:
                return self.confirm(found[0])
            if status != lib.PROVE_EQUAL:
                return self.undecided(status, packets)
        return Equal(True, regions + (self.prover.regions - before if left else 0))

    def undecided(self, status: int, packets: PacketClass) -> Undecided:
        """What is known when the budget ran out in a class of packets."""
        classes = self.prover.classes
        done = (classes.index(packets) + self.prover.done) / len(classes)
        return Undecided(WHY[status], self.table, self.chain, self.backend, done)

    def draft(self, region: Region) -> Draft:
        """The plainest packet of a region."""
        low, family, packets = self.prover.lowering, self.prover.family, region.packets
        plain = ordinary(family, self.chain)
        fields: dict[tuple[Field, int], tuple[Values, bool]] = {}
        facts: dict[tuple[str, int], bool] = {}
        keys = low.facts
        for (dim, epoch), ends in region.sets.items():
            if dim >= len(Field):
                facts[keys[dim - len(Field)], epoch] = ends[0] == 1
                continue
            coordinates = low.coordinates[Field(dim)]
            parts = [coordinates.values(ends[i], ends[i + 1]) for i in range(0, len(ends), 2)]
            pairs = (pair for values, _ in parts for pair in values.pairs)
            fields[Field(dim), epoch] = Values.of(*pairs), any(none for _, none in parts)
        values, rewrites = choose(fields, plain, packets.cut_short)
        outcomes = {(key, at): Outcome.YES for at, (key, yes) in enumerate(region.asked) if yes}
        return Draft(
            family,
            values,
            packets.bytes,
            packets.bad_offset,
            packets.offset_one,
            packets.cut_short,
            {key: True for key, fact in facts.items() if fact},
            outcomes,
            rewrites,
        )

    def confirm(self, region: Region) -> Difference:
        """The difference that a packet of *region* shows, as plain as it can be made.

        Disagreement when semantics does not see it.
        """
        draft = self.draft(region)
        if self.reason(draft) is None:
            copied = self._copied(region)
            if copied is not None:
                return copied
            packet = draft.packet()
            raise Disagreement(
                "the prover finds a difference that semantics does not; this is a fault of hitables, "
                f"please report it with the rule sets ({self.backend.value}: "
                f"{show_packet(packet, self.table, self.chain)})"
            )
        draft = plainer(
            draft, ordinary(self.prover.family, self.chain), lambda each: self.reason(each) is not None
        )
        asked, answers = listening(draft.packet())
        walks = [semantics.run(table, self.chain, asked, self.backend) for table in self.prover.tables]
        reason = self.reason(draft)
        assert reason is not None
        packet = answers.given_by(draft.packet())
        return Difference(self.table, self.chain, reason, self.backend, packet, answers, walks[0], walks[1])

    def reason(self, draft: Draft) -> str | None:
        """How the two programs differ on the packet; None when they do not."""
        packet = draft.packet()
        question = self.prover.question
        walks = [semantics.run(table, self.chain, packet, self.backend) for table in self.prover.tables]
        may_drop = is_malformed(packet) and question.malformed == "stricter"
        return differs(walks[0], walks[1], may_drop, question.verdict_only)

    def _copied(self, region: Region) -> Difference | None:
        """Two memories where there was one: no single packet shows that, but the rules do."""
        a, b = region.places
        if a is None or b is None or not (_has_memory(a.rule) and _has_memory(b.rule)):
            return None
        reason = (
            f"the memory of the rule in line {a.rule.line} of the first is not one memory in the second: "
            f"the rule in chain {b.chain}, line {b.rule.line} shares it for some packets and not for others"
        )
        return Difference(self.table, self.chain, reason)


def _has_memory(rule: Rule) -> bool:
    return any(match.role is Role.ONCE for match in rule.matches)


__all__ = ["NOTHING", "Comparison", "Prover", "Region", "Unsupported", "check", "comparisons"]
