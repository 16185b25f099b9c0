"""Words that several reports write alike.

Users: the reports.
"""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """The noun with its number before it: "1 rule", "2,000 rules"."""
    return f"{count:,} {noun}{'s' if count != 1 else ''}"
