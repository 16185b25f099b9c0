"""Lines of decimal numbers, read and written by the C engine (include/trace_lines.h)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._engine import ffi, lib
from .arrays import Array, pointer

COLUMNS: int = lib.TRACE_COLUMNS
# Bytes of a number and the blank behind it, at most.
NUMBER_ROOM = 11


class LineReader:
    """Lines that are read piece by piece.

    rows     [room][COLUMNS]: those that the last `read` returned; the first `columns` of each are set
    columns  of every row, 0 before the first
    """

    def __init__(self, least: Sequence[int], tops: Sequence[int], fewest: int, room: int) -> None:
        self._least, self._tops = np.array(least, np.uint32), np.array(tops, np.uint32)
        assert len(least) == len(tops) == COLUMNS
        self._fewest = fewest
        self.rows = np.empty((room, COLUMNS), np.uint32)
        self._columns, self._rows = ffi.new("uint32_t *"), ffi.new("uint32_t *")
        self._lines, self._used = ffi.new("uint64_t *"), ffi.new("size_t *")

    @property
    def columns(self) -> int:
        return int(self._columns[0])

    def bound(self, least: Sequence[int], tops: Sequence[int]) -> None:
        """Set the bounds of each column from now on."""
        self._least, self._tops = np.array(least, np.uint32), np.array(tops, np.uint32)

    def read(self, data: Any, size: int) -> tuple[bool, int, int, int]:
        """Read whole lines: whether all were good; rows, lines and bytes before the first bad line."""
        status = lib.trace_read(
            ffi.cast("char *", pointer("uint8_t", data)), size, pointer("uint32_t", self._least),
            pointer("uint32_t", self._tops), self._fewest, self._columns, pointer("uint32_t", self.rows),
            len(self.rows), self._rows, self._lines, self._used,
        )  # fmt: skip
        return status == lib.TRACE_OK, int(self._rows[0]), int(self._lines[0]), int(self._used[0])


def write_lines(rows: npt.NDArray[np.uint32], out: Array) -> int:
    """Write *rows* [n][columns] as lines to *out*, bytes [rows.size * NUMBER_ROOM]; the bytes written."""
    assert len(out) >= rows.size * NUMBER_ROOM
    text = ffi.cast("char *", pointer("uint8_t", out))
    return int(lib.trace_write(pointer("uint32_t", rows), len(rows), rows.shape[1], text))
