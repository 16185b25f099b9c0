"""Numbers with their nouns, for messages."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """The number with its noun: "1 rule", "2,000 rules"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
