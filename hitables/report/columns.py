"""Tables that fit the terminal: what is too wide becomes several tables below each other.

Invariant: no number is cut or wrapped, however narrow the terminal; text is wrapped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

_BORDERS = 3  # columns of the terminal between two cells
_LEAST_TEXT = 12  # columns of a text that is wrapped


class _Columns(Console):
    def on_broken_pipe(self) -> None:
        """Let the command answer the error: this is called where it is caught, to end the process with 1."""
        error = sys.exc_info()[1]
        if error is not None:
            raise error


def open_console(width: int, *, stderr: bool = False, **settings: Any) -> Console:
    """A console that prints text as it is: a chain may be called [red] or :bug:.

    width  of the output where it is no terminal
    """
    stream = sys.stderr if stderr else sys.stdout
    return _Columns(
        stderr=stderr, width=None if stream.isatty() else width, markup=False, emoji=False, **settings
    )


def print_table(
    console: Console,
    columns: Sequence[tuple[str, bool]],
    rows: Sequence[Sequence[str]],
    *,
    keys: int = 1,
    title: str = "",
) -> None:
    """Print *rows*; *columns*: names, and whether they hold numbers.

    The first *keys* columns, which are text, are in each of the tables if there are several.
    """
    widths = [
        max([cell_len(name), *(cell_len(line) for row in rows for line in row[at].split("\n"))])
        for at, (name, _) in enumerate(columns)
    ]
    room = console.width - 1 - sum(min(widths[at], 2 * _LEAST_TEXT) + _BORDERS for at in range(keys))
    parts: list[list[int]] = [[]]
    free = room
    if sum(width + _BORDERS for width in widths) + 1 <= console.width:
        parts, free = [list(range(keys, len(columns)))], 0
    else:
        for at in range(keys, len(columns)):
            width = widths[at] if columns[at][1] else min(widths[at], 2 * _LEAST_TEXT)
            if width + _BORDERS > free and parts[-1]:
                parts.append([])
                free = room
            parts[-1].append(at)
            free -= width + _BORDERS
    for number, part in enumerate(parts):
        table = Table(title=title if not number else None, title_justify="left")
        shown = [*range(keys), *part]
        for at in shown:
            name, is_number = columns[at]
            table.add_column(
                name,
                justify="right" if is_number else "left",
                no_wrap=is_number,
                min_width=widths[at] if is_number else None,
                overflow="fold",
            )
        for row in rows:
            table.add_row(*(row[at] for at in shown))
        console.print(table)
