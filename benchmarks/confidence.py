"""Mean and confidence interval of a few runs, by Student's distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

# Quantiles of 95 % by degrees of freedom from 1: both tails together leave 10 %.
T_95 = (
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753,
    1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
)  # fmt: skip
NORMAL_95 = 1.645


def spread(values: Sequence[float]) -> dict[str, Any]:
    """The values, their mean, and half of the interval that holds the true mean with 90 %.

    interval  None for a single value, of which no spread is known
    """
    count = len(values)
    half = None
    if count > 1:
        quantile = T_95[count - 2] if count - 2 < len(T_95) else NORMAL_95
        half = quantile * statistics.stdev(values) / math.sqrt(count)
    return {"mean": statistics.fmean(values), "interval": half, "runs": list(values)}
