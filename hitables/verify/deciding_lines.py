"""The lines of the rules that decide the packets of a part of the header space, all by one verdict.

Idea: where several rules of one chain decide alike, the prover does not cut the header space between them.
So the rules of that verdict in the chain where it stopped are compared, as boxes.  A rule decides the packets
of its box that do not leave the chain before, nor match an earlier one of these rules; the end of the chain
decides those outside of all boxes.  Where that does not tell it, a packet of the box is sent
into the chain; if another rule decides it, one that this rule does not match, and so on.

Invariant: each line that is named decides some packet of the part, unless values are written that no packet
shows.  A line is missing only where TRIES packets did not show that it decides any, or where too many rules
may decide (`Lines.more`); and where one program has an effect more, the line is that of one packet.

Cost: one comparison with the bounds of all rules of the verdict, as arrays; pairs of boxes of the rules that
meet the part; few walks.

Users: diff.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hitables.ir import semantics
from hitables.ir.attributes import common
from hitables.ir.fields import Field
from hitables.ir.packet import Backend, Outcome
from hitables.ir.rule import Match, Role, Rule
from hitables.ir.semantics import DROP, RETURNS, Walk

from .exact import Comparison, Region
from .join_boxes import Box, Ends
from .packet_classes import PacketClass
from .rules_for_packet import LongChains

TRIES = 8  # packets for one rule
MOST_TRIES = 16  # packets for one part
MOST_TRIES_IN_ALL = 100  # packets for one chain, beyond one for each part
MOST = 64  # rules, and pieces of one part


class Lines(NamedTuple):
    """Ascending; 0: the end of the chain, or a rule without a line.  *more*: others may decide, too."""

    numbers: tuple[int, ...]
    more: bool = False


class _Tests(NamedTuple):
    """A rule as a box of coordinates.

    exact   it matches every packet of the box that reads it
    fields  that a packet must have to match it, and whether they are read natively
    first   no rule before it leaves its chain but by a verdict
    """

    line: int
    box: Box
    exact: bool
    fields: frozenset[tuple[Field, bool]]
    first: bool = False


class _Deciders(NamedTuple):
    """The rules of one verdict, and by dimension the lowest and the highest coordinate of each."""

    rules: list[_Tests]
    bounds: dict[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]


class DecidingLines:
    """The rules of one program that packets of a pair of chains meet; *side*: 0 before, 1 after."""

    def __init__(self, comparison: Comparison, side: int) -> None:
        self._comparison, self._side = comparison, side
        self._table = comparison.tables.tables[side]
        self._chains = LongChains(self._table)
        self._dims = len(Field) + len(comparison.tables.encoding.attributes)
        self._boxes: dict[int, _Tests] = {}  # by identity of a rule
        self._deciders: dict[tuple[str, str], _Deciders] = {}
        self._left, self._in_all, self._more = 0, MOST_TRIES_IN_ALL, False

    def of(self, region: Region, box: Box, verdict: str | None) -> Lines:
        """The lines that decide the packets of *box*, which have the explanation of *region*.

        *box*: by dimension, behind writes too (diff.areas)
        """
        if verdict is None:
            return Lines(())
        decider = region.rules[self._side]
        chain = self._comparison.chain if decider is None else decider.chain
        if region.extra != (None, None):  # then the other may go on anywhere: the line of one packet
            walk = self._walk(region, box)
            if walk.verdict == verdict:
                return Lines((deciding_line(walk),))
        met = [rule for rule in self._meeting(verdict, chain, box) if _may_match(rule, region.packets)]
        is_end = verdict == (self._table[self._comparison.chain].policy or RETURNS)
        malformed = region.packets.malformed and verdict == DROP  # which any rule may drop
        for at, rule in enumerate(met):
            if rule.first and rule.exact and not malformed and _covers(rule.box, box):
                is_end, met = False, [*met[: at + 1], *(each for each in met[at + 1 :] if not each.first)]
                break
        if not malformed and len(met) + is_end == 1:
            return Lines((met[0].line if met else 0,))
        found: set[int] = set()
        self._left = tries = max(1, min(MOST_TRIES, self._in_all))
        self._more = len(met) > MOST
        for at, rule in enumerate(met[:MOST]):
            inside = {**box, **_shared(box, rule.box)}
            rivals = (each for number, each in enumerate(met) if number < at or not each.first)
            if (
                rule.first
                and rule.exact
                and not malformed
                and not any(_meet(each.box, inside) for each in rivals)
            ):
                found.add(rule.line)
            elif rule.line not in found:
                self._try(region, inside, rule.line, verdict, found)
        if is_end and not malformed and self._is_outside(box, met):
            found.add(0)
        elif is_end or malformed:
            self._try(region, box, 0, verdict, found)
        if not found:  # where values are written that no packet shows
            found.add(0 if decider is None else decider.rule.line)
        self._in_all -= tries - self._left
        return Lines(tuple(sorted(found)), self._more)

    def _is_outside(self, box: Box, rules: Sequence[_Tests]) -> bool:
        """Whether some packet of *box* is outside the boxes of all *rules*, if few pieces tell it."""
        if len(rules) > MOST:
            return False
        pieces = [box]
        for rule in rules:
            pieces = [rest for piece in pieces for rest in self._without(piece, rule.box)]
            if not pieces or len(pieces) > MOST:
                return False
        return True

    def _try(self, region: Region, box: Box, wanted: int, verdict: str, found: set[int]) -> None:
        """Add lines that decide packets of *box* to *found*, until *wanted* is among them."""
        waiting = [box]
        for _ in range(TRIES):
            if not waiting:
                return
            if not self._left:
                self._more = True
                return
            self._left -= 1
            piece = waiting.pop()
            walk = self._walk(region, piece)
            if walk.verdict == verdict:
                line = deciding_line(walk)
                found.add(line)
                if line == wanted:
                    return
            way = self._way(walk)
            if way is not None:
                waiting += self._without(piece, way)

    def _walk(self, region: Region, box: Box) -> Walk:
        """The way of the plainest packet of *box*."""
        sets = {divmod(at, self._dims)[::-1]: ends for at, ends in box.items()}
        packet = self._comparison.draft(replace(region, sets=sets), self._side).packet()
        chains, comparison = self._chains.of(packet), self._comparison
        return semantics.run(chains, comparison.chain, packet, comparison.backend)

    def _way(self, walk: Walk) -> Box | None:
        """The packets that may go the way of *walk* to the rule that decides; None: not known, or all."""
        box: Box = {}
        for step in walk.steps:
            is_last = step is walk.steps[-1]
            if step.outcome is Outcome.YES and (is_last or step.rule.enters is not None):
                tests = self._tests(step.rule)
                if not tests.exact:
                    return None
                box = {**box, **tests.box, **_shared(box, tests.box)}
        return box or None

    def _without(self, box: Box, other: Box) -> Iterator[Box]:
        """The packets of *box* outside *other*, as boxes."""
        if not _meet(other, box):
            yield box
            return
        rest = dict(box)
        for dim, side in other.items():
            full = self._full(dim)
            mine = rest.get(dim, full)
            outside = _common(mine, _complement(side, full[1]))
            if outside:
                yield {**rest, dim: outside}
            rest[dim] = _common(mine, side)

    # ---- the rules of one verdict ----

    def _meeting(self, verdict: str, chain: str, box: Box) -> Iterator[_Tests]:
        """The rules of *chain* and of *verdict* that packets of *box* may match."""
        deciders = self._deciders.get((verdict, chain))
        if deciders is None:
            deciders = self._deciders[verdict, chain] = self._of_verdict(verdict, chain)
        near = np.ones(len(deciders.rules), np.bool_)
        for dim, (lows, highs) in deciders.bounds.items():
            side = box.get(dim)
            if side:
                near &= (lows <= side[-1]) & (highs >= side[0])
        for at in np.flatnonzero(near).tolist():
            if all(_shared(box, deciders.rules[at].box).values()):
                yield deciders.rules[at]

    def _of_verdict(self, verdict: str, chain: str) -> _Deciders:
        rules = []
        first = True
        for rule in self._table[chain].rules:
            if rule.is_final and rule.target is not None and rule.target.key == verdict:
                rules.append(self._tests(rule)._replace(first=first))
            elif rule.leaves and not rule.is_final:
                first = False
        rules = [rule for rule in rules if all(rule.box.values())]
        bounds = {}
        for dim in {dim for rule in rules for dim in rule.box}:
            sides = [rule.box.get(dim) or self._full(dim) for rule in rules]
            bounds[dim] = (
                np.array([side[0] for side in sides], np.int64),
                np.array([side[-1] for side in sides], np.int64),
            )
        return _Deciders(rules, bounds)

    def _tests(self, rule: Rule) -> _Tests:
        known = self._boxes.get(id(rule))
        if known is None:
            box: dict[int, Ends] = {}
            exact = True
            fields = set[tuple[Field, bool]]()
            for match in rule.matches:
                native = match.native and self._comparison.backend is Backend.NFT
                fields.update((test.field, native) for test in match.tests if not match.either)
                sides = self._sides(match)
                exact &= sides is not None
                for dim, side in sides or ():
                    box[dim] = _common(box[dim], side) if dim in box else side
            known = self._boxes[id(rule)] = _Tests(rule.line, box, exact, frozenset(fields))
        return known

    def _sides(self, match: Match) -> Sequence[tuple[int, Ends]] | None:
        """The sides of a match; None: it is no box of the packets as they enter."""
        written = self._chains.written
        tests = self._comparison.tables.encoding.matches.tests
        if match.role is Role.CONSTANT and match.reads.isdisjoint(written.states):
            numbers = [tests.facts[match.fact]]
        elif match.role is Role.SPACE and not match.either:
            numbers = [tests.numbers[test.field, test.values.pairs] for test in match.tests]
        else:
            return None
        if any(test.field in written.fields for test in match.tests):
            return None
        return [
            (int(tests.dims[at]), tuple(tests.ends[2 * tests.starts[at] : 2 * tests.starts[at + 1]].tolist()))
            for at in numbers
        ]

    def _full(self, dim: int) -> Ends:
        encoding = self._comparison.tables.encoding
        if dim < len(Field):
            return 0, encoding.matches.tests.coordinates[Field(dim)].size - 1
        return 0, len(encoding.attributes[dim - len(Field)].cells) - 1


def deciding_line(walk: Walk) -> int:
    """The line of the rule that decides; 0: the end of the chain."""
    if not walk.steps or walk.verdict == RETURNS:
        return 0
    last = walk.steps[-1]
    target = last.rule.target
    ends = target is not None and target.key == walk.verdict and last.outcome is Outcome.YES
    return last.rule.line if ends or last.outcome is Outcome.DROPPED else 0


def _may_match(rule: _Tests, packets: PacketClass) -> bool:
    """Whether the packets may have the fields that the rule tests; of whole ones the protocol tells that."""
    if not packets.later:
        return True
    return all(field in (packets.native if native else packets.present) for field, native in rule.fields)


def _covers(outer: Box, inner: Box) -> bool:
    return all(dim in inner and _common(inner[dim], side) == inner[dim] for dim, side in outer.items())


def _meet(one: Box, other: Box) -> bool:
    """Whether the boxes have packets in common."""
    return all(dim not in other or _common(other[dim], side) for dim, side in one.items())


def _shared(one: Mapping[int, Ends], other: Mapping[int, Ends]) -> dict[int, Ends]:
    """The sides of *other*, within those of *one*."""
    return {dim: _common(one[dim], side) if dim in one else side for dim, side in other.items()}


def _common(one: Ends, other: Ends) -> Ends:
    """As `common`, which takes long for single intervals."""
    if len(one) == len(other) == 2:
        low, high = max(one[0], other[0]), min(one[1], other[1])
        return (low, high) if low <= high else ()
    return common(one, other)


def _complement(side: Ends, last: int) -> Ends:
    """The coordinates from 0 to *last* outside *side*."""
    bounds = [-1, *side, last + 1]
    pairs = ((low + 1, high - 1) for low, high in zip(bounds[::2], bounds[1::2], strict=True))
    return tuple(end for low, high in pairs if low <= high for end in (low, high))
