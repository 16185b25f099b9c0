"""Filters with actions and events of the C engine (include/filters.h).

A thin layer: arrays go in and out without a copy, and a status becomes an exception.
`hitables.engine.filters` checks what users give and is the interface for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._engine import ffi, lib
from .arrays import pointer
from .classifiers import Composition, EnginePlan, U32Array
from .owned import owned
from .records import as_values
from .status import FILTERS, check

DENY, ALLOW = int(lib.FILTER_DENY), int(lib.FILTER_ALLOW)
ADD_EVENT, ALLOW_EVENT = int(lib.FILTER_ADD_EVENT), int(lib.FILTER_ALLOW_EVENT)

# struct filter_event.
EVENT = np.dtype(
    [("number", np.uint64), ("time_ns", np.int64), ("priority", np.uint32), ("action", np.uint32)]
)
assert EVENT.itemsize == ffi.sizeof("struct filter_event")


class Filters:
    """Filters behind one algorithm, and their queue of events.

    The memory is freed with the last reference to this object or to one of its monitors, so a thread that is
    inside a call is safe while another one closes.
    """

    def __init__(
        self,
        composition: Composition,
        name: str,
        bits: Sequence[int],
        boxes: U32Array,
        priority: U32Array,
        action: npt.NDArray[np.uint8],
        room: int,
        limit: int,
    ) -> None:
        self._name, self.dims = name, len(bits)
        self._plan = plan = EnginePlan(composition)
        rules = ffi.new("struct vfdb_rules *")
        widths = ffi.new("uint8_t[]", list(bits))
        rules.dims, rules.count, rules.bits = len(bits), len(priority), widths
        rules.priority, rules.box = pointer("uint32_t", priority), pointer("uint32_t", boxes)
        handle = ffi.new("struct filters **")
        c_action = pointer("uint8_t", action)

        def build() -> int:
            return int(lib.filters_open(plan.c_plan, rules, c_action, room, limit, handle))

        try:
            self._check(plan.run(build))
        except BaseException:
            lib.filters_close(handle[0])  # an interrupt may come when the build has just ended
            raise
        # The plan is read until the end: a structure may be building in the background.
        self._filters = owned(handle[0], lib.filters_close, plan)

    @property
    def handle(self) -> Any:
        """The filters (struct filters *)."""
        return self._filters

    def _check(self, status: int, priority: int = 0) -> None:
        check(FILTERS, status, plan=self._name, priority=priority)

    def _updated(self, call: Callable[[], int]) -> int:
        """The status of an update."""
        return self._plan.run(call, short=not self._plan.anew)

    def close(self) -> None:
        """Monitors that wait return, and get no more events."""
        lib.filters_end(self._filters)

    def insert(self, boxes: U32Array, priority: int, action: int) -> None:
        """Insert a filter of these boxes [boxes][dims][2]."""
        boxes = np.ascontiguousarray(boxes)
        c_boxes, count = pointer("uint32_t", boxes), len(boxes)
        status = self._updated(lambda: lib.filters_insert(self._filters, c_boxes, count, priority, action))
        self._check(status, priority)

    def remove(self, priority: int) -> None:
        self._check(self._updated(lambda: lib.filters_remove(self._filters, priority)), priority)

    def change(self, priority: int, action: int) -> None:
        """Give a filter another action."""
        self._check(lib.filters_change(self._filters, priority, action), priority)

    def classify(
        self,
        headers: U32Array,
        times: npt.NDArray[np.int64] | None,
        actions: npt.NDArray[np.uint8],
        priorities: npt.NDArray[np.int32],
    ) -> None:
        """Write the action and the priority (-1: none) for each of *headers* [headers][dims]."""
        done = ffi.new("size_t *")
        status = lib.filters_classify(
            self._filters, pointer("uint32_t", headers), pointer("int64_t", times), len(headers),
            pointer("uint8_t", actions), ffi.cast("uint32_t *", ffi.from_buffer(priorities)), done,
        )  # fmt: skip
        self._check(status)

    def statistics(self) -> dict[str, Any]:
        """struct filters_stats, by name."""
        stats = ffi.new("struct filters_stats *")
        lib.filters_stats_of(self._filters, stats)
        return as_values(stats)

    def packets(self, priority: int) -> int:
        """The packets for which the filter was the best one."""
        packets = ffi.new("uint64_t *")
        self._check(lib.filters_packets(self._filters, priority, packets), priority)
        return int(packets[0])

    def count(self) -> int:
        return int(lib.filters_count(self._filters))

    def bytes(self) -> int:
        """All memory of the filters, counted."""
        return int(lib.filters_bytes(self._filters))


class Monitor:
    """A reader of the events of *filters*, which it keeps alive."""

    def __init__(self, filters: Filters) -> None:
        handle = ffi.new("struct filter_monitor **")
        check(FILTERS, lib.filter_monitor_open(filters.handle, handle), plan="a monitor")
        # The queue is the filters', so they outlive the monitor.
        self._monitor = owned(handle[0], lib.filter_monitor_close, filters)
        self._dims = filters.dims
        self.closed = False
        self.descriptor = int(lib.filter_monitor_fd(self._monitor))

    def close(self) -> None:
        """Threads that wait for an event return."""
        self.closed = True
        lib.filter_monitor_end(self._monitor)

    def ended(self) -> bool:
        """Whether there will be no more events."""
        return bool(lib.filter_monitor_ended(self._monitor))

    def read(self, most: int) -> tuple[npt.NDArray[Any], U32Array]:
        """Pending events, at most *most*: EVENT [events], and their headers [events][dims]."""
        events, headers = np.empty(most, EVENT), np.empty((most, self._dims), np.uint32)
        records = ffi.cast("struct filter_event *", ffi.from_buffer(events))
        count = lib.filter_monitor_read(self._monitor, most, records, pointer("uint32_t", headers))
        return events[:count], headers[:count]

    def statistics(self) -> dict[str, Any]:
        """struct filter_monitor_stats, by name."""
        stats = ffi.new("struct filter_monitor_stats *")
        lib.filter_monitor_stats_of(self._monitor, stats)
        return as_values(stats)
