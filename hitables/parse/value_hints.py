"""Hints at values that an option refuses and that another option, or several rules, would take."""

from __future__ import annotations

import re

from ..syntax.values import ADDRESS_RANGE

_LIST = re.compile(r"[\w-]+([,/][\w-]+)+")


def value_hint(option: str, value: str, inverted: bool) -> str:
    """A hint at the refused *value* of an option in its short name; "" for none.

    *inverted*: whether the option is behind a "!".
    """
    if option == "-p" and _LIST.fullmatch(value):
        # Two rules with a "!" would match the packets of every protocol.
        return "a rule has one protocol" + ("" if inverted else ": write one rule for each")
    if option in ("-s", "-d") and ADDRESS_RANGE.fullmatch(value):
        return f"a range needs -m iprange --{'src' if option == '-s' else 'dst'}-range {value}"
    return ""
