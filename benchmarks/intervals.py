"""Means with their 90 % confidence intervals, as the SFL paper gives them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

# Student's t for 1, 2, … degrees of freedom, 5 % on either side; the normal distribution's beyond.
_T = (
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753,
    1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
)  # fmt: skip
_NORMAL = 1.645


def mean_interval(values: Sequence[float]) -> dict[str, float | int | None]:
    """`mean`, `deviation` and `ci90`, the half width of the interval of the mean, of `runs` values.

    One value has no deviation and no interval: None.
    """
    runs = len(values)
    mean = statistics.fmean(values)
    if runs < 2:
        return {"mean": mean, "deviation": None, "ci90": None, "runs": runs}
    deviation = statistics.stdev(values)
    t = _T[runs - 2] if runs - 2 < len(_T) else _NORMAL
    return {"mean": mean, "deviation": deviation, "ci90": t * deviation / math.sqrt(runs), "runs": runs}
