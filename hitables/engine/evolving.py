"""Evolving rules (Ma, Lu, Banerjee and Estan, "Leveraging Parallelism for Multi-dimensional Packet
Classification on Software Routers", section 3.2): boxes of one action that grow from samples of the traffic.

By themselves, for measurements: packets are samples, or are replayed through a cache by one thread.  Inside a
classifier they are the plan `storm(A)`; between threads, `hitables.engine.storm`.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.evolve import FORMS, Evolving
from ..errors import DatabaseError
from .arguments import check_array, check_headers, in_place, one_of, whole
from .cache_statistics import EvolvingStatistics
from .closable import Closable
from .database import LIMIT, NO_RULE, PRIORITY_LIMIT, Rules
from .layout import Layout

# The largest count that the engine takes.
COUNT = 2**32 - 1
ORDERS, FIRST, CUTS = ("weight", "age"), ("contain", "expand"), ("copies", "published")
# What evolve_broken numbers, from 1.
PROPERTIES = (
    "a rule is a box",
    "a rule has one action",
    "a sample lies in the rule that it is assigned to",
    "rules that overlap have the same action",
    "a rule lies in one of the original rules",
    "weights count the samples of the window",
    "the list is in order",
)

Headers = npt.NDArray[np.uint32]


class EvolvingRule(NamedTuple):
    """A box, [dims] of (low, high), the action of its packets (NO_RULE: no rule matches), its samples."""

    box: tuple[tuple[int, int], ...]
    action: int
    weight: int


class Conflict(NamedTuple):
    """What CheckConflict found; *match* and *conflict* are priorities, None where there is none."""

    approved: bool
    match: int | None
    conflict: int | None


def evolve_options(
    window: int, order: str, first: str, tries: int, prune: bool, leaf: int, cuts: str
) -> dict[str, int]:
    """struct evolve_options; DatabaseError for values that are not possible."""
    for name, value, known in (("order", order, ORDERS), ("first", first, FIRST), ("cuts", cuts, CUTS)):
        one_of(name, value, known)
    return {
        "window": whole("window", window, 1, 1 << 24),
        "by_age": ORDERS.index(order),
        "expand_first": FIRST.index(first),
        "tries": whole("tries", tries, 0, 1 << 31),
        "unpruned": not prune,
        "leaf": whole("leaf", leaf, 1, 1 << 20),
        "choose": CUTS.index(cuts),
    }


def checked_classes(rules: Rules, classes: npt.NDArray[np.uint32] | None) -> npt.NDArray[np.uint32] | None:
    """The class of each box, as an array that the engine reads; DatabaseError for other arrays."""
    if classes is None:
        return None
    check_array("classes", classes, np.uint32, len(rules.boxes))
    if len(classes) and int(classes.max()) >= 1 << 31:
        raise DatabaseError(f"class {classes.max()} is too large; classes lie below {1 << 31}")
    return in_place(classes)


def checked_headers(headers: Headers, layout: Layout) -> Headers:
    """Headers as an array that the engine reads; DatabaseError for other arrays, and for values wider than
    their fields.
    """
    check_headers(headers, layout.dims)
    tops = np.array([(1 << bits) - 1 for bits in layout.bits], np.uint32)
    if (headers > tops).any():
        raise DatabaseError("a value of the headers is wider than its field")
    return in_place(headers)


class EvolvingRules(Closable[Evolving]):
    """Rules that evolve from samples.  One thread at a time.

    classes  [boxes] the action of each box of *rules*; None: each rule is an action of its own
    window   samples that count
    order    of the list: by falling "weight", or by "age"
    first    "contain": a sample is looked for in all rules before any is grown; "expand": in one pass, as the
             paper reads
    tries    boxes that a sample may try to grow, 0 for any number
    prune    leave out parts of the tree that cannot change what CheckConflict finds
    leaf     rules in a leaf of that tree; cuts: how it is cut, to copy few rules or as the paper describes it
    limit    bytes that everything may take, 0 for any number
    """

    CLOSED = "the evolving rules are closed"

    def __init__(
        self,
        rules: Rules,
        classes: npt.NDArray[np.uint32] | None = None,
        *,
        window: int = 1024,
        order: str = "weight",
        first: str = "contain",
        tries: int = 0,
        prune: bool = True,
        leaf: int = 16,
        cuts: str = "copies",
        limit: int = 0,
    ) -> None:
        limit = whole("limit", limit, 0, LIMIT)
        if not isinstance(rules, Rules):
            raise DatabaseError(f"evolving rules are those of Rules, not of {type(rules).__name__}")
        options = evolve_options(window, order, first, tries, bool(prune), leaf, cuts)
        self.layout, self.window = rules.layout, window
        boxes, priority = in_place(rules.boxes), in_place(rules.priority)
        self._handle = Evolving(
            options, rules.layout.bits, boxes, priority, checked_classes(rules, classes), limit
        )

    def sample(self, headers: Headers) -> None:
        """Take each of *headers* [headers][dims] as a sample."""
        self._opened().samples(checked_headers(headers, self.layout))

    def replay(
        self, headers: Headers, *, cache: int = 20, every: int = 1, publish: int = 1, form: str = "columns"
    ) -> npt.NDArray[np.uint32]:
        """Packets through a cache of the first *cache* rules: [headers] their entries, or *cache* for none.

        every    packets of which one is a sample
        publish  samples after which the cache is renewed; a replay begins with the rules as they are
        """
        rows = checked_headers(headers, self.layout)
        place = np.empty(len(rows), np.uint32)
        self._check_cache(cache, form)
        every = min(whole("every", every, 1, COUNT), 1 << 20)
        self._opened().replay(rows, form, cache, every, whole("publish", publish, 1, COUNT), place)
        return place

    def look_up(
        self, headers: Headers, *, cache: int = 20, times: int = 1, form: str = "columns"
    ) -> npt.NDArray[np.uint32]:
        """The entry of each header in the first *cache* rules, as they are; the number of entries: none.

        form   "columns" (sixteen headers at once), "rows" (an array) or "list" (a linked list)
        times  look all of them up so often, for measurements
        """
        rows = checked_headers(headers, self.layout)
        place = np.empty(len(rows), np.uint32)
        self._check_cache(cache, form)
        self._opened().look_up(rows, form, cache, whole("times", times, 0, COUNT), place)
        return place

    def rules(self) -> list[EvolvingRule]:
        """The evolving rules, in the order of the list."""
        boxes, actions, weights = self._opened().listed()
        return [
            EvolvingRule(tuple((int(low), int(high)) for low, high in box), int(action), int(weight))
            for box, action, weight in zip(boxes, actions.view(np.int32), weights, strict=True)
        ]

    def approves(self, ranges: list[tuple[int, int]], action: int) -> Conflict:
        """CheckConflict (algorithm 1): whether all packets of a box have an action, NO_RULE included."""
        box = self.layout.boxes(ranges)
        if len(box) != 1:
            raise DatabaseError("the ranges are several boxes; ask for one of them")
        found = self._opened().approves(
            in_place(box[0]), whole("action", action, NO_RULE, PRIORITY_LIMIT) & 0xFFFFFFFF
        )
        none = NO_RULE & 0xFFFFFFFF
        return Conflict(found[0], *(None if each == none else each for each in found[1:]))

    def root(self) -> dict[int, int]:
        """How the root of the tree is cut: the parts of each dimension that it cuts."""
        _, dims, bits = self._opened().root()
        return {dim: 1 << width for dim, width in zip(dims, bits, strict=True) if width}

    def parts(self, ranges: list[tuple[int, int]]) -> list[int]:
        """The parts of the root that a box meets; they are numbered dimension by dimension, as in `root`."""
        return self._opened().parts(in_place(self.layout.boxes(ranges)[0]))

    def statistics(self) -> EvolvingStatistics:
        """Of all samples so far."""
        return EvolvingStatistics(**self._opened().statistics())

    def check(self) -> None:
        """DatabaseError that names the first of the paper's properties which does not hold."""
        broken = self._opened().broken()
        if broken:
            raise DatabaseError(f"property {broken} does not hold: {PROPERTIES[broken - 1]}")

    @property
    def bytes(self) -> int:
        """The memory of window, rules and tree, counted."""
        return self._opened().bytes()

    def _check_cache(self, cache: int, form: str) -> None:
        one_of("form", form, FORMS)
        if whole("cache", cache, 0, sys.maxsize) > self.window:
            raise DatabaseError(
                f"a cache of {cache} rules: a window of {self.window} samples has at most as many"
            )
