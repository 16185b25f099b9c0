"""A line cut into words, and into its shape and literals.

The shape of a line is the line with one NUL in place of each literal: words with digits, quoted text, names
of chains.  Lines of one shape have one structure, so the reader analyses each shape once (line_templates.py).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from lark import Lark, Token, UnexpectedInput

from ..core.line_shapes import shapes_of
from ..syntax.extensions import TARGETS

LITERAL = "\0"

_QUOTED = r'"(?:[^"\\\n]|\\.)*"'
# A closing quote ends a word, whatever follows it; a quote that is never closed is a word of its own.
_WORD = re.compile(rf'[^\s"]*{_QUOTED}|[^\s"]+|"', re.ASCII)
# Behind -j these are no literals.
_NAMES = "\0".join([*TARGETS, "RETURN", ""]).encode()


class Fault(Exception):
    """The mistake of a line, and the index of the word that has it."""

    def __init__(self, reason: str, word: int, hint: str = "") -> None:
        super().__init__(reason)
        self.reason, self.word, self.hint = reason, word, hint


class NeedsWords(Exception):
    """The structure of this line depends on a literal, so its shape is not enough."""


def split(line: str) -> list[tuple[str, int]]:
    """The line's words as written, each with its column from 0."""
    return [(match.group(), match.start()) for match in _WORD.finditer(line)]


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
    shape, starts, ends = shapes_of(data, _NAMES)
    spans = zip(starts, ends, strict=True)
    if len(data) == len(text):
        literals = [text[start:end] for start, end in spans]
    else:
        literals = [data[start:end].decode("utf-8", "surrogateescape") for start, end in spans]
    return shape.decode("utf-8", "surrogateescape").split("\n"), literals


@cache
def _grammar() -> Lark:
    text = (Path(__file__).parents[1] / "syntax" / "iptables.lark").read_text()
    return Lark(text, parser="lalr", start="line", maybe_placeholders=True)


def parse(line: str) -> tuple[str, list[Token | None]]:
    """The kind of the line (table, chain, commit, rule) and its tokens.

    *line* may be a shape.  Raises Fault with the index of the first word that the grammar does not allow.
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
