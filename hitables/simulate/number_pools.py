"""Values of attributes (ir/fact.py) that drawn packets have: some of each kind that the matches tell apart.

Users: boundary_packets.py, and sampling.py, which draws from the same values for both programs.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from hitables.ir.attributes import attributes_of
from hitables.ir.fact import Fact, ordinary
from hitables.ir.program import Program
from hitables.ir.rule import Match, Role

MIXED = 64  # values of an attribute in which several groups of bits are not as in an ordinary packet
Pools = Mapping[str, tuple[int, ...]]


def number_pools(programs: Iterable[Program]) -> Pools:
    """By attribute that some match compares: values, of each cell (ir/attributes.py) at least one."""
    chains = (chain for program in programs for table in program for chain in table.chains)
    rules = [rule for chain in chains for rule in chain.rules]
    matches: dict[int, Match] = {id(match): match for rule in rules for match in rule.matches}
    asked = (match.number for match in matches.values() if match.role is Role.CONSTANT)
    facts = [fact for fact in dict.fromkeys(asked) if fact is not None]
    # By attribute: groups of bits, and the values that these have in some cell.
    groups: dict[str, list[tuple[int, list[int]]]] = {fact.attribute: [] for fact in facts}
    makes = (rule.target.makes for rule in rules if rule.target is not None)
    for attribute in attributes_of(facts, (made for made in makes if made is not None)):
        if attribute.unrelated:
            for fact in attribute.facts:
                groups[fact.attribute].append((fact.mask, _ends(fact)))
        else:
            groups[attribute.name].append((attribute.mask, list(attribute.cells)))
    return {name: _values(name, own) for name, own in groups.items()}


def _ends(fact: Fact) -> list[int]:
    return [end & fact.mask for pair in fact.values.pairs for end in pair]


def _values(name: str, groups: list[tuple[int, list[int]]]) -> tuple[int, ...]:
    usual = ordinary(name)
    values = [usual & ~mask | cell for mask, cells in groups for cell in cells]
    if len(groups) > 1:
        drawn = random.Random(name)
        for _ in range(MIXED):
            value = usual
            for mask, cells in groups:
                value = value & ~mask | drawn.choice([usual & mask, *cells])
            values.append(value)
    return tuple(dict.fromkeys(values)) or (usual,)
