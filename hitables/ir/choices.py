"""The choices under which rule sets are compiled and compared: each is one type in the whole package.

A backend is `ir.packet.Backend`; where both may be meant, the type also has the word "any" (`BackendChoice`).
Text becomes a choice at the edge (the command line, a public function, a state file); inside, functions
take the enums.  The enums are strings, so that they are written to JSON and compared as their words.
"""

from __future__ import annotations

import enum
from typing import Literal, TypeAlias, TypeVar

from ..errors import InvalidOption
from .packet import Backend

# One backend, or "any": right in both, and in the limits of both.
BackendChoice: TypeAlias = Backend | Literal["any"]


class Malformed(enum.StrEnum):
    """What the second rule set may do to a packet whose header is cut off or broken."""

    STRICTER = "stricter"  # treat it as the first does, or drop it
    EXACT = "exact"  # treat it as the first does


class Equivalence(enum.StrEnum):
    """What two rule sets must agree on to be equal."""

    FULL = "full"  # verdicts, and effects: logs, counters, marks
    VERDICT = "verdict"  # verdicts, and effects that change the packet or a match with memory


Choice = TypeVar("Choice", bound=enum.StrEnum)


def choose(kind: type[Choice], word: str) -> Choice:
    """The member of *kind* whose value is *word*; InvalidOption lists the values."""
    try:
        return kind(word)
    except ValueError:
        raise InvalidOption(
            f"unknown {kind.__name__.lower()} {word!r}; use one of {', '.join(kind)}"
        ) from None


def backend_choice(word: str) -> BackendChoice:
    """The backend called *word*, or "any"; InvalidOption for another word."""
    if isinstance(word, str) and word == "any":
        return "any"
    try:
        return Backend(word)
    except ValueError:
        raise InvalidOption(f"unknown backend {word!r}; use one of any, {', '.join(Backend)}") from None


def backends_of(choice: BackendChoice) -> tuple[Backend, ...]:
    """The backends that *choice* means: both for "any"."""
    return tuple(Backend) if choice == "any" else (choice,)
