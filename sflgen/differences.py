"""How the rules of a kernel differ from those of a state, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from hitables.emit.text import rule_text
from hitables.ir.program import Chain, Program, Table
from hitables.ir.rule import Rule
from hitables.nouns import counted

from .chain_names import GeneratedNames
from .edits import empty_table, jumps_to, rule_key
from .settings import Settings
from .state import State


def by_table(state: State, wanted: Program, contents: Program) -> dict[str, list[str]]:
    """The differences between *contents* of a kernel and *wanted*, which *state* has loaded, by table.

    Tables that *wanted* does not have may be those of another state.
    """
    settings, found = state.settings, dict[str, list[str]]()
    names = GeneratedNames(settings.prefix)
    for table in wanted:
        present = contents.find(table.name) or empty_table(table.name)
        found[table.name] = list(_table_differences(table, present, settings))
        found[table.name] += [
            f"table {table.name}: chain {chain.name} has a generated name and is not in the state"
            for chain in present.chains
            if names.is_generated(chain.name) and chain.name not in table
        ]
    return {name: differences for name, differences in found.items() if differences}


def is_emptied(state: State, contents: Program, table: str) -> bool:
    """Whether *table* of *contents* is gone, or has none of the rules that it has in *state*."""
    if contents.find(table) is None:
        return True
    wanted, present = (
        {
            rule_key(rule)
            for each in program
            if each.name == table
            for chain in each.chains
            if not state.settings.is_foreign(chain.name)
            for rule in chain.rules
            if not state.settings.is_foreign(jumps_to(rule))
        }
        for program in (state.loaded, contents)
    )
    return bool(wanted) and wanted.isdisjoint(present)


def _table_differences(wanted: Table, present: Table, settings: Settings) -> Iterator[str]:
    for chain in wanted.chains:
        if settings.is_foreign(chain.name):
            continue
        where = f"table {wanted.name}, chain {chain.name}"
        if chain.name not in present:
            yield f"{where}: the kernel does not have it"
            continue
        other = present[chain.name]
        if chain.policy is not None and chain.policy != other.policy:
            yield f"{where}: policy {other.policy}, the state has {chain.policy}"
        yield from _rule_differences(where, chain, other)


def _rule_differences(where: str, wanted: Chain, present: Chain) -> Iterator[str]:
    has_moved = len(wanted.rules) != len(present.rules)  # then only the first difference tells where
    have, want = counted(len(present.rules), "rule"), len(wanted.rules)
    counts = f"{have}, the state has {want}; " if has_moved else ""
    for number, (one, other) in enumerate(zip_longest(wanted.rules, present.rules), 1):
        if one is None or other is None or rule_key(one) != rule_key(other):
            yield f"{where}: {counts}rule {number} is {_shown(other)}, in the state {_shown(one)}"
            if has_moved:
                return


def _shown(rule: Rule | None) -> str:
    """A rule without its chain and counters."""
    return "absent" if rule is None else rule_text(rule._replace(counters=None), "-").removeprefix("-A - ")


def listed(differences: Sequence[str]) -> list[str]:
    """A line for each of the first ten *differences*, and one for the rest."""
    more = [f"  … and {len(differences) - 10} more"] if len(differences) > 10 else []
    return [*(f"  {each}" for each in differences[:10]), *more]
