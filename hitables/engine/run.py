"""Packets of a trace through a classifier: the rule of each, whether it is right, and the rate of searches.

Rules and packets are in ClassBench's formats; rules are numbered from 0.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import HitablesError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..parse.classbench import ClassbenchFilter
    from ..parse.trace import Trace
    from . import AlgorithmSpec

# Packets of one timed run.  A short trace that is repeated stays in the caches, which makes an algorithm up
# to a fifth faster than it is; so packets are drawn from the trace at random.
TIMED = 1_000_000
SECONDS = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Classified:
    """The result of `classify`.

    found           [packets] the rule of each packet, -1 if none matches
    build_s         seconds of CPU for the build
    lookups_per_s   of one thread, in batches, the median of its runs; None: not measured
    lookup_ns       nanoseconds of one search, begun when the last has answered; None: not measured
    work            by name of a count, the mean and the most that the search of a packet read
                    (Database.work); counts that are 0 for all packets are left out; None: not counted
    mismatches      packets for which linear search finds another rule; None: not checked
    """

    algorithm: str
    rules: int
    found: NDArray[np.int32]
    build_s: float
    bytes: int
    lookups_per_s: float | None = None
    lookup_ns: float | None = None
    work: dict[str, tuple[float, int]] | None = None
    mismatches: int | None = None

    def as_data(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "rules": self.rules,
            "packets": len(self.found),
            "build_s": self.build_s,
            "bytes": self.bytes,
            "lookups_per_s": self.lookups_per_s,
            "lookup_ns": self.lookup_ns,
            "work": None
            if self.work is None
            else {name: {"mean": mean, "most": most} for name, (mean, most) in self.work.items()},
            "mismatches": self.mismatches,
        }


def classify(
    algorithm: AlgorithmSpec,
    filters: ClassbenchFilter,
    packets: Trace,
    *,
    check: bool = False,
    timed: bool = False,
    counted: bool = False,
    limit: int = 0,
) -> Classified:
    """Every packet's rule under *algorithm*; *check* compares with linear search, *timed* measures searches
    in batches and one by one, *counted* counts what they read.
    """
    from .. import engine

    rules = engine.Rules.of_filter(filters)
    start = time.process_time()
    with engine.open(algorithm, rules, limit=limit) as db:
        build_s = time.process_time() - start
        matches = db.search(packets.headers)
        mismatches = None
        if check:
            with engine.open("linear", rules) as linear:
                mismatches = int((linear.search(packets.headers) != matches).sum())
        speed = lookups_per_s(db, packets.headers) if timed else None
        alone = 1e9 / lookups_per_s(db, packets.headers, batches=False) if timed else None
        work = work_of(db, packets.headers) if counted else None
        return Classified(
            str(db.spec), len(rules), matches, build_s, db.bytes, speed, alone, work, mismatches
        )


def lookups_per_s(
    db: Any,
    headers: NDArray[np.uint32],
    *,
    packets: int | None = None,
    seconds: float | None = None,
    batches: bool = True,
) -> float:
    """The median rate of searches of *packets* headers, drawn from *headers*, by this thread: in batches, or
    each begun when the last has answered.  TIMED of them, for SECONDS, where nothing else is said.
    """
    import numpy as np

    packets = TIMED if packets is None else packets
    seconds = SECONDS if seconds is None else seconds

    if not len(headers):
        raise HitablesError("a trace without packets cannot be timed")
    drawn = np.ascontiguousarray(headers[np.random.default_rng(1).integers(0, len(headers), packets)])
    out = np.empty(packets, np.int32)
    search = db.search if batches else db.search_one_by_one
    # A slow algorithm is timed on fewer packets.
    first = _seconds(search, drawn[:2000], out[:2000])
    few = int(min(packets, max(2000, seconds / 4 / max(first, 1e-9) * 2000)))
    runs = [_seconds(search, drawn[:few], out[:few])]
    while len(runs) < 3 or (sum(runs) < seconds and len(runs) < 50):
        runs.append(_seconds(search, drawn[:few], out[:few]))
    return few / float(np.median(runs))


def work_of(db: Any, headers: NDArray[np.uint32]) -> dict[str, tuple[float, int]]:
    """The mean and the most of each count of `Database.work` over *headers*, where it is not 0."""
    _, counts = db.work(headers)
    return {
        name: (float(values.mean()), int(values.max())) for name, values in counts.items() if values.any()
    }


def _seconds(search: Any, headers: NDArray[np.uint32], out: NDArray[np.int32]) -> float:
    start = time.perf_counter()
    search(headers, out)
    return time.perf_counter() - start
