"""Counters in iptables-save text: [PACKETS:BYTES] before a rule or behind a chain, and the words of -c."""

from __future__ import annotations

import re

from .lines import Fault
from .rule_columns import LARGEST_COUNT


def count(word: str, at: int) -> int:
    """A counter as sscanf reads it: digits, and what follows them is ignored; -1 is the largest."""
    match = re.match(r"[ \t]*([+-]?)([0-9]+)", word)
    if match is None:
        raise Fault(f"{word!r} is no counter", at, "write a number of packets and a number of bytes")
    value = min(int(match[2]), LARGEST_COUNT)
    return -value & LARGEST_COUNT if match[1] == "-" else value


def rule_counters(word: str, at: int) -> tuple[int, int] | None:
    """Counters in front of a rule; None for what iptables-restore, without -c, does not read."""
    match = re.fullmatch(r"\[([^:]+):([^\]]+)\]", word)
    if match is None:
        raise Fault(f"{word!r} are no counters", at, "write [PACKETS:BYTES]")
    try:
        return count(match[1], at), count(match[2], at)
    except Fault:
        return None


def chain_counters(word: str) -> tuple[int, int] | None:
    """Counters of a chain; None for what iptables-restore, without -c, does not read."""
    match = re.fullmatch(r"\[([0-9]{1,20}):([0-9]{1,20})\]", word)
    return (min(int(match[1]), LARGEST_COUNT), min(int(match[2]), LARGEST_COUNT)) if match else None
