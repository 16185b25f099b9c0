"""Rules for packets above a limit, written with the match for packets up to it.

-A INPUT -p tcp -m hashlimit --hashlimit-above 5/sec --hashlimit-name web -j DROP

is the same as

-A INPUT -p tcp -j above
-A above -m hashlimit --hashlimit-upto 5/sec --hashlimit-name web -j RETURN
-A above -j DROP

since the kernel asks the same memory, in the same way, for both matches, and turns the answer around for one
of them (tests/ir/test_limits_above.py).  `up_to` writes the first as the second, so that two programs of
which one has `above` and the other `upto` ask the same.
"""

from __future__ import annotations

import re
from dataclasses import replace

from .program import Chain, Program, Table
from .rule import FIRST_LOADED, Kind, Rule, Target

# In a key, which has the options in alphabetical order, so `upto` is the last one.
_ABOVE = re.compile(r" --(hashlimit|connlimit)-above (\S+)")
_SEGMENTS = re.compile(rf"( {FIRST_LOADED} | / )")
_NAMES = ("hashlimit", "connlimit")


def differ_in_above(before: Program, after: Program) -> bool:
    """Whether one program has a limit with `above` that the other one has with `upto`."""
    here, there = (
        {match.key for rule in program.rules() for match in rule.matches if match.name in _NAMES}
        for program in (before, after)
    )
    is_asked = any(_is_above(key) for key in here ^ there)
    return is_asked and not {_up_to(key) for key in here}.isdisjoint(_up_to(key) for key in there)


def up_to(program: Program) -> Program:
    """*program* with `upto` for each `above`, but for rules with -g or RETURN, which leave their chain."""
    return replace(program, tables=tuple(_table(table) for table in program))


def _table(table: Table) -> Table:
    added: list[Chain] = []
    chains = [chain.with_rules(tuple(_rule(rule, added) for rule in chain.rules)) for chain in table.chains]
    return replace(table, chains=(*chains, *added))


def _rule(rule: Rule, added: list[Chain]) -> Rule:
    """What stands in the place of *rule*; the chain that it enters, if it enters one for it, is *added*."""
    if all(match.name not in _NAMES for match in rule.matches):
        return rule
    matches = tuple(match._replace(key=_up_to(match.key)) for match in rule.matches)
    aboves = [at for at, match in enumerate(rule.matches) if match.name in _NAMES and _is_above(match.key)]
    if not aboves:
        return rule._replace(matches=matches)
    if len(aboves) > 1 or (rule.target and rule.target.kind in (Kind.GOTO, Kind.RETURN)):
        return rule
    (at,) = aboves
    name = f"above {len(added)}"  # no text has a chain with a space in its name
    within = Rule((matches[at],), Target("RETURN", Kind.RETURN, "RETURN"), rule.line)
    above = rule._replace(matches=matches[at + 1 :])
    added.append(Chain(name, None, (within, above)))
    return rule._replace(matches=matches[:at], target=Target(name, Kind.JUMP, f"-j {name}"))


def _is_above(key: str) -> bool:
    return _ABOVE.search(_SEGMENTS.split(key)[0]) is not None and '"' not in key


def _up_to(key: str) -> str:
    """*key* with `upto` for `above`, in the parameters loaded first, too; not if a name is quoted."""
    if '"' in key:
        return key
    return "".join(_spelled(part) for part in _SEGMENTS.split(key))


def _spelled(part: str) -> str:
    found = _ABOVE.search(part)
    return f"{part[: found.start()]}{part[found.end() :]} --{found[1]}-upto {found[2]}" if found else part
