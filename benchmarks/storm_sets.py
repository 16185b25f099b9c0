"""Rule sets and traffic of the Storm paper, or their substitutes.

R6 and R7 are the WUSTL sets acl1_5K and acl1_10K, whose sizes agree to the rule; where those are missing they
are drawn from a seed, as R1 to R5 are, which are not public, in the same sizes.  The traces are not public
either: presets of the traffic generator bind flows to rules, and two of them have fewer popular rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt

from hitables.engine import Rules
from hitables.generate.traffic import traffic
from hitables.generate.traffic_presets import PRESETS as BOUND
from hitables.generate.traffic_presets import Preset, RuleFlows

from .made_sets import drawn, missing, public_or_made

# The presets that bind flows to rules, and two with fewer popular rules: hit ratios follow the locality.
PRESETS: dict[str, Preset] = {name: BOUND[name] for name in ("backbone", "edge", "drifting", "uniform")} | {
    f"edge, s {skew}": replace(BOUND["edge"], of_rules=RuleFlows(2000, skew)) for skew in (1.6, 2.2)
}
# Name, where it is from (a seed, or a public set), rules.
SETS = (
    ("R1", "acl", 460), ("R2", "fw", 711), ("R3", "acl", 852), ("R4", "fw", 1036), ("R5", "fw", 1802),
    ("R6", "wustl/acl1_5K", 4415), ("R7", "wustl/acl1_10K", 9603),
)  # fmt: skip

Headers = npt.NDArray[np.uint32]


@cache
def rule_set(name: str) -> Rules:
    source, count = next((source, count) for each, source, count in SETS if each == name)
    if "/" in source:
        return public_or_made(source, count)
    return Rules.of_filter(drawn(source, count, sum(map(ord, name))))


def stand_ins() -> list[str]:
    """What stands in for the public sets that are missing."""
    return missing((source, count) for _, source, count in SETS if "/" in source)


def classes_of(rules: Rules, kind: str) -> npt.NDArray[np.uint32] | None:
    """Own: each rule is a class; 8: eight classes; 50, 90: so many percent permit, the last rule denies."""
    rng = np.random.default_rng(7)
    if kind == "own":
        return None
    if kind == "8":
        return rng.integers(0, 8, len(rules.boxes)).astype(np.uint32)
    permit = (rng.random(len(rules.boxes)) < int(kind) / 100).astype(np.uint32)
    permit[-1] = 0
    return permit


@cache
def packets_of(name: str, preset: str, packets: int) -> Headers:
    rules = rule_set(name)
    return np.concatenate([block.headers for block in traffic(PRESETS[preset], packets, rules=rules, seed=1)])


def sets(names: tuple[str, ...]) -> Iterator[tuple[str, Rules]]:
    for name in names:
        yield name, rule_set(name)
