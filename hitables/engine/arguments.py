"""What callers give the engine, checked before C reads it: a DatabaseError names the argument."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DatabaseError

Array = npt.NDArray[Any]


def whole(name: str, value: object, least: int, most: int) -> int:
    """*value*, a whole number from *least* to *most*."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise DatabaseError(f"{name} must be a whole number, not {value!r}") from None
    if not least <= number <= most:
        raise DatabaseError(f"{name} must lie in {least}..{most}, not {number}")
    return number


def one_of(name: str, value: object, known: Iterable[object]) -> None:
    """DatabaseError unless *value* is one of the words or numbers *known*."""
    if not isinstance(value, str | int) or value not in tuple(known):
        raise DatabaseError(f"{name} is {value!r}; it is one of {', '.join(map(str, known))}")


def check_array(name: str, array: object, dtype: npt.DTypeLike, *shape: int | str) -> None:
    """An array of that type and shape; a word in place of the first length stands for any."""
    if not isinstance(array, np.ndarray):
        raise DatabaseError(f"{name} must be an array of numpy, not {type(array).__name__}")
    if type(shape[0]) is int:
        fits = array.shape == shape
    else:
        fits = array.ndim == len(shape) and array.shape[1:] == shape[1:]
    if array.dtype != dtype or not fits:
        sizes = "".join(f"[{length}]" for length in shape)
        actual = f"{array.dtype} {list(array.shape)}"
        raise DatabaseError(f"{name} must be {np.dtype(dtype)} {sizes}, not {actual}")


def check_headers(headers: object, dims: int) -> None:
    """Headers: an array of uint32 [headers][dims]."""
    if not isinstance(headers, np.ndarray):
        raise DatabaseError(f"headers must be an array of numpy, not {type(headers).__name__}; "
                            "layout.headers makes one of lists")  # fmt: skip
    check_array("headers", headers, np.uint32, "headers", dims)


def check_in_place(name: str, array: Array, *, written: bool = False) -> None:
    """An array that C can read where it lies, or write if it is *written*."""
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        raise DatabaseError(
            f"{name} must lie row by row in memory, its values aligned (numpy.require(array, None, 'CA'))"
        )
    if written and not flags.writeable:
        raise DatabaseError(f"{name} is read-only")


def in_place(array: Array) -> Array:
    """The array, or a copy of it that C can read where it lies."""
    return np.require(array, None, ("C", "A"))
