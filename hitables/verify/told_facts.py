"""Sets of cells of an attribute in words: which matches hold in it, and which do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hitables.ir.attributes import Attribute, behind_in_words
from hitables.ir.fact import Fact

Literal = tuple[str, bool]  # key of a match, and whether it holds
Told = tuple[Literal, ...]


class AttributeWords:
    """The matches that ask *attribute*; *keys*: by fact, as in TestTable."""

    def __init__(self, attribute: Attribute, keys: Mapping[Fact, Literal]) -> None:
        self._everything = (1 << len(attribute.cells)) - 1
        cells_of: dict[Literal, int] = {}
        for fact, ends in attribute.facts.items():
            key, truth = keys[fact]
            cells = _bits(ends)
            cells_of[key, truth], cells_of[key, not truth] = cells, self._everything & ~cells
        for fact, made, ends in attribute.behind:
            key, truth = keys[fact]
            key = behind_in_words(attribute.name, key if truth else f"! {key}", fact, made)
            cells = _bits(ends)
            cells_of.setdefault((key, True), cells)
            cells_of.setdefault((key, False), self._everything & ~cells)
        self._literals = sorted(cells_of.items(), key=lambda each: each[1].bit_count())
        self._exact = {cells: literal for literal, cells in reversed(self._literals)}

    def told(self, ends: Sequence[int]) -> list[Told]:
        """The cells low, high, ... as sets of matches that hold or fail; each set is a part of them."""
        wanted = _bits(ends)
        whole = self._conjunction(wanted)
        if whole is not None:
            return [whole]
        parts: dict[Told, None] = {}
        while wanted:
            alike = self._alike(wanted & -wanted)
            assert not alike & ~wanted, "the facts do not tell the cells from others"
            part = self._conjunction(alike)
            assert part is not None, "the facts do not tell a cell from the others"
            parts[part] = None
            wanted &= ~alike
        return list(parts)

    def _conjunction(self, wanted: int) -> Told | None:
        """Few literals that hold together in the *wanted* cells alone; None: there are none."""
        if wanted in self._exact:
            return (self._exact[wanted],)
        chosen: list[Literal] = []
        left = self._everything
        for literal, cells in self._literals:
            if left == wanted:
                break
            if not wanted & ~cells and left & ~cells:
                chosen.append(literal)
                left &= cells
        return tuple(chosen) if left == wanted else None

    def _alike(self, cell: int) -> int:
        """The cells that no fact separates from *cell*, a bit."""
        alike = self._everything
        for _, cells in self._literals:
            if cells & cell:
                alike &= cells
        return alike


def _bits(ends: Sequence[int]) -> int:
    return sum((1 << high + 1) - (1 << low) for low, high in zip(ends[::2], ends[1::2], strict=True))
