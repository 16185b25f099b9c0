"""State that rules share by a name, with the parameters of the rule that is loaded first.

`hashlimit` stores rate, burst, mode and masks in the table of that name; `recent` stores the mask in its
list.  A later rule of the same name uses these, whatever its own parameters are.  iptables-legacy loads the
built-in chains of a table, then its user chains by name; iptables-nft loads rules in the order of the text.
So if rules of one name differ, the key of each contains the parameters that are loaded first in either
backend: rule sets that load another rule first are not equal.  A text that is printed chain by chain begins
with the rules that iptables-nft must load first (`in_load_order`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeAlias

from ..ir.program import BUILT_IN, Program
from ..ir.rule import FIRST_LOADED, Match, Rule, word_behind
from ..ir.set_counters import with_rules

_OR = " / "  # between what is loaded first in legacy, and in nft
SHARING = frozenset({"hashlimit", "recent"})  # extensions whose rules share state by a name

Pieces: TypeAlias = Sequence[tuple[str, Sequence[Rule]]]  # of chains: the chain's name, and rules of it

NamedMemory: TypeAlias = tuple[str, str]  # the extension, and the name


def named_memory(match: Match) -> NamedMemory | None:
    """The extension and the name of the state that *match* shares; None for other matches."""
    if match.name == "hashlimit":
        return match.name, word_behind("--hashlimit-name", match.words)
    if match.name == "recent":
        return match.name, word_behind("--name", match.words, "DEFAULT")
    return None


def _parameters(match: Match) -> str:
    """The parameters of the state."""
    if match.name == "recent":
        mask = re.search(r"--mask (\S+)", match.key)  # the key always has it, even if the rule does not
        return mask[1] if mask else "unknown"
    return match.key.split(FIRST_LOADED)[0].rstrip()


def mixed_memories(rules: Iterable[Rule]) -> frozenset[NamedMemory]:
    """The shared states for which *rules* have different parameters."""
    parameters: dict[NamedMemory, str] = {}
    mixed = set()
    # Rules share equal matches, so there are far fewer objects than matches.
    matches = {id(match): match for match in chain.from_iterable(rule.matches for rule in rules)}
    for match in matches.values():
        name = named_memory(match)
        if name is not None and parameters.setdefault(name, _parameters(match)) != _parameters(match):
            mixed.add(name)
    return frozenset(mixed)


def with_first_parameters(program: Program) -> Program:
    """*program*, in which the key of each match of a mixed state has the parameters in effect."""
    mixed = mixed_memories(program.rules())
    if not mixed:
        return program
    legacy, nft = _first(_as_legacy_loads(program), mixed), _first(_as_written(program), mixed)

    def change(rule: Rule) -> Rule:
        if not any(named_memory(match) in mixed for match in rule.matches):
            return rule
        return rule._replace(matches=tuple(map(with_first, rule.matches)))

    def with_first(match: Match) -> Match:
        name = named_memory(match)
        if name not in mixed or FIRST_LOADED in match.key:
            return match
        return match._replace(key=f"{match.key} {FIRST_LOADED} {legacy[name]}{_OR}{nft[name]}")

    return with_rules(program, change)


def loaded_first(program: Program) -> dict[NamedMemory, str]:
    """Of each mixed state: what the keys of its matches say of the parameters in effect."""
    matches = {id(match): match for rule in program.rules() for match in rule.matches}
    first = {}
    for match in matches.values():
        memory = named_memory(match)
        if memory is not None and FIRST_LOADED in match.key:
            first[memory] = match.key.partition(FIRST_LOADED)[2]
    return first


def in_load_order(chains: Pieces) -> Pieces:
    """*chains* in pieces, so that of each mixed state the rule comes first that iptables-nft loaded first.

    Rules of a chain stay in order, so the rules before such a rule in its chain come before it.
    """
    found: set[NamedMemory] = set()
    seen: set[NamedMemory] = set()  # states of which a rule with other parameters was met
    until: dict[int, tuple[int, int]] = {}  # by number of a chain: the line of the rule, rules up to it
    for number, (_, rules) in enumerate(chains):
        for at, rule in enumerate(rules):
            for match in rule.matches:
                name = named_memory(match)
                if name is None or FIRST_LOADED not in match.key or name in found:
                    continue
                if _parameters(match) != match.key.rpartition(_OR)[2]:
                    seen.add(name)
                    continue
                found.add(name)
                if name in seen:
                    line = min(rule.line, until.get(number, (rule.line, 0))[0])
                    until[number] = line, at + 1
    ordered = sorted(until, key=lambda number: until[number][0])
    before = [(chains[number][0], chains[number][1][: until[number][1]]) for number in ordered]
    rest = ((name, rules[until.get(number, (0, 0))[1] :]) for number, (name, rules) in enumerate(chains))
    return [*before, *rest]


def _as_written(program: Program) -> Iterable[Rule]:
    for table in program:
        rules = (rule for each in table.chains for rule in each.rules)
        yield from sorted(rules, key=lambda rule: rule.line)


def _as_legacy_loads(program: Program) -> Iterable[Rule]:
    for table in program:
        built_in = BUILT_IN[table.name]
        order = {name: (0, place, name) for place, name in enumerate(built_in)}
        for each in sorted(table.chains, key=lambda chain: order.get(chain.name, (1, 0, chain.name))):
            yield from each.rules


def _first(rules: Iterable[Rule], mixed: frozenset[NamedMemory]) -> dict[NamedMemory, str]:
    parameters: dict[NamedMemory, str] = {}
    for rule in rules:
        for match in rule.matches:
            name = named_memory(match)
            if name in mixed:
                parameters.setdefault(name, _parameters(match))
    return parameters
