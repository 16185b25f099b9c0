"""Rule sets that are output of hitables or sflgen, recognised so that none is taken for a source.

A compiled text is a source in appearance only: a rule that is inserted there reaches some packets, and one
that is deleted leaves its copies.  The text has a first line that says so; a kernel keeps the names of the
chains of trees, and the marker (ir/marker.py), which both backends store.
"""

from __future__ import annotations

import re

from ..errors import Unsupported
from ..ir.marker import is_marker
from ..ir.program import Program

_HEADER, _LACKS = "# Compiled by hitables ", ", equivalence verdict "
_NAME = re.compile(r"(ht_*|sf)(\d+)")
_FEW = 2


def why_compiled(program: Program) -> str:
    """Why *program* is taken for compiled; "" if it may be a source.

    Chains are those of trees if a table has at least two with such names that rules enter.  A compiled text
    without trees is its source, unless rules were removed from it.
    """
    markers = [chain.name for table in program for chain in table.chains if is_marker(chain.name)]
    if markers:
        return f"chain {markers[0]} marks it"
    generated = _generated_chains(program)
    if generated:
        return f"it has chains of trees: {', '.join(generated[:3])}" + (" …" if len(generated) > 3 else "")
    first = program.tables[0].notes[:1] if program.tables else ()
    if first and first[0].startswith(_HEADER) and _LACKS in first[0] and "(0 rules" not in first[0]:
        return "rules were removed from it (--equivalence verdict)"
    return ""


def has_name_of_tree(chain: str) -> bool:
    """Whether the compiler may have given *chain* its name."""
    return _NAME.fullmatch(chain) is not None or is_marker(chain)


def _generated_chains(program: Program) -> list[str]:
    generated: list[str] = []
    for table in program:
        names = {chain.name for chain in table.chains if chain.policy is None and _NAME.fullmatch(chain.name)}
        entered = {rule.enters for chain in table.chains for rule in chain.rules}
        if len(names & entered) >= _FEW:
            generated += sorted(names, key=lambda name: (len(name), name))
    return generated


def refuse_compiled(program: Program, file: str) -> None:
    """Unsupported if *program* is compiled."""
    why = why_compiled(program)
    if why:
        raise Unsupported(
            f"{file}: this rule set is compiled, and no source ({why}).  Give the rules that it was compiled "
            'from; "hitables source" prints them by the map of compile or the state of apply, "hitables '
            'history" lists the files that were applied, and "sflgen print" prints the rules of a state'
        )
