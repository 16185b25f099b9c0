"""Every error that hitables raises for its callers.  All descend from HitablesError.

Each class answers one question, so that a program can act on the class alone:

    ParseError       which text could not be read, where, and why
    Unsupported      what is understood but not supported
    InvalidOption    which argument has no meaning, or contradicts another
    UnknownName      which table or chain the rule set lacks
    NotComparable    why two rule sets cannot be compared at all
    NotEquivalent    which packet a compiled rule set treats differently
    OutOfBudget      which limit ended a proof before its end: time or memory
    Disagreement     which two parts of hitables contradict each other: a fault to report
    MissingLibrary   which optional library is not installed
    FileError        which file or stream could not be read or written
    LiveError        what the running system refused
    DatabaseError    what a classifier in memory refused
    OutOfMemory      what did not fit into memory, or into the limit that was set

None of them is a KeyError or an OSError.  Every other exception is a fault of hitables.
"""

from __future__ import annotations

from collections.abc import Sequence

# A longer line is cut to this many columns around the fault, so that the caret stays in sight.
SHOWN_COLUMNS = 120
MISTAKES = 10  # of one text that a message lists


class HitablesError(Exception):
    """A request that cannot be fulfilled; the text is a message for the user."""


def described(error: Exception) -> str:
    """The message of *error*, with its type where that is no HitablesError: its text alone may say little."""
    return str(error) if isinstance(error, HitablesError) else f"{type(error).__name__}: {error}"


class ParseError(HitablesError):
    """Text that could not be read: *source*, *line* and *column* (both from 1), and the *reason*.

    *text* is the line, *length* the number of its characters at fault, *hint* a proposal.  *others*: more
    mistakes of the same text, which the message lists too; *unsaid*: how many there are besides.
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
        self.others: tuple[ParseError, ...] = ()
        self.unsaid = 0

    @staticmethod
    def of_all(errors: Sequence[ParseError]) -> ParseError:
        """The first of *errors*, whose message lists the first `MISTAKES` of them."""
        first, *others = sorted(errors, key=lambda error: (error.line, error.column))
        first.others = tuple(others[: MISTAKES - 1])
        first.unsaid = len(errors) - 1 - len(first.others)
        return first

    def __str__(self) -> str:
        lines = [self.alone(), *(error.alone() for error in self.others)]
        if self.unsaid:
            lines.append(f"… and {self.unsaid} more mistake{'s' if self.unsaid > 1 else ''}")
        return "\n".join(lines)

    def alone(self) -> str:
        """The message without the *others*."""
        place = ":".join(str(part) for part in (self.source, self.line, self.column) if part)
        message = f"{place}: {self.reason}" + (f"; {self.hint}" if self.hint else "")
        if not self.text or not self.column:
            return message
        first = max(0, self.column - 1 - SHOWN_COLUMNS // 2)
        shown = self.text[first : first + SHOWN_COLUMNS].replace("\t", " ")
        caret = " " * (self.column - 1 - first) + "^" * max(1, min(self.length, SHOWN_COLUMNS))
        dots = "…" if first else ""
        return f"{message}\n  {dots}{shown}\n  {' ' * len(dots)}{caret}"


class Unsupported(HitablesError):
    """Input that is understood but not supported."""


class InvalidOption(HitablesError, ValueError):
    """An argument out of its range, an unknown word, or two arguments that exclude each other."""


class UnknownName(HitablesError):
    """A table or chain that the rule set does not have."""


class NotComparable(HitablesError):
    """Two rule sets that cannot be compared: of two families, or with chains or ipsets that only one has."""


class NotEquivalent(HitablesError):
    """A compiled rule set that differs from its source; *witness*: a packet that shows it, as text."""

    def __init__(self, reason: str, witness: str = "") -> None:
        super().__init__(reason)
        self.witness = witness

    def __str__(self) -> str:
        reason = super().__str__()
        return f"{reason}\n{self.witness}" if self.witness else reason


class OutOfBudget(HitablesError):
    """A proof that its time or memory limit ended; nothing is known about the rest."""


class Disagreement(HitablesError):
    """Two parts of hitables that must agree on a packet do not: a fault of hitables; please report it."""


class MissingLibrary(HitablesError):
    """An optional library that is not installed; the text has the command that installs it."""


class FileError(HitablesError):
    """A file or stream that could not be read or written; the text names it."""


class LiveError(HitablesError):
    """A request that the running system refused: the command, its exit status and its message."""


class DatabaseError(HitablesError, ValueError):
    """A request that a classifier refused: rules, headers, a plan or an update; it stays as it was."""


class OutOfMemory(DatabaseError, MemoryError):
    """Data that does not fit into memory, or into the limit that was set."""
