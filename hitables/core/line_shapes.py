"""The lines of a text as numbers of shapes and literals (include/line_shape.h, include/text_pieces.h)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._engine import ffi, lib
from .arrays import Array, pointer

_LINE_END = ord("\n")


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of *data*, of which equal ones have one number.

    numbers       [pieces]: from 0 on, in the order in which they first occur
    starts, ends  [numbers]: the first piece of each number
    """

    data: bytes
    numbers: Array
    starts: Array
    ends: Array

    def texts(self, text: str | None = None) -> list[str]:
        """The piece of each number.  *text*: what *data* encodes, where both have the same indexes."""
        spans = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        if text is not None:
            return [text[start:end] for start, end in spans]
        return [self.data[start:end].decode("utf-8", "surrogateescape") for start, end in spans]

    def prefixes(self) -> list[tuple[int, int] | None]:
        """The lowest and highest address of each number that is an IPv4 prefix in its usual spelling.

        None for another number, and for 0.0.0.0/0, of which nothing needs to be tested.
        """
        count = len(self.starts)
        known, low, high = np.empty(count, np.uint8), np.empty(count, np.uint32), np.empty(count, np.uint32)
        lib.read_ipv4(
            pointer("char", self.data), pointer("uint32_t", self.starts), pointer("uint32_t", self.ends),
            count, pointer("uint8_t", known), pointer("uint32_t", low), pointer("uint32_t", high),
        )  # fmt: skip
        pairs: list[tuple[int, int] | None] = list(zip(low.tolist(), high.tolist(), strict=True))
        everything = (low == 0) & (high == 0xFFFFFFFF)
        for other in np.flatnonzero((known == 0) | everything).tolist():
            pairs[other] = None
        return pairs


@dataclass(frozen=True, slots=True)
class CutLines:
    """The lines of a text.

    shapes    a piece for each line: the line with a NUL in place of each literal
    literals  a piece for each literal, of the whole text in a row
    first     [lines + 1]: the literals of line i are those from first[i] to first[i + 1]
    """

    shapes: Pieces
    literals: Pieces
    first: Array


def cut_lines(data: bytes, names: bytes) -> CutLines:
    """The shape and the literals of each line of *data*.

    names  followed by a NUL each: behind -j they are no literals
    """
    shape = np.empty(len(data) + 1, np.uint8)
    starts, ends = (np.empty(len(data) // 2 + 1, np.uint32) for _ in range(2))
    literals = ffi.new("size_t *")
    size = lib.shape_of(
        data, len(data), names, len(names), ffi.cast("char *", pointer("uint8_t", shape)),
        pointer("uint32_t", starts), pointer("uint32_t", ends), literals,
    )  # fmt: skip
    shape, count = shape[:size], int(literals[0])
    breaks = np.flatnonzero(shape == _LINE_END).astype(np.uint32)
    line_starts = np.concatenate([np.zeros(1, np.uint32), breaks + np.uint32(1)])
    line_ends = np.append(breaks, np.uint32(size))
    first = np.searchsorted(np.flatnonzero(shape == 0), np.append(line_starts, size))
    return CutLines(
        numbered(shape.tobytes(), line_starts, line_ends),
        numbered(data, starts[:count], ends[:count]),
        first,
    )


def numbered(data: bytes, starts: Array, ends: Array) -> Pieces:
    """The pieces of *data* from *starts* to *ends*."""
    count = len(starts)
    slot = np.zeros(1 << (2 * count).bit_length(), np.uint32)
    numbers, first = np.empty(count, np.uint32), np.empty(count, np.uint32)
    distinct = lib.number_pieces(
        pointer("char", data), pointer("uint32_t", starts), pointer("uint32_t", ends), count,
        pointer("uint32_t", slot), len(slot), pointer("uint32_t", numbers), pointer("uint32_t", first),
    )  # fmt: skip
    first = first[:distinct]
    return Pieces(data, numbers, starts[first], ends[first])
