"""The threads of Storm (include/pipeline.h): packets through caches, rings and classifiers.

A thin layer: arrays go in and out without a copy.  `hitables.engine.storm` checks what users give and is the
interface for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._engine import ffi, lib
from .arrays import pointer
from .classifiers import Classifier, U32Array
from .evolve import rules_of
from .records import as_values
from .threads import stoppable

OK, NO_THREAD, STOPPED = int(lib.VFDB_OK), int(lib.PIPELINE_NO_THREAD), int(lib.PIPELINE_STOPPED)
NO_MEMORY, DISAGREE = int(lib.VFDB_NO_MEMORY), int(lib.VFDB_DISAGREE)
# In the order of enum pipeline_by and enum pipeline_kind.
BY = ("cache", "classifier", "lost at the input", "lost at a ring", "none")
KINDS = ("cache thread", "classifier", "updater")
THREADS, ENTRIES = int(lib.PIPELINE_THREADS), int(lib.PIPELINE_ENTRIES)
BATCH = 32


def run(
    options: Mapping[str, Any],
    evolve: Mapping[str, int],
    bits: Sequence[int],
    boxes: U32Array,
    priority: U32Array,
    action: U32Array | None,
    classifier: Classifier,
    headers: U32Array,
    answers: npt.NDArray[np.int32],
    by: npt.NDArray[np.uint8],
    limit: int,
) -> tuple[int, dict[str, Any]]:
    """The status of pipeline_run, and struct pipeline_stats by name.  An interrupt ends the run.

    options  the fields of struct pipeline_options, *evolve* those of its evolve_options
    """
    chosen = ffi.new("struct pipeline_options *", {**options, "evolve": dict(evolve)})
    rules, alive = rules_of(bits, boxes, priority)
    stats = ffi.new("struct pipeline_stats *")
    stop = ffi.new("int *")

    def send() -> int:
        return int(
            lib.pipeline_run(
                chosen,
                rules,
                pointer("uint32_t", action),
                classifier.handle,
                pointer("uint32_t", headers),
                len(headers),
                ffi.cast("uint32_t *", ffi.from_buffer(answers)),
                pointer("uint8_t", by),
                limit,
                stop,
                stats,
            )
        )

    def end() -> None:
        stop[0] = 1

    status = stoppable(send, end)
    del alive
    if status == STOPPED:
        raise KeyboardInterrupt
    return status, as_values(stats)
