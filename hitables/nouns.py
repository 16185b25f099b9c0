"""Numbers with their nouns, for messages."""

from __future__ import annotations

from collections.abc import Collection

MAX_LINES = 4  # that a message names


def counted(number: int, noun: str) -> str:
    """The number with its noun: "1 rule", "2,000 rules"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def lines_named(lines: Collection[int]) -> str:
    """Lines of a file: "line 7", "lines 7, 9", "lines 1, 2, 3, 4 and 2 more"; "" if there are none."""
    if not lines:
        return ""
    named = ", ".join(map(str, list(lines)[:MAX_LINES]))
    more = f" and {len(lines) - MAX_LINES} more" if len(lines) > MAX_LINES else ""
    return f"line{'s' if len(lines) > 1 else ''} {named}{more}"
