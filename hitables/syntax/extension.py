"""The row of an extension: all that the compiler knows about one match or target of iptables 1.8.9.

A row has four parts, and `extensions/` has one row for each extension:

grammar   the options, the values of each, and which combinations iptables refuses (checked by limits.py)
meaning   the header fields that the options test, the match's role, whether the target ends the traversal
access    the state that the extension reads and writes (access.py)
form      the canonical spelling of its options (canonical.py)

The grammar lists options separated by blanks, each as

    --NAME[=--ALIAS...][:KIND...][?][!][*]

with one KIND for each value.  A KIND is a name in `value_checks.KINDS`, or an integer type with its bounds,
as in u8(1,255); "any" accepts every text.  "?": the value may be omitted.  "!": the option may be negated.
"*": the option may occur more than once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..ir.fields import Family
from ..ir.rule import Ends, Role, Test
from .access import UNKNOWN, Access, states
from .canonical import Form, OptionUse
from .numbers import Makes, Numbers
from .value_checks import Check, check_of_kind

Reader = Callable[[tuple[str, ...], Family], tuple[Test, ...]]
# The uses of each option in a rule: negated or not, and its values.
Uses = Mapping[str, Sequence[tuple[bool, tuple[str, ...]]]]


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    values      the number of values behind it
    optional    whether they may be omitted
    read        the header fields that it tests; None: it tests something else
    checks      one check for each value; empty: every text is accepted
    negatable   whether "!" may precede it
    repeatable  whether it may occur more than once
    """

    name: str
    values: int = 1
    optional: bool = False
    read: Reader | None = None
    checks: tuple[Check, ...] = ()
    negatable: bool = True
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Scope:
    """Where the kernel accepts an extension: in these tables, below these built-in chains; empty: in all."""

    tables: frozenset[str]
    chains: frozenset[str]


def scope(tables: str, chains: str = "") -> Scope:
    """A scope; names are separated by blanks."""
    return Scope(frozenset(tables.split()), frozenset(chains.split()))


ENTERING, LEAVING = scope("", "PREROUTING INPUT FORWARD"), scope("", "FORWARD OUTPUT POSTROUTING")
MANGLE = scope("mangle")


@dataclass(frozen=True, slots=True)
class Extension:
    """One match or target.

    options           by every name that they have
    role              what may be done with the match (ir.rule.Role)
    needs, strict     see ir.rule.Match
    protocols         the match is refused unless -p names one of these (empty: any protocol)
    required          options that the match cannot do without
    counting          options of which one makes a match of role CONSTANT a NAMED one
    ends              whether the target ends the traversal of the table (ir.rule.Ends)
    defaults          the value of an option that is omitted
    one_of            groups of options of which a rule may have one at most
    needed            groups of options of which a rule must have one
    beside            option -> the option that must accompany it
    family            the only family that has the extension
    check             refuses what the grammar cannot express, by a ValueError
    check_in_order    the same, of options whose order has a meaning
    scopes            option, or "" for the extension itself -> where the kernel accepts it; the key may
                      name the option's value, too
    option_protocols  option, or "" for the extension itself -> the protocols of which -p must name one
    access            the states that it reads and writes
    form              the canonical spelling of its options
    tracks            loading a rule with it makes the kernel track connections or reassemble fragments
    complements       options of which a "!" makes the match hold for exactly the other packets, if the rule
                      has besides it only options of *bystanders*; by the kernel's source, and tried in it
    bystanders        see *complements*
    numbers           options that compare a number of the packet, if the rule has besides it only options of
                      *bystanders*; all that compare one number read the same states
    makes             canonical options of a target that make a number of the packet, if it has no others
    """

    name: str
    options: dict[str, Option]
    role: Role = Role.CONSTANT
    needs: int = 0
    strict: bool = False
    protocols: frozenset[int] = frozenset()
    required: frozenset[str] = frozenset()
    counting: frozenset[str] = frozenset()
    ends: Ends = Ends.NEVER
    defaults: Mapping[str, str] = field(default_factory=dict)
    one_of: tuple[tuple[str, ...], ...] = ()
    needed: tuple[tuple[str, ...], ...] = ()
    beside: Mapping[str, str] = field(default_factory=dict)
    family: Family | None = None
    check: Callable[[Uses, Family], None] | None = None
    check_in_order: Callable[[Sequence[OptionUse], Family], None] | None = None
    scopes: Mapping[str, Scope] = field(default_factory=dict)
    option_protocols: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    access: Access = UNKNOWN
    form: Form = field(default_factory=Form)
    tracks: bool = False
    complements: frozenset[str] = frozenset()
    bystanders: frozenset[str] = frozenset()
    numbers: Numbers = field(default_factory=dict)
    makes: Mapping[str, Makes] = field(default_factory=dict)


_OPTION = re.compile(r"(--?[\w-]+(?:=--?[\w-]+)*)((?::[\w(),]+)*)(\??)(!?)(\*?)")


def options_of(grammar: str, readers: Mapping[str, Reader] | None = None) -> dict[str, Option]:
    """The options of a *grammar*, by every name; *readers* are found by an option's first name."""
    table: dict[str, Option] = {}
    for item in grammar.split():
        match = _OPTION.fullmatch(item)
        assert match is not None, item
        names, kinds = match[1].split("="), match[2].split(":")[1:]
        option = Option(
            names[0],
            len(kinds),
            bool(match[3]),
            (readers or {}).get(names[0]),
            () if all(kind == "any" for kind in kinds) else tuple(map(check_of_kind, kinds)),
            bool(match[4]),
            bool(match[5]),
        )
        table.update(dict.fromkeys(names, option))
    return table


def _groups(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(group.split()) for group in text.split("|") if group.split())


def _scopes(own: Scope | None, of_options: Mapping[str, Scope] | None) -> dict[str, Scope]:
    return {**({"": own} if own is not None else {}), **(of_options or {})}


def match(
    name: str,
    grammar: str = "",
    *,
    role: Role = Role.CONSTANT,
    needs: int = 0,
    strict: bool = False,
    protocols: tuple[int, ...] = (),
    required: str = "",
    counting: str = "",
    readers: Mapping[str, Reader] | None = None,
    defaults: Mapping[str, str] | None = None,
    one: str = "",
    need: str = "",
    beside: str = "",
    family: Family | None = None,
    scope: Scope | None = None,
    option_scopes: Mapping[str, Scope] | None = None,
    option_protocols: Mapping[str, tuple[int, ...]] | None = None,
    check: Callable[[Uses, Family], None] | None = None,
    check_in_order: Callable[[Sequence[OptionUse], Family], None] | None = None,
    reads: str = "",
    writes: str = "",
    writes_with: Mapping[str, str] | None = None,
    source: str = "",
    form: Form | None = None,
    tracks: bool = False,
    complements: str = "",
    bystanders: str = "",
    numbers: Numbers | None = None,
) -> Extension:
    """The row of a match; `Extension` explains the parts.  Groups of options are separated by "|"."""
    written = {option: states(names) for option, names in (writes_with or {}).items()}
    return Extension(
        name,
        options_of(grammar, readers),
        role,
        needs,
        strict,
        frozenset(protocols),
        frozenset(required.split()),
        frozenset(counting.split()),
        defaults=defaults or {},
        one_of=_groups(one),
        needed=_groups(need),
        beside=dict(pair.split(">") for pair in beside.split()),
        family=family,
        check=check,
        check_in_order=check_in_order,
        scopes=_scopes(scope, option_scopes),
        option_protocols=option_protocols or {},
        access=Access(states(reads), states(writes), written, source) if source else UNKNOWN,
        form=form or Form(),
        tracks=tracks,
        complements=frozenset(complements.split()),
        bystanders=frozenset(bystanders.split()),
        numbers=numbers or {},
    )


def target(
    name: str,
    grammar: str = "",
    *,
    ends: Ends = Ends.NEVER,
    defaults: Mapping[str, str] | None = None,
    one: str = "",
    need: str = "",
    beside: str = "",
    family: Family | None = None,
    scope: Scope | None = None,
    option_scopes: Mapping[str, Scope] | None = None,
    option_protocols: Mapping[str, tuple[int, ...]] | None = None,
    check: Callable[[Uses, Family], None] | None = None,
    check_in_order: Callable[[Sequence[OptionUse], Family], None] | None = None,
    writes: str = "",
    writes_with: Mapping[str, str] | None = None,
    source: str = "",
    form: Form | None = None,
    tracks: bool = False,
    makes: Mapping[str, Makes] | None = None,
) -> Extension:
    """The row of a target; `Extension` explains the parts.  Groups of options are separated by "|"."""
    written = {option: states(names) for option, names in (writes_with or {}).items()}
    return Extension(
        name,
        options_of(grammar),
        ends=ends,
        defaults=defaults or {},
        one_of=_groups(one),
        needed=_groups(need),
        beside=dict(pair.split(">") for pair in beside.split()),
        family=family,
        check=check,
        check_in_order=check_in_order,
        scopes=_scopes(scope, option_scopes),
        option_protocols=option_protocols or {},
        access=Access(frozenset(), states(writes), written, source) if source else UNKNOWN,
        form=form or Form(),
        tracks=tracks,
        makes=makes or {},
    )
