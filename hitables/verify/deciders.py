"""The rules that decide the packets of a region, where the prover names one of them.

A INPUT DROP                                    "-A INPUT -s 198.51.100.0/24 -j DROP" as the last rule

The prover leaves out rules behind which the same verdict follows, as it needs them for no proof.  So it says
of a region that the policy drops it, of which this rule drops a part.

Idea: where another rule of the same verdict may decide packets of the region, the two programs are compared
once more.  In one of them each rule with this verdict, and the policy, then has a verdict of its own, so that
the prover cuts the packets where another one decides.  No test changes, so the regions of both have the
same coordinates.

Invariant: exact, if it is known.

Cost: one more run of the prover, of MOST regions at most, for each class of packets, program and verdict of
which such a rule is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hitables.core.prover import ProveStatus
from hitables.ir.fields import Field, top
from hitables.ir.hooks import Box
from hitables.ir.intervals import Values
from hitables.ir.program import Table
from hitables.ir.required import required
from hitables.ir.rule import Role, Rule
from hitables.ir.semantics import RETURNS

from .encoding import Encoding, RuleRef
from .exact import Comparison, DifferingRegion, TableProver
from .match_box import entry_tests, written_by
from .packet_classes import PacketClass
from .question import KERNEL_POLICY
from .reachability import Reachability

MOST = 200  # regions of each class of packets
MOST_ASKED, MOST_TIMES = 32, 100  # regions, and lists of them: beyond, what decides is not looked for
_LOOKS = 20_000  # rules times regions: beyond, the prover is asked
_MARK = "\0"  # behind verdicts of their own, which no verdict of a text has

Region = tuple[DifferingRegion, Box]  # and the values of its fields
IsUnreal = Callable[[Comparison, DifferingRegion], bool]


@dataclass(frozen=True)
class Deciders:
    """Parts of regions, each with the line that decides it (0: the policy, or a rule without a line).

    No parts: the rule, or the policy, that the prover names decides all packets.
    """

    parts: tuple[tuple[Box, int], ...]

    def of(self, box: Mapping[Field, Values]) -> list[int]:
        """The lines that decide some packets of *box*, a part of the regions."""
        return sorted({line for part, line in self.parts if _meet(part, box)})


def deciders(
    comparison: Comparison,
    regions: Sequence[DifferingRegion],
    side: int,
    is_unreal: IsUnreal,
    candidates: dict[tuple[int, str], Candidates],
) -> Deciders | None:
    """Which rules of the program *side* decide the packets of *regions*, which have one explanation.

    *candidates*: of this comparison, by program and verdict, kept from call to call.
    None if that is not known: there are too many, or the budget ran out.
    """
    named, verdict = regions[0].rules[side], regions[0].verdicts[side]
    if verdict is None or verdict in (RETURNS, KERNEL_POLICY):
        return Deciders(())
    boxes = [_box(comparison, region) for region in regions]
    at = side, verdict
    if at not in candidates:
        candidates[at] = Candidates(comparison, side, verdict)
    if not candidates[at].meet(boxes, named, regions[0].packets):
        return Deciders(())
    if len(regions) > MOST_ASKED or candidates[at].asked == MOST_TIMES:
        return None
    candidates[at].asked += 1
    prover = candidates[at].prover
    found = _once_more(prover, comparison.chain, regions, _hull(boxes), side, verdict)
    if found is None:
        return None
    parts = tuple(
        (_box(comparison, each), _line(each.rules[side]))
        for each in found
        if any(_overlap(region, each) for region in regions) and not is_unreal(comparison, each)
    )
    return Deciders(parts) if parts else None


def _both(one: Mapping[Field, Values], other: Mapping[Field, Values]) -> dict[Field, Values]:
    """The values that both allow."""
    shared = {field: one[field].intersect(other[field]) for field in one.keys() & other.keys()}
    return {**one, **other, **shared}


def _line(ref: RuleRef | None) -> int:
    return 0 if ref is None or ref.rule.returns else ref.rule.line


def _box(comparison: Comparison, region: DifferingRegion) -> Box:
    """The values of the fields of *region* as it enters; a MAC may be missing, so it is left out."""
    coordinates = comparison.tables.encoding.matches.tests.coordinates
    return {
        Field(dim): coordinates[Field(dim)].values(ends)[0]
        for (dim, writes), ends in region.sets.items()
        if not writes and dim < len(Field) and dim != Field.MAC
    }


def _hull(boxes: Sequence[Box]) -> Box:
    return {
        field: Values.of(*{pair for box in boxes for pair in box[field].pairs})
        for field in set.intersection(*(set(box) for box in boxes))
    }


def _meet(one: Mapping[Field, Values], other: Mapping[Field, Values]) -> bool:
    return all(one[field].intersect(other[field]) for field in one.keys() & other.keys())


class Candidates:
    """The rules of one program that end the path of a packet with one verdict, and what they test.

    asked  for how many lists of regions the programs were compared once more
    """

    def __init__(self, comparison: Comparison, side: int, verdict: str) -> None:
        table, self._family = comparison.tables.tables[side], comparison.tables.family
        self._comparison, self._side, self._verdict = comparison, side, verdict
        written = written_by(table)
        entry = entry_tests(table, table.callers_first(comparison.chain), written)
        self.asked = 0
        reach, rules = Reachability(table), table[comparison.chain].rules
        reached = {name: reach.reached_from([name]) for name in table[comparison.chain].callees()}
        # The rules of the chain that enter others: their numbers, and the chains that packets reach there.
        self._calls = [(at, reached[rule.enters]) for at, rule in enumerate(rules) if rule.enters is not None]
        self._written = written.fields
        self._rules = list(_deciding(table, comparison.chain, verdict))
        self._chains = list(dict.fromkeys(chain for chain, _, _ in self._rules))
        numbers = {chain: at for at, chain in enumerate(self._chains)}
        self._chain = np.array([numbers[chain] for chain, _, _ in self._rules], np.int64)
        self._is_entered = np.array([chain == comparison.chain for chain, _, _ in self._rules], bool)
        self._index = np.array([index for _, index, _ in self._rules], np.int64)
        self._tested = [
            _both(
                entry.get(chain, {}),
                {field: values for field, values in required(rule).items() if field not in written.fields},
            )
            for chain, _, rule in self._rules
        ]
        self._hulls = {
            field: self._hulls_of(field) for field in {each for tested in self._tested for each in tested}
        }

    @cached_property
    def prover(self) -> TableProver:
        """The two programs, of which this one has verdicts of their own for these rules and the policy."""
        tables, before = list(self._comparison.tables.tables), self._comparison.tables
        tables[self._side] = _with_own_verdicts(tables[self._side], self._verdict)
        pair = tables[0], tables[1]
        encoding = Encoding(pair, before.family, before.backend, before.encoding.verdict_only)
        return TableProver(pair, encoding, before.question, before.deadline)

    def _hulls_of(self, field: Field) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The least and the greatest value that each rule allows."""
        every = Values.interval(0, top(field, self._family))
        pairs = [tested.get(field, every).pairs for tested in self._tested]
        lows = [self._short(field, each[0][0]) if each else 1 for each in pairs]
        highs = [self._short(field, each[-1][1]) if each else 0 for each in pairs]
        return np.array(lows, np.int64), np.array(highs, np.int64)

    def _short(self, field: Field, value: int) -> int:
        """The first 32 bits of a long value."""
        return value >> max(top(field, self._family).bit_length() - 32, 0)

    def others(
        self, boxes: Sequence[Box], named: RuleRef | None, packets: PacketClass
    ) -> npt.NDArray[np.bool_]:
        """Which of the rules may decide packets of *boxes* in place of *named*; None: the policy.

        Those before it alone, if it is in the entered chain and matches all these packets.
        """
        every = np.ones(len(self._rules), bool)
        if named is None or named.rule.returns:
            return every
        entered = self._comparison.chain
        if named.chain == entered and self._matches_all(named.rule, boxes, packets):
            called = set[str]().union(*(chains for at, chains in self._calls if at < named.index))
            may = np.fromiter((name in called for name in self._chains), bool, len(self._chains))[self._chain]
            return may | (self._is_entered & (self._index < named.index))
        if named.chain in self._chains:
            every &= (self._chain != self._chains.index(named.chain)) | (self._index != named.index)
        return every

    def _matches_all(self, rule: Rule, boxes: Sequence[Box], packets: PacketClass) -> bool:
        if packets.malformed or packets.later:
            return not rule.matches
        return all(
            match.role is Role.SPACE
            and not match.either
            and all(
                test.field not in self._written
                and all(box.get(test.field) and test.values.covers(box[test.field]) for box in boxes)
                for test in match.tests
            )
            for match in rule.matches
        )

    def meet(self, boxes: Sequence[Box], named: RuleRef | None, packets: PacketClass) -> bool:
        """Whether one of `others` may match a packet of *boxes*, by the fields that it tests."""
        hull = _hull(boxes)
        may = self.others(boxes, named, packets)
        for field, (lows, highs) in self._hulls.items():
            if hull.get(field):
                ends = hull[field].pairs[0][0], hull[field].pairs[-1][1]
                may &= (lows <= self._short(field, ends[1])) & (highs >= self._short(field, ends[0]))
        if int(may.sum()) * len(boxes) > _LOOKS:
            return True
        for at in np.flatnonzero(may).tolist():
            tested = self._tested[at]
            if _may_meet(tested, hull) and any(_may_meet(tested, box) for box in boxes):
                return True
        return False


def _may_meet(tested: Mapping[Field, Values], box: Box) -> bool:
    """Whether a packet of *box* may have the values; a field that has none there is one that it lacks."""
    return all(values.intersect(box[field]) for field, values in tested.items() if box.get(field))


def _deciding(table: Table, entered: str, verdict: str) -> Iterator[tuple[str, int, Rule]]:
    """Each rule that packets of the chain may reach, and that ends their path with *verdict*."""
    for name in table.callers_first(entered):
        for index, rule in enumerate(table[name].rules):
            target = rule.target
            if target is not None and target.is_final and target.key == verdict:
                yield name, index, rule


def _once_more(
    prover: TableProver, chain: str, regions: Iterable[DifferingRegion], within: Box, side: int, verdict: str
) -> list[DifferingRegion] | None:
    """The regions of these classes of packets, in which each rule of *verdict* has a verdict of its own."""
    prover.within = within
    found: list[DifferingRegion] = []
    classes: dict[PacketClass, None] = dict.fromkeys(region.packets for region in regions)
    for packets in classes:
        status, differing = prover.run(chain, packets, MOST)
        if status not in (ProveStatus.EQUAL, ProveStatus.DIFFER) or len(differing) >= MOST:
            return None
        found += (each for each in differing if (each.verdicts[side] or "").partition(_MARK)[0] == verdict)
    return found


def _with_own_verdicts(table: Table, verdict: str) -> Table:
    """*table*, in which each rule of *verdict* and each policy of it has a verdict that no other has."""
    chains = {}
    for chain in table.chains:
        rules = tuple(
            rule._replace(target=replace(rule.target, key=f"{verdict}{_MARK}{chain.name}{_MARK}{at}"))
            if rule.target is not None and rule.target.is_final and rule.target.key == verdict
            else rule
            for at, rule in enumerate(chain.rules)
        )
        policy = f"{verdict}{_MARK}" if chain.policy == verdict else chain.policy
        chains[chain.name] = replace(chain, rules=rules, policy=policy)
    return table.of(chains)


def _overlap(one: DifferingRegion, other: DifferingRegion) -> bool:
    """Whether the two may have a packet in common, as far as both tell it."""
    if one.packets != other.packets:
        return False
    for mine, yours in zip(one.answers, other.answers, strict=False):
        if mine[0] == yours[0] and mine[1] != yours[1]:
            return False
    return all(_share(ends, other.sets[at]) for at, ends in one.sets.items() if at in other.sets)


def _share(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether a coordinate is in both lists low, high, low, high, ..., which ascend."""
    if not one and not other:
        return True  # packets without this field
    at = to = 0
    while at < len(one) and to < len(other):
        if one[at + 1] < other[to]:
            at += 2
        elif other[to + 1] < one[at]:
            to += 2
        else:
            return True
    return False
