"""A line cut into words, and into its shape and literals.

The shape of a line is the line with one NUL in place of each literal: words with
digits, quoted text, names of chains.  Lines of one shape have one structure, so
what costs time is done once per shape.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from lark import Lark, Token, UnexpectedInput

from ..core._engine import ffi, lib
from ..syntax.extensions import TARGETS

LITERAL = "\0"

_QUOTED = r'"(?:[^"\\\n]|\\.)*"'
# A closing quote ends a word, whatever stands behind it; one that is never closed is a word of its own.
_WORD = re.compile(rf'[^\s"]*{_QUOTED}|[^\s"]+|"', re.ASCII)
_UNCLEARED = ffi.new_allocator(should_clear_after_alloc=False)
_KEPT = "\0".join([*TARGETS, "RETURN", ""]).encode()


class Fault(Exception):
    """What is wrong with a line, and with which of its words (from 0)."""

    def __init__(self, reason: str, word: int, hint: str = "") -> None:
        super().__init__(reason)
        self.reason, self.word, self.hint = reason, word, hint


class NeedsWords(Exception):
    """The structure of this line depends on a literal, so its shape is not enough."""


def split(line: str) -> list[tuple[str, int]]:
    """The line's words as written, each with its column from 0."""
    return [(found.group(), found.start()) for found in _WORD.finditer(line)]


def unquote(word: str) -> str:
    """The word as iptables sees it: quotes taken off, escapes inside quotes resolved."""
    if '"' not in word:
        return word
    parts = re.split(rf"({_QUOTED})", word)
    return "".join(
        re.sub(r"\\(.)", r"\1", part[1:-1], flags=re.DOTALL) if part.startswith('"') else part
        for part in parts
    )


def quote(word: str) -> str:
    """The word as iptables-save writes it: in quotes when it must be."""
    if word and not re.search(r"""[\s"'\\]""", word):
        return word
    return '"' + re.sub(r'(["\\])', r"\\\1", word) + '"'


def shapes(text: str) -> tuple[list[str], list[str]]:
    """The shapes of the text's lines, and the literals of all of them in a row."""
    data = text.encode("utf-8", "surrogateescape")
    shape = _UNCLEARED("char[]", len(data) + 1)
    starts, ends = (_UNCLEARED("uint32_t[]", len(data) // 2 + 1) for _ in "se")
    count = ffi.new("size_t *")
    size = lib.shape_of(data, len(data), _KEPT, len(_KEPT), shape, starts, ends, count)
    found = int(count[0])
    places = zip(ffi.unpack(starts, found), ffi.unpack(ends, found), strict=True)
    if len(data) == len(text):
        literals = [text[start:end] for start, end in places]
    else:
        literals = [data[start:end].decode("utf-8", "surrogateescape") for start, end in places]
    shaped = bytes(ffi.buffer(shape, size)).decode("utf-8", "surrogateescape")
    return shaped.split("\n"), literals


@cache
def _grammar() -> Lark:
    text = (Path(__file__).parents[1] / "syntax" / "iptables.lark").read_text()
    return Lark(text, parser="lalr", start="line", maybe_placeholders=True)


def parse(line: str) -> tuple[str, list[Token | None]]:
    """What kind of line it is (table, chain, commit, rule) and its tokens.

    *line* may be a shape.  Raises Fault with the index of the word that fits nowhere.
    """
    try:
        tree = _grammar().parse(line)
    except UnexpectedInput as error:
        at = error.column - 1 if error.column > 0 else len(line)
        before = len(_WORD.findall(line[:at]))
        open_quote = line[at : at + 1] == '"'
        raise Fault(
            "a quote that is never closed" if open_quote else "this does not belong here", before
        ) from None
    body = tree.children[0]
    assert not isinstance(body, Token)
    return str(body.data), list(body.children)  # type: ignore[arg-type]
