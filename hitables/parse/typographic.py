"""Characters that web pages put in place of those that iptables reads: dashes, quotes, no-break spaces."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_QUOTES = "\u2018\u2019\u201a\u201c\u201d\u201e\u2033"
_BLANKS = "\u00a0\u202f\u2009"
_LOOK_ALIKE = re.compile(f"[{_DASHES}{_QUOTES}{_BLANKS}]")
_DASH = re.compile(f"[{_DASHES}]")


def hint_at(word: str) -> str:
    """A hint at a character of *word*, as it is written, that looks like one of iptables; "" if none does.

    A character between the quotes of iptables, as in a comment, is meant.
    """
    found = _LOOK_ALIKE.search(word) if '"' not in word else None
    if found is None:
        return ""
    character = found[0]
    if character in _DASHES:
        name, write = 'the hyphen "-"', _as_typed(word)
    elif character in _QUOTES:
        name, write = "the quote '\"'", "'\"'"
    else:
        name, write = "a blank", "a blank"
    named = f"{character!r} (U+{ord(character):04X}, {unicodedata.name(character).lower()})"
    return f"{named} is not {name}: a web page has changed it; write {write}"


def hint_before(words: Sequence[str]) -> str:
    """A hint at such a quote that opens in one of *words* and does not close in it, or at such a blank."""
    for word in words:
        if re.search(f"[{_BLANKS}]", word) or (word[0] in _QUOTES and word[-1] not in _QUOTES):
            return hint_at(word)
    return ""


def _as_typed(word: str) -> str:
    """*word* with hyphens: two in front of a name of several letters, of which web pages make one dash."""
    typed = _DASH.sub("-", word)
    if word[:1] != typed[:1] and re.fullmatch(r"-+\w[\w-]+", typed):
        return f"--{typed.lstrip('-')}"
    return typed
