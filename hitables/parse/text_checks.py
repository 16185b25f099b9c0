"""Texts that no parser need see: binary data, and lines and words that are too long for iptables-restore."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import ParseError
from .line_templates import LONGEST_LINE, LONGEST_WORD, MOST_WORDS
from .lines import Fault, split, unquote

# A line of so few characters has no word that is too long, and not too many words.
_ENOUGH = LONGEST_WORD // 4


_CONTROL = bytes(1 if (code < 32 and chr(code) not in "\t\n") or code == 127 else 0 for code in range(256))


def without_windows_ends(text: str) -> str:
    """*text* with LF for CR LF, if all its lines end so.

    In other texts a CR is a character of the last word, as everywhere else: iptables-restore takes it for a
    blank nowhere.
    """
    if "\r" not in text or text.count("\r\n") < text.count("\n"):
        return text
    return text.replace("\r\n", "\n")


def refused_line_ends(text: str) -> list[str]:
    """What iptables-restore makes of the line ends of *text*, where it refuses them and hitables does not."""
    if without_windows_ends(text) != text:
        return ["its lines end as those of Windows (CR LF): iptables-restore refuses it"]
    if text and not text.endswith("\n"):
        return ["its last line has no line end: iptables-legacy-restore refuses it, and loads nothing of it"]
    return []


def refuse_binary(text: str, name: str) -> None:
    """ParseError for a byte order mark in front, and at the first control character of *text*."""
    if text.startswith("\ufeff"):
        raise ParseError(
            "a byte order mark, which iptables refuses, too",
            source=name,
            line=1,
            column=1,
            hint="save the text as UTF-8 without it",
        )
    if b"\1" not in text.encode("utf-8", "surrogateescape").translate(_CONTROL):
        return
    bad = next(re.finditer(r"[\x00-\x08\x0b-\x1f\x7f]", text))
    returns = "line ends of Windows are read where all lines have them; elsewhere remove the carriage return"
    raise ParseError(
        f"binary data: a control character {bad.group()!r}",
        source=name,
        line=text.count("\n", 0, bad.start()) + 1,
        column=bad.start() - text.rfind("\n", 0, bad.start()),
        hint=returns if bad.group() == "\r" else "is this iptables-save text?",
    )


def too_long(lines: Sequence[str]) -> tuple[int, Fault] | None:
    """The number of the first line (from 1) that is too long, and why; None if there is none."""
    if max(map(len, lines)) <= _ENOUGH:
        return None
    for number, line in enumerate(lines, 1):
        fault = _fault(line) if len(line) > _ENOUGH else None
        if fault is not None:
            return number, fault
    return None


def _fault(line: str) -> Fault | None:
    size = len(line.encode("utf-8", "surrogateescape"))
    if size > LONGEST_LINE:
        reason = f"a line of {size} bytes; iptables reads {LONGEST_LINE}"
        return Fault(reason, 0, "it takes the rest for another line")
    if line[0] not in "-[ \t":
        return None
    words = split(line)
    for at, (word, _) in enumerate(words):
        size = len(unquote(word).encode("utf-8", "surrogateescape"))
        if size > LONGEST_WORD:
            return Fault(f"a word of {size} bytes; iptables takes {LONGEST_WORD}", at)
    if len(words) > MOST_WORDS:
        return Fault(f"{len(words)} words; iptables takes {MOST_WORDS} in a line", MOST_WORDS)
    return None
