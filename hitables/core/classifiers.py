"""The classifiers of the C engine (include/vfdb.h): the registry of algorithms, and one classifier.

A thin layer: arrays go in and out without a copy, and a status becomes an exception.  `hitables.engine`
checks what users give and is the interface for them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hitables.errors import DatabaseError

from ._engine import ffi, lib
from .arrays import pointer
from .owned import owned
from .records import as_values
from .status import DATABASE, EVOLVE, FLOWS, WALK, check
from .threads import stoppable

U32Array = npt.NDArray[np.uint32]

# The algorithm that collects updates of what it wraps, and the one that builds it again after each.
BUFFERS, REBUILDS = "sfl", "classic"

# The counts of struct vfdb_work, in its order.
WORK: tuple[str, ...] = tuple(name for name, _ in ffi.typeof("struct vfdb_work").fields)


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of an algorithm: a whole number from *minimum* to *maximum*."""

    name: str
    meaning: str
    default: int
    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An entry of the registry.

    dims         the fewest and the most dimensions that its rules may have
    prefix_dims  the number of dimensions, from the first, whose ranges are cut into prefixes for it
    updates      rules can be inserted and removed without a new build
    wraps        it takes another algorithm
    ops          its functions (struct vfdb_ops *)
    """

    name: str
    title: str
    dims: tuple[int, int]
    prefix_dims: int
    updates: bool
    wraps: bool
    params: tuple[Param, ...]
    ops: Any = field(repr=False, compare=False)

    def as_data(self) -> dict[str, Any]:
        """The entry, for JSON."""
        names = ("name", "title", "dims", "prefix_dims", "updates", "wraps")
        params = [
            {
                "name": param.name,
                "meaning": param.meaning,
                "usual": param.default,
                "least": param.minimum,
                "most": param.maximum,
            }
            for param in self.params
        ]
        return {name: getattr(self, name) for name in names} | {"params": params}


class Composition(NamedTuple):
    """An algorithm, the values of its parameters, and the composition that it wraps."""

    algorithm: Algorithm
    values: Sequence[int]
    inner: Composition | None


def _builds_anew(composition: Composition) -> bool:
    """Whether each update builds anew what is in *composition*; sfl does so once in many updates."""
    if composition.inner is None or composition.algorithm.name == BUFFERS:
        return not composition.algorithm.updates
    return _builds_anew(composition.inner)


def _builds_beside(composition: Composition) -> bool:
    """Whether an update may leave a build to a thread of the engine's own."""
    algorithm, values, inner = composition
    chosen = dict(zip((param.name for param in algorithm.params), values, strict=True))
    if algorithm.name == REBUILDS or (algorithm.name == BUFFERS and chosen["background"]):
        return True
    return inner is not None and _builds_beside(inner)


def _text(chars: Any) -> str:
    return str(ffi.string(chars).decode())


def registered_algorithms() -> Iterator[Algorithm]:
    """The algorithms of the registry, in its order."""
    for number in itertools.count():
        ops = lib.vfdb_algorithm(number)
        if not ops:
            return
        params = tuple(
            Param(_text(param.name), _text(param.meaning), param.usual, param.least, param.most)
            for param in itertools.takewhile(lambda param: param.name, ops.param)
        )
        yield Algorithm(
            _text(ops.name),
            _text(ops.title),
            (ops.least_dims, ops.most_dims),
            ops.prefix_dims,
            bool(ops.insert) and bool(ops.remove),
            ops.wraps,
            params,
            ops,
        )


class EnginePlan:
    """A composition for the engine.  It must outlive what is built by it, also for builds in the background.

    c_plan  the struct vfdb_plan *
    anew    whether an update builds anew, or waits for such a build
    """

    def __init__(self, composition: Composition) -> None:
        self._stop = ffi.new("int *")
        self._owned: list[Any] = []
        self.c_plan = self._plan_of(composition)
        self.anew = _builds_anew(composition)
        self._process = os.getpid() if _builds_beside(composition) else None

    def _plan_of(self, composition: Composition) -> Any:
        inner = self._plan_of(composition.inner) if composition.inner else ffi.NULL
        given = {"ops": composition.algorithm.ops, "inner": inner, "stop": self._stop}
        plan = ffi.new("struct vfdb_plan *", given)
        for number, value in enumerate(composition.values):
            plan.value[number] = value
        self._owned.append(plan)
        return plan

    def stop(self) -> None:
        """End the builds that are running, and refuse others until `run` returns."""
        self._stop[0] = 1

    def run(self, call: Callable[[], int], *, short: bool = False) -> int:
        """The status of *call*, in which an interrupt of the main thread stops builds, unless it is *short*
        (`threads.stoppable`), as only a call that builds nothing is: trees of twenty rules may take minutes.

        DatabaseError in a fork, which does not have the thread that builds: the call would wait for it.
        """
        if self._process not in (None, os.getpid()):
            raise DatabaseError(
                "this process was forked from the one that opened the rules, which builds in the background: "
                "search them here, or open them again to change them"
            )
        try:
            return stoppable(call, self.stop, short=short)
        except BaseException:  # only here: the call of another thread may end while this one is stopped
            self._stop[0] = 0
            raise


class Classifier:
    """Rules behind one algorithm.  Many threads may search at a time; a change waits for them.  The memory is
    freed with the last reference to this object.

    name  of the composition, for errors
    """

    def __init__(
        self,
        composition: Composition,
        name: str,
        bits: Sequence[int],
        boxes: U32Array,
        priority: U32Array,
        limit: int,
    ) -> None:
        self._name = name
        self.plan = plan = EnginePlan(composition)
        rules = ffi.new("struct vfdb_rules *")
        widths = ffi.new("uint8_t[]", list(bits))
        rules.dims, rules.count, rules.bits = len(bits), len(priority), widths
        rules.priority, rules.box = pointer("uint32_t", priority), pointer("uint32_t", boxes)
        handle = ffi.new("struct vfdb **")
        try:
            self._check(plan.run(lambda: lib.vfdb_open(plan.c_plan, rules, limit, handle)))
        except BaseException:
            lib.vfdb_close(handle[0])  # an interrupt may come when the build has just ended
            raise
        # A build in the background reads the plan until the database has been closed.
        self._db = owned(handle[0], lib.vfdb_close, plan)

    @property
    def handle(self) -> Any:
        """The database (struct vfdb *), for other parts of the engine that search it."""
        return self._db

    def _check(self, status: int, priority: int = 0, where: str = "", position: int = 0) -> None:
        facts = {"where": where, "plan": self._name, "priority": priority, "position": position}
        check(DATABASE, status, **facts)

    def _updated(self, call: Callable[[], int]) -> int:
        """The status of an update."""
        return self.plan.run(call, short=not self.plan.anew)

    def search(self, headers: U32Array, out: npt.NDArray[np.int32]) -> None:
        """Write to *out* [headers] the priority of the best rule for each of *headers* [headers][dims], or
        -1.
        """
        priorities = ffi.cast("uint32_t *", ffi.from_buffer(out))
        self._check(lib.vfdb_search(self._db, pointer("uint32_t", headers), len(headers), priorities))

    def search_chained(self, headers: U32Array, out: npt.NDArray[np.int32]) -> None:
        """The same, one header at a time: a search begins when the last has answered."""
        priorities = ffi.cast("uint32_t *", ffi.from_buffer(out))
        self._check(lib.vfdb_search_chained(self._db, pointer("uint32_t", headers), len(headers), priorities))

    def search_counted(self, headers: U32Array, out: npt.NDArray[np.int32], work: U32Array) -> None:
        """The same, and adds to *work* [headers][WORK] what each header took."""
        priorities = ffi.cast("uint32_t *", ffi.from_buffer(out))
        rows = ffi.cast("struct vfdb_work *", ffi.from_buffer(work))
        self._check(
            lib.vfdb_search_counted(self._db, pointer("uint32_t", headers), len(headers), priorities, rows)
        )

    def walk(self, headers: U32Array, steps: U32Array, chained: bool = False) -> None:
        """Write to *steps* [headers] the nodes that each of *headers* meets in the classifier's tries: the
        descent alone, in batches or *chained*.  DatabaseError for a classifier without tries.
        """
        nodes = pointer("uint32_t", steps)
        status = lib.vfdb_walk(self._db, pointer("uint32_t", headers), len(headers), chained, nodes)
        check(WALK, status, plan=self._name)

    def flow_statistics(self) -> dict[str, Any]:
        """struct flow_stats of a plan flows(A), by name."""
        stats = ffi.new("struct flow_stats *")
        check(FLOWS, lib.vfdb_flow_stats(self._db, stats), plan=self._name)
        return as_values(stats)

    def cache_statistics(self) -> dict[str, Any]:
        """struct storm_cache_stats of a plan storm(A), by name; *evolve* is struct evolve_stats."""
        stats = ffi.new("struct storm_cache_stats *")
        check(EVOLVE, lib.vfdb_storm_stats(self._db, stats), plan=self._name)
        whole = ("packets", "hits", "published", "deferred")
        evolve = ffi.addressof(stats, "evolve")
        return {name: int(getattr(stats, name)) for name in whole} | {"evolve": as_values(evolve)}

    def insert(self, boxes: U32Array, priority: int) -> None:
        """Insert a rule of these boxes [boxes][dims][2]."""
        boxes = np.ascontiguousarray(boxes)
        c_boxes, count = pointer("uint32_t", boxes), len(boxes)
        self._check(self._updated(lambda: lib.vfdb_insert(self._db, c_boxes, count, priority)), priority)

    def remove(self, priority: int) -> None:
        """Remove the rule of that priority."""
        self._check(self._updated(lambda: lib.vfdb_remove(self._db, priority)), priority)

    def insert_at(self, boxes: U32Array, position: int) -> None:
        """Insert a rule of these boxes [boxes][dims][2] in front of the rule at *position*."""
        boxes = np.ascontiguousarray(boxes)
        c_boxes, count = pointer("uint32_t", boxes), len(boxes)
        status = self._updated(lambda: lib.vfdb_insert_at(self._db, c_boxes, count, position))
        self._check(status, position=position)

    def remove_at(self, position: int) -> None:
        """Remove the rule at *position*."""
        self._check(self._updated(lambda: lib.vfdb_remove_at(self._db, position)), position=position)

    def search_positions(self, headers: U32Array, out: npt.NDArray[np.int32]) -> None:
        """As `search`, with positions in place of priorities."""
        positions = ffi.cast("uint32_t *", ffi.from_buffer(out))
        count = len(headers)
        self._check(lib.vfdb_search_positions(self._db, pointer("uint32_t", headers), count, positions))

    def update(self, inserts: npt.NDArray[np.bool_], boxes: U32Array, priority: U32Array) -> None:
        """Insert and remove rules in order, up to the first that is refused; the error has its number."""
        flags = ffi.cast("uint8_t *", ffi.from_buffer(inserts))
        done = ffi.new("uint32_t *")
        c_boxes, c_priority, count = pointer("uint32_t", boxes), pointer("uint32_t", priority), len(inserts)
        status = self._updated(lambda: lib.vfdb_update(self._db, count, flags, c_boxes, c_priority, done))
        if status:
            self._check(status, int(priority[done[0]]), f"update {done[0]}: ")

    def settle(self) -> None:
        """Wait for work in the background."""
        self._check(self.plan.run(lambda: lib.vfdb_settle(self._db)))

    def rule_count(self) -> int:
        return int(lib.vfdb_rule_count(self._db))

    def bytes(self) -> int:
        """The memory of the structure, without the list of rules from which it is built."""
        return int(lib.vfdb_bytes(self._db))

    def peak_bytes(self) -> int:
        """The most memory that building and changing the structure took at any time."""
        return int(lib.vfdb_peak(self._db))

    def builds(self) -> int:
        """How often the structure was built as a whole."""
        return int(lib.vfdb_builds(self._db))

    def rebuilds(self) -> int:
        """How often the structure, or what it wraps, was built again after the first build."""
        return int(lib.vfdb_rebuilds(self._db))
