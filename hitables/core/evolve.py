"""Evolving rules of the C engine (include/evolve.h): the rules that samples of the traffic make, and a cache.

A thin layer: arrays go in and out without a copy, and a status becomes an exception.  `hitables.engine.storm`
checks what users give and is the interface for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._engine import ffi, lib
from .arrays import pointer
from .classifiers import U32Array
from .records import as_values
from .status import EVOLVE, check

# In the order of the numbers of enum evolve_form.
FORMS = ("columns", "rows", "list")


def rules_of(bits: Sequence[int], boxes: U32Array, priority: U32Array) -> tuple[Any, Any]:
    """struct vfdb_rules of these arrays, and what must live as long."""
    rules = ffi.new("struct vfdb_rules *")
    widths = ffi.new("uint8_t[]", list(bits))
    rules.dims, rules.count, rules.bits = len(bits), len(priority), widths
    rules.priority, rules.box = pointer("uint32_t", priority), pointer("uint32_t", boxes)
    return rules, (widths, priority, boxes)


class Evolving:
    """Evolving rules of a rule set; *options* are those of struct evolve_options.  The memory is freed with
    the last reference.

    action  [boxes] the class of each rule; None: its priority
    """

    def __init__(
        self,
        options: Mapping[str, int],
        bits: Sequence[int],
        boxes: U32Array,
        priority: U32Array,
        action: U32Array | None,
        limit: int,
    ) -> None:
        self._dims, self._window = len(bits), options["window"]
        rules, alive = rules_of(bits, boxes, priority)
        handle = ffi.new("struct evolve **")
        chosen = ffi.new("struct evolve_options *", dict(options))
        check(EVOLVE, lib.evolve_open(chosen, rules, pointer("uint32_t", action), limit, handle))
        del alive
        self._evolve = ffi.gc(handle[0], lib.evolve_close)

    def samples(self, headers: U32Array) -> None:
        """Take each of *headers* [headers][dims] as a sample."""
        lib.evolve_samples(self._evolve, pointer("uint32_t", headers), len(headers))

    def replay(
        self, headers: U32Array, form: str, cache: int, every: int, publish: int, place: U32Array
    ) -> None:
        """Packets through cache and samples, one after another (evolve_replay)."""
        rows, out = pointer("uint32_t", headers), pointer("uint32_t", place)
        status = lib.evolve_replay(
            self._evolve, rows, len(headers), FORMS.index(form), cache, every, publish, out
        )
        check(EVOLVE, status)

    def look_up(self, headers: U32Array, form: str, cache: int, times: int, place: U32Array) -> None:
        """Packets through a cache that does not change, again and again (evolve_look_up)."""
        rows, out = pointer("uint32_t", headers), pointer("uint32_t", place)
        check(
            EVOLVE,
            lib.evolve_look_up(self._evolve, rows, len(headers), FORMS.index(form), cache, times, out),
        )

    def listed(self) -> tuple[U32Array, U32Array, U32Array]:
        """Boxes [rules][dims][2], actions and weights [rules] in the order of the list."""
        boxes = np.zeros((self._window, self._dims, 2), np.uint32)
        action, weight = np.zeros(self._window, np.uint32), np.zeros(self._window, np.uint32)
        count = lib.evolve_list(
            self._evolve,
            pointer("uint32_t", boxes),
            pointer("uint32_t", action),
            pointer("uint32_t", weight),
            self._window,
        )
        return boxes[:count], action[:count], weight[:count]

    def approves(self, box: U32Array, action: int) -> tuple[bool, int, int]:
        """CheckConflict of a box [dims][2]: whether it is approved, the match and the conflict."""
        found = ffi.new("uint32_t[2]")
        approved = lib.evolve_approves(self._evolve, pointer("uint32_t", box), action, found, found + 1)
        return bool(approved), int(found[0]), int(found[1])

    def root(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """The parts of the tree's root, its cut dimensions, and the bits of each."""
        dim, bits = ffi.new("uint32_t[2]"), ffi.new("uint32_t[2]")
        parts = int(lib.evolve_root(self._evolve, dim, bits))
        return parts, tuple(dim), tuple(bits)

    def parts(self, box: U32Array) -> list[int]:
        """The parts of the root that a box [dims][2] meets."""
        part = ffi.new("uint32_t[]", 4096)
        count = int(lib.evolve_parts(self._evolve, pointer("uint32_t", box), part, 4096))
        return list(part[0:count])

    def statistics(self) -> dict[str, Any]:
        """struct evolve_stats, by name."""
        stats = ffi.new("struct evolve_stats *")
        lib.evolve_stats_of(self._evolve, stats)
        return as_values(stats)

    def broken(self) -> int:
        """The first property that does not hold (evolve_broken), or 0."""
        return int(lib.evolve_broken(self._evolve))

    def bytes(self) -> int:
        """The memory, counted."""
        return int(lib.evolve_bytes(self._evolve))
