"""The Virtual Filter Database (Sahasranaman and Buddhikot, section 3): classifiers behind one interface.

Rules have priorities, and a search returns the least priority that matches.  Every algorithm returns what
`linear` returns; they differ in the cost of a search, a build and an update.  The engine's side is
core/include/vfdb.h.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from ..core.classifiers import WORK, Classifier, U32Array
from ..errors import DatabaseError
from .algorithms import AlgorithmSpec
from .arguments import check_array, check_headers, check_in_place, in_place, whole
from .cache_statistics import CacheStatistics
from .closable import Closable
from .flow_statistics import FlowStatistics, statistics
from .layout import FIVE_TUPLE, Layout, Range, check_layout

# The result of a search if no rule matches.
NO_RULE = -1
# Priorities are below this.
PRIORITY_LIMIT = 2**31 - 1
# The largest limit of memory, in bytes.
LIMIT = 2**62 - 1


class FiveTuple(Protocol):
    """A rule as hitables.parse.classbench reads it; *proto* None means any."""

    @property
    def src(self) -> Range: ...
    @property
    def dst(self) -> Range: ...
    @property
    def sport(self) -> Range: ...
    @property
    def dport(self) -> Range: ...
    @property
    def proto(self) -> int | None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """Rules, best first.

    boxes     [boxes][dims][2] low and high, both included
    priority  [boxes] rising; boxes of one rule share it, and do not overlap
    """

    layout: Layout
    boxes: npt.NDArray[np.uint32]
    priority: npt.NDArray[np.uint32]

    def __post_init__(self) -> None:
        layout, boxes, priority = self.layout, self.boxes, self.priority
        check_layout(layout)
        check_array("boxes", boxes, np.uint32, "boxes", layout.dims, 2)
        check_array("priorities", priority, np.uint32, len(boxes))
        _check_priorities(priority)
        falls = np.flatnonzero(priority[1:] < priority[:-1])
        if len(falls):
            raise DatabaseError(f"box {falls[0] + 1}: priorities must rise")
        tops = np.array([(1 << bits) - 1 for bits in layout.bits], np.uint32)
        for wrong, why in (
            (boxes[:, :, 0] > boxes[:, :, 1], "the range is empty"),
            (boxes[:, :, 1] > tops, "the range is wider than its field"),
        ):
            if wrong.any():
                box, dim = np.argwhere(wrong)[0]
                low, high = boxes[box, dim]
                raise DatabaseError(f"box {box}, dimension {dim}: {why}: {low}..{high}")

    @classmethod
    def of_ranges(
        cls, ranges: Sequence[Sequence[Range]], layout: Layout, priorities: Sequence[int] | None = None
    ) -> Self:
        """Rules by their range of each field, of any width; *priorities* None: 0, 1, 2, …"""
        check_layout(layout)
        given = range(len(ranges)) if priorities is None else priorities
        chosen = [whole("a priority", each, 0, PRIORITY_LIMIT - 1) for each in given]
        if len(chosen) != len(ranges):
            raise DatabaseError(f"{len(chosen)} priorities for {len(ranges)} rules")
        if len(set(chosen)) < len(chosen):
            twice = next(priority for priority, times in Counter(chosen).items() if times > 1)
            raise DatabaseError(f"priority {twice} is given twice")
        order = sorted(range(len(ranges)), key=chosen.__getitem__)
        rule_boxes = [layout.boxes(ranges[number]) for number in order]
        boxes = np.concatenate([np.empty((0, layout.dims, 2), np.uint32), *rule_boxes])
        rising = np.array([chosen[number] for number in order], np.uint32)
        return cls(layout, boxes, np.repeat(rising, [len(each) for each in rule_boxes]))

    @classmethod
    def of_filter(cls, filters: Iterable[FiveTuple]) -> Self:
        """Five-tuple rules, with their index in the list as priority."""
        filters = list(filters)
        for rule in filters:
            if not all(hasattr(rule, name) for name in ("src", "dst", "sport", "dport", "proto")):
                raise DatabaseError(
                    f"{rule!r} is no rule of five fields; rules by ranges are Rules.of_ranges"
                )
        ranges = [(rule.src, rule.dst, rule.sport, rule.dport, _protocols(rule.proto)) for rule in filters]
        return cls(FIVE_TUPLE, _boxes_of(ranges), np.arange(len(filters), dtype=np.uint32))

    def __len__(self) -> int:
        return len(np.unique(self.priority))


def open(algorithm: str | AlgorithmSpec, rules: Rules | Iterable[FiveTuple], *, limit: int = 0) -> Database:
    """A database of *rules* under *algorithm*, such as "hypersplit" or "sfl(rfc, delta=20)".

    limit  the bytes that its structure may take, 0 for any number
    Raises DatabaseError for an algorithm or rules that are not possible, OutOfMemory.
    """
    return Database(algorithm, rules, limit=limit)


class Database(Closable[Classifier]):
    """Rules behind one algorithm.  Many threads may search; updates wait for them."""

    CLOSED = "the database is closed"

    def __init__(
        self, algorithm: str | AlgorithmSpec, rules: Rules | Iterable[FiveTuple], *, limit: int = 0
    ) -> None:
        self.spec = algorithm if isinstance(algorithm, AlgorithmSpec) else AlgorithmSpec.read(algorithm)
        if not isinstance(rules, Rules):
            rules = Rules.of_filter(rules)
        limit = whole("limit", limit, 0, LIMIT)
        self.layout = rules.layout
        self.spec.check_dims(self.layout.dims)
        boxes, priority = in_place(rules.boxes), in_place(rules.priority)
        self._handle = Classifier(
            self.spec.composition(), str(self.spec), self.layout.bits, boxes, priority, limit
        )

    def search(
        self, headers: npt.NDArray[np.uint32], out: npt.NDArray[np.int32] | None = None
    ) -> npt.NDArray[np.int32]:
        """[headers] the priority of the best rule for each of headers [headers][dims], or NO_RULE.

        Nothing is copied, and other threads run meanwhile.  A value must not be wider than its field, which
        `layout.headers` checks: here a look at each would add 7 % or more to the fastest search, so
        the answer for such a header is any, except that a plan checked(A) refuses it.
        """
        out = self._checked(headers, out)
        self._opened().search(headers, out)
        return out

    def search_one_by_one(
        self, headers: npt.NDArray[np.uint32], out: npt.NDArray[np.int32] | None = None
    ) -> npt.NDArray[np.int32]:
        """The answers of `search`, each header searched when the last has its answer.

        For measurements of what one search takes; `search` works on many headers at a time.
        """
        out = self._checked(headers, out)
        self._opened().search_chained(headers, out)
        return out

    def work(self, headers: npt.NDArray[np.uint32]) -> tuple[npt.NDArray[np.int32], dict[str, U32Array]]:
        """The answers of `search`, and what the search of each header read: counts [headers] by name.

        nodes   of trees and tries, entries of tables
        lists   of rules, or of bits of rules, that were begun
        hashes  computed; tuples: tried
        rules   compared with the header
        flows   of a flow state table, compared with the header
        keys    of sorted lists of prefixes, compared with a field (pacars)
        DatabaseError for an algorithm that does not count.
        """
        out = self._checked(headers, None)
        counts = np.zeros((len(headers), len(WORK)), np.uint32)
        self._opened().search_counted(headers, out, counts)
        return out, {name: counts[:, number] for number, name in enumerate(WORK)}

    def walk(self, headers: npt.NDArray[np.uint32], *, one_by_one: bool = False) -> U32Array:
        """The descent alone of a classifier that has tries (tss_tries, pacars), for measurements: the nodes
        that each header meets, [headers]; side by side, or each begun when the last has ended.

        DatabaseError for other classifiers.
        """
        self._checked(headers, None)
        steps = np.zeros(len(headers), np.uint32)
        self._opened().walk(headers, steps, one_by_one)
        return steps

    def flow_statistics(self) -> FlowStatistics:
        """What the flow state table of a plan flows(A) did; DatabaseError for other plans.

        Comparisons, moves, writes and places are those of `work`; `search` does not count them.
        """
        return statistics(self._opened().flow_statistics(), history=False)

    def cache_statistics(self) -> CacheStatistics:
        """What the rule cache of a plan storm(A) did; DatabaseError for other plans."""
        return CacheStatistics.of(self._opened().cache_statistics())

    def insert(self, ranges: Sequence[Range], priority: int) -> None:
        """Insert a rule, by its range of each field."""
        boxes = self.layout.boxes(ranges)
        self._opened().insert(boxes, whole("priority", priority, 0, PRIORITY_LIMIT - 1))

    def remove(self, priority: int) -> None:
        """Remove the rule of that priority."""
        self._opened().remove(whole("priority", priority, 0, PRIORITY_LIMIT - 1))

    def insert_at(self, position: int, ranges: Sequence[Range]) -> None:
        """Insert a rule in front of the one at *position*, from 0; the number of rules: behind the last.

        The rules from there on are one position further back.  Priorities of other rules may change, but not
        their order.  DatabaseError for a position that is not there.
        """
        self._opened().insert_at(self.layout.boxes(ranges), _position(position))

    def remove_at(self, position: int) -> None:
        """Remove the rule at *position*, from 0; those behind it are one position further in front."""
        self._opened().remove_at(_position(position))

    def search_positions(
        self, headers: npt.NDArray[np.uint32], out: npt.NDArray[np.int32] | None = None
    ) -> npt.NDArray[np.int32]:
        """As `search`, with the position of the best rule, from 0, in place of its priority."""
        out = self._checked(headers, out)
        self._opened().search_positions(headers, out)
        return out

    def update(
        self, inserts: npt.NDArray[np.bool_], boxes: npt.NDArray[np.uint32], priority: npt.NDArray[np.uint32]
    ) -> None:
        """Many updates in a row, rules of one box each.

        inserts   [updates] whether to insert a rule, or to remove it
        boxes     [updates][dims][2], of the rules to insert
        priority  [updates]
        The first update that is refused raises, with its number; those before it remain in effect.
        """
        check_array("inserts", inserts, np.bool_, "updates")
        check_array("boxes", boxes, np.uint32, len(inserts), self.layout.dims, 2)
        check_array("priorities", priority, np.uint32, len(inserts))
        _check_priorities(priority)
        self._opened().update(in_place(inserts), in_place(boxes), in_place(priority))

    def settle(self) -> None:
        """Wait for work in the background."""
        self._opened().settle()

    def __len__(self) -> int:
        return self._opened().rule_count()

    @property
    def bytes(self) -> int:
        """The memory of the structure, counted, without the list of rules from which it is built."""
        return self._opened().bytes()

    @property
    def peak_bytes(self) -> int:
        """The most memory that building and changing the structure took at any time."""
        return self._opened().peak_bytes()

    @property
    def builds(self) -> int:
        """How often the structure was built as a whole."""
        return self._opened().builds()

    @property
    def rebuilds(self) -> int:
        """How often the structure was built again; of plans sfl(A) and classic(A), how often A was."""
        return self._opened().rebuilds()

    def _checked(
        self, headers: npt.NDArray[np.uint32], out: npt.NDArray[np.int32] | None
    ) -> npt.NDArray[np.int32]:
        """Where the answers go: *out*, if there is one; DatabaseError for arrays of other kinds."""
        check_headers(headers, self.layout.dims)
        check_in_place("headers", headers)
        if out is None:
            return np.empty(len(headers), np.int32)
        check_array("out", out, np.int32, len(headers))
        check_in_place("out", out, written=True)
        return out

    def opened(self) -> Classifier:
        """The engine's side, for other parts of it that search these rules."""
        return self._opened()


def _check_priorities(priority: npt.NDArray[np.uint32]) -> None:
    if len(priority) and int(priority.max()) >= PRIORITY_LIMIT:
        raise DatabaseError(f"priority {priority.max()} is too large; priorities lie below {PRIORITY_LIMIT}")


def _position(position: int) -> int:
    return whole("position", position, 0, PRIORITY_LIMIT - 1)


def _protocols(proto: int | None) -> Range:
    return (0, 255) if proto is None else (proto, proto)


def _boxes_of(ranges: Sequence[Sequence[Range]]) -> npt.NDArray[np.uint32]:
    """[rules][dims][2]: the box of each rule of five fields; DatabaseError for what are no whole numbers."""
    shape = (len(ranges), FIVE_TUPLE.dims, 2)
    try:
        values = np.array(ranges)
    except ValueError:  # some have more numbers than others
        values = np.empty(0)
    if values.shape == shape and values.dtype.kind in "iu" and values.min() >= 0 and values.max() < 1 << 32:
        return values.astype(np.uint32)
    boxes = []  # again one by one, for the error
    for number, each in enumerate(ranges):
        try:
            boxes.append(FIVE_TUPLE.boxes(each))
        except DatabaseError as error:
            raise DatabaseError(f"rule {number}: {error}") from None
    return np.concatenate([np.empty((0, *shape[1:]), np.uint32), *boxes])
