"""The source map: which line of the input each printed rule stands for.

Counters of copies are pieces; whoever adds up the counters of all rules that map
to one line has the counter of that line's rule (hitables/schema/map.json).  Of rules that
went because no verdict depends on them there is no counter; they are listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.program import Program


@dataclass(frozen=True, slots=True)
class Gone:
    """A rule of the input that stands nowhere in the output, and why."""

    table: str
    chain: str
    line: int
    why: str


def source_map(
    program: Program, origins: Mapping[tuple[str, str], str], source: str, gone: Sequence[Gone] = ()
) -> dict[str, Any]:
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
                "gone": [
                    {"chain": each.chain, "line": each.line, "why": each.why}
                    for each in gone
                    if each.table == table.name
                ],
            }
            for table in program
        ],
    }
