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

    from ..parse.classbench import Filter
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
    lookups_per_s   of one thread, the median of its runs; None: not measured
    mismatches      packets for which linear search finds another rule; None: not checked
    """

    algorithm: str
    rules: int
    found: NDArray[np.int32]
    build_s: float
    bytes: int
    lookups_per_s: float | None = None
    mismatches: int | None = None

    def as_data(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "rules": self.rules,
            "packets": len(self.found),
            "build_s": self.build_s,
            "bytes": self.bytes,
            "lookups_per_s": self.lookups_per_s,
            "mismatches": self.mismatches,
        }


def classify(
    algorithm: AlgorithmSpec,
    filters: Filter,
    packets: Trace,
    *,
    check: bool = False,
    timed: bool = False,
    limit: int = 0,
) -> Classified:
    """Every packet's rule under *algorithm*; *check* compares with linear search, *timed* measures the
    rate.
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
        return Classified(str(db.spec), len(rules), matches, build_s, db.bytes, speed, mismatches)


def lookups_per_s(
    db: Any, headers: NDArray[np.uint32], *, packets: int = TIMED, seconds: float = SECONDS
) -> float:
    """The median rate of searches of *packets* headers, drawn from *headers*, by this thread."""
    import numpy as np

    if not len(headers):
        raise HitablesError("a trace without packets cannot be timed")
    drawn = np.ascontiguousarray(headers[np.random.default_rng(1).integers(0, len(headers), packets)])
    out = np.empty(packets, np.int32)
    # A slow algorithm is timed on fewer packets.
    first = _seconds(db, drawn[:2000], out[:2000])
    few = int(min(packets, max(2000, seconds / 4 / max(first, 1e-9) * 2000)))
    runs = [_seconds(db, drawn[:few], out[:few])]
    while len(runs) < 3 or (sum(runs) < seconds and len(runs) < 50):
        runs.append(_seconds(db, drawn[:few], out[:few]))
    return few / float(np.median(runs))


def _seconds(db: Any, headers: NDArray[np.uint32], out: NDArray[np.int32]) -> float:
    start = time.perf_counter()
    db.search(headers, out)
    return time.perf_counter() - start
