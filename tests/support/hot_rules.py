"""Hot rules chosen whatever they cost, and rule sets in which few rules match nearly all packets."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hitables.compiler import hot
from hitables.compiler.hot_costs import HotCosts


def take_everything(patch: pytest.MonkeyPatch) -> None:
    """Every candidate saves as much as any other: the first ones are chosen, as many as are asked for."""
    patch.setattr(hot._Choice, "_saved", lambda self, group, rest: np.ones(len(rest)))
    patch.setattr(
        HotCosts,
        "of",
        lambda self, hot, batch: np.array([[1.0 / (1 + len(each))] * len(self.backends) for each in hot]),
    )


def skewed_text(count: int = 400, counters: bool = True) -> str:
    """Rules of single hosts, of which three match nearly all packets; the first one covers parts of them."""
    rng = random.Random(5)
    lines = ["[0:0] -A FORWARD -s 10.0.0.0/8 -p tcp -m tcp --dport 25 -j DROP"]
    for at in range(count):
        packets = {7: 500_000, 100: 300_000, 300: 100_000}.get(at, rng.randrange(20))
        host = f"10.{at % 7}.{at // 7}.{rng.randrange(1, 255)}"
        rule = f"-A FORWARD -s {host}/32 -p tcp -m tcp --dport {at + 20}:900 -j ACCEPT"
        lines.append(f"[{packets}:{packets}] {rule}")
    text = "*filter\n:FORWARD DROP [0:0]\n" + "\n".join(lines) + "\nCOMMIT\n"
    return text if counters else "\n".join(line.split("] ")[-1] for line in text.split("\n"))
