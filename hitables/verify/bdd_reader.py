"""One program for the decision diagrams: the next event of each packet of a set.

Idea: only effects and verdicts are observable.  `Reader.split` takes a set of packets at a point of the
program and splits it by the next *event*: a verdict, or an effect with the point behind it.  Rules without
observable effects are summarized: chains of them are read in one step, and runs of them as a tree of
halves, so that a packet set skips all rules that it does not touch.

Invariant: the sets of a split are exact, and they tile the packets that entered it.  Points are taken in
the order in which rules are read, so each set is complete when its point is taken.

Cost: operations on sets; a program of n rules is summarized in n of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from hitables.errors import Unsupported
from hitables.ir.packet import Backend
from hitables.ir.program import Table
from hitables.ir.rule import Ends, Kind, Match, Role, Rule, Target
from hitables.ir.semantics import DROP, RETURNS

from .bdd_sets import PacketSets
from .deadline import Deadline

if TYPE_CHECKING:
    from oxidd.bcdd import BCDDFunction as Set

Key = TypeVar("Key")


# ---- points and events ----

# A point of a program: (chain's number, rule, match) to be read next, in each chain that was entered and not
# left, the outermost first.  Empty: the end of the built-in chain.  Chains are numbered callers first, so a
# point that is read later is greater (`reading_order`).
Frame = tuple[int, int, int]
ProgramPoint = tuple[Frame, ...]
Rank = tuple[tuple[float, ...], ...]


def reading_order(point: ProgramPoint) -> Rank:
    """Greater for a point that is read later; a chain's caller continues when the chain is done."""
    return (*point, (inf,))


@dataclass(frozen=True)
class NextEvent:
    """The next observable event of a program: a verdict, or an effect by the key of its target or match."""

    kind: str  # VERDICT, FIRES, COUNTS, ASKS
    key: str = ""


VERDICT, FIRES, COUNTS, ASKS = "verdict", "fires", "counts", "asks"
# Next event -> point behind it -> packets.  There is no point behind a verdict: ().
NextEvents = dict[NextEvent, dict[ProgramPoint, "Set"]]
Continue = Callable[[ProgramPoint, "Set"], None]  # lets packets continue from a point


class MatchRef(NamedTuple):
    """A match: its rule, and where both are."""

    chain: str
    rule_index: int
    match_index: int
    rule: Rule

    @property
    def match(self) -> Match:
        return self.rule.matches[self.match_index]

    def __str__(self) -> str:
        where = f"line {self.rule.line}" if self.rule.line else f"rule {self.rule_index + 1}"
        return f"{where} of {self.chain}"


# ---- summaries ----


class Summary:
    """What a list of rules does whose only events are verdicts.

    ends    by verdict: the packets that get it
    leaves  packets that leave the chain (RETURN, or the end of a chain entered by -g)
    misses  packets that continue behind the list
    """

    __slots__ = ("ends", "leaves", "misses")

    def __init__(self, ends: dict[str, Set], leaves: Set, misses: Set) -> None:
        self.ends, self.leaves, self.misses = ends, leaves, misses

    def then(self, other: Summary) -> Summary:
        """This list, and *other* behind it."""
        ends = dict(self.ends)
        for verdict, packets in other.ends.items():
            add(ends, verdict, self.misses & packets)
        return Summary(ends, self.leaves | (self.misses & other.leaves), self.misses & other.misses)


class Span:
    """Rules *first* to *last* of a chain, and the packets that one of them matches or drops: *touches*.

    It has a summary, or is one rule with an event, or has two halves.
    """

    __slots__ = ("first", "halves", "last", "summary", "touches")

    def __init__(
        self,
        first: int,
        last: int,
        touches: Set,
        summary: Summary | None = None,
        halves: tuple[Span, Span] | None = None,
    ) -> None:
        self.first, self.last, self.touches = first, last, touches
        self.summary, self.halves = summary, halves


# ---- the program ----


class ProgramReader:
    """One table of one program, as one backend reads it from the chain *start*."""

    def __init__(
        self,
        table: Table,
        start: str,
        backend: Backend,
        sets: PacketSets,
        verdict_only: bool,
        deadline: Deadline,
    ) -> None:
        self.sets, self.backend, self.verdict_only, self._deadline = sets, backend, verdict_only, deadline
        order = callers_first(table, start)
        self.chains = [table[name] for name in order]
        self._numbers = {name: number for number, name in enumerate(order)}
        self._policy = table[start].policy or RETURNS
        self._summaries: dict[int, Summary] = {}  # by chain without events but verdicts
        self._spans: dict[int, Span] = {}  # by each other chain
        for number in reversed(range(len(self.chains))):
            self._summarize_chain(number)

    def start(self) -> ProgramPoint:
        return self._normal((0, 0, 0), ())

    def split(self, point: ProgramPoint, packets: Set) -> NextEvents:
        """The next events of *packets* at *point*, and the points behind them."""
        events: NextEvents = {}
        waiting: dict[ProgramPoint, Set] = {point: packets}
        queue = [(reading_order(point), point)]

        def go_on(point: ProgramPoint, packets: Set) -> None:
            if packets.satisfiable():
                if point not in waiting:
                    heappush(queue, (reading_order(point), point))
                add(waiting, point, packets)

        while queue:
            self._deadline.tick()
            _, point = heappop(queue)
            packets = waiting.pop(point)
            if point:
                self._read(point, packets, events, go_on)
            else:
                _record(events, NextEvent(VERDICT, self._policy), (), packets)
        return events

    def asked(self, point: ProgramPoint) -> MatchRef:
        """The match whose answer "yes" leads to *point*."""
        number, rule, index = point[-1]
        chain = self.chains[number]
        return MatchRef(chain.name, rule, index - 1, chain.rules[rule])

    def after_no(self, point: ProgramPoint) -> ProgramPoint:
        """Where a packet continues when the match that leads to *point* answers "no"."""
        number, rule, _ = point[-1]
        return self._normal((number, rule + 1, 0), point[:-1])

    # ---- reading from a point ----

    def _read(self, point: ProgramPoint, packets: Set, events: NextEvents, go_on: Continue) -> None:
        """Read the innermost chain from *point* to the next event or jump of each packet."""
        callers, (number, rule, match) = point[:-1], point[-1]
        if number in self._summaries:
            assert rule == match == 0, "a point inside a summarized chain"
            packets = self._apply(self._summaries[number], packets, events, callers, go_on)
        else:
            if match:
                packets = self._rule(callers, (number, rule, match), packets, events, go_on)
                rule += 1
            packets = self._descend(self._spans[number], callers, (number, rule, 0), packets, events, go_on)
        go_on(callers, packets)

    def _descend(
        self,
        span: Span,
        callers: ProgramPoint,
        start: Frame,
        packets: Set,
        events: NextEvents,
        go_on: Continue,
    ) -> Set:
        """Read the rules of *span* from *start* on; returns the packets that pass them."""
        number, rule, _ = start
        if span.last < rule or not (packets & span.touches).satisfiable():
            return packets
        if span.summary is not None:
            assert span.first >= rule, "a point inside summarized rules"
            return self._apply(span.summary, packets, events, callers, go_on)
        if span.halves is None:
            return self._rule(callers, (number, span.first, 0), packets, events, go_on)
        for half in span.halves:
            packets = self._descend(half, callers, start, packets, events, go_on)
            if not packets.satisfiable():
                break
        return packets

    def _apply(
        self, summary: Summary, packets: Set, events: NextEvents, callers: ProgramPoint, go_on: Continue
    ) -> Set:
        for verdict, ending in summary.ends.items():
            _record(events, NextEvent(VERDICT, verdict), (), packets & ending)
        go_on(callers, packets & summary.leaves)
        return packets & summary.misses

    def _rule(
        self, callers: ProgramPoint, frame: Frame, packets: Set, events: NextEvents, go_on: Continue
    ) -> Set:
        """Read one rule, from one of its matches on; returns the packets that continue behind it at once."""
        self._deadline.tick()
        number, at, first = frame
        rule = self.chains[number].rules[at]
        passing = packets
        for index, match in enumerate(rule.matches[first:], first):
            does = self.sets.match(match, self.backend)
            dropped = passing & does.drops
            if dropped.satisfiable():
                _record(events, NextEvent(VERDICT, DROP), (), dropped)
                packets &= ~dropped
            passing &= does.holds
            if is_asked(match):
                _record(events, NextEvent(ASKS, match.key), (*callers, (number, at, index + 1)), passing)
                return packets & ~passing
        packets &= ~passing
        if not passing.satisfiable():
            return packets
        target, behind = rule.target, self._normal((number, at + 1, 0), callers)
        effect = self._effect(target)
        if effect is not None:
            _record(events, effect, behind, passing)
            return packets
        if target is None or (target.kind is Kind.VERDICT and not target.is_final):
            return packets | passing
        if target.is_final:
            _record(events, NextEvent(VERDICT, target.key), (), passing)
        elif target.kind is Kind.RETURN:
            go_on(callers, passing)
        elif target.kind is Kind.GOTO:
            go_on(self._normal((self._numbers[target.name], 0, 0), callers), passing)
        else:
            # The packets that do not match wait for those that come back: one set from there on.
            entered = self._numbers[target.name]
            below = (*callers, (number, at + 1, 0)) if at + 1 < len(self.chains[number].rules) else callers
            go_on(self._normal((entered, 0, 0), below), passing)
            go_on(behind, packets)
            return self.sets.nothing
        return packets

    def _normal(self, frame: Frame, callers: ProgramPoint) -> ProgramPoint:
        """The point in its one spelling: a chain that is at its end is left."""
        number, rule, _ = frame
        return callers if rule >= len(self.chains[number].rules) else (*callers, frame)

    # ---- summaries of chains ----

    def _summarize_chain(self, number: int) -> None:
        """Summarize a chain; all that it enters are summarized."""
        spans: list[Span] = []
        run: list[Summary] = []
        rules = self.chains[number].rules
        for at, rule in enumerate(rules):
            self._deadline.tick()
            summary = self._summary(rule)
            if summary is not None:
                run.append(summary)
                continue
            if run:
                spans.append(self._summarized_span(at - len(run), run))
                run = []
            spans.append(Span(at, at, self._touched(rule)))
        if run:
            spans.append(self._summarized_span(len(rules) - len(run), run))
        if all(span.summary is not None for span in spans):
            assert len(spans) <= 1, "summarized rules in a row are one span"
            whole = spans[0].summary if spans else None
            if whole is None:
                self._summaries[number] = Summary({}, self.sets.everything, self.sets.nothing)
            else:
                self._summaries[number] = Summary(whole.ends, whole.leaves | whole.misses, self.sets.nothing)
        else:
            while len(spans) > 1:
                halves = zip(spans[::2], spans[1::2], strict=False)
                joined = [Span(a.first, b.last, a.touches | b.touches, None, (a, b)) for a, b in halves]
                spans = joined + spans[len(spans) & ~1 :]
            self._spans[number] = spans[0]

    def _summarized_span(self, first: int, rules: list[Summary]) -> Span:
        last = first + len(rules) - 1
        while len(rules) > 1:
            self._deadline.tick()
            joined = [one.then(other) for one, other in zip(rules[::2], rules[1::2], strict=False)]
            rules = joined + rules[len(rules) & ~1 :]
        return Span(first, last, ~rules[0].misses, rules[0])

    def _summary(self, rule: Rule) -> Summary | None:
        """What *rule* does; None when it, or a chain that it enters, may have an effect."""
        target = rule.target
        if self._effect(target) is not None or any(map(is_asked, rule.matches)):
            return None
        entered: Summary | None = None
        if rule.enters is not None:
            entered = self._summaries.get(self._numbers[rule.enters])
            if entered is None:
                return None
        holds, drops = self._filter(rule)
        ends: dict[str, Set] = {}
        add(ends, DROP, drops)
        nothing = self.sets.nothing
        if entered is not None:
            for verdict, packets in entered.ends.items():
                add(ends, verdict, holds & packets)
            back = holds & entered.leaves
            if target is not None and target.kind is Kind.GOTO:
                return Summary(ends, back, ~(holds | drops))
            return Summary(ends, nothing, ~(holds | drops) | back)
        if target is not None and target.kind is Kind.RETURN:
            return Summary(ends, holds, ~(holds | drops))
        if target is not None and target.is_final:
            add(ends, target.key, holds)
            return Summary(ends, nothing, ~(holds | drops))
        return Summary(ends, nothing, ~drops)

    def _filter(self, rule: Rule) -> tuple[Set, Set]:
        """Packets that pass all matches of *rule* or reach its first with memory; and those dropped."""
        holds, drops = self.sets.everything, self.sets.nothing
        for match in rule.matches:
            does = self.sets.match(match, self.backend)
            drops |= holds & does.drops
            holds &= does.holds
            if is_asked(match):
                break
        return holds, drops

    def _touched(self, rule: Rule) -> Set:
        holds, drops = self._filter(rule)
        return holds | drops

    def _effect(self, target: Target | None) -> NextEvent | None:
        """The event when *target* fires and the packet continues; None: it does not continue, or no event."""
        if target is None:
            return None if self.verdict_only else NextEvent(COUNTS)
        if target.kind is not Kind.VERDICT or target.is_final:
            return None
        silent = target.ends is Ends.NEVER and not target.writes
        return None if self.verdict_only and silent else NextEvent(FIRES, target.key)


def is_asked(match: Match) -> bool:
    """Whether *match* has memory or chance."""
    return match.role in (Role.NAMED, Role.ONCE)


def callers_first(table: Table, *starts: str) -> list[str]:
    """Every chain that *starts* reach, behind all those that enter it.

    Unsupported when a chain reaches itself, or enters one that does not exist.
    """
    enters: dict[str, list[str]] = {}
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name in enters:
            continue
        enters[name] = []
        for rule in table[name].rules:
            if rule.enters is None:
                continue
            if rule.enters not in table:
                where = f"table {table.name}, chain {name}, line {rule.line}"
                raise Unsupported(f"{where}: there is no chain {rule.enters}")
            enters[name].append(rule.enters)
        waiting += enters[name]
    try:
        return list(TopologicalSorter(enters).static_order())[::-1]
    except CycleError as error:
        # Its path lists the chain entered before the one that enters it.
        loop = " -> ".join(reversed(error.args[1]))
        raise Unsupported(f"table {table.name}: a loop of jumps: {loop}") from None


def _record(events: NextEvents, event: NextEvent, behind: ProgramPoint, packets: Set) -> None:
    if packets.satisfiable():
        add(events.setdefault(event, {}), behind, packets)


def add(sets: dict[Key, Set], key: Key, packets: Set) -> None:
    """Add *packets* to those of *key*."""
    earlier = sets.get(key)
    sets[key] = packets if earlier is None else earlier | packets
