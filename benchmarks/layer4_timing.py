"""Plans and efforts of the layer-4 paper's experiments, and searches timed as it timed them: averages over
some hundred thousand, here with spread.

A value is a mean over sets of filters.  Beside *name* stand `name_ci`, half the width of the 90 %
confidence interval over the sets (Student's t), and `name_deviation`, the standard deviation between blocks
of searches of one set.  Times are CPU time of the thread, in microseconds of one search or update.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables import engine

from .layer4_filters import Boxes, Headers, ruled

Row = dict[str, Any]
# 95 % quantiles of Student's t, by degrees of freedom.
STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833)
WORK = {
    "nodes": "nodes",
    "lists": "lists",
    "hashes": "hashes",
    "tuples": "tried",
    "rules": "compared",
    "keys": "keys",
}

# As the paper had them: its hash table, and its lists without cascading.  Then the lists that it describes,
# with and without what it left out, and tuple space search and PACARS as we would do them.  All with its
# compression factor of 4.
PAPER = ["grid_of_tries", "tss_tries(table=1)", "pacars(cascade=0, list=1)"]
PLANS = [
    *PAPER, "pacars(list=1)", "pacars(cascade=0, list=2)", "pacars(list=2)", "pacars(cascade=0)", "pacars",
    "tss_tries", "tss",
]  # fmt: skip
UPDATABLE = PLANS[1:]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    sizes     filters of figures 6 to 10; the second and the last are those of figures 6 and 7
    searches  averaged in experiments I and II, and *dynamic* in III, in blocks of *block*
    flows     inserted, and removed, in III; in 20 blocks each
    sets      of filters for each value of experiment II, and *few* in I and III
    """

    sizes: tuple[int, ...] = (1000, 2000, 4000, 8000, 32000)
    searches: int = 200_000
    dynamic: int = 400_000
    block: int = 10_000
    flows: int = 10_000
    sets: int = 5
    few: int = 3
    checked: int = 1000


FULL = Effort()
SHORT = Effort(
    (500, 1000), searches=10_000, dynamic=10_000, block=1000, flows=400, sets=2, few=2, checked=300
)


def rng_of(seed: int, part: str, *numbers: int) -> np.random.Generator:
    return np.random.default_rng([seed, *part.encode(), *numbers])


def timed(call: Callable[[], object]) -> float:
    """Microseconds of CPU."""
    started = time.thread_time()
    call()
    return (time.thread_time() - started) * 1e6


def by_block(search: Callable[[Headers], object], headers: Headers, block: int) -> list[float]:
    """Microseconds of a search in each block of *headers*; the first block is searched once before."""
    search(headers[:block])
    return [
        timed(lambda part=headers[at : at + block]: search(part)) / block  # type: ignore[misc]
        for at in range(0, len(headers) - block + 1, block)
    ]


def spread(name: str, sets: Sequence[Sequence[float]]) -> Row:
    """Mean, interval and deviation of *name* from the values of each set."""
    means = [float(np.mean(values)) for values in sets]
    row = {
        name: float(np.mean(means)),
        f"{name}_deviation": float(np.sqrt(np.mean([np.var(v) for v in sets]))),
    }
    if len(sets) > 1:
        quantile = STUDENT[min(len(sets) - 2, len(STUDENT) - 1)]
        row[f"{name}_ci"] = quantile * float(np.std(means, ddof=1)) / len(sets) ** 0.5
    return row


def wrong(db: engine.Database, boxes: Boxes, headers: Headers, checked: int) -> int:
    """Answers that linear search would not give, of the first few."""
    some = headers[:checked]
    with engine.open("linear", ruled(boxes)) as linear:
        return int((db.search(some) != linear.search(some)).sum())


def work_of(db: engine.Database, headers: Headers) -> Row:
    """What a search reads, mean of *headers*: nodes, lists, hashes, tuples tried, rules compared."""
    counts = db.work(headers)[1]
    return {shown: float(counts[name].mean()) for name, shown in WORK.items()}


def searched(db: engine.Database, headers: Headers, block: int) -> dict[str, list[float]]:
    """Microseconds by block: in batches (search_us), and each begun when the last has answered (alone_us)."""
    out = np.empty(block, np.int32)
    return {
        "search_us": by_block(lambda part: db.search(part, out[: len(part)]), headers, block),
        "alone_us": by_block(lambda part: db.search_one_by_one(part, out[: len(part)]), headers, block),
    }


def walked(db: engine.Database, headers: Headers, block: int) -> dict[str, list[float]]:
    """The same of the descent alone."""
    return {
        "walk_us": by_block(db.walk, headers, block),
        "walk_alone_us": by_block(lambda part: db.walk(part, one_by_one=True), headers, block),
    }


def over_sets(fixed: Row, sets: Sequence[Row]) -> Row:
    """One row of several sets: lists of values get their spread, numbers their mean, *wrong* its sum."""
    row: Row = dict(fixed)
    row["sets"] = len(sets)
    for name, value in sets[0].items():
        values = [one[name] for one in sets]
        if isinstance(value, list):
            row |= spread(name, values)
        elif name == "wrong":
            row[name] = sum(values)
        else:
            row[name] = float(np.mean(values))
    return row


def correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Pearson's, 0 where one of them does not vary."""
    if len(x) < 2 or np.ptp(np.asarray(x)) == 0 or np.ptp(np.asarray(y)) == 0:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def slope(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Of the line of least squares."""
    return float(np.polyfit(np.asarray(x, float), np.asarray(y, float), 1)[0])
