"""How deep loaded chains nest, and the depth that a backend accepts."""

from __future__ import annotations

from collections import Counter

from hitables.compiler.compile import NESTING
from hitables.ir.program import Table

from .edits import jumps_to
from .settings import Settings


def depth_limit(settings: Settings) -> int:
    """How many chains may be entered below a built-in one."""
    return NESTING[settings.backend]


def depths(table: Table) -> dict[str, int]:
    """By chain: the greatest number of chains that nest above it."""
    callees = {
        chain.name: {name for rule in chain.rules if (name := jumps_to(rule))} for chain in table.chains
    }
    depth = dict.fromkeys(callees, 0)
    callers_left = Counter(name for names in callees.values() for name in names)
    ready = [name for name in callees if not callers_left[name]]
    while ready:
        name = ready.pop()
        for callee in callees[name]:
            depth[callee] = max(depth[callee], depth[name] + 1)
            callers_left[callee] -= 1
            if not callers_left[callee]:
                ready.append(callee)
    return depth
