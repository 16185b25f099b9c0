"""Whether altering one rule of a table changes anything, by comparing the table with itself.

Idea: the table stands twice in a prover, for each class of packets; a rule is marked, left out or removed in
one or both of them.  Cheap runs come before the long one: on one packet, drawn at random; on the rule's chain
by itself, for a chain that does the same whatever enters it does so on each way to it; on a packet for which
the chain by itself differs.

Invariant: exact, as the prover is.

Cost: a run from a built-in chain on reads the rules that its packets may match, and the chains on the ways;
most rules are decided by a packet, or by the runs on their chain.

Users: lint.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random
from typing import NamedTuple

from hitables.core.prover import Alteration, Prover, Run, Status
from hitables.ir.fields import Family
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
from .region_words import RegionWords

FEW = 256  # rules: in a table of fewer the whole set of packets is compared at once
FEW_ITEMS, MOST_POINTS = 20_000, 8  # of runs before the long one; packets tried where these do not suffice


class OutOfBudget(Exception):
    """The time or the memory ran out."""


def check(status: Status) -> None:
    """OutOfBudget unless the run came to its end."""
    if status not in (Status.EQUAL, Status.DIFFER):
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


def _whole_first(each: ClassProver) -> tuple[bool, bool]:
    """Nearly every rule matters to some packet of the first class."""
    return each.packets.malformed, each.packets.later


def _is_malformed(each: ClassProver) -> bool:
    return each.packets.malformed


class AlteredTable:
    """One table, held in a prover for each class of packets of each backend.

    provers       those from which rules are removed for good
    is_small      whether its packets are compared all at once
    OutOfBudget, by each method that compares.
    """

    def __init__(
        self, table: Table, family: Family, reach: Reachability, question: Question, deadline: Deadline
    ) -> None:
        self._table, self._family, self._reach = table, family, reach
        self._question, self._deadline = question, deadline
        self._policy_behind = policies_behind(table, reversed(reach.callees_first()))
        self.rule_count = sum(len(chain.rules) for chain in table.chains)
        self.provers = sorted(self.fresh(), key=_whole_first)
        encoding = self.provers[0].encoding
        self.chain_numbers = {chain.name: encoding.chain(0, chain.name) for chain in table.chains}
        self.is_small = self.rule_count < FEW
        self._random = Random(0)
        self._touched: tuple[str, array[int]] = "", array("I")

    def fresh(self, without: Sequence[RuleAt] = ()) -> Iterator[ClassProver]:
        """Provers of their own, in which the rules *without* are removed, and no others."""
        for backend in self._question.backends:
            for each in self._class_provers(backend):
                for at in without:
                    check(each.prover.alter(self._both(at), Alteration.REMOVE, self._reaching(at.chain.name)))
                yield each

    def _class_provers(self, backend: Backend) -> Iterator[ClassProver]:
        encoding = Encoding((self._table, self._table), self._family, backend, self._question.verdict_only)
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

    def remove(self, at: RuleAt) -> None:
        """Remove the rule for good."""
        for each in self.provers:
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
        for each in group:
            own = list(self._ways(each, at.chain, box))
            if not own:
                continue
            check(each.prover.alter(self._both(at), alteration, touched))
            ways[each] = own
            tried = () if self.is_small else own
            if any(self._point_differs(way, way.region.one(self._random)) for way in tried):
                return each.packets
        undecided = dict(ways)
        for each, own in ways.items() if not self.is_small and at.chain.policy is None else ():
            status = self._in_chain(own, at.chain, box)
            if status == Status.EQUAL:
                del undecided[each]
            elif status == Status.DIFFER:
                differing = next(each.prover.mismatches()).as_entered
                if any(self._point_differs(way, way.region.one_in(differing)) for way in own):
                    return each.packets
        return next(
            (each.packets for each, own in undecided.items() if any(map(self._way_differs, own))), None
        )

    def _ways(self, each: ClassProver, chain: Chain, box: MatchBox) -> Iterator[_Way]:
        for root in self._reach.roots_of(chain.name):
            region = each.inside(box, root)
            if region is not None:
                yield _Way(each, root, region)

    def _in_chain(self, ways: Sequence[_Way], chain: Chain, box: MatchBox) -> Status:
        """Compare the altered user chain by itself, in a short run, for all packets that may enter it.

        Not only for those of a built-in chain: a rule on the way may have changed what these have in common.
        """
        each = ways[0].each
        region = each.inside(box, "")
        assert region is not None, "packets enter it on some way"
        each.prover.bound_items(FEW_ITEMS)
        status = self._run(each, chain.name, region.all())
        each.prover.bound_items(0)
        return status

    def _way_differs(self, way: _Way) -> bool:
        words = way.region.all()
        status = Status.TOO_DEEP
        if not self.is_small:
            way.each.prover.bound_items(FEW_ITEMS)
            status = self._run(way.each, way.root, words)
            tried = 1
            while status == Status.TOO_DEEP and tried < MOST_POINTS:
                if self._point_differs(way, way.region.one(self._random)):
                    status = Status.DIFFER
                tried += 1
            way.each.prover.bound_items(0)
        if status == Status.TOO_DEEP:
            status = self._run(way.each, way.root, words)
        check(status)
        return status == Status.DIFFER

    def _point_differs(self, way: _Way, packet: array[int] | None) -> bool:
        """Whether one packet shows a difference."""
        if packet is None:
            return False
        run = self._from(way.each, way.root)._replace(sets=packet)
        return way.each.prover.run(run, short=True) == Status.DIFFER

    def _run(self, each: ClassProver, chain: str, words: array[int], *, short: bool = True) -> Status:
        """Compare the tables from *chain* on, for the packets of *words* (RegionWords)."""
        if self._deadline.is_over():
            return Status.NO_TIME
        seconds, processor = self._deadline.left()
        run = self._from(each, chain)._replace(sets=words, seconds=seconds, processor=processor)
        status = each.prover.run(run, short=short)
        return each.prover.run(run, strict=True, short=short) if status == Status.PAIRS else status

    def _from(self, each: ClassProver, chain: str) -> Run:
        end = each.encoding.end(self._policy_behind[chain])
        return Run(each.encoding.both(chain), (end, end), array("I"), 0.0)
