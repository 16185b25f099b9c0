"""Smaller rule sets that still show a fault: removes whole rules first, then single tests of rules, then
chains.

Invariant: the result was tried, and shows the fault.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from math import inf

Shows = Callable[[str], bool]


def shrink(text: str, shows: Shows, seconds: float = inf) -> str:
    """As few rules of *text* (iptables-save), and of their tests, as still make *shows* true.

    *seconds*: when they are over, what was reached by then.
    """
    tries = _Tries(shows, time.monotonic() + seconds)
    lines = text.splitlines()
    while True:
        before = lines
        lines = _fewer(lines, [at for at, line in enumerate(lines) if _is_rule(line)], tries)
        lines = _shorter(lines, tries)
        lines = _fewer(lines, [at for at, line in enumerate(lines) if line.startswith(":")], tries)
        lines = _without_tables(lines, tries)
        if lines == before or tries.over:
            return _joined(lines)


class _Tries:
    def __init__(self, shows: Shows, ends: float) -> None:
        self.shows, self.ends = shows, ends

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.ends

    def __call__(self, lines: Sequence[str]) -> bool:
        return not self.over and self.shows(_joined(lines))


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _is_rule(line: str) -> bool:
    return line.startswith(("-A ", "["))


def _fewer(lines: list[str], places: list[int], tries: _Tries) -> list[str]:
    """Without as many of the lines at *places* as can go: halves, then quarters, down to single ones."""
    size = max(1, len(places) // 2)
    while places:
        at, went = 0, False
        while at < len(places):
            chosen = set(places[at : at + size])
            left = [line for number, line in enumerate(lines) if number not in chosen]
            if not tries(left):
                at += size
                continue
            went = True
            moved = {number: number - sum(each < number for each in chosen) for number in places}
            places = [moved[number] for number in places if number not in chosen]
            lines = left
        if size == 1 and not went:
            break
        size = max(1, size // 2)
    return lines


def _shorter(lines: list[str], tries: _Tries) -> list[str]:
    """Without as many tests of each rule as can go."""
    at = 0
    while at < len(lines):
        for line in _less(lines[at]) if _is_rule(lines[at]) else ():
            shorter = [*lines[:at], line, *lines[at + 1 :]]
            if tries(shorter):
                lines = shorter
                break
        else:
            at += 1
    return lines


def _less(line: str) -> Iterator[str]:
    """The rule without one of its options, the chain and the target apart; without its counters."""
    if line.startswith("["):
        yield re.sub(r"^\[[^]]*\] *", "", line)
        return
    words = shlex.split(line)
    starts = [
        at
        for at, word in enumerate(words)
        if word == "!" or (word.startswith("-") and len(word) > 1 and words[at - 1] != "!")
    ]
    for first, end in zip(starts, [*starts[1:], len(words)], strict=True):
        if words[first] not in ("-A", "-j", "-g"):
            yield " ".join(_quoted(word) for word in (*words[:first], *words[end:]))


def _quoted(word: str) -> str:
    if re.fullmatch(r"[^\s\"'\\]+", word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _without_tables(lines: list[str], tries: _Tries) -> list[str]:
    """Without the tables that can go."""
    starts = [at for at, line in enumerate(lines) if line.startswith("*")]
    for first in reversed(starts):
        end = next((at for at in range(first, len(lines)) if lines[at] == "COMMIT"), len(lines) - 1)
        left = [*lines[:first], *lines[end + 1 :]]
        if tries(left):
            lines = left
    return lines
