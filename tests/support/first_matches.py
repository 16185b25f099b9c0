"""First matches by reading the whole list, for comparison with faster searches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hitables.parse.classbench import ClassbenchFilter


def first_matches(filters: ClassbenchFilter, headers: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """The index of the first rule that matches each header; -1 where no rule does."""
    table, best = headers.astype(np.int64), np.full(len(headers), -1)
    for index in reversed(range(len(filters))):
        rule = filters.rules[index]
        hit = np.full(len(headers), True) if rule.proto is None else table[:, 4] == rule.proto
        for column, (low, high) in enumerate((rule.src, rule.dst, rule.sport, rule.dport)):
            hit &= (table[:, column] >= low) & (table[:, column] <= high)
        best[hit] = index
    return best
