"""Rule sets with the counters that packets give them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import hitables
from hitables.emit.text import write
from hitables.ir.packet import Backend
from hitables.ir.program import Chain, Program
from hitables.simulate.interpreter import Interpreter
from hitables.sources.known import by_map
from hitables.sources.map_file import read_map


def known_source(before: Program, path: Path) -> Any:
    """The source as it would be saved, by a map of itself."""
    plain = hitables.compile(write(before), min_length=10_000)
    own = path.with_name("own")
    own.write_text(json.dumps(plain.source_map))
    return by_map(read_map(str(own)), before)


def with_hits(program: Program, batch: Any) -> Program:
    """*program*, whose rules and policy have counted *batch* in chain FORWARD, as a kernel counts."""
    result = Interpreter(program, Backend.LEGACY).run("filter", "FORWARD", batch, hits=True)
    assert result.hits is not None
    counts = iter(result.hits.tolist())
    table = program.table("filter")
    rules = [rule for chain in table.chains for rule in chain.rules]
    by_policy = np.array([*(rule.returns for rule in rules), True])[result.rule]
    # A chain of a tree that is left by RETURN is left to the policy.
    counted = int(np.count_nonzero(by_policy))

    def chain_with(chain: Chain) -> Chain:
        own = tuple(rule._replace(counters=(next(counts), 0)) for rule in chain.rules)
        policy = (counted if chain.name == "FORWARD" else 0, 0) if chain.policy else None
        return Chain(chain.name, chain.policy, own, policy, chain.line)

    chains = {chain.name: chain_with(chain) for chain in table.chains}
    return Program(program.family, (table.of(chains),))
