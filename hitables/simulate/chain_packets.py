"""Packets at the boundaries of the rules of many user chains, drawn together.

A table may have tens of thousands of user chains of a few rules.  Drawing packets costs little per packet,
but milliseconds per call, so the packets of many chains are drawn by one call, and then told apart.

Invariant: as for boundary_packets.py, whose conditions and packets these are.  The packets of a chain are for
the rules that it reaches, in turn; rules that are hard to reach get no packets of their own.

Cost: linear in the packets, and in the rules that each chain reaches, summed over the chains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from .batch import PacketBatch
from .boundary_packets import CONDITIONS, ConditionSampler, PacketMaker
from .interpreter import Interpreter
from .path_conditions import PathCondition, Reach

AT_ONCE = 100_000  # packets drawn by one call: about 20 MB


def draw_for_user_chains(
    interpreter: Interpreter, table: str, counts: Mapping[str, int], seed: int = 0
) -> Iterator[tuple[str, PacketBatch]]:
    """Each user chain of *counts*, in order, with as many packets for the rules that it reaches."""
    rng = np.random.default_rng(seed)
    waiting: dict[str, int] = {}
    drawn = 0
    for chain, count in counts.items():
        waiting[chain] = count
        drawn += count
        if drawn >= AT_ONCE:
            yield from _draw(interpreter, table, waiting, rng)
            waiting, drawn = {}, 0
    if waiting:
        yield from _draw(interpreter, table, waiting, rng)


def _draw(
    interpreter: Interpreter, table: str, counts: Mapping[str, int], rng: np.random.Generator
) -> Iterator[tuple[str, PacketBatch]]:
    family, first_rules = interpreter.program.family, interpreter.first_rules(table)
    sampler = ConditionSampler(family, rng)
    anywhere = sampler.add(PathCondition(family, {}))
    firsts, seconds = [], []
    for chain, count in counts.items():
        reach = Reach(interpreter.program.table(table), chain, family, rng, first_rules)
        aimed = rng.permutation(np.array(reach.numbers, np.int64))[:count].tolist()
        numbers = [
            sampler.add(condition) for number in aimed for condition in reach.conditions(number, CONDITIONS)
        ]
        conditions = np.array(numbers or [anywhere], np.int64)
        firsts.append(conditions[rng.permutation(np.arange(count) % len(conditions))])
        seconds.append(conditions[rng.integers(len(conditions), size=count)])
    first, second = np.concatenate(firsts), np.concatenate(seconds)
    for each in (first, second):  # some packets for no rule
        each[rng.random(len(each)) < 0.06] = anywhere
    batch = PacketMaker("", sampler, rng).make(first, second, rng.integers(4, size=len(first)), plain=False)
    at = 0
    for chain, count in counts.items():
        yield chain, batch.pick(slice(at, at + count))
        at += count
