"""Lines of iptables-save text cut into tokens, and the word that fits nowhere."""

from __future__ import annotations

import pytest

from hitables.parse.lines import Fault, parse


@pytest.mark.parametrize(
    ("line", "kind", "tokens"),
    [
        ("*filter", "table", ["*filter"]),
        (":INPUT ACCEPT [0:0]", "chain", [":INPUT", "ACCEPT", "[0:0]"]),
        (":web -", "chain", [":web", "-"]),
        ("COMMIT ", "commit", ["COMMIT"]),
        ("COMMIT x", "rule", ["COMMIT", "x"]),
        ("[1:2] -A x ! -s \0", "rule", ["[1:2]", "-A", "x", "!", "-s", "\0"]),
        ("-A x [1:2]", "rule", ["-A", "x", "[1:2]"]),
        ("!x --a=b", "rule", ["!x", "--a=b"]),
        ("-j\0 --foo\0bar", "rule", ["-j", "\0", "--foo", "\0", "bar"]),
    ],
)
def test_a_line_has_a_kind_and_tokens(line: str, kind: str, tokens: list[str]) -> None:
    assert parse(line) == (kind, tokens)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("", 0), ("[1:2]", 0), ("*filter x", 1), (":INPUT", 0), (":INPUT ACCEPT x", 2),
        (":INPUT ACCEPT [0:0] x", 3), ("-A\x0bx", 1), ("-A x \"y", 2),
    ],
    ids=repr,
)  # fmt: skip
def test_the_first_word_that_fits_nowhere_is_named(line: str, word: int) -> None:
    with pytest.raises(Fault) as fault:
        parse(line)
    assert fault.value.word == word
    assert fault.value.reason == (
        "a quote that is never closed" if '"' in line else "this does not belong here"
    )
