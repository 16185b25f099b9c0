"""A set of cells of an attribute in words: which matches hold in it, and which do not.

Users: diff.py, and by it reach.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hitables.ir.attributes import Attribute
from hitables.ir.fact import Fact

Told = tuple[tuple[str, bool], ...]  # keys of matches, and whether they hold


def told(attribute: Attribute, keys: Mapping[Fact, tuple[str, bool]], ends: Sequence[int]) -> list[Told]:
    """The cells low, high, low, high, ... as sets of matches that hold or fail, of which each is one part.

    keys  by fact, as in TestTable
    """
    everything = (1 << len(attribute.cells)) - 1
    literals: dict[tuple[str, bool], int] = {}
    for fact, cells in attribute.facts.items():
        key, truth = keys[fact]
        holds = _bits(cells)
        literals[key, truth], literals[key, not truth] = holds, everything & ~holds
    wanted = _bits(ends)
    whole = _conjunction(literals, wanted, everything)
    if whole is not None:
        return [whole]
    parts: dict[Told, None] = {}
    for cell in range(len(attribute.cells)):
        if wanted >> cell & 1:
            part = _conjunction(literals, _alike(literals, cell, everything), everything)
            assert part is not None, "the facts do not tell a cell from the others"
            parts[part] = None
    return list(parts)


def _conjunction(literals: Mapping[tuple[str, bool], int], wanted: int, everything: int) -> Told | None:
    """Few literals that hold together in the *wanted* cells alone; None: there are none."""
    chosen: list[tuple[str, bool]] = []
    left = everything
    covering = (literal for literal, cells in literals.items() if cells & wanted == wanted)
    for literal in sorted(covering, key=lambda each: literals[each].bit_count()):
        if left == wanted:
            break
        if left & literals[literal] != left:
            chosen.append(literal)
            left &= literals[literal]
    return tuple(chosen) if left == wanted else None


def _alike(literals: Mapping[tuple[str, bool], int], cell: int, everything: int) -> int:
    """The cells that no fact separates from this one."""
    alike = everything
    for cells in literals.values():
        if cells >> cell & 1:
            alike &= cells
    return alike


def _bits(ends: Sequence[int]) -> int:
    return sum((1 << high + 1) - (1 << low) for low, high in zip(ends[::2], ends[1::2], strict=True))
