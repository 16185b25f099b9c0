"""The source map: for each printed rule the rule of the source that it is a copy of.

The counters of all copies of a rule add up to its counter (hitables/schema/map.json).  Rules that were
removed, because they affect no verdict, have no counter; they are listed.  A map has digests of the source
and of the compiled chains, so that a map of other rules is recognised, and the text of the source.

A rule of the source is known by its table and its number there, from 1, in the order of the chains: several
rules may stand in one line (`-s a,b`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..ir.foreign import is_foreign
from ..ir.meaning import Digests
from ..ir.program import Program, Table

FORMAT, VERSION = "hitables-map", 2


@dataclass(frozen=True, slots=True)
class Gone:
    """A rule of the input that was removed, and why."""

    table: str
    chain: str
    line: int
    why: str


def source_map(
    program: Program,
    origins: Mapping[tuple[str, str], str],
    source: str,
    gone: Sequence[Gone] = (),
    original: Program | None = None,
    leave: Sequence[str] = (),
    digests: Digests | None = None,
) -> dict[str, Any]:
    """The map as plain data.  The line of a rule that only leads to other rules is 0.

    *original*: the source, whose rules have a line of their own each (`with_own_lines`), by which the rules
    of *program* are its copies; without it the map names lines only.  *leave*: patterns of foreign chains,
    which other programs change: the digest of a chain is without the rules that enter them.
    """
    digests = digests or Digests()
    return {
        "format": FORMAT,
        "version": VERSION,
        "source": source,
        "family": int(program.family),
        "leave": list(leave),
        "tables": [
            {
                "name": table.name,
                **({"digest": digests.of_table(original.table(table.name))} if original else {}),
                "chains": _chains(table, origins, original, leave, digests),
                "gone": [
                    {"chain": each.chain, "line": each.line, "why": each.why}
                    for each in gone
                    if each.table == table.name
                ],
            }
            for table in program
        ],
    }


def _chains(
    table: Table,
    origins: Mapping[tuple[str, str], str],
    original: Program | None,
    leave: Sequence[str],
    digests: Digests,
) -> list[dict[str, Any]]:
    numbers = numbers_by_line(original.table(table.name)) if original else {}
    return [
        {
            "name": chain.name,
            "origin": origins.get((table.name, chain.name), chain.name),
            "digest": digests.of_rules(
                rule for rule in chain.rules if not is_foreign(rule.enters or "", leave)
            )
            if leave
            else digests.of_rules(chain.rules),
            "lines": [rule.line for rule in chain.rules],
            **({"rules": [numbers.get(rule.line, 0) for rule in chain.rules]} if original else {}),
        }
        for chain in table.chains
    ]


def numbers_by_line(table: Table) -> dict[int, int]:
    """The number of each rule of *table*, by its line; without rules that have no line."""
    rules = (rule for chain in table.chains for rule in chain.rules)
    return {rule.line: number for number, rule in enumerate(rules, 1) if rule.line}


# ---- rules that share a line ----


def with_own_lines(program: Program) -> tuple[Program, dict[int, int]]:
    """*program* with a line of its own for each rule that has one, and the lines that were given anew.

    Only rules that share a line with an earlier one of their table get another line, above all lines.
    """
    shared: list[tuple[str, str, int]] = []
    highest = 0
    for table in program:
        seen: set[int] = set()
        for chain in table.chains:
            for at, rule in enumerate(chain.rules):
                if rule.line in seen:
                    shared.append((table.name, chain.name, at))
                elif rule.line:
                    seen.add(rule.line)
        highest = max(highest, max(seen, default=0))
    if not shared:
        return program, {}
    lines: dict[int, int] = {}
    changed: dict[tuple[str, str], dict[int, int]] = {}
    for number, (name, chain_name, at) in enumerate(shared, highest + 1):
        lines[number] = program.table(name)[chain_name].rules[at].line
        changed.setdefault((name, chain_name), {})[at] = number
    tables = []
    for table in program:
        chains = (
            chain.with_rules(
                tuple(
                    rule._replace(line=changed[table.name, chain.name].get(at, rule.line))
                    for at, rule in enumerate(chain.rules)
                )
            )
            if (table.name, chain.name) in changed
            else chain
            for chain in table.chains
        )
        tables.append(replace(table, chains=tuple(chains)))
    return replace(program, tables=tuple(tables)), lines


def with_true_lines(program: Program, lines: Mapping[int, int]) -> Program:
    """*program* with the lines that `with_own_lines` replaced."""
    if not lines:
        return program
    tables = []
    for table in program:
        chains = (
            chain.with_rules(
                tuple(
                    rule._replace(line=lines[rule.line]) if rule.line in lines else rule
                    for rule in chain.rules
                )
            )
            for chain in table.chains
        )
        tables.append(replace(table, chains=tuple(chains)))
    return replace(program, tables=tuple(tables))
