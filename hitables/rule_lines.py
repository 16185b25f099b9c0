"""The lines of a rule text.  They end at LF alone.

Invariant: str.splitlines, which also ends a line at U+0085, U+2028 and U+2029, is not used on rules, as a
comment may have these characters.
"""

from __future__ import annotations

import re

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def lines_of(text: str) -> list[str]:
    """The lines, without their ends."""
    lines = text.split("\n")
    if not lines[-1]:
        del lines[-1]
    return lines


def with_ends(text: str) -> list[str]:
    """The lines, each with the LF that ends it; the last may have none."""
    return _LINE.findall(text)
