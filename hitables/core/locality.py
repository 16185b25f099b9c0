"""How a sequence of keys repeats itself, measured by the C engine (include/locality.h)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ._engine import ffi, lib
from .arrays import pointer

# Packets of a window, and the numbers of most popular keys that are counted.
WINDOW: int = lib.LOCALITY_WINDOW
TOPS = (1, 5, 20, 100)
# Stack distances below RECENT, in the first RECENT_BINS bins, are exact at any level.
RECENT: int = lib.LOCALITY_RECENT
RECENT_BINS: int = lib.LOCALITY_RECENT_BINS
# Sizes of the hash tables, in bits.
TABLES = tuple(
    lib.LOCALITY_FIRST_TABLE + lib.LOCALITY_TABLE_STEP * number for number in range(lib.LOCALITY_TABLES)
)


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """The fields of struct locality_totals; arrays as there."""

    packets: int
    keys: int
    level: int
    distance: tuple[float, ...]
    first: float
    windows: int
    window_top: tuple[int, ...]
    window_keys: int
    runs: tuple[int, ...]
    popular_missed: int
    bytes: int


class Locality:
    """A sequence of keys of *words* words each; at most *limit* keys are followed."""

    def __init__(self, words: int, limit: int) -> None:
        handle = lib.locality_new(words, limit)
        if not handle:
            raise MemoryError("no memory is left for the statistics of traffic")
        self._words = words
        self._locality = ffi.gc(handle, lib.locality_free)

    def add(self, keys: npt.NDArray[np.uint32], times: npt.NDArray[np.int64] | None = None) -> None:
        """Add packets: keys [n][words], times [n] or None, if their numbers are their times."""
        assert keys.shape[1:] == (self._words,) and (times is None or len(times) == len(keys))
        status = lib.locality_add(
            self._locality, pointer("uint32_t", keys), pointer("int64_t", times), len(keys)
        )
        if status != lib.LOCALITY_OK:
            raise MemoryError("no memory is left for the statistics of traffic")

    def totals(self) -> Totals:
        """The figures so far."""
        totals = lib.locality_totals(self._locality)
        values = {name: getattr(totals, name) for name in Totals.__slots__}
        for name in ("distance", "window_top", "runs"):
            values[name] = tuple(values[name])
        return Totals(**values)

    def keys(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Of each followed key: its packets, the earliest and the latest time."""
        count = lib.locality_totals(self._locality).keys
        packets, first, last = (
            np.empty(count, np.uint64),
            np.empty(count, np.int64),
            np.empty(count, np.int64),
        )
        lib.locality_keys(
            self._locality, pointer("uint64_t", packets), pointer("int64_t", first), pointer("int64_t", last)
        )
        return packets, first, last

    def popular(self) -> npt.NDArray[np.uint64]:
        """The packets of the most popular of all keys; each may be `Totals.popular_missed` too low."""
        room = max(lib.locality_totals(self._locality).keys, lib.LOCALITY_POPULAR)
        packets = np.empty(room, np.uint64)
        return packets[: lib.locality_popular(self._locality, pointer("uint64_t", packets), room)]
