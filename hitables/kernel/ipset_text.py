"""The output of `ipset save`, line by line.

Its lines are not words of a shell: ipset prints names as they are, even with blanks or quotes, and a comment
between double quotes, in which a backslash is no escape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..rule_lines import lines_of

_CREATE = re.compile(r"create (.+?) ((?:bitmap|hash|list):\S+)(.*)")
_OF_ELEMENTS = re.compile(r' (?:(?:timeout|packets|bytes|skbmark|skbprio|skbqueue) |comment ").*')
_SIZES = re.compile(r" (?:hashsize|initval|bucketsize) \S+")


@dataclass(frozen=True, slots=True)
class CreatedSet:
    """A set as its `create` line tells it.

    options  the words behind the type, but for the sizes of its hash table: an empty set needs no large one
    """

    name: str
    type: str
    options: tuple[str, ...]

    @property
    def is_list(self) -> bool:
        """Whether its members are sets."""
        return self.type.startswith("list:")


def created_sets(text: str) -> dict[str, CreatedSet]:
    """The sets that *text* creates, by name."""
    found = {}
    for line in lines_of(text):
        create = _CREATE.fullmatch(line)
        if create is not None:
            name, kind, options = create.groups()
            found[name] = CreatedSet(name, kind, tuple(_SIZES.sub("", options).split()))
    return found


def members_of(name: str, text: str) -> list[str]:
    """The elements that *text* adds to the set *name*, each without its options."""
    start = f"add {name} "
    return [
        _OF_ELEMENTS.sub("", line.removeprefix(start)) for line in lines_of(text) if line.startswith(start)
    ]
