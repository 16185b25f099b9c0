"""The uses of an extension that iptables 1.8.9 refuses: wrong options, wrong combinations, wrong places.

The rows of `extensions/` list what is allowed; this module checks a rule against them.  A rule is refused
when both iptables-legacy and iptables-nft refuse it; if one of them accepts it, so do we (`make accepts`
compares).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..ir.fields import Family
from .canonical import OptionUse
from .extension import Extension, Scope

# Protocols with ports for an address translation; a negated one is accepted too.
NAT_PROTOCOLS = (6, 17, 132, 33, 1)


class Refusal(ValueError):
    """Why a rule is refused, and because of which option.

    use    the index of the use of an option that is refused; None: the extension as a whole
    value  the index of the value within that use; None: the option itself
    """

    def __init__(self, reason: str, use: int | None = None, value: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.use, self.value = reason, use, value


def accepts_alone(extension: Extension, name: str, negated: bool) -> bool:
    """Whether a rule may have this option alone, with every value.

    Most ports of a large rule set are such options, so this is asked before `check`, which costs more.
    """
    option = extension.options.get(name)
    checked = extension.check or extension.check_in_order
    plain = not (extension.needed or extension.beside or checked or extension.family)
    return plain and option is not None and not option.checks and (option.negatable or not negated)


def check(extension: Extension, uses: Sequence[OptionUse], family: Family) -> None:
    """Raise Refusal if iptables would refuse these *uses* of the extension's options."""
    if extension.family not in (None, family):
        version = "4" if extension.family is Family.IPV4 else "6"
        raise Refusal(f"{extension.name} exists for IPv{version} only")
    by_option: dict[str, list[tuple[bool, tuple[str, ...]]]] = {}
    first_use: dict[str, int] = {}
    for index, (name, negated, words) in enumerate(uses):
        option = extension.options[name]
        if negated and not option.negatable:
            raise Refusal(f"{name} cannot be negated", index)
        if name in by_option and not option.repeatable:
            raise Refusal(f"a second {name}: {extension.name} takes one", index)
        for value, (check_value, word) in enumerate(zip(option.checks, words, strict=False)):
            try:
                check_value(word, family)
            except ValueError as error:
                raise Refusal(f"{name}: {error}", index, value) from None
        by_option.setdefault(name, []).append((negated, words))
        first_use.setdefault(name, index)
    _check_groups(extension, first_use)
    try:
        if extension.check is not None:
            extension.check(by_option, family)
        if extension.check_in_order is not None:
            extension.check_in_order(uses, family)
    except ValueError as error:
        raise Refusal(str(error)) from None


def _check_groups(extension: Extension, first_use: dict[str, int]) -> None:
    """Refuse options that exclude each other, and options that are missing."""
    for group in extension.one_of:
        present = [option for option in group if option in first_use]
        if len(present) > 1:
            last = max(present, key=first_use.__getitem__)
            other = next(option for option in present if option != last)
            raise Refusal(f"{last} cannot be combined with {other}", first_use[last])
    for option, companion in extension.beside.items():
        if option in first_use and companion not in first_use:
            raise Refusal(f"{option} needs {companion}", first_use[option])
    for group in extension.needed:
        if not any(option in first_use for option in group):
            wanted = " or ".join(group) if len(group) < 3 else f"one of {', '.join(group)}"
            raise Refusal(f"{extension.name} needs {wanted}")


def scopes_of(extension: Extension, words: Sequence[str]) -> list[Scope]:
    """The scopes to which a use of the extension with these *words* is bound."""
    if not extension.scopes:
        return []
    keys = ["", *words, *(f"{first} {second}" for first, second in pairwise(words))]
    return [extension.scopes[key] for key in keys if key in extension.scopes]
