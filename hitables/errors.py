"""Every error.  Each kind answers one question; all descend from HitablesError."""

from __future__ import annotations


class HitablesError(Exception):
    """What a user is told when something cannot be done."""


class ParseError(HitablesError):
    """What could not be read: *source*, *line* and *column* (both from 1), and why.

    *text* is the line, *length* how many of its characters are meant, *hint* what to do.
    """

    def __init__(
        self,
        reason: str,
        *,
        source: str = "-",
        line: int = 0,
        column: int = 0,
        text: str = "",
        length: int = 1,
        hint: str = "",
    ) -> None:
        super().__init__(reason)
        self.reason, self.source, self.line, self.column = reason, source, line, column
        self.text, self.length, self.hint = text, length, hint

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.source, self.line, self.column) if part)
        said = f"{place}: {self.reason}" + (f"; {self.hint}" if self.hint else "")
        if not self.text or not self.column:
            return said
        # A long line is cut to what stands around the fault, so that the caret stays in sight.
        first = max(0, self.column - 1 - 60)
        shown = self.text[first : first + 120].replace("\t", " ")
        caret = " " * (self.column - 1 - first) + "^" * max(1, min(self.length, 120))
        dots = "…" if first else ""
        return f"{said}\n  {dots}{shown}\n  {' ' * len(dots)}{caret}"


class Unsupported(HitablesError):
    """What is understood but not supported."""


class NotEquivalent(HitablesError):
    """What came out wrong: two programs differ on a packet (*witness*, as text)."""

    def __init__(self, reason: str, witness: str = "") -> None:
        super().__init__(reason)
        self.witness = witness

    def __str__(self) -> str:
        reason = super().__str__()
        return f"{reason}\n{self.witness}" if self.witness else reason


class LiveError(HitablesError):
    """What the running system refused: a command, its exit status and its words."""


class DatabaseError(HitablesError, ValueError):
    """What a classifier refused: rules, headers, a plan, or an update; it stays as it was."""


class OutOfMemory(DatabaseError, MemoryError):
    """What did not fit into memory, or into the limit that was set."""
