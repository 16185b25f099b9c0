"""Two programs compared by decision diagrams: a proof, or a packet.

A second opinion: this engine shares with the exact one only what docs/proof.md lists, and a test holds
that.

Idea: both programs are walked at once, with sets of packets in place of a packet.  Only effects and
verdicts are observable, so the packets at a pair of program points are split by the next event of each
program (bdd_reader.py): where the events differ, the programs differ; where they agree, the walk continues
from the pair of points behind the event.  The effects so far were the same in both, so nothing of the past
matters: when an effect writes a field, its old value is forgotten, and a match with memory or chance is
followed with both answers.

Invariants: the set at a pair of points holds exactly the packets that reach it.  Pairs are taken in the
order in which rules are read, so each set is complete when it is taken.  The rules with memory of their own
(ONCE) that the two programs ask for the same packet are partners, and each has at most one.

Cost: operations on sets (bdd_sets.py); seconds for 10,000 rules, and memory that the question can limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from hitables.errors import Disagreement
from hitables.ir import semantics
from hitables.ir.answers import Answers, listening
from hitables.ir.choices import Malformed
from hitables.ir.fact import Assignment
from hitables.ir.fields import Family, Field
from hitables.ir.headers import inconsistency, is_malformed
from hitables.ir.hooks import hook_box
from hitables.ir.packet import Backend, Outcome
from hitables.ir.packet_text import show_packet
from hitables.ir.program import Program, Table
from hitables.ir.rule import Metadata, Role
from hitables.ir.semantics import DROP, FIELDS_WRITTEN

from .bdd_reader import (
    ASKS,
    FIRES,
    VERDICT,
    MatchRef,
    NextEvent,
    NextEvents,
    ProgramPoint,
    ProgramReader,
    Rank,
    add,
    callers_first,
    is_asked,
    reading_order,
)
from .bdd_sets import PacketSets, Point
from .deadline import Deadline, TimeIsUp
from .question import Answer, Difference, Equal, Question, Undecided, chain_pairs, differs, with_open_policies

if TYPE_CHECKING:
    from oxidd.bcdd import BCDDFunction as Set


def check(before: Program, after: Program, question: Question) -> Answer:
    """Compare *after* with *before*: a proof that they are equal, the first difference, or Undecided.

    Only chains that a built-in chain reaches are compared, or those that the question names.
    """
    chains = chain_pairs(before, after, question)
    deadline = Deadline(question.timeout, question.processor)
    classes = 0
    for name in dict.fromkeys(table for table, _ in chains):
        pair = with_open_policies(before.table(name)), with_open_policies(after.table(name))
        starts = [chain for table, chain in chains if table == name]
        answer = _TableComparison(pair, starts, before.family, question, deadline).answer()
        if not isinstance(answer, Equal):
            return answer
        classes += answer.looked_at
    return Equal(True, classes)


PointPair = tuple[ProgramPoint, ProgramPoint]


@dataclass(frozen=True)
class Arrival:
    """How packets reached a pair of points: from which pair, which packets, and the event on the way."""

    origin: PointPair
    packets: Set
    event: NextEvent
    writes: frozenset[Metadata] = frozenset()
    makes: Assignment | None = None
    outcome: Outcome | None = None


# A packet at each pair of points of its way, with the event behind that pair; None behind the last.
Path = list[tuple[Point, Arrival | None]]


# ---- one chain ----


class _ChainComparison:
    """One chain of both programs, as one backend reads it."""

    def __init__(
        self,
        sets: PacketSets,
        readers: tuple[ProgramReader, ProgramReader],
        chain: str,
        tables: _TableComparison,
    ) -> None:
        self.sets, self.readers, self.tables, self.chain = sets, readers, tables, chain
        self.all_packets = sets.exist & sets.box(hook_box(chain, sets.family))
        self.start = readers[0].start(), readers[1].start()
        self.pending: dict[PointPair, Set] = {self.start: self.all_packets}
        self.arrivals: dict[PointPair, list[Arrival]] = {}
        self.classes = 0

    def walk(self) -> Difference | None:
        queue = [_queued(self.start)]
        while queue:
            self.tables.deadline.tick()
            _, _, at = heappop(queue)
            packets = self.pending[at]
            events = self.readers[0].split(at[0], packets), self.readers[1].split(at[1], packets)
            differing = self._differing(*events)
            if differing is not None:
                return self.tables.confirm(self, self._path(at, self.sets.plainest(differing)))
            for arrival, reached in self._common_events(at, *events):
                if arrival.event.kind == ASKS and (difference := self.tables.pair_up(self, reached)):
                    return difference
                for step, goal in self._continuations(arrival, reached):
                    if goal not in self.pending:
                        heappush(queue, _queued(goal))
                    self.arrivals.setdefault(goal, []).append(step)
                    add(self.pending, goal, self.sets.forget(step.packets, step.writes, step.makes))
            del self.pending[at]
        return None

    def share_done(self) -> float:
        """The share of the classes of packets that is decided."""
        pending = sum(self.sets.share(packets, self.all_packets) for packets in self.pending.values())
        return max(0.0, 1.0 - pending)

    def _differing(self, before: NextEvents, after: NextEvents) -> Set | None:
        """Packets whose next events differ."""
        nothing = self.sets.nothing
        sides = [
            {event: _union(at.values(), nothing) for event, at in events.items()}
            for events in (before, after)
        ]
        allowed = nothing
        if self.tables.question.malformed is Malformed.STRICTER:
            allowed = self.sets.malformed & sides[1].get(NextEvent(VERDICT, DROP), nothing)
        for event, packets in sides[0].items():
            self.tables.deadline.tick()
            differing = packets & ~sides[1].get(event, nothing) & ~allowed
            if differing.satisfiable():
                return differing
        return None

    def _common_events(
        self, at: PointPair, before: NextEvents, after: NextEvents
    ) -> Iterator[tuple[Arrival, PointPair]]:
        """The effects of both programs, and the pairs of points behind them."""
        for event, points in before.items():
            if event.kind == VERDICT:
                self.classes += 1
                continue
            writes, makes = self.tables.writes_of(event), self.tables.makes_of(event)
            others = dict(after.get(event, {}))
            for one, packets in points.items():
                for other in list(others):
                    both = packets & others[other]
                    if not both.satisfiable():
                        continue
                    self.classes += 1
                    yield Arrival(at, both, event, writes, makes), (one, other)
                    packets &= ~both
                    others[other] &= ~both
                    if not others[other].satisfiable():
                        del others[other]
                    if not packets.satisfiable():
                        break

    def _continuations(self, arrival: Arrival, reached: PointPair) -> Iterator[tuple[Arrival, PointPair]]:
        """Where the walk continues: after a question with "yes" and with "no" ("dropped" ends both)."""
        if arrival.event.kind != ASKS:
            yield arrival, reached
            return
        one, other = self.readers
        yield replace(arrival, outcome=Outcome.YES), reached
        yield replace(arrival, outcome=Outcome.NO), (one.after_no(reached[0]), other.after_no(reached[1]))

    def _path(self, at: PointPair, packet: Point) -> Path:
        """The way of the packet that is *packet* at the pair *at*, from the start."""
        path: Path = [(packet, None)]
        while at != self.start:
            for arrival in self.arrivals[at]:
                origins = self.sets.before(arrival.packets, packet, arrival.writes, arrival.makes)
                if origins.satisfiable():
                    break
            else:
                raise AssertionError("a packet without an arrival")
            packet = self.sets.plainest(origins)
            path.append((packet, arrival))
            at = arrival.origin
        return path[::-1]


# ---- one table ----


class _TableComparison:
    """One table of both programs, and the question about it."""

    def __init__(
        self,
        pair: tuple[Table, Table],
        starts: list[str],
        family: Family,
        question: Question,
        deadline: Deadline,
    ) -> None:
        self.pair, self.starts, self.question, self.deadline = pair, starts, question, deadline
        self.family = family
        self.backend = question.backends[0] if question.backends else Backend.LEGACY
        self.partners: dict[tuple[Backend, bool, tuple[str, int, int]], MatchRef] = {}
        self._rules = [
            rule for table in pair for name in callers_first(table, *starts) for rule in table[name].rules
        ]
        targets = [rule.target for rule in self._rules if rule.target is not None]
        asked = [match for rule in self._rules for match in rule.matches if is_asked(match)]
        self._target_writes = {target.key: target.writes for target in targets}
        self._target_makes = {target.key: target.makes for target in targets}
        self._match_writes = {match.key: match.writes for match in asked}
        self._inconsistent = next(
            (each.key for each in targets if each.writes != self._target_writes[each.key]), None
        ) or next((each.key for each in asked if each.writes != self._match_writes[each.key]), None)

    def writes_of(self, event: NextEvent) -> frozenset[Metadata]:
        """The states that an effect may change."""
        if event.kind == FIRES:
            return self._target_writes[event.key]
        return self._match_writes[event.key] if event.kind == ASKS else frozenset()

    def makes_of(self, event: NextEvent) -> Assignment | None:
        """The number that an effect makes."""
        return self._target_makes[event.key] if event.kind == FIRES else None

    def answer(self) -> Answer:
        comparison: _ChainComparison | None = None
        chain, backend = self.starts[0] if self.starts else "", self.backend
        classes = 0
        try:
            matches = (match for rule in self._rules for match in rule.matches)
            sets = PacketSets(self.family, matches, self.question.max_memory)
            inconsistent = self._inconsistent or sets.inconsistent
            if inconsistent is not None:
                reason = f"{inconsistent!r} is spelt alike and reads or writes different things"
                return Undecided(reason, self.pair[0].name, chain, backend, 0.0)
            for chain in self.starts:
                for backend in self.question.backends:
                    comparison, self.backend = None, backend
                    one, other = (
                        ProgramReader(table, chain, backend, sets, self.question.verdict_only, self.deadline)
                        for table in self.pair
                    )
                    comparison = _ChainComparison(sets, (one, other), chain, self)
                    difference = comparison.walk()
                    if difference is not None:
                        return difference
                    classes += comparison.classes
        except (TimeIsUp, MemoryError) as error:
            reason = "the time is up" if isinstance(error, TimeIsUp) else "the memory is used up"
            done = comparison.share_done() if comparison is not None else 0.0
            return Undecided(reason, self.pair[0].name, chain, backend, done)
        return Equal(True, classes)

    def pair_up(self, comparison: _ChainComparison, reached: PointPair) -> Difference | None:
        """Make the two matches evaluated on the path to *reached* partners, if one has memory of its own.

        Returns a difference when one of them has another partner.
        """
        readers = comparison.readers
        one, other = (reader.asked(point) for reader, point in zip(readers, reached, strict=True))
        if Role.ONCE not in (one.match.role, other.match.role):
            return None
        for is_after, ref, partner in ((False, one, other), (True, other, one)):
            first = self.partners.setdefault((self.backend, is_after, ref[:3]), partner)
            if first[:3] != partner[:3]:
                sides = ("after", "before") if is_after else ("before", "after")
                reason = (
                    f"{ref.match.key!r} has memory of its own: {sides[0]} it is {ref} alone, "
                    f"{sides[1]} it is {first} for some packets and {partner} for others"
                )
                return Difference(self.pair[0].name, comparison.chain, reason, self.backend)
        return None

    def confirm(self, comparison: _ChainComparison, path: Path) -> Difference:
        """The difference that semantics finds on the packet of this path."""
        sets = comparison.sets
        packet, listened = listening(_answers(sets, path).given_by(sets.packet(path[0][0])))
        before, after = (semantics.run(each, comparison.chain, packet, self.backend) for each in self.pair)
        may_drop = is_malformed(packet) and self.question.malformed is Malformed.STRICTER
        reason = differs(before, after, may_drop, self.question.verdict_only)
        table = self.pair[0].name
        if reason is None or inconsistency(packet) is not None:
            shown = show_packet(packet, table, comparison.chain, listened)
            why = "no such packet exists" if reason is not None else "semantics finds no difference"
            raise Disagreement(
                f"decision diagrams find a difference that is not confirmed ({why}); this is a fault of "
                f"hitables, please report it with the rule set ({self.backend.value}: {shown})"
            )
        return Difference(
            table, comparison.chain, reason, self.backend, listened.given_by(packet), listened, before, after
        )


def _queued(pair: PointPair) -> tuple[Rank, Rank, PointPair]:
    """The pair with its rank among the pairs that wait."""
    return reading_order(pair[0]), reading_order(pair[1]), pair


def _answers(sets: PacketSets, path: Path) -> Answers:
    """The answers of the packet of this path to questions beyond its header."""
    answers = Answers()
    writes: Counter[Metadata] = Counter()
    events = 0
    for point, arrival in path:
        for attribute, reads in sets.reads.items():
            epoch = sum(writes[state] for state in reads)
            answers.numbers[attribute, epoch] = sets.number(point, attribute)
        for field in Field:
            epoch = sum(writes[state] for state, fields in FIELDS_WRITTEN.items() if field in fields)
            if epoch:
                answers.rewrites[field, epoch] = sets.value(point, field)
        if arrival is not None:
            if arrival.outcome is not None:
                answers.outcomes[arrival.event.key, events] = arrival.outcome
                events += 1
            writes.update(arrival.writes)
    return answers


def _union(sets: Iterable[Set], nothing: Set) -> Set:
    union = nothing
    for each in sets:
        union |= each
    return union
