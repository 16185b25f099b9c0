"""The source map: which line of the input each printed rule stands for.

Counters of copies are pieces; whoever adds up the counters of all rules that map
to one line has the counter of that line's rule (hitables/schema/map.json).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.program import Program


def source_map(program: Program, origins: Mapping[tuple[str, str], str], source: str) -> dict[str, Any]:
    """The map as plain data.  A rule's line is 0 when it was made to find the way."""
    return {
        "format": "hitables-map",
        "version": 1,
        "source": source,
        "family": int(program.family),
        "tables": [
            {
                "name": table.name,
                "chains": [
                    {
                        "name": chain.name,
                        "origin": origins.get((table.name, chain.name), chain.name),
                        "lines": [rule.line for rule in chain.rules],
                    }
                    for chain in table.chains
                ],
            }
            for table in program
        ],
    }
