"""One spelling for each meaning: the keys of matches and targets.

`key` turns the options of an extension, as the user wrote them, into a text.  Two spellings have the same
key only if iptables 1.8.9 makes the same kernel data of them; so equal keys mean equal behaviour.  The
converse may fail: if a form cannot read a value, the key keeps the words as they are, so that the same
behaviour may have two keys.  An extension with an empty form keeps all its words.

The forms (in the rows of `extensions/`) follow the sources of iptables 1.8.9 and of the kernel.  `make
saves` tests them against both: the bytes that the legacy kernel holds for every spelling, and what
iptables-save prints.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..ir.fields import Family


class OptionUse(NamedTuple):
    """An option as a rule uses it: its name, whether a ! precedes it, its values."""

    option: str
    inverted: bool
    values: tuple[str, ...]


Options = dict[str, tuple[bool, str]]  # option -> whether it is inverted, and its value in canonical words
Write = Callable[[tuple[str, ...], Family], str]  # values to canonical words; ValueError: not understood
ABSENT = ""  # a writer's result for a value that means the same as omitting the option
NOTHING = " "  # the value of an option that takes none


@dataclass(frozen=True, slots=True)
class Form:
    """How the options of one extension are written canonically.

    values      a writer for each option whose values have several spellings; the others stay as they are
    defaults    the meaning of an option that is omitted, where the row's own `defaults` do not have it
    whole       rewrites the options where they depend on each other, or raises ValueError
    alone       writes the whole key, from the options in their order; then only *in_force* is used besides
    signs       whether a ! has a meaning
    in_force    the uses that remain where a later option cancels an earlier one
    same_as     the extension that iptables-save prints in place of this one
    """

    values: Mapping[str, Write] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    whole: Callable[[Options, Family], None] | None = None
    alone: Callable[[Sequence[OptionUse], Family], str] | None = None
    signs: bool = True
    in_force: Callable[[Sequence[OptionUse]], Sequence[OptionUse]] | None = None
    same_as: str = ""


def key(name: str, form: Form, uses: Sequence[OptionUse], defaults: Mapping[str, str], family: Family) -> str:
    """The behaviour of extension *name* with these options, in words: equal keys, equal behaviour.

    form, defaults  those of the extension's row
    """
    if form.in_force is not None:
        uses = form.in_force(uses)
    name = form.same_as or name
    try:
        if form.alone is not None:
            return f"{name} {form.alone(uses, family)}".rstrip()
        options: Options = {}
        for use in uses:
            value = use.inverted and form.signs, value_words(use, form, family)
            if value != (False, ABSENT) and options.setdefault(use.option, value) != value:
                raise ValueError(f"{use.option} is given twice")
        for option, default in {**defaults, **form.defaults}.items():
            options.setdefault(option, (False, default or NOTHING))
        if form.whole is not None:
            form.whole(options, family)
    except (ValueError, OverflowError, KeyError):  # KeyError: an option is missing
        return f"{name} {raw(uses)}".rstrip()
    written = sorted(
        f"{'! ' if inverted else ''}{option} {value}".rstrip()
        for option, (inverted, value) in options.items()
    )
    return " ".join([name, *written])


def value_words(use: OptionUse, form: Form, family: Family) -> str:
    """The values of an option in canonical words; ValueError: its form cannot read them."""
    write = form.values.get(use.option)
    if write is not None:
        return write(use.values, family)
    return " ".join(quoted(word) for word in use.values) or NOTHING


def plain(name: str, uses: Sequence[OptionUse]) -> str:
    """The options in words, sorted: for a match that is compared by its tests, not by its key."""
    return " ".join([name, *sorted(raw([use]) for use in uses)])


def raw(uses: Sequence[OptionUse]) -> str:
    """The options as the user wrote them, in their order."""
    words: list[str] = []
    for use in uses:
        words += [*(["!"] if use.inverted else []), use.option, *(quoted(word) for word in use.values)]
    return " ".join(words)


# Words that cannot be mistaken for an option, for two words, or for a quoted one.
_PLAIN = re.compile(r"[^\s\"'\\!-][^\s\"'\\]*")


def quoted(word: str) -> str:
    """*word*, in quotes if it could be mistaken for something else."""
    if _PLAIN.fullmatch(word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
