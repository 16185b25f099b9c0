"""The shapes and literals of a text's lines (include/line_shape.h)."""

from __future__ import annotations

from ._engine import ffi, lib

_UNCLEARED = ffi.new_allocator(should_clear_after_alloc=False)


def shapes_of(data: bytes, names: bytes) -> tuple[bytes, list[int], list[int]]:
    """*data* with one NUL in place of each literal, and where each literal starts and ends in *data*.

    names  followed by a NUL each: behind -j they are no literals
    """
    shape = _UNCLEARED("char[]", len(data) + 1)
    starts, ends = (_UNCLEARED("uint32_t[]", len(data) // 2 + 1) for _ in range(2))
    literals = ffi.new("size_t *")
    size = lib.shape_of(data, len(data), names, len(names), shape, starts, ends, literals)
    count = int(literals[0])
    return bytes(ffi.buffer(shape, size)), ffi.unpack(starts, count), ffi.unpack(ends, count)
