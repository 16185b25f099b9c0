"""How deep loaded chains nest, and the depth that a backend accepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hitables.compiler.options import NESTING
from hitables.ir.program import Table

from .edits import jumps_to
from .settings import Settings


def depth_limit(settings: Settings) -> int:
    """How many chains may be entered below a built-in one."""
    return NESTING[settings.backend]


def raised(
    table: Table, nesting: Mapping[str, int], chains: Iterable[str], depth: int, limit: int
) -> dict[str, int] | None:
    """*nesting* with *chains* of *table* at least *depth* deep, and the chains that they enter below them.

    None if one is deeper than *limit*, which ends the search where chains jump in a circle.
    """
    deeper = dict(nesting)
    pending = [(name, depth) for name in chains]
    while pending:
        name, level = pending.pop()
        if level > limit:
            return None
        if level > deeper.get(name, 0):
            deeper[name] = level
            callees = {jumps_to(rule) for rule in table[name].rules} if name in table else set()
            pending += [(callee, level + 1) for callee in callees - {""}]
    return deeper
