"""Traces for a rule set, in the manner of ClassBench's trace generator.

A header is drawn from a rule, all rules with equal chance.  It is repeated in a row, with a number of
copies from a Pareto distribution: P(copies > x) = (scale / x) ** shape.  With scale 0 each header occurs
once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..errors import HitablesError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..engine import Rules

# The longest burst, as a share of the trace, however heavy the tail.
LONGEST = 0.1


def headers(
    rules: Rules, count: int, number: int = 0, shape: float = 1.0, scale: float = 0.0
) -> NDArray[np.uint32]:
    """[count][dims] headers, the same for the same *number*."""
    import numpy as np

    if count < 1:
        raise HitablesError(f"{count} headers cannot be generated; ask for at least one")
    if not (0 < shape < math.inf and 0 <= scale < math.inf):
        raise HitablesError(
            f"a Pareto shape of {shape:g} and a scale of {scale:g}: numbers above 0, and 0 or above"
        )
    if not len(rules.boxes):
        raise HitablesError("headers are drawn from rules, and there are none")
    rng = np.random.default_rng(number)
    copies = np.ones(count, np.int64)
    if scale:
        with np.errstate(
            over="ignore", divide="ignore"
        ):  # infinitely many copies are cut to the longest burst
            drawn = np.ceil(scale * rng.random(count) ** (-1 / shape))
        copies = np.clip(drawn, 1, max(1, int(count * LONGEST))).astype(np.int64)
    bursts = int(np.searchsorted(np.cumsum(copies), count)) + 1
    boxes = rules.boxes[rng.integers(0, len(rules.boxes), bursts)].astype(np.int64)
    drawn_headers = rng.integers(boxes[:, :, 0], boxes[:, :, 1] + 1)
    return np.repeat(drawn_headers, copies[:bursts], axis=0)[:count].astype(np.uint32)


def to_text(packets: NDArray[np.uint32], found: NDArray[np.int32]) -> str:
    """A trace of six columns: the header, and the first rule that matches it, counted from 1."""
    rows = zip(packets.tolist(), (found + 1).tolist(), strict=True)
    return "".join("\t".join(map(str, (*header, rule))) + "\n" for header, rule in rows)
