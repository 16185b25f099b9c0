"""The rule sets and classifiers of the SFL paper's evaluation.

A classifier has two forms: `ours`, with the parameters that are usual here, and `paper`, as near to the text
as parameters lead: tuple space search without rounded lengths and vectors, bit vectors without aggregation,
HyperSplit down to one rule, and SFL that lets updates wait while it builds and reads its buffer rule by rule.
Both are measured in one run.  What cannot be updated is `classic(A)`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hitables.engine import Rules
from hitables.generate import rules as made
from hitables.generate import seed as seeds
from hitables.generate import trace as traces

SEEDS = Path(__file__).resolve().parents[1] / "rulesets/seeds"
SEED = "acl"
RULES = 2000
PACKETS = 100_000
DELTA = 20
KINDS = ("insert", "delete")
STATIC = ("hypersplit", "rfc", "bit_vector")
# What the paper calls each, and the plan of each form.
FORMS: dict[str, dict[str, str]] = {
    "ours": {
        "linear": "linear",
        "tss": "tss",
        "hypersplit": "classic(hypersplit)",
        "sfl(hypersplit)": "sfl(hypersplit)",
        "rfc": "classic(rfc)",
        "sfl(rfc)": "sfl(rfc)",
        "bit_vector": "classic(bit_vector)",
        "sfl(bit_vector)": "sfl(bit_vector)",
    },
    "paper": {
        "linear": "linear",
        "tss": "tss(step=1, vector=0)",
        "hypersplit": "classic(hypersplit(leaf=1))",
        "sfl(hypersplit)": "sfl(hypersplit(leaf=1), background=2, vector=0)",
        "rfc": "classic(rfc)",
        "sfl(rfc)": "sfl(rfc, background=2, vector=0)",
        "bit_vector": "classic(bit_vector(aggregated=0))",
        "sfl(bit_vector)": "sfl(bit_vector(aggregated=0), background=2, vector=0)",
    },
}
# Linear search and classic(rfc) are the same in both forms, and measured once.
PLANS = tuple(dict.fromkeys(plan for form in FORMS.values() for plan in form.values()))

U32Array = NDArray[np.uint32]


def with_delta(plan: str, delta: int) -> str:
    """A plan sfl(A, …) with that delta, which is not DELTA."""
    return f"{plan[:-1]}, delta={delta})"


class Workload:
    """A made rule set of *rules* + *more* rules, of which *more* are held back, and packets of them all."""

    def __init__(
        self, number: int, more: int = 0, packets: int = PACKETS, rules: int = RULES, seed: str = SEED
    ) -> None:
        path = SEEDS / f"{seed}.seed"
        every = Rules.of_filter(made.rules(seeds.parse(path.read_text(), path.name), rules + more, number))
        rng = np.random.default_rng(number)
        held = np.zeros(len(every), bool)
        held[rng.choice(len(every), more, replace=False)] = True
        self.rules = Rules(every.layout, every.boxes[~held], every.priority[~held])
        self.held = Rules(every.layout, every.boxes[held], every.priority[held])
        self._insertions = rng.permutation(more)
        self._deletions = rng.permutation(len(self.rules))
        self.headers = traces.headers(every, packets, number)

    def updates(self, kind: str, count: int) -> tuple[U32Array, U32Array]:
        """Boxes [count][dims][2] and priorities [count] of the rules that go in, or out, in that order."""
        if kind == "insert":
            chosen, order = self.held, self._insertions[:count]
        else:
            chosen, order = self.rules, self._deletions[:count]
        return np.ascontiguousarray(chosen.boxes[order]), np.ascontiguousarray(chosen.priority[order])


@lru_cache(maxsize=12)
def workload(
    number: int, more: int = 0, packets: int = PACKETS, rules: int = RULES, seed: str = SEED
) -> Workload:
    """Workload number *number*; the last few are kept."""
    return Workload(number, more, packets, rules, seed)
