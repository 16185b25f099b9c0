"""A line cut into words, and into its shape and literals.

The shape of a line is the line with one NUL in place of each literal: words with digits, quoted text, names
of chains, counters.  Lines of one shape have one structure, so the reader analyses each shape once
(line_templates.py).
"""

from __future__ import annotations

import re
from itertools import pairwise

from ..core.line_shapes import CutLines, cut_lines
from ..syntax.extensions import TARGETS

LITERAL = "\0"

_QUOTED = r'"(?:[^"\\\n]|\\.)*"'
# The name of a chain as iptables-save prints it.
PRINTED_NAME = r'(?:[^\s"]|"(?:[^"\\]|\\.)*")+'
# A closing quote ends a word, even without a blank behind it; an unclosed quote is a word of its own.
_WORD = re.compile(rf'[^\s"]*{_QUOTED}|[^\s"]+|"', re.ASCII)
_SPECIAL = re.compile(r"""[\s"'\\]""")
UNKNOWN_REVISION = ("[unsupported", "revision]")
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


def of_unknown_revision(line: str) -> str:
    """The match or target whose name iptables-save printed before "[unsupported revision]"; "" if none.

    It does so where a program with another version of the extension has loaded the rule.
    """
    if UNKNOWN_REVISION[0] not in line:
        return ""
    words = [word for word, _ in split(line)]
    pairs = pairwise(words[1:])
    return next((name for name, pair in zip(words, pairs, strict=False) if pair == UNKNOWN_REVISION), "")


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
    if word and not _SPECIAL.search(word):
        return word
    return '"' + re.sub(r'(["\\])', r"\\\1", word) + '"'


def pieces(text: str) -> CutLines:
    """The shapes and the literals of the text's lines, numbered."""
    return cut_lines(text.encode("utf-8", "surrogateescape"), _NAMES)


# The four kinds of lines.  Blanks are spaces and tabs; other white space ends a word and fits nowhere.
_TABLE = re.compile(r"(\*\S*)[ \t]*")
_CHAIN = re.compile(r'(:\S*)[ \t]*([^\s"\0]+)?[ \t]*(\[[0-9]+:[0-9]+\])?[ \t]*')
_COMMIT = re.compile(r"[ \t]*(COMMIT)(?=\s*$)[ \t]*")
_COUNTERS = re.compile(r"[ \t]*(\[[0-9]+:[0-9]+\])")
# One token of a rule.  A literal is always a token; an option ends at white space.
_TOKEN = re.compile(
    r"""[ \t]*(
        !(?=\s)
        | --[A-Za-z][A-Za-z0-9_-]*=[^\s"]+
        | --?[A-Za-z0-9][A-Za-z0-9_-]*(?=\s|$)
        | \0
        | [^\s"\0]+
    )[ \t]*""",
    re.VERBOSE,
)


def parse(line: str) -> tuple[str, list[str]]:
    """The kind of the line (table, chain, commit, rule) and its tokens.

    *line* may be a shape.  Raises Fault with the index of the first word that fits nowhere.

        table   *NAME
        chain   :NAME POLICY [COUNTERS]
        commit  COMMIT
        rule    [COUNTERS] TOKEN ...
    """
    if match := _TABLE.match(line):
        return "table", _whole(line, match)
    if match := _CHAIN.match(line):
        if match[2] is None:
            raise _misplaced(line, match.end() if match.end() < len(line) else 0)
        return "chain", _whole(line, match)
    if match := _COMMIT.match(line):
        return "commit", _whole(line, match)
    counters = _COUNTERS.match(line)
    tokens, end = ([counters[1]], counters.end()) if counters else ([], 0)
    while match := _TOKEN.match(line, end):
        tokens.append(match[1])
        end = match.end()
    if end < len(line.rstrip(" \t")):
        raise _misplaced(line, end)
    if len(tokens) == bool(counters):  # a line ends where a rule must begin
        raise _misplaced(line, 0)
    return "rule", tokens


def _whole(line: str, match: re.Match[str]) -> list[str]:
    """The tokens of *match*, which must be the whole line."""
    if match.end() < len(line):
        raise _misplaced(line, match.end())
    return [token for token in match.groups() if token is not None]


def _misplaced(line: str, at: int) -> Fault:
    """The character in column *at* belongs to no token."""
    rest = line[at:].lstrip(" \t")
    words = len(_WORD.findall(line[: len(line) - len(rest)]))
    return Fault("a quote that is never closed" if rest[:1] == '"' else "this does not belong here", words)
