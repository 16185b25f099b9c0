"""The distinct objects of a list, each once (include/text_pieces.h).

Objects are told apart by identity, so nothing is hashed but their addresses.  Rules share equal matches and
targets; what is done once per object is done a few times less often than once per rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from .line_shapes import numbered

Ints = npt.NDArray[np.int64]
T = TypeVar("T")


class Distinct(NamedTuple, Generic[T]):
    """The objects of a list.

    objects  each once, in the order in which they are met
    first    by object: the index where the list has it first
    number   by index in the list: the number of its object
    """

    objects: list[T]
    first: Ints
    number: Ints


def distinct(values: Sequence[T]) -> Distinct[T]:
    """The distinct objects of *values*."""
    ids = np.fromiter(map(id, values), np.uint64, len(values))
    size = ids.itemsize
    starts = np.arange(len(ids), dtype=np.uint32) * np.uint32(size)
    pieces = numbered(ids.tobytes(), starts, starts + np.uint32(size))
    first = pieces.starts.astype(np.int64) // size
    return Distinct([values[at] for at in first.tolist()], first, pieces.numbers.astype(np.int64))
