"""Tables of the docs, written from figures between `<!-- table: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table: the first column holds names, the others numbers."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def between(name: str) -> re.Pattern[str]:
    """A pattern for the text between the two marks of table *name*."""
    return re.compile(rf"(?<=<!-- table: {name} -->\n).*?(?=<!-- end -->)", re.DOTALL)


def fill(page: Path, name: str, table: str) -> None:
    """Write *table* between its marks on *page*."""
    text = page.read_text()
    page.write_text(between(name).sub(lambda match: table, text, count=1))
