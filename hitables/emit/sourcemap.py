"""The source map: the input line of each printed rule.

The counters of all rules that map to one line add up to the counter of that line's rule
(hitables/schema/map.json).  Rules that were removed, because they affect no verdict, have no counter; they
are listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.program import Program


@dataclass(frozen=True, slots=True)
class Gone:
    """A rule of the input that was removed, and why."""

    table: str
    chain: str
    line: int
    why: str


def source_map(
    program: Program, origins: Mapping[tuple[str, str], str], source: str, gone: Sequence[Gone] = ()
) -> dict[str, Any]:
    """The map as plain data.  The line of a rule that only leads to other rules is 0."""
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
