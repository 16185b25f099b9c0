"""Rule sets that the project makes itself, in place of public ones that are not beside it.

The public sets may not be redistributed (../shared).  Where a benchmark of a paper lacks them, it draws sets
of as many rules from the project's own seeds, and says so, on the terminal and in its data, which go to out/.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hitables.engine import Rules
from hitables.generate import rules as drawn_rules
from hitables.generate import seed as seeds
from hitables.generate import trace
from hitables.parse.classbench import ClassbenchFilter

from .classifiers import load
from .public_sets import SHARED

ROOT = Path(__file__).resolve().parents[1]
# The seed that is nearest to each family of the public sets.
SEED_OF = {"acl": "acl", "fw": "fw", "ipc": "fw"}
SIZES = {"100": 100, "1K": 1000, "5K": 5000, "10K": 10000}
MADE = tuple(f"{kind}_{size}" for kind in ("acl", "fw") for size in SIZES)


@cache
def drawn(seed: str, count: int, number: int = 0) -> ClassbenchFilter:
    """*count* rules of rulesets/seeds/*seed*.seed, the same for the same *number*."""
    path = f"rulesets/seeds/{seed}.seed"
    return drawn_rules.rules(seeds.parse((ROOT / path).read_text(), path), count, number)


def public_or_made(name: str, count: int, shared: Path = SHARED) -> Rules:
    """The public set *name* (as wustl/acl1_10K), or *count* rules in its place where *shared* is missing."""
    if missing([(name, count)], shared):
        return Rules.of_filter(drawn(_seed_of(name), count))
    return load(name)


def missing(sets: Iterable[tuple[str, int]], shared: Path = SHARED) -> list[str]:
    """What stands in for those of the public *sets* (name, rules) that *shared* lacks, a sentence each."""
    return [
        f"{count:,} rules drawn from rulesets/seeds/{_seed_of(name)}.seed stand in for {name}"
        for name, count in sets
        if not (shared / "rulesets" / f"{name}.gz").exists()
    ]


def _seed_of(name: str) -> str:
    return SEED_OF[name.rpartition("/")[2].partition("_")[0].rstrip("0123456789")]


def made(name: str) -> tuple[ClassbenchFilter, npt.NDArray[np.uint32]]:
    """The set of MADE called *name*, and ten headers a rule, drawn evenly over the rules."""
    seed, _, size = name.partition("_")
    filters = drawn(seed, SIZES[size])
    return filters, trace.headers(Rules.of_filter(filters), 10 * len(filters), 1)
