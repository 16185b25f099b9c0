"""Two programs, compared by decision diagrams: a proof, or a packet.

A second opinion, which shares no code with the other engines.  Both programs are walked at
once, with sets of packets in place of a packet.  Between two effects a program decides
nothing that anyone sees; so from a pair of places, one in each program, the set that stands
there is split by what is seen next: an effect, and the place behind it, or the verdict.  Where
the two sides of the split disagree, there is a difference; where they agree, the walk goes on
from the pair of places behind the effect.  The effects so far were alike in both, so of the
past nothing needs to be known: when an effect writes a field, its old value is forgotten, and
the outcome of a match with memory or chance is three ways to go on.

Invariants: a set that stands at a pair of places holds exactly the packets that come there.
Pairs are taken in the order in which rules are read, so each is complete when it is taken.

Memory of a rule (ONCE): the rules of the two programs that are asked for the same packet are a
pair, and each has one partner at most.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from hitables.errors import Disagreement, Unsupported
from hitables.ir import semantics
from hitables.ir.fields import Family, Field
from hitables.ir.headers import inconsistency, is_malformed
from hitables.ir.packet import Backend, Outcome
from hitables.ir.packet_text import Answers, listening, show_packet
from hitables.ir.program import Program, Table
from hitables.ir.rule import Ends, Kind, Match, Role, Rule, State, Target
from hitables.ir.semantics import DROP, FIELDS_WRITTEN, RETURNS

from ..ir.hooks import hook_box
from .bdd_sets import PacketSets, Point
from .question import Answer, Difference, Equal, Question, Undecided, differs, places

if TYPE_CHECKING:
    from oxidd.bcdd import BCDDFunction as Set

Key = TypeVar("Key")


def check(before: Program, after: Program, question: Question) -> Answer:
    """A proof that the two are equal, the first difference found, or that the budget ran out.

    User chains count where a built-in chain reaches them, or where the question names them.
    """
    chains = places(before, after, question)
    clock = _Clock(question.timeout)
    classes = 0
    for name in dict.fromkeys(table for table, _ in chains):
        pair = before.table(name), after.table(name)
        starts = [chain for table, chain in chains if table == name]
        answer = _Tables(pair, starts, before.family, question, clock).answer()
        if not isinstance(answer, Equal):
            return answer
        classes += answer.looked_at
    return Equal(True, classes)


class _TimeIsUp(Exception):
    pass


class _Clock:
    """Says when time is up.  One operation on sets is not interrupted."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def tick(self) -> None:
        if self._end is not None and time.monotonic() > self._end:
            raise _TimeIsUp


# ---- one program ----

# A place in a program: (chain's number, rule, match) to be read next in each chain entered and
# not left, the outermost first.  Empty: at the end of the built-in chain.  Chains are numbered
# callers first, so that what is read later is greater (`_order`).
Frame = tuple[int, int, int]
Place = tuple[Frame, ...]


def _order(place: Place) -> tuple[tuple[float, ...], ...]:
    """Greater for what is read later; a chain's caller goes on when the chain is done."""
    return (*place, (inf,))


@dataclass(frozen=True)
class Seen:
    """What is seen of a program next: a verdict, or an effect, by the key of the target or match."""

    kind: str  # VERDICT, FIRES, COUNTS, ASKS
    key: str = ""


VERDICT, FIRES, COUNTS, ASKS = "verdict", "fires", "counts", "asks"
# What is seen next -> place behind it -> packets.  A verdict has no place behind it: ().
Split = dict[Seen, dict[Place, "Set"]]


class _Silent:
    """What a list of rules does in which nothing is seen but verdicts.

    ends    by verdict: packets whose way ends in it
    leaves  packets that leave the chain (RETURN, or the end of a chain entered by -g)
    misses  packets that go on behind the list
    """

    __slots__ = ("ends", "leaves", "misses")

    def __init__(self, ends: dict[str, Set], leaves: Set, misses: Set) -> None:
        self.ends, self.leaves, self.misses = ends, leaves, misses

    def then(self, other: _Silent) -> _Silent:
        """This list, and *other* behind it."""
        ends = dict(self.ends)
        for verdict, packets in other.ends.items():
            _add(ends, verdict, self.misses & packets)
        return _Silent(ends, self.leaves | (self.misses & other.leaves), self.misses & other.misses)


class _Span:
    """Rules *first* to *last* of a chain, and the packets that any of them *touches*.

    Either silent, or one rule that is not, or two spans.
    """

    __slots__ = ("first", "halves", "last", "silent", "touches")

    def __init__(
        self,
        first: int,
        last: int,
        touches: Set,
        silent: _Silent | None = None,
        halves: tuple[_Span, _Span] | None = None,
    ) -> None:
        self.first, self.last, self.touches = first, last, touches
        self.silent, self.halves = silent, halves


class _Reader:
    """One table of one program, as one backend reads it from the chain *start*."""

    def __init__(
        self, table: Table, start: str, backend: Backend, sets: PacketSets, verdict_only: bool, clock: _Clock
    ) -> None:
        self.sets, self.backend, self.verdict_only, self._clock = sets, backend, verdict_only, clock
        order = callers_first(table, start)
        self.chains = [table[name] for name in order]
        self._numbers = {name: number for number, name in enumerate(order)}
        self._policy = table[start].policy or RETURNS
        self._silent: dict[int, _Silent] = {}  # by chain in which nothing but verdicts is seen
        self._spans: dict[int, _Span | None] = {}  # by each other chain; None: it is empty
        for number in reversed(range(len(self.chains))):
            self._prepare(number)

    def enter(self) -> Place:
        return self._normal((0, 0, 0), ())

    def split(self, place: Place, packets: Set) -> Split:
        """What is seen next of *packets* that stand at *place*, and where they are then."""
        seen: Split = {}
        waiting: dict[Place, Set] = {place: packets}
        queue = [(_order(place), place)]

        def go(place: Place, packets: Set) -> None:
            if packets.satisfiable():
                if place not in waiting:
                    heappush(queue, (_order(place), place))
                _add(waiting, place, packets)

        while queue:
            self._clock.tick()
            _, place = heappop(queue)
            packets = waiting.pop(place)
            if place:
                self._read(place, packets, seen, go)
            else:
                _see(seen, Seen(VERDICT, self._policy), (), packets)
        return seen

    def asked(self, place: Place) -> _Site:
        """The match that was asked on the way to *place*, where its yes leads."""
        number, at, index = place[-1]
        chain = self.chains[number]
        return _Site(chain.name, at, index - 1, chain.rules[at])

    def behind(self, place: Place) -> Place:
        """Where a packet goes on from, when the match asked on the way to *place* says no."""
        number, at, _ = place[-1]
        return self._normal((number, at + 1, 0), place[:-1])

    # ---- reading with places ----

    def _read(self, place: Place, packets: Set, seen: Split, go: Callable[[Place, Set], None]) -> None:
        """Read the chain on top from its place on, as far as something is seen or entered."""
        callers, (number, at, match) = place[:-1], place[-1]
        if number in self._silent:
            assert at == match == 0, "a place within a chain in which nothing is seen"
            packets = self._apply(self._silent[number], packets, seen, callers, go)
        else:
            if match:
                packets = self._rule(callers, (number, at, match), packets, seen, go)
                at += 1
            span = self._spans[number]
            assert span is not None, "a place in an empty chain"
            packets = self._descend(span, callers, (number, at, 0), packets, seen, go)
        go(callers, packets)

    def _descend(
        self,
        span: _Span,
        callers: Place,
        start: Frame,
        packets: Set,
        seen: Split,
        go: Callable[[Place, Set], None],
    ) -> Set:
        """Read the rules of *span* that do not stand before *start*; the packets that pass them."""
        number, at, _ = start
        if span.last < at or not (packets & span.touches).satisfiable():
            return packets
        if span.silent is not None:
            assert span.first >= at, "a place within rules of which nothing is seen"
            return self._apply(span.silent, packets, seen, callers, go)
        if span.halves is None:
            return self._rule(callers, (number, span.first, 0), packets, seen, go)
        for half in span.halves:
            packets = self._descend(half, callers, start, packets, seen, go)
            if not packets.satisfiable():
                break
        return packets

    def _apply(
        self, silent: _Silent, packets: Set, seen: Split, callers: Place, go: Callable[[Place, Set], None]
    ) -> Set:
        for verdict, ending in silent.ends.items():
            _see(seen, Seen(VERDICT, verdict), (), packets & ending)
        go(callers, packets & silent.leaves)
        return packets & silent.misses

    def _rule(
        self, callers: Place, frame: Frame, packets: Set, seen: Split, go: Callable[[Place, Set], None]
    ) -> Set:
        """One rule, from one of its matches on; the packets that go on behind it at once."""
        self._clock.tick()
        number, at, first = frame
        rule = self.chains[number].rules[at]
        passing = packets
        for index, match in enumerate(rule.matches[first:], first):
            does = self.sets.match(match, self.backend)
            dropped = passing & does.drops
            if dropped.satisfiable():
                _see(seen, Seen(VERDICT, DROP), (), dropped)
                packets &= ~dropped
            passing &= does.holds
            if _is_asked(match):
                _see(seen, Seen(ASKS, match.key), (*callers, (number, at, index + 1)), passing)
                return packets & ~passing
        packets &= ~passing
        if not passing.satisfiable():
            return packets
        target, behind = rule.target, self._normal((number, at + 1, 0), callers)
        effect = self._effect(target)
        if effect is not None:
            _see(seen, effect, behind, passing)
            return packets
        if target is None or (target.kind is Kind.VERDICT and target.ends is not Ends.SURELY):
            return packets | passing
        if target.kind is Kind.VERDICT:
            _see(seen, Seen(VERDICT, target.key), (), passing)
        elif target.kind is Kind.RETURN:
            go(callers, passing)
        elif target.kind is Kind.GOTO:
            go(self._normal((self._numbers[target.name], 0, 0), callers), passing)
        else:
            # What does not match waits for what comes back: they are one set from there on.
            entered = self._numbers[target.name]
            below = (*callers, (number, at + 1, 0)) if at + 1 < len(self.chains[number].rules) else callers
            go(self._normal((entered, 0, 0), below), passing)
            go(behind, packets)
            return self.sets.nothing
        return packets

    def _normal(self, frame: Frame, callers: Place) -> Place:
        """The place as it is written when the chain on top may be done."""
        number, at, _ = frame
        return callers if at >= len(self.chains[number].rules) else (*callers, frame)

    # ---- what is known of each chain before any packet comes ----

    def _prepare(self, number: int) -> None:
        """Sum up a chain; all that it enters are."""
        spans: list[_Span] = []
        run: list[_Silent] = []
        rules = self.chains[number].rules
        for at, rule in enumerate(rules):
            self._clock.tick()
            silent = self._sum_up(rule)
            if silent is not None:
                run.append(silent)
                continue
            if run:
                spans.append(self._silent_span(at - len(run), run))
                run = []
            spans.append(_Span(at, at, self._touched(rule)))
        if run:
            spans.append(self._silent_span(len(rules) - len(run), run))
        if all(span.silent is not None for span in spans):
            assert len(spans) <= 1, "silent rules in a row are one span"
            known = spans[0].silent if spans else None
            if known is None:
                self._silent[number] = _Silent({}, self.sets.everything, self.sets.nothing)
            else:
                self._silent[number] = _Silent(known.ends, known.leaves | known.misses, self.sets.nothing)
        else:
            while len(spans) > 1:
                halves = zip(spans[::2], spans[1::2], strict=False)
                joined = [_Span(a.first, b.last, a.touches | b.touches, None, (a, b)) for a, b in halves]
                spans = joined + spans[len(spans) & ~1 :]
            self._spans[number] = spans[0]

    def _silent_span(self, first: int, rules: list[_Silent]) -> _Span:
        last = first + len(rules) - 1
        while len(rules) > 1:
            self._clock.tick()
            joined = [one.then(other) for one, other in zip(rules[::2], rules[1::2], strict=False)]
            rules = joined + rules[len(rules) & ~1 :]
        return _Span(first, last, ~rules[0].misses, rules[0])

    def _sum_up(self, rule: Rule) -> _Silent | None:
        """What *rule* does; None when an effect may be seen of it, or in a chain that it enters."""
        target = rule.target
        if self._effect(target) is not None or any(map(_is_asked, rule.matches)):
            return None
        entered: _Silent | None = None
        if target is not None and target.kind in (Kind.JUMP, Kind.GOTO):
            entered = self._silent.get(self._numbers[target.name])
            if entered is None:
                return None
        holds, drops = self._filter(rule)
        ends: dict[str, Set] = {}
        _add(ends, DROP, drops)
        nothing = self.sets.nothing
        if entered is not None:
            for verdict, packets in entered.ends.items():
                _add(ends, verdict, holds & packets)
            back = holds & entered.leaves
            if target is not None and target.kind is Kind.GOTO:
                return _Silent(ends, back, ~(holds | drops))
            return _Silent(ends, nothing, ~(holds | drops) | back)
        if target is not None and target.kind is Kind.RETURN:
            return _Silent(ends, holds, ~(holds | drops))
        if target is not None and target.ends is Ends.SURELY:
            _add(ends, target.key, holds)
            return _Silent(ends, nothing, ~(holds | drops))
        return _Silent(ends, nothing, ~drops)

    def _filter(self, rule: Rule) -> tuple[Set, Set]:
        """Packets that pass all matches of *rule*, or come to the first that is asked; and those dropped."""
        holds, drops = self.sets.everything, self.sets.nothing
        for match in rule.matches:
            does = self.sets.match(match, self.backend)
            drops |= holds & does.drops
            holds &= does.holds
            if _is_asked(match):
                break
        return holds, drops

    def _touched(self, rule: Rule) -> Set:
        holds, drops = self._filter(rule)
        return holds | drops

    def _effect(self, target: Target | None) -> Seen | None:
        """What is seen when *target* fires and the packet goes on; None: it does not, or nothing."""
        if target is None:
            return None if self.verdict_only else Seen(COUNTS)
        if target.kind is not Kind.VERDICT or target.ends is Ends.SURELY:
            return None
        silent = target.ends is Ends.NEVER and not target.writes
        return None if self.verdict_only and silent else Seen(FIRES, target.key)


def _is_asked(match: Match) -> bool:
    """Whether *match* has memory or chance."""
    return match.role in (Role.NAMED, Role.ONCE)


def _see(seen: Split, what: Seen, behind: Place, packets: Set) -> None:
    if packets.satisfiable():
        _add(seen.setdefault(what, {}), behind, packets)


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
            target = rule.target
            if target is None or target.kind not in (Kind.JUMP, Kind.GOTO):
                continue
            if target.name not in table:
                place = f"table {table.name}, chain {name}, line {rule.line}"
                raise Unsupported(f"{place}: there is no chain {target.name}")
            enters[name].append(target.name)
        waiting += enters[name]
    try:
        return list(TopologicalSorter(enters).static_order())[::-1]
    except CycleError as error:
        # Its path has who is entered in front of who enters.
        loop = " -> ".join(reversed(error.args[1]))
        raise Unsupported(f"table {table.name}: a loop of jumps: {loop}") from None


class _Site(NamedTuple):
    """A match in its place."""

    chain: str
    rule_index: int
    match_index: int
    rule: Rule

    @property
    def match(self) -> Match:
        return self.rule.matches[self.match_index]

    def __str__(self) -> str:
        place = f"line {self.rule.line}" if self.rule.line else f"rule {self.rule_index + 1}"
        return f"{place} of {self.chain}"


# ---- both programs at once ----

Places = tuple[Place, Place]


@dataclass(frozen=True)
class _Came:
    """How packets came to a pair of places: from where, which, and what was seen on the way."""

    origin: Places
    packets: Set
    seen: Seen
    writes: frozenset[State] = frozenset()
    outcome: Outcome | None = None


class _Compared:
    """One chain of both programs, as one backend reads it."""

    def __init__(
        self, sets: PacketSets, readers: tuple[_Reader, _Reader], chain: str, tables: _Tables
    ) -> None:
        self.sets, self.readers, self.tables, self.chain = sets, readers, tables, chain
        self.first = sets.exist & sets.box(hook_box(chain, sets.family))
        self.start = readers[0].enter(), readers[1].enter()
        self.stand: dict[Places, Set] = {self.start: self.first}  # those not taken yet
        self.came: dict[Places, list[_Came]] = {}
        self.classes = 0

    def walk(self) -> Difference | None:
        queue = [(_order(self.start[0]), _order(self.start[1]), self.start)]
        while queue:
            self.tables.clock.tick()
            *_, at = heappop(queue)
            packets = self.stand[at]
            splits = self.readers[0].split(at[0], packets), self.readers[1].split(at[1], packets)
            apart = self._apart(*splits)
            if apart is not None:
                return self.tables.confirm(self, self._trace(at, self.sets.plainest(apart)))
            for came, reached in self._steps(at, *splits):
                if came.seen.kind == ASKS and (difference := self.tables.pair_up(self, reached)):
                    return difference
                for step, goal in self._ways(came, reached):
                    if goal not in self.stand:
                        heappush(queue, (_order(goal[0]), _order(goal[1]), goal))
                    self.came.setdefault(goal, []).append(step)
                    _add(self.stand, goal, self.sets.forget(step.packets, step.writes))
            del self.stand[at]
        return None

    def done(self) -> float:
        """Of the classes of packets, the share of which nothing is left to be decided."""
        left = sum(self.sets.share(packets, self.first) for packets in self.stand.values())
        return max(0.0, 1.0 - left)

    def _apart(self, before: Split, after: Split) -> Set | None:
        """Packets of which different things are seen next."""
        nothing = self.sets.nothing
        sides = [
            {what: _union(at.values(), nothing) for what, at in split.items()} for split in (before, after)
        ]
        allowed = nothing
        if self.tables.question.malformed == "stricter":
            allowed = self.sets.malformed & sides[1].get(Seen(VERDICT, DROP), nothing)
        for what, packets in sides[0].items():
            self.tables.clock.tick()
            apart = packets & ~sides[1].get(what, nothing) & ~allowed
            if apart.satisfiable():
                return apart
        return None

    def _steps(self, at: Places, before: Split, after: Split) -> Iterator[tuple[_Came, Places]]:
        """What is seen of both, and the places behind it."""
        for what, sources in before.items():
            if what.kind == VERDICT:
                self.classes += 1
                continue
            writes = self.tables.writes_of(what)
            others = dict(after.get(what, {}))
            for one, packets in sources.items():
                for other in list(others):
                    both = packets & others[other]
                    if not both.satisfiable():
                        continue
                    self.classes += 1
                    yield _Came(at, both, what, writes), (one, other)
                    packets &= ~both
                    others[other] &= ~both
                    if not others[other].satisfiable():
                        del others[other]
                    if not packets.satisfiable():
                        break

    def _ways(self, came: _Came, reached: Places) -> Iterator[tuple[_Came, Places]]:
        """How it goes on: after a question with yes, and with no ("dropped" ends both alike)."""
        if came.seen.kind != ASKS:
            yield came, reached
            return
        one, other = self.readers
        yield replace(came, outcome=Outcome.YES), reached
        yield replace(came, outcome=Outcome.NO), (one.behind(reached[0]), other.behind(reached[1]))

    def _trace(self, at: Places, point: Point) -> list[tuple[Point, _Came | None]]:
        """The packet's way to *at*, where it is *point*: what it was at each pair of places before
        something was seen of it, and that."""
        way: list[tuple[Point, _Came | None]] = [(point, None)]
        while at != self.start:
            # One of those who came here must have brought it.
            for came in self.came[at]:
                origins = self.sets.before(came.packets, point, came.writes)
                if origins.satisfiable():
                    break
            else:
                raise AssertionError("a packet that came from nowhere")
            point = self.sets.plainest(origins)
            way.append((point, came))
            at = came.origin
        return way[::-1]


class _Tables:
    """One table of both programs, and what is asked of them."""

    def __init__(
        self, pair: tuple[Table, Table], starts: list[str], family: Family, question: Question, clock: _Clock
    ) -> None:
        self.pair, self.starts, self.question, self.clock = pair, starts, question, clock
        self.family = family
        self.backend = question.backends[0] if question.backends else Backend.LEGACY
        self.partners: dict[tuple[Backend, bool, tuple[str, int, int]], _Site] = {}
        self._rules = [
            rule for table in pair for name in callers_first(table, *starts) for rule in table[name].rules
        ]
        targets = [rule.target for rule in self._rules if rule.target is not None]
        asked = [match for rule in self._rules for match in rule.matches if _is_asked(match)]
        self._fired_writes = {target.key: target.writes for target in targets}
        self._asked_writes = {match.key: match.writes for match in asked}
        self._odd = next(
            (each.key for each in targets if each.writes != self._fired_writes[each.key]), None
        ) or next((each.key for each in asked if each.writes != self._asked_writes[each.key]), None)

    def writes_of(self, what: Seen) -> frozenset[State]:
        """The states that an effect may change."""
        if what.kind == FIRES:
            return self._fired_writes[what.key]
        return self._asked_writes[what.key] if what.kind == ASKS else frozenset()

    def answer(self) -> Answer:
        compared: _Compared | None = None
        chain, backend = self.starts[0] if self.starts else "", self.backend
        classes = 0
        try:
            matches = (match for rule in self._rules for match in rule.matches)
            sets = PacketSets(self.family, matches, self.question.max_memory)
            odd = self._odd or sets.odd
            if odd is not None:
                reason = f"{odd!r} is spelt alike and reads or writes different things"
                return Undecided(reason, self.pair[0].name, chain, backend, 0.0)
            for chain in self.starts:
                for backend in self.question.backends:
                    compared, self.backend = None, backend
                    one, other = (
                        _Reader(table, chain, backend, sets, self.question.verdict_only, self.clock)
                        for table in self.pair
                    )
                    compared = _Compared(sets, (one, other), chain, self)
                    difference = compared.walk()
                    if difference is not None:
                        return difference
                    classes += compared.classes
        except (_TimeIsUp, MemoryError) as error:
            reason = "the time is up" if isinstance(error, _TimeIsUp) else "the memory is used up"
            done = compared.done() if compared is not None else 0.0
            return Undecided(reason, self.pair[0].name, chain, backend, done)
        return Equal(True, classes)

    def pair_up(self, compared: _Compared, reached: Places) -> Difference | None:
        """Note that two matches with memory of their own are one; a difference when one has another
        partner already."""
        one, other = (reader.asked(place) for reader, place in zip(compared.readers, reached, strict=True))
        if Role.ONCE not in (one.match.role, other.match.role):
            return None
        for is_after, site, partner in ((False, one, other), (True, other, one)):
            known = self.partners.setdefault((self.backend, is_after, site[:3]), partner)
            if known[:3] != partner[:3]:
                sides = ("after", "before") if is_after else ("before", "after")
                reason = (
                    f"{site.match.key!r} has memory of its own: {sides[0]} it stands in {site} alone, "
                    f"{sides[1]} it is {known} for some packets and {partner} for others"
                )
                return Difference(self.pair[0].name, compared.chain, reason, self.backend)
        return None

    def confirm(self, compared: _Compared, way: list[tuple[Point, _Came | None]]) -> Difference:
        """The difference that semantics finds on the packet that goes this way."""
        sets = compared.sets
        packet, listened = listening(_answers(sets, way).given_by(sets.packet(way[0][0])))
        before, after = (semantics.run(each, compared.chain, packet, self.backend) for each in self.pair)
        may_drop = is_malformed(packet) and self.question.malformed == "stricter"
        reason = differs(before, after, may_drop, self.question.verdict_only)
        table = self.pair[0].name
        if reason is None or inconsistency(packet) is not None:
            spelled = show_packet(packet, table, compared.chain, listened)
            said = "is a packet that cannot be" if reason is not None else "semantics finds no difference"
            raise Disagreement(
                f"decision diagrams find a difference that does not stand ({said}); this is a fault of "
                f"hitables, please report it with the rule set ({self.backend.value}: {spelled})"
            )
        return Difference(
            table, compared.chain, reason, self.backend, listened.given_by(packet), listened, before, after
        )


def _answers(sets: PacketSets, way: list[tuple[Point, _Came | None]]) -> Answers:
    """What the packet that goes this way says when it is asked."""
    answers = Answers()
    writes: Counter[State] = Counter()
    events = 0
    for point, came in way:
        for key, reads in sets.reads.items():
            answers.facts[key, sum(writes[state] for state in reads)] = sets.fact(point, key)
        for field in Field:
            written = sum(writes[state] for state, fields in FIELDS_WRITTEN.items() if field in fields)
            if written:
                answers.rewrites[field, written] = sets.value(point, field)
        if came is not None:
            if came.outcome is not None:
                answers.outcomes[came.seen.key, events] = came.outcome
                events += 1
            writes.update(came.writes)
    return answers


def _add(sets: dict[Key, Set], key: Key, packets: Set) -> None:
    """Put *packets* to those of *key*."""
    known = sets.get(key)
    sets[key] = packets if known is None else known | packets


def _union(sets: Iterable[Set], nothing: Set) -> Set:
    found = nothing
    for each in sets:
        found |= each
    return found
