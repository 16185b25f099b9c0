"""Whether new rules would cut off the session that loads them, or packets that must pass.

The packets of the session (ssh_session.py) and those of `--must` are traced through the chains that they
traverse in this kernel, with what the rules on their way write (way.py), also those of tables that stay as
they are.  The kernel is asked for the members of ipsets and the types of addresses, and limits are taken as
fresh (kernel_answers.py).  Other conditions that are not part of a packet are assumed not to hold; they are
named in a refusal, and in a caution where a packet passes only so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from ..errors import HitablesError
from ..ir.fields import Field
from ..ir.packet import Backend
from ..ir.packet_reader import read_packet
from ..ir.program import Program
from ..ir.rule import Target
from ..ir.semantics import Step
from ..verify.question import decided_by, show_rule
from .must_packets import check_place
from .ssh_session import SessionPacket, SshSession
from .unsure_answers import ChangedMemory
from .way import Passage, Way

_NAT_OF_REQUESTS = ("nat", "PREROUTING")
# The first places behind the translation: of the destination of a request, and of that of its answers.
_BEHIND_NAT = {("mangle", "INPUT"), ("filter", "OUTPUT")}
# By chain of table filter: what a packet has traversed before, in tables that write marks.
_BEFORE = {
    "INPUT": (("raw", "PREROUTING"), ("mangle", "PREROUTING"), ("mangle", "INPUT")),
    "FORWARD": (("raw", "PREROUTING"), ("mangle", "PREROUTING"), ("mangle", "FORWARD")),
    "OUTPUT": (("raw", "OUTPUT"), ("mangle", "OUTPUT")),
}
# By chain: the address of a packet there that is one of this host.
_LOCAL = {"INPUT": Field.DST, "OUTPUT": Field.SRC}
_UNTRANSLATED = "is not translated as the session is"
_HOLDS = {True: "holds", False: "does not hold"}


@dataclass(frozen=True, slots=True)
class LockoutRefusal:
    """A packet that would not pass: what it is, and what decides about it, for the user."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(slots=True)
class LockoutCheck:
    """Traces packets through the rules of one family, and collects which of them would not pass.

    program   all tables that the kernel will have
    own       the names of those that are loaded; of the others, verdicts are not looked at
    name_of   the place of a line of a table, for the user
    refusals  the packets that would not pass
    cautions  messages on packets that pass only if a condition holds, or does not hold
    """

    program: Program
    own: Collection[str]
    backend: Backend
    name_of: Callable[[str, int], str]
    refusals: list[LockoutRefusal] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)
    _written_before: ChangedMemory = field(default_factory=ChangedMemory)
    _written: ChangedMemory = field(default_factory=ChangedMemory)

    def trace_session(self, session: SshSession) -> None:
        """Add the packets of *session* that would not pass to the refusals.

        Where rules write into sets or lists for them, the same packets are sent once more: what the rules
        have written may decide then.
        """
        self._trace_packets(session)
        if self._written:
            later = LockoutCheck(self.program, self.own, self.backend, self.name_of)
            later._written_before = self._written
            later._trace_packets(session)
            more = dict.fromkeys(each for each in later.cautions if each not in self.cautions)
            self.cautions += (f"once packets of the session have passed, {each}" for each in more)

    def _trace_packets(self, session: SshSession) -> None:
        following, its_answer, opening, opening_answer = session.packets()
        self._trace_connection(following, its_answer, connmark=None)
        came, went = self._trace_connection(opening, opening_answer, connmark=0)
        if came.is_tracked and not went.is_tracked:  # conntrack has not seen what the client answers then
            self._trace(opening.once_answered().of_no_connection(), Field.DST, None)

    def _trace_connection(
        self, request: SessionPacket, answer: SessionPacket, connmark: int | None
    ) -> tuple[Way, Way]:
        """The ways of a packet and of its answer; *connmark*: of the connection before, None if unknown."""
        came = self._trace(request, Field.DST, connmark)
        if not came.is_tracked:
            answer = answer.of_no_connection()
        return came, self._trace(answer, Field.SRC, came.marks["connmark"])

    def _trace(self, packet: SessionPacket, local: Field, connmark: int | None) -> Way:
        """The way of one packet of a session, as far as it passes; *local*: its address of this host."""
        marks = {"mark": 0, "connmark": connmark}
        written = self._written_before.copy()
        family, connection = self.program.family, packet.connection
        way = Way(packet.text, family, marks, local, connection, written=written)
        for table, chain in packet.places:
            is_nat_next = (table, chain) in (_NAT_OF_REQUESTS, *_BEHIND_NAT)
            if is_nat_next and packet.needs_nat and self._is_left_untranslated(way, packet.what):
                break
            if table == "nat" and not way.is_tracked:
                continue
            if packet.behind and (table, chain) in _BEHIND_NAT and way.is_tracked:
                way.text = packet.text_behind
            what = f"{packet.what} ({way.shown()})"
            if packet.leads_here and (table, chain) == _NAT_OF_REQUESTS:
                passes = self._is_translated(way, packet.leads_here, what)
            else:
                passes = self._passes(way, table, chain, what)
            if not passes:
                break
        self._written.add(way.written)
        return way

    def _is_left_untranslated(self, way: Way, what: str) -> bool:
        """Whether a packet that nat must translate is not tracked, so that nat leaves it; it is refused then.

        Of a table that stays this is not taken, as the session is translated in spite of it.
        """
        if way.is_tracked or way.untracked_by is None or way.untracked_by[0] not in self.own:
            return False
        table, step = way.untracked_by
        what = f"{what} ({way.shown()}) {_UNTRANSLATED}, as it is not tracked"
        self.refusals.append(LockoutRefusal(what, self._named(step, table)))
        return True

    def _is_translated(self, way: Way, leads_here: Callable[[Target], bool], what: str) -> bool:
        """Whether table nat translates a new connection as it has the session; if not, it is refused.

        A table that stays is taken to do so, as it has before.
        """
        table, chain = _NAT_OF_REQUESTS
        passage = way.enter(self.program, table, chain, self.backend)
        if passage is None or table not in self.own:
            return True
        step = decided_by(passage.walk)
        target = step.rule.target if step is not None else None
        if target is not None and leads_here(target):
            return True
        why = self._decider(passage, table, chain)
        self.refusals.append(LockoutRefusal(f"{what} {_UNTRANSLATED}", why))
        return False

    def trace_must(self, packets: Sequence[str]) -> None:
        """Add those of *packets*, each with its chain, that would not pass to the refusals.

        InvalidOption for a table or chain that neither the kernel nor the program has.
        """
        for packet in packets:
            spelled = read_packet(packet, self.program.family)
            check_place(packet, spelled.table, spelled.chain, self.program)
            before = _BEFORE.get(spelled.chain, ()) if spelled.table == "filter" else ()
            text = re.sub(r"\bchain=\S+\s*", "", packet) if before else packet
            marks = {"mark": 0, "connmark": None} if before else {}
            way = Way(text, self.program.family, marks, _LOCAL.get(spelled.chain))
            for table, chain in before:
                way.enter(self.program, table, chain, self.backend)
            self._passes(way, spelled.table, spelled.chain, packet)

    def _passes(self, way: Way, table: str, chain: str, what: str) -> bool:
        """Whether the packet passes one chain; if not, it is refused."""
        passage = way.enter(self.program, table, chain, self.backend)
        if passage is None or table not in self.own:
            return True
        if not passage.passes:
            self.refusals.append(LockoutRefusal(what, self._decider(passage, table, chain)))
        self.cautions += (
            f"{what} passes table {table}, chain {chain}, only if this {_HOLDS[held]}: {key}"
            for key, held in passage.crucial
        )
        return passage.passes

    def _decider(self, passage: Passage, table: str, chain: str) -> str:
        """The rule or policy that decides a walk through *chain*, and what was assumed, for the user."""
        step = decided_by(passage.walk)
        if step is None:
            text = f"{passage.walk.verdict} by the policy of chain {chain}, table {table}"
        else:
            text = self._named(step, table)
        if passage.assumed:
            text += f"; assumed not to hold: {', '.join(sorted(passage.assumed))}"
        return text

    def _named(self, step: Step, table: str) -> str:
        """The rule of a step, with its place, for the user."""
        rule = f"-A {step.chain} {show_rule(step.rule)}"
        return f"{self.name_of(table, step.rule.line)}: {rule} (table {table})"


def refuse(refusals: Sequence[LockoutRefusal]) -> None:
    """HitablesError if there are refusals."""
    if refusals:
        lines = "\n".join(f"  {refusal}" for refusal in refusals)
        raise HitablesError(
            f"these packets would not pass; nothing is loaded (--force loads the rules anyway)\n{lines}"
        )
