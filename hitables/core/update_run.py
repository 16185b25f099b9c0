"""The simulator of SFL's evaluation (include/update_run.h): it classifies, feeds, updates and counts.

A thin layer: arrays go in and out without a copy.  The threads are of C, so neither Python nor its lock is in
the timed path.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._engine import ffi, lib
from .arrays import pointer
from .classifiers import Classifier, U32Array
from .records import as_values
from .status import UPDATE_RUN, check


class UpdateRun(NamedTuple):
    """What was done in the time of a run.

    processed  headers; ticks [parts] those of each part of the time
    done       updates that were complete, builds included
    rebuilds   of the classifier, or of what it wraps
    seconds    that the run took
    """

    processed: int
    done: int
    rebuilds: int
    seconds: float
    ticks: npt.NDArray[np.uint64]


def update_run(
    classifier: Classifier,
    headers: U32Array,
    insert: bool,
    boxes: U32Array,
    priority: U32Array,
    seconds: float,
    parts: int,
    name: str = "",
) -> UpdateRun:
    """Classify *headers* [headers][dims] over and over for *seconds*, and update at even distances.

    insert    whether the updates insert rules of one box each, or remove rules
    boxes     [updates][dims][2], of the rules to insert; priority: [updates]
    parts     of the time, in each of which headers are counted
    name      of the plan, for errors
    An interrupt ends the run.
    """
    updates = ffi.new("struct update_list *")
    updates.count, updates.insert = len(priority), insert
    updates.box, updates.priority = pointer("uint32_t", boxes), pointer("uint32_t", priority)
    ticks = np.zeros(parts, np.uint64)
    stats, plan = ffi.new("struct update_run_stats *"), classifier.plan

    def run() -> int:
        return int(
            lib.update_run(
                classifier.handle,
                headers.shape[1],
                pointer("uint32_t", headers),
                len(headers),
                updates,
                round(seconds * 1e9),
                ffi.cast("uint64_t *", ffi.from_buffer(ticks)),
                parts,
                plan.c_plan.stop,
                stats,
            )
        )

    check(UPDATE_RUN, plan.run(run, short=False), plan=name)
    values: dict[str, Any] = as_values(stats)
    return UpdateRun(values["processed"], values["done"], values["rebuilds"], values["ns"] / 1e9, ticks)
