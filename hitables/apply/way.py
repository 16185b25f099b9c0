"""A packet's way through the tables of a kernel: what the rules of one table write, those of the next test.

Marks, and whether the connection is tracked, go on from table to table.  Within a table, a mark that is
restored from the connection is unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from ..analyse.mark_bits import EVERY_BIT
from ..ir.connection_states import LOOPBACK
from ..ir.fields import Family, Field
from ..ir.packet import Backend, Outcome, Packet
from ..ir.packet_reader import Spelled, read_packet
from ..ir.program import Program
from ..ir.rule import Target
from ..ir.semantics import CUT_NUMBERS, Step, Walk
from ..ir.synproxy import taking
from ..ir.tracked_walk import INVALID, UNTRACKED, run_tracked, states_written, untracks
from ..syntax.values import number
from .kernel_answers import answered
from .known_connection import KnownConnection
from .unsure_answers import ChangedMemory, assuming, unsure_answers

# Verdicts with which a packet goes on to where it was going.  SYNPROXY goes on by itself for who answers it.
_PASSING = frozenset({"ACCEPT", "SNAT", "MASQUERADE", "SYNPROXY"})


@dataclass(frozen=True, slots=True)
class Passage:
    """A packet's walk through one chain.

    passes   whether it goes on
    assumed  keys of matches that may hold, and were taken not to
    crucial  keys of matches that may hold or not, and whether each must hold for the packet to pass
    """

    walk: Walk
    passes: bool
    assumed: frozenset[str] = frozenset()
    crucial: tuple[tuple[str, bool], ...] = ()


@dataclass(slots=True)
class Way:
    """A packet between two tables.

    text   the packet as for `hitables trace`; what it states of its marks is kept
    marks  "mark" and "connmark", as they are now; None: unknown
    local, connection  as of `answered`
    untracked_by  the table, and the rule there, that keeps the packet out of connection tracking
    """

    text: str
    family: Family
    marks: dict[str, int | None]
    local: Field | None = None
    connection: KnownConnection | None = None
    is_tracked: bool = True
    untracked_by: tuple[str, Step] | None = None
    written: ChangedMemory = field(default_factory=ChangedMemory)

    def enter(self, program: Program, table: str, chain: str, backend: Backend) -> Passage | None:
        """The packet's way through one chain; None if the program lacks it, so that the packet passes."""
        content = program.find(table)
        if content is None or chain not in content:
            return None
        spelled = self._spelled(table, chain)
        content = taking(content, spelled.packet)
        packet = answered(spelled.packet, self.family, self.local, self.connection)
        walk = run_tracked(content, chain, packet, backend)
        passes = _passes(walk)
        given = {key for key, _ in spelled.answers.outcomes}
        unsure = unsure_answers(walk, packet, self.family, given, self.written)
        matches = {match.key: match for step in walk.steps for match in step.rule.matches}
        crucial = tuple(
            (key, held)
            for key, held in sorted(unsure.items())
            if passes
            and not _passes(run_tracked(content, chain, assuming(packet, matches[key], not held), backend))
        )
        self._note(walk, spelled.packet, table)
        assumed = frozenset(key for key, held in unsure.items() if not held)
        return Passage(walk, passes, assumed, crucial)

    def _spelled(self, table: str, chain: str) -> Spelled:
        text = self.text if "chain=" in self.text else f"{self.text} chain={chain}"
        if chain in ("PREROUTING", "INPUT"):
            text = re.sub(r" out=\S+", "", text)
        spelled = read_packet(text, self.family)
        known = {(name, 0): mark for name, mark in self.marks.items() if mark is not None}
        answers = replace(spelled.answers, numbers={**known, **spelled.answers.numbers})
        packet = answers.given_by(spelled.packet)
        is_loopback = packet.values.get(Field.IIF) == LOOPBACK
        state = UNTRACKED if not self.is_tracked else INVALID if table == "raw" and not is_loopback else None
        if state is not None:
            packet = replace(packet, values={**packet.values, Field.STATE: state})
        return replace(spelled, packet=packet, answers=answers)

    def shown(self) -> str:
        """The packet for the user: with its fields and its state as they are now."""
        return self.text if self.is_tracked else re.sub(r"\bstate=\S+", "state=UNTRACKED", self.text)

    def _note(self, walk: Walk, packet: Packet, table: str) -> None:
        """What the targets on a walk of *packet* have made of the marks, and of the tracking."""
        if UNTRACKED in states_written(walk, packet).values():
            self.is_tracked = False
        for step in walk.steps:
            target = step.rule.target
            if step.outcome is not Outcome.YES or target is None:
                continue
            if not self.is_tracked and self.untracked_by is None and untracks(target):
                self.untracked_by = table, step
            if target.name == "SYNPROXY":  # the connection that it makes with this host is tracked
                self.is_tracked = True
            for name in self.marks:
                if target.writes & CUT_NUMBERS[name]:
                    self.marks[name] = self._made(target, name)

    def _made(self, target: Target, name: str) -> int | None:
        made, now = target.makes, self.marks[name]
        if made is not None:
            if now is None and made.keep & EVERY_BIT:
                return None
            return made.of(now or 0) & EVERY_BIT
        if "--restore-mark" in target.words or "--save-mark" in target.words:
            other = self.marks["connmark" if name == "mark" else "mark"]
            of_packet, of_connection = (_mask(target, option) for option in ("--nfmask", "--ctmask"))
            lost, taken = (
                (of_packet, of_connection) if name == "mark" else (of_connection, of_packet)
            )  # bits of this mark that are cleared, and bits of the other one that are copied
            return None if now is None or other is None else now & ~lost ^ other & taken
        return None


def _mask(target: Target, option: str) -> int:
    """The number of a mask of CONNMARK; all bits where it is not given."""
    words = target.words
    for each in (option, "--mask"):
        if each in words[:-1]:
            return number(words[words.index(each) + 1], 0, EVERY_BIT)
    return EVERY_BIT


def _passes(walk: Walk) -> bool:
    """Whether the packet goes on."""
    return walk.verdict.split()[0] in _PASSING
