"""Rule sets and traffic of the Storm paper, or their substitutes.

R6 and R7 are the WUSTL sets acl1_5K and acl1_10K, whose sizes agree to the rule; R1 to R5 are not public, and
are drawn from seeds in the same sizes.  The traces are not public either: flows are bound to rules by presets
of the traffic generator, and two of them have fewer popular rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hitables.engine import Rules
from hitables.generate import rules as drawn_rules
from hitables.generate import seed as seeds
from hitables.generate.traffic import traffic
from hitables.generate.traffic_presets import PRESETS as BOUND
from hitables.generate.traffic_presets import Preset, RuleFlows

from .classifiers import load
from .public_sets import SHARED

ROOT = Path(__file__).resolve().parents[1]
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
def rule_set(name: str) -> Rules | None:
    """None where the public sets are missing, which is said."""
    source, count = next((source, count) for each, source, count in SETS if each == name)
    if "/" in source:
        if not (SHARED / "rulesets" / f"{source}.gz").exists():
            print(f"{name} ({source}) is missing in {SHARED}: left out")
            return None
        return load(source)
    path = f"rulesets/seeds/{source}.seed"
    seed = seeds.parse((ROOT / path).read_text(), path)
    return Rules.of_filter(drawn_rules.rules(seed, count, sum(map(ord, name))))


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
    assert rules is not None
    return np.concatenate([block.headers for block in traffic(PRESETS[preset], packets, rules=rules, seed=1)])


def sets(names: tuple[str, ...]) -> Iterator[tuple[str, Rules]]:
    for name in names:
        rules = rule_set(name)
        if rules is not None:
            yield name, rules
