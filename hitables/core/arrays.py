"""Arrays that cross the border to the C engine: pointers into them, and copies of the engine's own.

A pointer keeps its array alive for as long as the pointer lives; a copy belongs to Python.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from ._engine import ffi

Array = npt.NDArray[Any]


def pointer(ctype: str, values: Array | array[int] | bytes | bytearray | None) -> Any:
    """A C pointer to the items of *values*, which are of *ctype*; NULL for None.

    ValueError when *values* is not contiguous.
    """
    if values is None:
        return ffi.NULL
    return ffi.from_buffer(f"{ctype} *", values)


def sized(ctype: str, values: Array | array[int]) -> tuple[Any, int]:
    """The pointer and the number of items: two arguments of many functions."""
    return ffi.from_buffer(f"{ctype}[]", values), len(values)


def copied(start: Any, count: int, dtype: npt.DTypeLike) -> Array:
    """*count* items from *start* on, which the engine owns, as an array of *dtype* [count]."""
    item = np.dtype(dtype)
    if not count:
        return np.empty(0, item)
    return np.frombuffer(ffi.buffer(start, count * item.itemsize), item).copy()
