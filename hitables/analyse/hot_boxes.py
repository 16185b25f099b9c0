"""Boxes of the packets that are most frequent in a chain, each decided by one rule: evolving rules of a list.

Idea: samples of the traffic grow boxes (core/evolve.py; Storm, section 3.2) over the *ranks* of values: the
intervals between the ends of all boxes of an axis, numbered.  Values of one rank are alike to every rule, so
a box of ranks is exact, and a field of any width fits into the 32 bits of the engine.  A box that has evolved
is then enlarged to the whole box of the rule that decides it, or cut in as few fields as possible.

Invariant: each packet of a `HotBox` that no rule of *before* matches is decided by its rule, whatever rules
the packet matches later; where rules of one class do the same, by one of these.  That includes packets with a
cut-off header: a rule that would drop one counts as if it did not test the fields of that header, unless the
hot rule tests a header of at least that many bytes.

Cost: a sample reads the evolving rules; a box that is tried reads all boxes of the list once, as arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables.core.evolve import Evolving
from hitables.ir.fields import TCP, UDP, Field, interface_name
from hitables.ir.headers import HEADER_BYTES
from hitables.ir.packet import Backend
from hitables.ir.rule import Match, Role, Rule

from .boxes import Axis, Boxes, Words

Ranks = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Fields that a hot rule may test beyond its rule, the cheapest tests first.
NARROWED = (
    Field.SRC, Field.DST, Field.PROTO, Field.DPORT, Field.SPORT, Field.IIF, Field.OIF,
)  # fmt: skip
# At most so many fields are narrowed, and so many rules stand before a hot one because they meet its box.
MOST_NARROWED, MOST_BEFORE = 3, 3
# Fields behind the IP header: a packet with a cut-off header lacks them.
_LAYER_4 = (Field.SPORT, Field.DPORT, Field.ICMP, Field.FLAGS)


@dataclass(frozen=True, slots=True)
class HotBox:
    """A box of which rule *rule* of the list decides each packet that none of *before* matches.

    narrowed  values, both ends included, of the fields that its rule does not test so narrowly
    before    rules of the list to be read before it, in order; they meet the box
    low, high  [axis] ranks
    weight    samples
    """

    rule: int
    narrowed: tuple[tuple[Field, tuple[int, int]], ...]
    before: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    weight: int


class _Axis:
    """The ranks of one axis.  Value v has the rank of the last of *starts* that is not above it."""

    def __init__(self, axis: Axis, low: Words, high: Words) -> None:
        self.axis, self.wide = axis, axis.bits > 62
        lows, highs = self.values(low), self.values(high)
        ends = np.add(highs, 1 if self.wide else np.uint64(1))
        self.starts = np.unique(np.concatenate([np.zeros(1, lows.dtype), lows, ends]))
        self.low, self.high = self.ranks(lows), self.ranks(highs)

    def values(self, words: Words) -> npt.NDArray[Any]:
        if not self.wide:
            return words[:, 1]
        whole = words[:, 0].astype(object) * (1 << 64) + words[:, 1].astype(object)
        return np.asarray(whole, object)

    def ranks(self, values: npt.NDArray[Any]) -> Ranks:
        return np.searchsorted(self.starts, values, "right").astype(np.int64) - 1

    def rank(self, value: int) -> int:
        one = np.array([value], object) if self.wide else np.array([value], np.uint64)
        return int(self.ranks(one)[0])

    def span(self, low: int, high: int) -> tuple[int, int]:
        """The coordinates of the ranks low..high."""
        last = self.axis.top if high + 1 >= len(self.starts) else int(self.starts[high + 1]) - 1
        return int(self.starts[low]), min(last, self.axis.top)

    def narrowed(self, low: int, high: int) -> tuple[int, int] | None:
        """Values that one test can name and that contain these ranks; None: there is no such test."""
        first, last = self.span(low, high)
        if self.axis.optional:
            if not first:
                return None  # the test would have to hold for packets without the field
            first, last = first - 1, last - 1
        field = self.axis.field
        if field in (Field.SRC, Field.DST):
            free = (first ^ last).bit_length()
            return first >> free << free, last | (1 << free) - 1
        if field in (Field.IIF, Field.OIF):
            return (first, last) if first == last and _is_name(first) else None
        return (first, last) if first == last or field in (Field.SPORT, Field.DPORT) else None


def _is_name(number: int) -> bool:
    """Whether a rule can name the interface of this number (not its beginning)."""
    name = interface_name(number)
    return 0 < len(name.encode("utf-8", "surrogateescape")) <= 15 and not name.endswith("+")


class HotBoxes:
    """The boxes of one list, prepared for samples.

    boxes     of the rules
    rules     the list
    may_lead  by rule: it may be copied to the front of the list
    classes   by rule: rules of one class do the same with a packet
    backends  that must treat packets with a cut-off header no worse than the list does
    hides_protocol  a test of the protocol may drop a packet (IPv6)
    exact     packets with a cut-off header must be treated as in the list; otherwise they may be dropped
    """

    def __init__(
        self,
        boxes: Boxes,
        rules: Sequence[Rule],
        may_lead: Bools,
        classes: npt.NDArray[np.int64],
        backends: Sequence[Backend],
        *,
        hides_protocol: bool,
        exact: bool,
    ) -> None:
        self.boxes, self.may_lead, self.classes = boxes, may_lead, classes
        self.backends = backends
        # Tests that may drop a packet with a broken header are not added where the list must be met exactly.
        dropping = {Field.SPORT, Field.DPORT} | ({Field.PROTO} if hides_protocol else set())
        self.free = [field for field in NARROWED if not (exact and field in dropping)]
        self.axes = [_Axis(axis, boxes.low[:, at], boxes.high[:, at]) for at, axis in enumerate(boxes.axes)]
        shape = len(boxes.rule), len(self.axes)
        self.low = np.stack([axis.low for axis in self.axes], 1) if shape[1] else np.zeros(shape, np.int64)
        self.high = np.stack([axis.high for axis in self.axes], 1) if shape[1] else np.zeros(shape, np.int64)
        self.of = boxes.rule.astype(np.int64)
        self.class_of = classes[self.of]
        layer_4 = [at for at, axis in enumerate(boxes.axes) if axis.field in _LAYER_4]
        hidden = [at for at, axis in enumerate(boxes.axes) if axis.field is Field.PROTO and hides_protocol]
        self.loose_low, self.loose_high = self.low.copy(), self.high.copy()
        self.loose_low[:, layer_4 + hidden] = 0
        for at in layer_4 + hidden:
            self.loose_high[:, at] = len(self.axes[at].starts) - 1
        readings = {
            id(match): [_drops(match, each) for each in backends] for rule in rules for match in rule.matches
        }
        none = [0] * len(backends)
        # By rule and backend: bytes that the header must have, or a match of the rule drops the packet.
        self.needs = np.array(
            [np.max([none, *(readings[id(match)] for match in rule.matches)], axis=0) for rule in rules]
        ).reshape(len(rules), len(backends))
        # Hides_protocol: -p drops a packet whose headers are a broken chain, as legacy reads IPv6.
        self.asks_protocol = np.array(
            [hides_protocol and any(match.is_protocol for match in rule.matches) for rule in rules], bool
        )

    # ---- evolving ----

    def evolved(self, points: Words, window: int) -> Iterator[tuple[npt.NDArray[np.int64], int]]:
        """The evolving rules of *points* [samples, axes, 2]: ranks [axes, 2], weight; the heaviest first."""
        if not self.axes or not len(points):
            return
        bits = [max(1, int(len(axis.starts) - 1).bit_length()) for axis in self.axes]
        boxes = np.stack([self.low, self.high], 2).astype(np.uint32)
        priority = np.arange(len(boxes), dtype=np.uint32)
        options = {
            "window": window, "by_age": 0, "expand_first": 0, "tries": 64, "unpruned": 0, "leaf": 16,
            "choose": 0,
        }  # fmt: skip
        evolving = Evolving(
            options, bits, np.ascontiguousarray(boxes), priority, self.class_of.astype(np.uint32), 0
        )
        evolving.samples(np.ascontiguousarray(self.ranks(points).astype(np.uint32)))
        found, _, weights = evolving.listed()
        del evolving  # frees its memory before the caller works on
        yield from zip(found.astype(np.int64), weights.tolist(), strict=True)

    def ranks(self, points: Words) -> Ranks:
        """Points [n, axes, 2] as ranks [n, axes]."""
        return np.stack([axis.ranks(axis.values(points[:, at])) for at, axis in enumerate(self.axes)], 1)

    def candidates(self, points: Words, window: int, most: int) -> list[HotBox]:
        """At most *most* hot boxes of the samples *points*, the heaviest first; no two are the same."""
        found: dict[tuple[int, tuple[tuple[Field, tuple[int, int]], ...]], HotBox] = {}
        for box, weight in self.evolved(points, window):
            hot = self.around(box, weight)
            if hot is not None:
                found.setdefault((hot.rule, hot.narrowed), hot)
            if len(found) == most:
                break
        return list(found.values())

    # ---- one box ----

    def around(self, box: npt.NDArray[np.int64], weight: int) -> HotBox | None:
        """The hot box of the rule that decides *box*, which has evolved; None if no such rule may lead."""
        inside = ((self.low <= box[:, 0]) & (self.high >= box[:, 1])).all(1)
        holding = np.flatnonzero(inside)
        if not len(holding):
            return None
        whole = int(holding[0])
        rule = int(self.of[whole])
        if not self.may_lead[rule]:
            return None
        for fields, low, high in self._cuts(whole, box):
            if not self._can_name(fields, low, high):
                continue
            before = self.met_before(rule, whole, low, high, fields)
            if before is not None:
                spans = tuple((field, self._values(field, box)) for field in fields)
                return HotBox(rule, spans, before, tuple(low.tolist()), tuple(high.tolist()), weight)
        return None

    def whole(self, rule: int) -> HotBox | None:
        """The hot box of a rule of one box, whole; None if other rules decide some of its packets."""
        own = np.flatnonzero(self.of == rule)
        if len(own) != 1 or not self.may_lead[rule]:
            return None
        low, high = self.low[own[0]], self.high[own[0]]
        before = self.met_before(rule, int(own[0]), low, high, ())
        return (
            None if before is None else HotBox(rule, (), before, tuple(low.tolist()), tuple(high.tolist()), 0)
        )

    def _cuts(
        self, whole: int, box: npt.NDArray[np.int64]
    ) -> Iterator[tuple[tuple[Field, ...], Ranks, Ranks]]:
        """The box *whole* of a rule, cut in none, one, two ... fields to what has evolved."""
        of_rule = np.flatnonzero(self.of == self.of[whole])
        at_of = {axis.axis.field: at for at, axis in enumerate(self.axes)}
        # The fields in which the boxes of one rule differ must be tested, to have one box.
        told = [
            field
            for field, at in at_of.items()
            if len(np.unique(self.low[of_rule, at])) > 1 or len(np.unique(self.high[of_rule, at])) > 1
        ]
        free = [field for field in self.free if field in at_of]
        if not set(told) <= set(free):
            return
        for count in range(len(told), max(len(told), MOST_NARROWED) + 1):
            for fields in itertools.combinations(free, count):
                if not set(told) <= set(fields):
                    continue
                low, high = self.low[whole].copy(), self.high[whole].copy()
                for field in fields:
                    at = at_of[field]
                    values = self.axes[at].narrowed(int(box[at, 0]), int(box[at, 1]))
                    if values is None:
                        break
                    shift = int(self.axes[at].axis.optional)
                    # An address that the rule names more narrowly than a prefix would is no cut.
                    low[at] = max(low[at], self.axes[at].rank(values[0] + shift))
                    high[at] = min(high[at], self.axes[at].rank(values[1] + shift))
                else:
                    yield fields, low, high

    def _values(self, field: Field, box: npt.NDArray[np.int64]) -> tuple[int, int]:
        at = next(at for at, axis in enumerate(self.axes) if axis.axis.field is field)
        values = self.axes[at].narrowed(int(box[at, 0]), int(box[at, 1]))
        assert values is not None, "a field is narrowed to values that a test can name"
        return values

    def protocol(self, low: Sequence[int] | Ranks, high: Sequence[int] | Ranks) -> int | None:
        """The protocol of all packets of low..high; None if they may have several."""
        for at, axis in enumerate(self.axes):
            if axis.axis.field is Field.PROTO:
                first, last = axis.span(int(low[at]), int(high[at]))
                return first - axis.axis.optional if first == last >= axis.axis.optional else None
        return None

    def _can_name(self, fields: tuple[Field, ...], low: Ranks, high: Ranks) -> bool:
        """Whether a rule can test these fields: ports only where the box has one protocol with ports."""
        ports = Field.SPORT in fields or Field.DPORT in fields
        return not ports or self.protocol(low, high) in (TCP, UDP)

    def met_before(
        self, rule: int, whole: int, low: Ranks, high: Ranks, fields: Sequence[Field]
    ) -> tuple[int, ...] | None:
        """The rules to be read before *rule* with the box low..high; None: these are too many, or cannot be.

        They meet the box, stand before *whole*, the box of the list that contains it, and do something else.
        *fields*: those that the hot rule tests besides.
        """
        needed = self.needs[rule]
        if Field.SPORT in fields or Field.DPORT in fields:
            header = HEADER_BYTES[self.protocol(low, high) or UDP]
            tested = [header if backend is Backend.LEGACY else 0 for backend in self.backends]
            needed = np.maximum(needed, tested)
        asks = bool(self.asks_protocol[rule]) or Field.PROTO in fields
        before: list[int] = []
        for each in self._conflicts(whole, low, high, rule, needed, asks):
            if len(before) == MOST_BEFORE or not self.may_lead[each]:
                return None
            asks_too = bool(self.asks_protocol[each])
            for box in np.flatnonzero(self.of == each).tolist():
                own = self.low[box], self.high[box]
                if not set(self._conflicts(box, *own, each, self.needs[each], asks_too)) <= set(before):
                    return None
            before.append(each)
        return tuple(before)

    def _conflicts(
        self, whole: int, low: Ranks, high: Ranks, rule: int, needed: npt.NDArray[np.int64], asks: bool
    ) -> list[int]:
        """The rules of other classes before box *whole* that may concern a packet of low..high, in order."""
        end = whole
        of = self.of[:end]
        drops: Bools = np.any(self.needs[of] > needed, axis=1)
        if not asks:
            drops |= self.asks_protocol[of]
        lows = np.where(drops[:, None], self.loose_low[:end], self.low[:end])
        highs = np.where(drops[:, None], self.loose_high[:end], self.high[:end])
        meets: Bools = np.all((lows <= high) & (highs >= low), axis=1)
        # A rule that may not lead does more than its class says.
        other: Bools = (self.class_of[:end] != self.classes[rule]) | ~self.may_lead[of] | drops
        return list(dict.fromkeys(of[meets & other].tolist()))


def _drops(match: Match, backend: Backend) -> int:
    """Bytes of layer 4 that a packet must have, or the match drops it; the role of others is unknown."""
    if match.role not in (Role.SPACE, Role.CONSTANT):
        return 1 << 16
    if backend is Backend.NFT and match.native:
        return 0
    return max(match.needs, 1 << 16 if match.option else 0)
