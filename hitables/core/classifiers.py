"""The classifiers of the C engine (include/vfdb.h): the registry of algorithms, and one classifier.

A thin layer: arrays go in and out without a copy, and a status becomes an exception.  `hitables.engine`
checks what users give and is the interface for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._engine import ffi, lib
from .arrays import pointer
from .records import as_values
from .status import DATABASE, EVOLVE, FLOWS, WALK, check

U32Array = npt.NDArray[np.uint32]

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


def plan_of(composition: Composition, owned: list[Any]) -> Any:
    """A composition as a struct vfdb_plan *, which lives as long as *owned*."""
    inner = plan_of(composition.inner, owned) if composition.inner else ffi.NULL
    plan = ffi.new("struct vfdb_plan *", {"ops": composition.algorithm.ops, "inner": inner})
    for number, value in enumerate(composition.values):
        plan.value[number] = value
    owned.append(plan)
    return plan


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
        owned: list[Any] = []
        rules = ffi.new("struct vfdb_rules *")
        widths = ffi.new("uint8_t[]", list(bits))
        rules.dims, rules.count, rules.bits = len(bits), len(priority), widths
        rules.priority, rules.box = pointer("uint32_t", priority), pointer("uint32_t", boxes)
        handle = ffi.new("struct vfdb **")
        self._check(lib.vfdb_open(plan_of(composition, owned), rules, limit, handle))
        # A build in the background reads the plan until the database has been closed.
        self._db = ffi.gc(handle[0], lambda db, owned=owned: lib.vfdb_close(db))

    @property
    def handle(self) -> Any:
        """The database (struct vfdb *), for other parts of the engine that search it."""
        return self._db

    def _check(self, status: int, priority: int = 0, where: str = "", position: int = 0) -> None:
        facts = {"where": where, "plan": self._name, "priority": priority, "position": position}
        check(DATABASE, status, **facts)

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
        self._check(lib.vfdb_insert(self._db, pointer("uint32_t", boxes), len(boxes), priority), priority)

    def remove(self, priority: int) -> None:
        """Remove the rule of that priority."""
        self._check(lib.vfdb_remove(self._db, priority), priority)

    def insert_at(self, boxes: U32Array, position: int) -> None:
        """Insert a rule of these boxes [boxes][dims][2] in front of the rule at *position*."""
        boxes = np.ascontiguousarray(boxes)
        status = lib.vfdb_insert_at(self._db, pointer("uint32_t", boxes), len(boxes), position)
        self._check(status, position=position)

    def remove_at(self, position: int) -> None:
        """Remove the rule at *position*."""
        self._check(lib.vfdb_remove_at(self._db, position), position=position)

    def search_positions(self, headers: U32Array, out: npt.NDArray[np.int32]) -> None:
        """As `search`, with positions in place of priorities."""
        positions = ffi.cast("uint32_t *", ffi.from_buffer(out))
        count = len(headers)
        self._check(lib.vfdb_search_positions(self._db, pointer("uint32_t", headers), count, positions))

    def update(self, inserts: npt.NDArray[np.bool_], boxes: U32Array, priority: U32Array) -> None:
        """Insert and remove rules in order, up to the first that is refused; the error has its number."""
        flags = ffi.cast("uint8_t *", ffi.from_buffer(inserts))
        done = ffi.new("uint32_t *")
        status = lib.vfdb_update(
            self._db, len(inserts), flags, pointer("uint32_t", boxes), pointer("uint32_t", priority), done
        )
        if status:
            self._check(status, int(priority[done[0]]), f"update {done[0]}: ")

    def settle(self) -> None:
        """Wait for work in the background."""
        self._check(lib.vfdb_settle(self._db))

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
