"""Answers that a packet's text gives and no rule asks for, such as those with a misspelt name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from .packet_text import Answers
from .program import Table
from .rule import Role


def unasked(answers: Answers, tables: Iterable[Table]) -> list[str]:
    """The words of a packet that no match of *tables* asks for, each with the nearest that one does."""
    matches = {
        match for table in tables for chain in table.chains for rule in chain.rules for match in rule.matches
    }
    constant = [match for match in matches if match.role is Role.CONSTANT]
    keys = {key for match in constant for key in (match.key, match.negates) if key}
    attributes = {match.number.attribute for match in constant if match.number is not None}
    memories = {match.key for match in matches if match.role in (Role.NAMED, Role.ONCE)}
    return [
        *_missing("fact", (key for key, _ in answers.facts), keys),
        *_missing("number", (attribute for attribute, _ in answers.numbers), attributes),
        *_missing("outcome", (key for key, _ in answers.outcomes), memories),
    ]


def _missing(word: str, given: Iterable[str], asked: set[str]) -> Iterator[str]:
    for name in dict.fromkeys(given):
        if name not in asked:
            near = difflib.get_close_matches(name, sorted(asked), 1, 0.3)
            yield f"{word}={name}" + (f" (did you mean {near[0]}?)" if near else "")
