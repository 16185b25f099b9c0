"""Rules of a chain that affect no verdict, and other orders of its rules that do the same.

Each backend reads a rule as *pieces*: boxes of packets, with an action each.  A match that may drop a packet
gives pieces that drop it, so packets with broken headers are treated as before.  A piece whose effect boxes
cannot describe (memory, chance, a jump, LOG, a field that the chain itself changes) has the action
"anything"; rules are never moved or removed so that new packets reach it.

Invariant: the remaining rules decide every packet as the chain did, and log, write and evaluate the same for
it; a rule that may fire loses only its counter.  core/c/analyse/redundancy.c does the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hitables.core.redundancy import ANYTHING, Reading, Readings, Why

from ..ir.choices import Malformed
from ..ir.fields import OPTIONAL, Family, Field, Fragment, top
from ..ir.headers import HEADER_BYTES
from ..ir.packet import Backend
from ..ir.program import Chain
from ..ir.rule import Ends, Kind, Match, Metadata, Role, Rule, Test
from ..ir.semantics import DROP, FIELDS_WRITTEN, RETURNS
from .written import written_in

__all__ = ["WHY_TEXT", "Simplified", "Why", "acting", "simplify"]

# More boxes of one rule, or more axes for predicates, cost more than they find.
MOST_PIECES, MOST_PREDICATES = 32, 48
# A prefix of more bits is specific; rules with it form a group (core/c/tree/shape_groups.c).
SPECIFIC = 7
_KINDS = (Field.SRC, Field.DST, Field.IIF, Field.OIF, Field.PHYSIN, Field.PHYSOUT)


WHY_TEXT = {Why.STAYS: "", Why.NEVER: "never matches", Why.NOTHING: "changes nothing"}


@dataclass(frozen=True, slots=True)
class Simplified:
    """The rules of a chain that stay, and for each rule of the chain why it may be removed.

    orders  other orders of *rules* that do the same, as indexes into it
    """

    rules: tuple[Rule, ...]
    why: tuple[Why, ...]
    orders: tuple[tuple[int, ...], ...]


def simplify(
    chain: Chain,
    family: Family,
    backends: Sequence[Backend],
    malformed: Malformed,
    writes: Mapping[str, frozenset[Metadata]],
    keep: frozenset[int] = frozenset(),
) -> Simplified:
    """The rules of *chain* that affect some verdict; *keep*: the ids of rules that must stay.

    *writes*: what each user chain may write (analyse.callgraph).
    """
    readings = _readings(chain, family, backends, malformed, writes)
    why = readings.removable(np.array([id(rule) in keep for rule in chain.rules], np.uint8))
    stay = np.flatnonzero(why == Why.STAYS)
    orders = []
    for groups in _groupings(chain.rules):
        order = np.lexsort((stay, groups[stay], readings.phases(groups, why)[stay]))
        if not np.array_equal(order, np.arange(len(stay))):
            orders.append(tuple(order.tolist()))
    rules = tuple(chain.rules[at] for at in stay.tolist())
    return Simplified(rules, tuple(map(Why, why.tolist())), tuple(orders))


def acting(
    chain: Chain, family: Family, backends: Sequence[Backend], malformed: Malformed, keep: int
) -> list[int]:
    """The indices of the rules that `simplify` leaves, in their order; *keep*: of one that must stay.

    No rule of *chain* writes what another one tests.
    """
    must_stay = np.zeros(len(chain.rules), np.uint8)
    must_stay[keep] = 1
    why = _readings(chain, family, backends, malformed, {}).removable(must_stay)
    return np.flatnonzero(why == Why.STAYS).tolist()


def _readings(
    chain: Chain,
    family: Family,
    backends: Sequence[Backend],
    malformed: Malformed,
    writes: Mapping[str, frozenset[Metadata]],
) -> Readings:
    written = written_in(chain.rules, writes)
    return Readings([_Pieces(chain, family, each, malformed, written).reading() for each in backends])


def _groupings(rules: Sequence[Rule]) -> Iterable[npt.NDArray[np.uint8]]:
    """The group of each rule by a field in which it is specific: of two fields either counts first."""
    by_match: dict[int, tuple[bool, ...]] = {}
    rows = []
    for rule in rules:
        specific = [False] * len(_KINDS)
        for match in rule.matches:
            if id(match) not in by_match:
                by_match[id(match)] = tuple(_is_specific(match, field) for field in _KINDS)
            specific = list(map(bool.__or__, specific, by_match[id(match)]))
        rows.append(specific)
    columns = dict(zip(_KINDS, np.array(rows, bool).reshape(len(rules), len(_KINDS)).T, strict=True))
    for one, two in ((Field.DST, Field.SRC), (Field.PHYSOUT, Field.PHYSIN), (Field.OIF, Field.IIF)):
        if one is Field.DST or (columns[one].any() and columns[two].any()):
            yield np.where(columns[one], 0, np.where(columns[two], 1, 2)).astype(np.uint8)
            yield np.where(columns[two], 0, np.where(columns[one], 1, 2)).astype(np.uint8)


def _is_specific(match: Match, field: Field) -> bool:
    for test in match.tests:
        if test.field is field and not match.either and test.values:
            low, high = test.values.hull()
            family = Family.IPV4 if top(field, Family.IPV4) >= high else Family.IPV6
            return (high - low).bit_length() < top(field, family).bit_length() - SPECIFIC
    return False


# ---- a chain as a backend reads it ----

# Axes besides the fields: bytes of layer 4, whether the tcp data offset is bad; then predicates, by key.
_BYTES, _BAD_OFFSET = "bytes", "bad offset"
_TOPS: dict[str, int] = {_BYTES: 0xFFFF, _BAD_OFFSET: 1}
_AT_OFFSET_ONE = int(Fragment.LATER) + 1  # a value of Field.FRAG here: a later fragment at offset 1

_Axis = Field | str
_Pairs = tuple[tuple[int, int], ...]
_Box = dict[_Axis, tuple[int, int]]
_Action = tuple[str, ...] | None  # None: anything may happen
_DROPPED = ("end", DROP)
_BROKEN = (*_DROPPED, "as its header is broken")  # the output may drop such a packet anywhere


class _Pieces:
    """The pieces of all rules of a chain, as one backend reads them."""

    def __init__(
        self,
        chain: Chain,
        family: Family,
        backend: Backend,
        malformed: Malformed,
        written: frozenset[Metadata],
    ) -> None:
        self.family, self.nft, self.written = family, backend is Backend.NFT, written
        self.stricter = malformed is Malformed.STRICTER
        self.changed = frozenset(field for state in written for field in FIELDS_WRITTEN.get(state, ()))
        self.predicates: set[str] = set()
        self.pairs: dict[Test, _Pairs] = {}
        # The end of a chain that keeps the kernel's current policy is unknown.
        self.end: _Action = ("end", "kept") if chain.kept else ("end", chain.policy or RETURNS)
        self.rules = len(chain.rules)
        self.owner: list[int] = []
        self.boxes: list[_Box] = []
        self.actions: list[_Action] = []
        for number, rule in enumerate(chain.rules):
            for box, action in self.pieces(rule):
                self.owner.append(number)
                self.boxes.append(box)
                self.actions.append(action)

    def pieces(self, rule: Rule) -> list[tuple[_Box, _Action]]:
        """The pieces of the rule, in the order in which its matches are evaluated."""
        out: list[tuple[_Box, _Action]] = []
        here: list[_Box] = [{}]
        for match in rule.matches:
            if match.role in (Role.NAMED, Role.ONCE):
                return out + [(box, None) for box in here]
            for axis, pairs, dropped in self.steps(match):
                if pairs is None:
                    return out + [(box, None) for box in here]
                if dropped:
                    lost = _narrowed(here, axis, dropped)
                    out += [(box, _BROKEN if self.is_broken(axis, box) else _DROPPED) for box in lost]
                if len(here) * len(pairs) > MOST_PIECES:
                    return out + [(box, None) for box in here]
                here = _narrowed(here, axis, pairs)
        target = rule.target
        if target is None:
            return out
        action: _Action = None
        if target.kind is Kind.RETURN:
            action = self.end
        elif target.kind is Kind.GOTO:
            action = ("goto", target.name)
        elif target.kind is Kind.VERDICT and target.ends is Ends.SURELY:
            action = ("end", target.key)
        return out + [(box, action) for box in here]

    def steps(self, match: Match) -> Iterable[tuple[_Axis, _Pairs | None, _Pairs]]:
        """(axis, values that pass, values that are dropped), in the order in which the kernel tests them.

        The values that pass are None when boxes cannot describe the rest of the match.
        """
        native = match.native and self.nft
        if self.family is Family.IPV6 and match.is_protocol:
            yield Field.PROTO, ((1, 256),), () if self.nft else ((0, 0),)
        if match.needs and not native:
            later = (_AT_OFFSET_ONE, _AT_OFFSET_ONE)
            yield Field.FRAG, ((0, 1),), (later,) if match.strict else ()
            yield _BYTES, ((match.needs, _TOPS[_BYTES]),), ((0, match.needs - 1),)
        if match.either:
            yield "", None, ()
        for test in match.tests:
            if test.field in self.changed:
                yield test.field, None, ()
            yield test.field, self.values(test), ()
        if match.option:
            yield _BAD_OFFSET, ((0, 0),), ((1, 1),)
        if match.role is Role.CONSTANT:
            self.predicates.add(match.key)
            unknown = match.reads & self.written or len(self.predicates) > MOST_PREDICATES
            yield match.key, None if unknown else ((1, 1),), ()

    def is_broken(self, axis: _Axis, box: _Box) -> bool:
        """Whether packets that a test of *axis* drops are malformed (ir.headers), and may be dropped."""
        if not self.stricter or axis != _BYTES:
            return self.stricter  # at offset 1, of a bad data offset, without a protocol
        low, high = box.get(Field.PROTO, (0, 0))
        protocols = range(low - 1, high)  # 0 is "none"
        return all(box[_BYTES][1] < HEADER_BYTES.get(protocol, 0) for protocol in protocols)

    def values(self, test: Test) -> _Pairs:
        """The values of a test as coordinates: 0 is "none" where a field may be missing."""
        pairs = self.pairs.get(test)
        if pairs is None:
            shift = test.field in OPTIONAL
            pairs = tuple((low + shift, high + shift) for low, high in test.values.pairs)
            if test.field is Field.FRAG and pairs and pairs[-1][1] == Fragment.LATER:
                pairs = (*pairs[:-1], (pairs[-1][0], _AT_OFFSET_ONE))
            self.pairs[test] = pairs
        return pairs

    def top(self, axis: _Axis) -> int:
        if axis is Field.FRAG:
            return _AT_OFFSET_ONE
        if isinstance(axis, Field):
            return top(axis, self.family) + (axis in OPTIONAL)
        return _TOPS.get(axis, 1)

    def reading(self) -> Reading:
        """The pieces as arrays; a coordinate is the rank of its value among the ends of boxes."""
        starts: dict[_Axis, set[int]] = {}
        for box in self.boxes:
            for axis, (low, high) in box.items():
                starts.setdefault(axis, {0}).update((low, high + 1))
        axes = list(starts)
        ranks = []
        for axis in axes:
            starts[axis].discard(self.top(axis) + 1)
            ranks.append({start: at for at, start in enumerate(sorted(starts[axis]))})
            ranks[-1][self.top(axis) + 1] = len(starts[axis])
        tops = np.array([len(starts[axis]) - 1 for axis in axes], np.uint32)
        lowest = np.zeros((len(self.boxes), len(axes)), np.uint32)
        highest = np.empty((len(self.boxes), len(axes)), np.uint32)
        highest[:] = tops
        column = {axis: at for at, axis in enumerate(axes)}
        rows, columns, lows, highs = [], [], [], []
        for row, box in enumerate(self.boxes):
            for axis, (first, last) in box.items():
                at = column[axis]
                rows.append(row)
                columns.append(at)
                lows.append(ranks[at][first])
                highs.append(ranks[at][last + 1] - 1)
        lowest[rows, columns] = lows
        highest[rows, columns] = highs
        numbers: dict[_Action, int] = {None: ANYTHING}
        ends = (_DROPPED if action == _BROKEN else action for action in self.actions)
        actions = [numbers.setdefault(action, len(numbers)) for action in ends]
        return Reading(
            tops,
            lowest,
            highest,
            np.array(self.owner, np.uint32),
            np.array(actions, np.uint32),
            np.array([action == _BROKEN for action in self.actions], np.uint8),
            self.rules,
            numbers.setdefault(self.end, len(numbers)),
        )


def _narrowed(boxes: Sequence[_Box], axis: _Axis, pairs: _Pairs) -> list[_Box]:
    """The parts of *boxes* whose *axis* lies in one of *pairs*."""
    out = []
    for box in boxes:
        old = box.get(axis)
        for low, high in pairs:
            if old is not None:
                low, high = max(low, old[0]), min(high, old[1])
            if low <= high:
                out.append({**box, axis: (low, high)})
    return out
