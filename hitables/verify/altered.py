"""Whether altering one rule of a table changes anything, by comparing the table with itself.

Idea: the table stands twice in a prover, for each class of packets; a rule is marked, left out or removed in
one or both of them.  Cheap runs come before the long one:
- on a packet that showed a difference for this rule, or for another one, changed so that this one matches it:
  packets come to most rules of a chain in the same way;
- on packets that are drawn at random;
- on the rule's chain by itself, for a chain that does the same whatever enters it does so on each way to it;
- on a packet for which the chain by itself differs;
- on all packets, up to a bound.
Of the last ones those come first that decided most in the class, of late.

Invariant: exact, as the prover is.

Cost: a run from a built-in chain on reads the rules that its packets may match, and the chains on the ways;
most rules are decided by a packet, or by the runs on their chain.
"""

from __future__ import annotations

import functools
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from random import Random
from typing import NamedTuple

from hitables.core.prover import Alteration, PairRun, Prover, ProveStatus
from hitables.ir.fields import Family, Field
from hitables.ir.packet import Backend
from hitables.ir.program import Chain, Table
from hitables.ir.rule import Rule

from .deadline import Deadline
from .encoding import Encoding
from .exact import WHY
from .match_box import MatchBox
from .packet_classes import PacketClass
from .question import Question
from .reachability import Reachability, policies_behind
from .region_words import Point, RegionWords, words_of

ENDS = (Field.SRC, Field.DST, Field.SPORT, Field.DPORT)  # by which one rule often keeps packets from another
FEW = 256  # rules: in a table of fewer the whole set of packets is compared at once
FEW_POINTS = 8  # packets tried first, while these help
FEW_ITEMS, MORE_POINTS = 20_000, 4  # of runs before the long one; packets tried where these do not suffice
MOST_UNDECIDED, PAYS_FOR = 20, 3  # tries of one kind that may decide nothing before others come first
MOST_SHOWN = 4  # packets of a chain that showed a difference: rules of tcp and of udp often alternate


class OutOfBudget(Exception):
    """The time or the memory ran out."""


def check(status: ProveStatus) -> None:
    """OutOfBudget unless the run came to its end."""
    if status not in (ProveStatus.EQUAL, ProveStatus.DIFFER):
        raise OutOfBudget(WHY[status])


@dataclass(frozen=True, eq=False)
class ClassProver:
    """The table twice in a prover, in which one class of packets was entered."""

    encoding: Encoding
    packets: PacketClass
    prover: Prover

    def inside(self, box: MatchBox, root: str) -> RegionWords | None:
        """The packets of the class that are in the box, at *root* ("": anywhere); None: there are none."""
        inside = box.of(self.packets, self.encoding.backend, root)
        region = None if inside is None else RegionWords(self.encoding, inside)
        return None if region is None or region.is_empty else region


@dataclass(frozen=True)
class RuleAt:
    """A rule, its chain, and its number in the table."""

    chain: Chain
    index: int
    number: int

    @property
    def rule(self) -> Rule:
        return self.chain.rules[self.index]


class _Way(NamedTuple):
    """The packets of a class that enter a built-in chain and may meet the altered rule."""

    each: ClassProver
    root: str
    region: RegionWords


class _Shown(NamedTuple):
    """A packet that showed a difference."""

    each: ClassProver
    root: str
    packet: Point


class _Luck:
    """Whether tries of some kind decide enough, of late: one pays for PAYS_FOR others."""

    def __init__(self) -> None:
        self._bearable = MOST_UNDECIDED

    @property
    def is_good(self) -> bool:
        return self._bearable > 0

    def note(self, decided: bool) -> None:
        bearable = self._bearable + (PAYS_FOR if decided else -1)
        self._bearable = min(max(bearable, -MOST_UNDECIDED), MOST_UNDECIDED)


# What a class shows on its ways, all of one, once a rule is altered; None: not known.
_Try = Callable[[RuleAt, Alteration, Sequence[_Way], MatchBox], bool | None]


def _without_ends(packet: Point) -> Point:
    return {dim: value for dim, value in packet.items() if dim not in ENDS}


def _whole_first(each: ClassProver) -> tuple[bool, bool]:
    """A sort key: whole packets, to which nearly every rule matters; then fragments; then malformed ones."""
    return each.packets.malformed, each.packets.later


def _is_malformed(each: ClassProver) -> bool:
    return each.packets.malformed


class AlteredTable:
    """One table, held in a prover for each class of packets of each backend.

    provers       those from which rules are removed for good
    is_small      whether its packets are compared all at once
    first_rule    by chain: the number of its first rule in the table
    OutOfBudget, by each method that compares.
    """

    def __init__(
        self, table: Table, family: Family, reach: Reachability, question: Question, deadline: Deadline
    ) -> None:
        self._table, self._family, self._reach = table, family, reach
        self._question, self._deadline = question, deadline
        self._policy_behind = policies_behind(table, reversed(reach.callees_first()))
        numbers = accumulate((len(chain.rules) for chain in table.chains), initial=0)
        self.first_rule = {chain.name: first for chain, first in zip(table.chains, numbers, strict=False)}
        self.rule_count = sum(len(chain.rules) for chain in table.chains)
        self.provers = sorted(self.fresh(), key=_whole_first)
        self._lasting = frozenset(self.provers)  # what shows a difference in others says nothing of these
        encoding = self.provers[0].encoding
        self.chain_numbers = {chain.name: encoding.chain(0, chain.name) for chain in table.chains}
        self.is_small = self.rule_count < FEW
        self._random = Random(0)
        self._lucks: defaultdict[tuple[ClassProver, Alteration, str], _Luck] = defaultdict(_Luck)
        self._touched: tuple[str, array[int]] = "", array("I")
        # Whole packets that showed a difference: by rule; by chain, those that helped last first; the last.
        self._shown_of_rule: dict[int, _Shown] = {}
        self._shown_in_chain: dict[str, list[_Shown]] = {}
        self._shown_last: _Shown | None = None
        self._last_of: dict[Encoding, Point] = {}  # the last one of each encoding, without ENDS

    def fresh(self, without: Sequence[RuleAt] = ()) -> Iterator[ClassProver]:
        """Provers of their own, in which the rules *without* are removed, and no others."""
        for backend in self._question.backends:
            for each in self._class_provers(backend):
                for at in without:
                    check(each.prover.alter(self._both(at), Alteration.REMOVE, self._reaching(at.chain.name)))
                yield each

    def _class_provers(self, backend: Backend) -> Iterator[ClassProver]:
        encoding = Encoding(
            (self._table, self._table), self._family, backend, self._question.verdict_only, sure_answers=True
        )
        for packets in encoding.classes():
            each = ClassProver(encoding, packets, encoding.prover(self._question.max_memory))
            each.prover.treat_as_same()
            check(each.prover.enter(*encoding.class_words(packets, may_drop=False)))
            for root in self._reach.roots:
                # A run over all packets may take seconds; one over those of a rule takes less than a thread.
                check(self._run(each, root, array("I"), short=False))
            yield each

    # ---- alterations ----

    def _both(self, at: RuleAt) -> tuple[int, int]:
        return at.number, at.number + self.rule_count

    @functools.cached_property
    def well_formed(self) -> list[ClassProver]:
        """Those of *provers* for packets without broken headers."""
        return [each for each in self.provers if not each.packets.malformed]

    def remove(self, at: RuleAt, provers: Iterable[ClassProver] | None = None) -> None:
        """Remove the rule for good.  *provers*: from these alone."""
        for each in self.provers if provers is None else provers:
            check(each.prover.alter(self._both(at), Alteration.REMOVE, self._reaching(at.chain.name)))

    def _reaching(self, chain: str) -> array[int]:
        """The numbers of the chains from which packets reach *chain*."""
        if self._touched[0] != chain:
            names = self._reach.reaching(chain)
            self._touched = chain, array("I", (self.chain_numbers[name] for name in names))
        return self._touched[1]

    # ---- comparisons ----

    def class_affected(
        self,
        at: RuleAt,
        alteration: Alteration,
        box: MatchBox,
        provers: Iterable[ClassProver] | None = None,
    ) -> PacketClass | None:
        """A class of packets for which altering a rule changes anything, not a malformed one if there is
        another; None: it never does.

        *box*: packets outside it are decided as before.
        *provers*: others than those in which the rules with flaws are removed.
        """
        if provers is None and not self.is_small:
            for shown, model in self._like_those_shown(at, box):
                if self._shows(shown, at, alteration):
                    self._note(at, shown, model)
                    return shown.each.packets
        for _, of_kind in groupby(self.provers if provers is None else provers, key=_is_malformed):
            # In a small table all packets of a class are compared at once, class by class.
            for group in ([each] for each in of_kind) if self.is_small else [list(of_kind)]:
                ways: dict[ClassProver, list[_Way]] = {}
                affected = self._first_affected(group, at, alteration, box, ways)
                for each in ways:
                    each.prover.restore()
                if affected is not None:
                    return affected
        return None

    def may_match(self, each: ClassProver, at: RuleAt, box: MatchBox) -> bool:
        """Whether a rule matches packets of the class that are in the box, and reach it; True also where that
        is not shortly known.
        """
        ways = list(self._ways(each, at.chain, box))
        if not ways:
            return False
        check(each.prover.alter(self._both(at), Alteration.MARK, self._reaching(at.chain.name)))
        each.prover.bound_items(FEW_ITEMS)
        points = ((way, way.region.one(self._random)) for way in ways)
        met = any(
            point is not None and self._run(way.each, way.root, words_of(point)) == ProveStatus.DIFFER
            for way, point in points
        ) or any(self._run(way.each, way.root, way.region.all()) != ProveStatus.EQUAL for way in ways)
        each.prover.bound_items(0)
        each.prover.restore()
        return met

    def _first_affected(
        self,
        group: Iterable[ClassProver],
        at: RuleAt,
        alteration: Alteration,
        box: MatchBox,
        ways: dict[ClassProver, list[_Way]],
    ) -> PacketClass | None:
        """The class of one of *group* in which the table differs once the rule is altered.

        *ways*: gets the provers in which it was altered.
        """
        touched = self._reaching(at.chain.name)
        undecided: dict[ClassProver, list[_Way]] = {}
        for each in group:
            own = list(self._ways(each, at.chain, box))
            if not own:
                continue
            check(each.prover.alter(self._both(at), alteration, touched))
            ways[each] = own
            decided = None if self.is_small else self._shortly_differs(at, alteration, own, box)
            if decided:
                return each.packets
            if decided is None:
                undecided[each] = own
        return next(
            (
                each.packets
                for each, own in undecided.items()
                if any(self._way_differs(at, way) for way in own)
            ),
            None,
        )

    def _ways(self, each: ClassProver, chain: Chain, box: MatchBox) -> Iterator[_Way]:
        for root in self._reach.roots_of(chain.name):
            region = each.inside(box, root)
            if region is not None:
                yield _Way(each, root, region)

    def _shortly_differs(
        self, at: RuleAt, alteration: Alteration, ways: Sequence[_Way], box: MatchBox
    ) -> bool | None:
        """Whether a class differs on these ways, all of one; None: it was not found out shortly."""
        tries: list[_Try] = [self._points_differ, self._chain_differs, self._short_runs_differ]
        lucks = {each: self._lucks[ways[0].each, alteration, each.__name__] for each in tries}
        decided: bool | None = None
        for each in sorted(tries, key=lambda each: not lucks[each].is_good):
            decided = each(at, alteration, ways, box)
            if each != self._points_differ:
                lucks[each].note(decided is not None)
            if decided is not None:
                break
        lucks[self._points_differ].note(decided is True)
        return decided

    def _points_differ(
        self, at: RuleAt, alteration: Alteration, ways: Sequence[_Way], box: MatchBox
    ) -> bool | None:
        """What a few packets tell, drawn at random."""
        luck = self._lucks[ways[0].each, alteration, "_points_differ"]
        tried = [*ways] * (FEW_POINTS if luck.is_good else 1)
        return True if any(self._some_point_differs(at, way) for way in tried) else None

    def _short_runs_differ(
        self, at: RuleAt, alteration: Alteration, ways: Sequence[_Way], box: MatchBox
    ) -> bool | None:
        """What runs tell that end where lists of more than FEW_ITEMS have to be cut."""
        ways[0].each.prover.bound_items(FEW_ITEMS)
        statuses = {self._whole(at, way) for way in ways}
        ways[0].each.prover.bound_items(0)
        if ProveStatus.DIFFER in statuses:
            return True
        return False if statuses == {ProveStatus.EQUAL} else None

    def _chain_differs(
        self, at: RuleAt, alteration: Alteration, ways: Sequence[_Way], box: MatchBox
    ) -> bool | None:
        """What the altered user chain tells by itself."""
        if at.chain.policy is not None:
            return None
        status = self._in_chain(ways, at.chain, alteration, box)
        if status == ProveStatus.DIFFER:
            differing = next(ways[0].each.prover.mismatches()).as_entered
            points = (way.region.one_in(differing) for way in ways)
            if any(map(functools.partial(self._point_differs, at), ways, points)):
                return True
        return False if status == ProveStatus.EQUAL else None

    def _in_chain(
        self, ways: Sequence[_Way], chain: Chain, alteration: Alteration, box: MatchBox
    ) -> ProveStatus:
        """Compare the altered user chain by itself, in a short run, for all packets that may enter it.

        Not only for those of a built-in chain: a rule on the way may have changed what these have in common.
        """
        each = ways[0].each
        region = each.inside(box, "")
        assert region is not None, "packets enter it on some way"
        behind = array("I")
        for way in ways if alteration is Alteration.LEAVE_OUT else ():
            policy = each.encoding.end(self._table[way.root].policy)
            behind.extend((self.chain_numbers[way.root], self._first_behind(way.root, chain), policy))
        returns = each.encoding.end(None)
        check(each.prover.behind(returns, behind))
        each.prover.bound_items(FEW_ITEMS)
        status = self._run(each, chain.name, region.all())
        each.prover.bound_items(0)
        check(each.prover.behind(returns, array("I")))
        return status

    def _first_behind(self, root: str, chain: Chain) -> int:
        """The number of the first rule of *root* that packets may come to which return from a user chain."""
        reaching = self._reach.reaching(chain.name)
        rules = self._table[root].rules
        index = next(index for index, rule in enumerate(rules) if rule.enters in reaching)
        # Where the rule enters another chain, packets return from that one, too.
        return self.first_rule[root] + index + (rules[index].enters == chain.name)

    def _whole(self, at: RuleAt, way: _Way) -> ProveStatus:
        """Compare the packets of a way."""
        status = self._run(way.each, way.root, way.region.all())
        if status == ProveStatus.DIFFER and not self.is_small:
            packet = way.region.one_in(next(way.each.prover.mismatches()).as_entered)
            if packet is not None:
                shown = _Shown(way.each, way.root, packet)
                self._note(at, shown, shown)
        return status

    def _way_differs(self, at: RuleAt, way: _Way) -> bool:
        tried = range(0 if self.is_small else MORE_POINTS)
        if any(self._some_point_differs(at, way) for _ in tried):
            return True
        status = self._whole(at, way)
        check(status)
        return status == ProveStatus.DIFFER

    # ---- single packets ----

    def _some_point_differs(self, at: RuleAt, way: _Way) -> bool:
        """Whether a packet drawn at random shows a difference, or one of the class like the last that did."""
        like = self._last_of.get(way.each.encoding, {})
        packets = (way.region.near(other, self._random) for other in ((like, {}) if like else ({},)))
        return any(self._point_differs(at, way, packet) for packet in packets)

    def _point_differs(self, at: RuleAt, way: _Way, packet: Point | None) -> bool:
        """Whether one packet shows a difference."""
        if packet is None:
            return False
        run = self._from(way.each, way.root)._replace(sets=words_of(packet))
        if way.each.prover.run(run, short=True) != ProveStatus.DIFFER:
            return False
        shown = _Shown(way.each, way.root, packet)
        self._note(at, shown, shown)
        return True

    def _note(self, at: RuleAt, shown: _Shown, model: _Shown) -> None:
        """*model*: the packet that *shown* was made like.

        It serves other rules better than *shown*, which this one may keep from them.
        """
        if shown.each.packets.malformed or shown.each not in self._lasting:
            return
        self._shown_of_rule[at.number] = shown
        self._shown_last = model
        self._last_of[shown.each.encoding] = _without_ends(model.packet)
        in_chain = self._shown_in_chain.setdefault(at.chain.name, [])
        if model in in_chain:
            in_chain.remove(model)
        in_chain.insert(0, model)
        del in_chain[MOST_SHOWN:]

    def _like_those_shown(self, at: RuleAt, box: MatchBox) -> Iterator[tuple[_Shown, _Shown]]:
        """Packets that the rule matches, with those that showed a difference and that they are like."""
        own = self._shown_of_rule.get(at.number)
        models = [*self._shown_in_chain.get(at.chain.name, ())]
        if own is not None:
            yield own, models[0] if models else own
        if self._shown_last is not None and self._shown_last not in models:
            models.append(self._shown_last)
        roots = self._reach.roots_of(at.chain.name)
        for model in models:
            region = model.each.inside(box, model.root) if model.root in roots else None
            if region is None:
                continue
            for like in (model.packet, _without_ends(model.packet)):
                packet = region.near(like, self._random)
                if packet is not None:
                    shown = model._replace(packet=packet)
                    yield shown, model if like is model.packet else shown

    def _shows(self, shown: _Shown, at: RuleAt, alteration: Alteration) -> bool:
        """Whether the packet shows a difference once the rule is altered."""
        prover = shown.each.prover
        check(prover.alter(self._both(at), alteration, self._reaching(at.chain.name)))
        run = self._from(shown.each, shown.root)._replace(sets=words_of(shown.packet))
        differs = prover.run(run, short=True) == ProveStatus.DIFFER
        prover.restore()
        return differs

    def _run(self, each: ClassProver, chain: str, words: array[int], *, short: bool = True) -> ProveStatus:
        """Compare the tables from *chain* on, for the packets of *words* (RegionWords)."""
        if self._deadline.is_over():
            return ProveStatus.NO_TIME
        seconds, processor = self._deadline.left()
        run = self._from(each, chain)._replace(sets=words, seconds=seconds, processor=processor)
        status = each.prover.run(run, short=short)
        return each.prover.run(run, strict=True, short=short) if status == ProveStatus.PAIRS else status

    def _from(self, each: ClassProver, chain: str) -> PairRun:
        end = each.encoding.end(self._policy_behind[chain])
        return PairRun(each.encoding.both(chain), (end, end), array("I"), 0.0)
