"""Filters with actions, and events for monitors (Sahasranaman and Buddhikot, section 3.2).

A Virtual Filter Database in which every rule has an action.  A packet that matches no filter is denied.  A
packet may cause an event, which every monitor gets; a monitor answers events with filters, inserted and
removed while packets are classified in other threads.  The queue of events is bounded: a monitor that is
late loses the oldest, counts them, and sees in the numbers of the others where they are missing.  The
engine's side is core/include/filters.h.
"""

from __future__ import annotations

import enum
import math
import select
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core import filters as core
from ..errors import DatabaseError
from .algorithms import AlgorithmSpec
from .arguments import check_array, check_headers, check_in_place, in_place, whole
from .closable import Closable
from .database import LIMIT, PRIORITY_LIMIT, Rules
from .layout import FIVE_TUPLE, WORD, Layout, Range, check_layout

# Events that the queue holds by default, and at most.
ROOM, MOST_ROOM = 1024, 1 << 24
# Events that one read of a monitor returns at most, by default.
READ = 256
# Seconds that one wait for an event takes at most: the next begins at once.
LONGEST_WAIT = 3600


class Action(enum.IntEnum):
    """What becomes of a packet.

    The paper has the first three: only what matches an Allow rule passes, so Add_event drops the packet.
    ALLOW_EVENT is ours: the end of a connection is to be noticed, and to arrive.
    """

    DENY = core.DENY
    ALLOW = core.ALLOW
    ADD_EVENT = core.ADD_EVENT
    ALLOW_EVENT = core.ALLOW_EVENT

    @property
    def passes(self) -> bool:
        return bool(self & core.ALLOW)

    @property
    def queues(self) -> bool:
        """Whether an event is queued."""
        return bool(self & core.ADD_EVENT)


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter: its range of each field, both ends included.  The least priority that matches decides."""

    priority: int
    ranges: tuple[Range, ...]
    action: Action

    def __post_init__(self) -> None:
        if not isinstance(self.action, int) or self.action not in tuple(Action):
            known = ", ".join(each.name for each in Action)
            raise DatabaseError(f"filter {self.priority}: {self.action!r} is no action; there are {known}")
        object.__setattr__(self, "action", Action(self.action))


@dataclass(frozen=True, slots=True)
class Event:
    """A packet that matched a filter with an event.

    number  of the event, from 0; numbers that a monitor misses are events that it lost
    time    of the packet, ns since 1970: as `Filters.classify` was given it, or of the search
    header  the packet's value of each field
    """

    number: int
    time: int
    priority: int
    action: Action
    header: tuple[int, ...]


class Verdicts(NamedTuple):
    """Of each packet: its action [headers], and the priority of its filter, or -1 [headers]."""

    actions: npt.NDArray[np.uint8]
    priorities: npt.NDArray[np.int32]

    @property
    def passed(self) -> npt.NDArray[np.bool_]:
        """[headers] whether the packet passes."""
        return (self.actions & core.ALLOW).astype(np.bool_)


@dataclass(frozen=True, slots=True)
class FilterStatistics:
    """packets = allowed + denied + unmatched; *unmatched* are denied for want of a filter.

    events  caused, whether a monitor was open or not
    """

    packets: int
    allowed: int
    denied: int
    unmatched: int
    events: int


@dataclass(frozen=True, slots=True)
class MonitorStatistics:
    """Events since the monitor was opened = delivered + lost + pending."""

    delivered: int
    lost: int
    pending: int


class Filters(Closable[core.Filters]):
    """Filters behind one algorithm.  All methods may be called by any number of threads at a time."""

    CLOSED = "the filters are closed"

    def __init__(
        self,
        algorithm: str | AlgorithmSpec,
        filters: Iterable[Filter] = (),
        *,
        layout: Layout = FIVE_TUPLE,
        room: int = ROOM,
        limit: int = 0,
    ) -> None:
        """Open *filters* under *algorithm*, such as "tss" or "sfl(rfc, delta=20)".

        layout  the fields of headers and filters
        room    events in the queue, at most
        limit   the bytes that filters and queue may take, 0 for any number
        Raises DatabaseError for what is not possible, OutOfMemory.
        """
        self.spec = algorithm if isinstance(algorithm, AlgorithmSpec) else AlgorithmSpec.read(algorithm)
        check_layout(layout)
        self.spec.check_dims(layout.dims)
        self.layout, self.room = layout, whole("room", room, 1, MOST_ROOM)
        limit = whole("limit", limit, 0, LIMIT)
        given = list(filters)
        for each in given:
            _check_filter(each)
        given.sort(key=lambda each: each.priority)
        rules = Rules.of_ranges([each.ranges for each in given], layout, [each.priority for each in given])
        self._filters = {each.priority: each for each in given}
        by_box = [self._filters[priority].action for priority in rules.priority.tolist()]
        self._changing = threading.Lock()  # of _filters and the engine's filters together
        self._handle = core.Filters(
            self.spec.composition(), str(self.spec), layout.bits, in_place(rules.boxes),
            in_place(rules.priority), np.array(by_box, np.uint8), self.room, limit,
        )  # fmt: skip

    def insert(self, added: Filter) -> None:
        """Insert a filter, which is in force when this returns."""
        _check_filter(added)
        boxes = self.layout.boxes(added.ranges)
        with self._changing:
            self._opened().insert(boxes, added.priority, added.action)
            self._filters[added.priority] = added

    def remove(self, priority: int) -> Filter:
        """Remove the filter of that priority.  When this returns, it causes no more events."""
        with self._changing:
            handle = self._opened()
            self._there(priority)
            handle.remove(priority)
            return self._filters.pop(priority)

    def change(self, priority: int, action: Action) -> None:
        """Give the filter of that priority another action."""
        with self._changing:
            handle = self._opened()
            after = replace(self._there(priority), action=action)
            handle.change(priority, action)
            self._filters[priority] = after

    def _there(self, priority: int) -> Filter:
        if priority not in self._filters:
            raise DatabaseError(f"no filter of priority {priority} is there")
        return self._filters[priority]

    def classify(
        self, headers: npt.NDArray[np.uint32], times: npt.NDArray[np.int64] | None = None
    ) -> Verdicts:
        """The verdicts on packets, whose events are queued in their order.

        headers  [headers][dims], row by row in memory (`layout.headers`); not copied, and as for
                 `Database.search` no value may be wider than its field
        times    [headers] ns since 1970, for the events; None: the time of the search
        Other threads run meanwhile, and filters may change between two blocks of packets.
        """
        check_headers(headers, self.layout.dims)
        check_in_place("headers", headers)
        if times is not None:
            check_array("times", times, np.int64, len(headers))
        verdicts = Verdicts(np.empty(len(headers), np.uint8), np.empty(len(headers), np.int32))
        self._opened().classify(headers, None if times is None else in_place(times), *verdicts)
        return verdicts

    def monitor(self) -> Monitor:
        """A reader of all events from now on.  Every monitor gets every event."""
        return Monitor(core.Monitor(self._opened()), self.layout, self.room)

    def __iter__(self) -> Iterator[Filter]:
        """The filters, best first."""
        with self._changing:
            self._opened()
            return iter(sorted(self._filters.values(), key=lambda each: each.priority))

    def __len__(self) -> int:
        return self._opened().count()

    def packets(self, priority: int) -> int:
        """The packets for which the filter of that priority was the best one."""
        with self._changing:
            handle = self._opened()
            self._there(priority)
            return handle.packets(priority)

    def statistics(self) -> FilterStatistics:
        return FilterStatistics(**self._opened().statistics())

    @property
    def bytes(self) -> int:
        """The memory of filters and queue, counted."""
        return self._opened().bytes()

    def _ended(self, handle: core.Filters) -> None:
        """Monitors return the events that are left, then raise DatabaseError."""
        handle.close()


class Monitor(Closable[core.Monitor]):
    """A reader of events, until it is closed or the filters are.  Several threads that read one monitor
    share its events; a monitor for each gets them all.
    """

    CLOSED = "the monitor is closed"

    def __init__(self, handle: core.Monitor, layout: Layout, room: int) -> None:
        self._layout, self._room = layout, room
        self._handle = handle

    def _ended(self, handle: core.Monitor) -> None:
        handle.close()

    def fileno(self) -> int:
        """A descriptor that is readable when `read` has events, or nothing to wait for."""
        return self._opened().descriptor

    def read(self, timeout: float | None = None, most: int = READ) -> list[Event]:
        """Pending events, oldest first: at least one, but none when *timeout* seconds pass without any.

        timeout  None: wait for as long as it takes; 0: return at once
        DatabaseError when the monitor or the filters are closed and no event is left.
        """
        most = min(whole("most", most, 1, sys.maxsize), self._room)  # the queue has no more
        if timeout is not None and math.isnan(timeout):
            raise DatabaseError("timeout must be a number of seconds, or None, not nan")
        handle = self._opened()
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            records, headers = handle.read(most)
            if len(records):
                return list(self._events(records, headers))
            if handle.ended():
                raise DatabaseError(self.CLOSED if handle.closed else Filters.CLOSED)
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return []
            poll = select.poll()
            poll.register(handle.descriptor, select.POLLIN)
            poll.poll(1000 * (LONGEST_WAIT if left is None else min(max(0.001, left), LONGEST_WAIT)))

    def _events(self, records: npt.NDArray[np.void], headers: npt.NDArray[np.uint32]) -> Iterator[Event]:
        for (number, at, priority, action), row in zip(records.tolist(), headers.tolist(), strict=True):
            yield Event(number, at, priority, Action(action), joined(row, self._layout))

    def statistics(self) -> MonitorStatistics:
        return MonitorStatistics(**self._opened().statistics())


def _check_filter(given: object) -> None:
    if not isinstance(given, Filter):
        raise DatabaseError(f"a filter must be a Filter, not {given!r}")
    whole("priority", given.priority, 0, PRIORITY_LIMIT - 1)


def joined(words: Sequence[int], layout: Layout) -> tuple[int, ...]:
    """The fields of a header, from its words [dims]."""
    values, at = [], 0
    for width in layout.widths:
        value = 0
        for word in words[at : at + -(-width // WORD)]:
            value = value << WORD | word
        values.append(value)
        at += -(-width // WORD)
    return tuple(values)
