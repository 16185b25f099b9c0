"""Settings of sflgen are checked before anything is planned with them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hitables.errors import InvalidOption
from sflgen.settings import Settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"delta": math.nan}, "delta is a whole number, not nan"),
        ({"delta": -1}, "delta must be at least 0"),
        ({"min_length": 2.5}, "min_length is a whole number"),
        ({"min_length": 0}, "min_length must be at least 1"),
        ({"max_updates": -1}, "max_updates must be at least 0"),
        ({"max_expansion": math.nan}, "max_expansion is a number from 1"),
        ({"max_expansion": 10**400}, "max_expansion is a number from 1"),
        ({"prefix": ""}, "prefix '': a letter"),
        ({"prefix": "*filter x"}, "a letter, and up to 15 letters"),
        ({"foreign": None}, "patterns of chains, not None"),
        ({"foreign": "*"}, "it matches the built-in chain"),
        ({"backend": "iptables"}, "unknown backend"),
    ],
)
def test_values_that_are_not_possible_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        Settings(**values)


def test_one_word_is_one_pattern_of_foreign_chains() -> None:
    settings = Settings(foreign="f2b-*")  # type: ignore[arg-type]
    assert (
        settings.foreign == ("f2b-*",)
        and settings.is_foreign("f2b-sshd")
        and not settings.is_foreign("INPUT")
    )
