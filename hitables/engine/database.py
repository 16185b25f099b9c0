"""The Virtual Filter Database (Sahasranaman and Buddhikot, section 3): the face of core/include/vfdb.h.

Rules have priorities, and the least one that matches is found.  Every algorithm gives the answers of
`linear`; they differ in what a search, a build and an update cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from ..core._engine import ffi, lib
from ..errors import DatabaseError, OutOfMemory
from .layout import FIVE_TUPLE, Layout, Side
from .plan import Plan

# What a search gives where no rule matches.
NONE = -1
# Priorities lie below.
MOST_PRIORITY = 2**31 - 1


class FiveTuple(Protocol):
    """A rule as hitables.parse.classbench reads it; *proto* None means any."""

    @property
    def src(self) -> Side: ...
    @property
    def dst(self) -> Side: ...
    @property
    def sport(self) -> Side: ...
    @property
    def dport(self) -> Side: ...
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
        if boxes.dtype != np.uint32 or boxes.ndim != 3 or boxes.shape[1:] != (layout.dims, 2):
            raise DatabaseError(
                f"boxes must be uint32 [boxes][{layout.dims}][2], not {boxes.dtype} {list(boxes.shape)}"
            )
        if priority.dtype != np.uint32 or priority.shape != boxes.shape[:1]:
            said = f"{priority.dtype} {list(priority.shape)}"
            raise DatabaseError(f"priorities must be uint32 [{len(boxes)}], not {said}")
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
    def of_sides(
        cls, sides: Sequence[Sequence[Side]], layout: Layout, priorities: Sequence[int] | None = None
    ) -> Self:
        """Rules by their ranges per field, of any width; priorities are 0, 1, 2, … unless told."""
        wanted = range(len(sides)) if priorities is None else priorities
        if len(wanted) != len(sides):
            raise DatabaseError(f"{len(wanted)} priorities for {len(sides)} rules")
        if len(set(wanted)) < len(wanted):
            twice = next(priority for priority, times in Counter(wanted).items() if times > 1)
            raise DatabaseError(f"priority {twice} is given twice")
        order = sorted(range(len(sides)), key=wanted.__getitem__)
        cut = [layout.boxes(sides[number]) for number in order]
        boxes = np.concatenate([np.empty((0, layout.dims, 2), np.uint32), *cut])
        if any(not 0 <= priority < MOST_PRIORITY for priority in wanted):
            raise DatabaseError(f"priorities lie in 0..{MOST_PRIORITY - 1}")
        told = np.array([wanted[number] for number in order], np.uint32)
        return cls(layout, boxes, np.repeat(told, [len(piece) for piece in cut]))

    @classmethod
    def of_filter(cls, filters: Iterable[FiveTuple]) -> Self:
        """Five-tuple rules, their place in the list as priority."""
        rows = [(*rule.src, *rule.dst, *rule.sport, *rule.dport, *_protocols(rule.proto)) for rule in filters]
        boxes = np.array(rows, np.uint32).reshape(-1, FIVE_TUPLE.dims, 2)
        return cls(FIVE_TUPLE, boxes, np.arange(len(rows), dtype=np.uint32))

    def __len__(self) -> int:
        return len(np.unique(self.priority))


def open(plan: str | Plan, rules: Rules | Iterable[FiveTuple], *, limit: int = 0) -> Database:
    """A database of *rules* under *plan*, such as "hypersplit" or "sfl(rfc, delta=20)".

    limit  bytes that its structure may take, 0 for any number
    Raises DatabaseError for a plan or rules that cannot be, OutOfMemory.
    """
    return Database(plan, rules, limit=limit)


class Database:
    """Rules behind one algorithm.  Many threads may search; updates wait for them."""

    def __init__(self, plan: str | Plan, rules: Rules | Iterable[FiveTuple], *, limit: int = 0) -> None:
        self._db: Any = ffi.NULL
        self.plan = plan if isinstance(plan, Plan) else Plan.read(plan)
        if not isinstance(rules, Rules):
            rules = Rules.of_filter(rules)
        if limit < 0:
            raise DatabaseError(f"a limit of {limit} bytes")
        self.layout = rules.layout
        self.plan.check_dims(self.layout.dims)
        self._kept: list[Any] = []
        boxes, priority = np.ascontiguousarray(rules.boxes), np.ascontiguousarray(rules.priority)
        bits = ffi.new("uint8_t[]", list(self.layout.bits))
        given = ffi.new("struct vfdb_rules *")
        given.dims, given.count, given.bits = self.layout.dims, len(priority), bits
        given.priority, given.box = _words(priority), _words(boxes)
        opened = ffi.new("struct vfdb **")
        self._check(lib.vfdb_open(self.plan.in_c(self._kept), given, limit, opened))
        self._db = ffi.gc(opened[0], lib.vfdb_close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give its memory back; what is asked of it afterwards is refused."""
        if self._db:
            ffi.release(self._db)
            self._db = ffi.NULL

    def search(
        self, headers: npt.NDArray[np.uint32], out: npt.NDArray[np.int32] | None = None
    ) -> npt.NDArray[np.int32]:
        """[headers] the priority of the best rule for each of headers [headers][dims], or NONE.

        Nothing is copied, and other threads run meanwhile.
        """
        if headers.dtype != np.uint32 or headers.ndim != 2 or headers.shape[1] != self.layout.dims:
            said = f"{headers.dtype} {list(headers.shape)}"
            raise DatabaseError(f"headers must be uint32 [headers][{self.layout.dims}], not {said}")
        if not headers.flags.c_contiguous:
            raise DatabaseError("headers must lie row by row in memory (numpy.ascontiguousarray)")
        if out is None:
            out = np.empty(len(headers), np.int32)
        elif out.dtype != np.int32 or out.shape != (len(headers),) or not out.flags.c_contiguous:
            raise DatabaseError(f"out must be int32 [{len(headers)}], not {out.dtype} {list(out.shape)}")
        found = ffi.cast("uint32_t *", ffi.from_buffer(out))
        self._check(lib.vfdb_search(self._open(), _words(headers), len(headers), found))
        return out

    def insert(self, sides: Sequence[Side], priority: int) -> None:
        """Put a rule in, by its range per field."""
        boxes = self.layout.boxes(sides)
        if not 0 <= priority < MOST_PRIORITY:
            raise DatabaseError(f"priority {priority} does not lie in 0..{MOST_PRIORITY - 1}")
        self._check(lib.vfdb_insert(self._open(), _words(boxes), len(boxes), priority), priority)

    def remove(self, priority: int) -> None:
        """Take the rule of that priority out."""
        if not 0 <= priority < MOST_PRIORITY:
            raise DatabaseError(f"no rule of priority {priority} is there")
        self._check(lib.vfdb_remove(self._open(), priority), priority)

    def update(
        self, inserts: npt.NDArray[np.bool_], boxes: npt.NDArray[np.uint32], priority: npt.NDArray[np.uint32]
    ) -> None:
        """Many updates in a row, rules of one box each.

        inserts   [updates] whether a rule goes in, or out
        boxes     [updates][dims][2], read where a rule goes in
        priority  [updates]
        Stops at the first that is refused; those before it are done, and the error says how many.
        """
        count = len(inserts)
        if inserts.dtype != np.bool_ or boxes.dtype != np.uint32 or priority.dtype != np.uint32:
            said = f"{inserts.dtype}, {boxes.dtype}, {priority.dtype}"
            raise DatabaseError(f"updates must be bool, uint32, uint32, not {said}")
        if boxes.shape != (count, self.layout.dims, 2) or priority.shape != (count,):
            raise DatabaseError(
                f"{count} updates need boxes [{count}][{self.layout.dims}][2] and as many priorities"
            )
        _check_priorities(priority)
        kinds, rows = np.ascontiguousarray(inserts), np.ascontiguousarray(boxes)
        told = np.ascontiguousarray(priority)
        done = ffi.new("uint32_t *")
        first = ffi.cast("uint8_t *", ffi.from_buffer(kinds))
        status = lib.vfdb_update(self._open(), count, first, _words(rows), _words(told), done)
        if status:
            self._check(status, int(priority[done[0]]), f"update {done[0]}: ")

    def settle(self) -> None:
        """Wait for what runs in the background."""
        self._check(lib.vfdb_settle(self._open()))

    def __len__(self) -> int:
        return int(lib.vfdb_rule_count(self._open()))

    @property
    def bytes(self) -> int:
        """What the structure takes, counted; the list of rules beside it apart."""
        return int(lib.vfdb_bytes(self._open()))

    @property
    def peak_bytes(self) -> int:
        """The most that building and changing the structure took at a time."""
        return int(lib.vfdb_peak(self._open()))

    @property
    def list_bytes(self) -> int:
        """What the list of rules takes, from which the structure is built anew."""
        return int(lib.vfdb_list_bytes(self._open()))

    @property
    def builds(self) -> int:
        """How often the structure was built as a whole."""
        return int(lib.vfdb_builds(self._open()))

    def _open(self) -> Any:
        if not self._db:
            raise DatabaseError("the database is closed")
        return self._db

    def _check(self, status: int, priority: int = 0, where: str = "") -> None:
        if status == lib.VFDB_OK:
            return
        if status == lib.VFDB_NO_MEMORY:
            raise OutOfMemory(
                f"{where}{self.plan}: the rules do not fit into the memory that there is, or that is allowed"
            )
        raise DatabaseError(
            where
            + {
                lib.VFDB_TWICE: f"a rule of priority {priority} is there already",
                lib.VFDB_ABSENT: f"no rule of priority {priority} is there",
                lib.VFDB_BAD_BOX: "a range is empty, or wider than its field",
                lib.VFDB_TOO_LARGE: f"the rules are too many, or too interwoven, for {self.plan}",
                lib.VFDB_DISAGREE: f"{self.plan}: the algorithm and linear search gave different answers",
            }[status]
        )


def _words(array: npt.NDArray[np.uint32]) -> Any:
    return ffi.cast("uint32_t *", ffi.from_buffer(array))


def _check_priorities(priority: npt.NDArray[np.uint32]) -> None:
    if len(priority) and int(priority.max()) >= MOST_PRIORITY:
        raise DatabaseError(f"priority {priority.max()} is too large; priorities lie below {MOST_PRIORITY}")


def _protocols(proto: int | None) -> Side:
    return (0, 255) if proto is None else (proto, proto)
