"""Hints at words that stand on command lines of iptables and not in iptables-save text."""

from __future__ import annotations

import re
from collections.abc import Sequence

_TOOL = re.compile(r'(\S*/)?ip6?tables(-legacy|-nft)?|"?\$\{?\w+\}?"?')
_TABLE = ("-t", "--table")


def command_hint(words: Sequence[str]) -> str:
    """A hint at a line that begins with the name of a tool, or a variable that holds it; or ""."""
    first = 1 if words[0] in ("sudo", "exec") and len(words) > 1 else 0
    if not _TOOL.fullmatch(words[first]):
        return ""
    hint = f'leave "{words[0]} {words[1]}" out' if first else "leave that word out"
    at = next((at for at, word in enumerate(words) if word in _TABLE), None)
    return hint if at is None else f"{hint}, and {words[at]} with its value: {_table_line(words, at)}"


def table_hint(words: Sequence[str], at: int) -> str:
    """A hint at the option -t in *words* at the index *at*; "" for another word."""
    return f"leave it out: {_table_line(words, at)}" if words[at] in _TABLE else ""


def _table_line(words: Sequence[str], at: int) -> str:
    name = words[at + 1] if at + 1 < len(words) and re.fullmatch(r"\w+", words[at + 1]) else "nat"
    return f'a line "*{name}" says the table'
