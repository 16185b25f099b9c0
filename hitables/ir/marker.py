"""The marker of a compiled table: a chain without rules, whose name has the digest of its source.

Kernels keep chains that no rule enters, in both backends, and packets never meet them.  (A comment on a rule
would cost time in legacy, and comment lines are not kept.)  So a rule set that is read back from a kernel is
recognised as compiled, and its source is told from other rule sets.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from .meaning import DIGITS, Digests
from .program import Chain, Program, Table

PREFIX = "ht-source-"
_MARKER = re.compile(rf"{PREFIX}([0-9a-f]{{{DIGITS}}})")


def is_marker(name: str) -> bool:
    """Whether *name* is that of a marker."""
    return _MARKER.fullmatch(name) is not None


def marked_digest(table: Table) -> str:
    """The digest of the source in the marker of *table*; "" if it has no marker, or several."""
    found = [
        match[1]
        for chain in table.chains
        if not chain.rules and chain.policy is None and (match := _MARKER.fullmatch(chain.name))
    ]
    return found[0] if len(found) == 1 else ""


def with_markers(program: Program, source: Program, tables: Collection[str], digests: Digests) -> Program:
    """*program* with a marker in each of *tables* that names the digest of the table in *source*.

    Markers of an earlier compilation go.
    """
    return replace(
        program,
        tables=tuple(
            replace(
                table,
                chains=(
                    *(chain for chain in table.chains if not is_marker(chain.name)),
                    Chain(PREFIX + digests.of_table(source.table(table.name)), None),
                ),
            )
            if table.name in tables
            else table
            for table in program
        ),
    )
