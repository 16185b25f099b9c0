"""Counters that go on: what the copies of a rule counted is set in a copy of the same rule.

A rule of a source may be printed in several leaves; its count is the sum of theirs.  `Origins` says for each
loaded rule which rule of the source it is a copy of: by the chain of the source, the rule's meaning, and its
number among equal rules of that chain.

Invariant: for each rule of the source that both rule sets have, the sum of the counts before is the sum
after, but for packets between the reading of the counters and the flip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..ir.meaning import meaning
from ..ir.program import Program
from .texts import NO_COUNT, Chains, Count, Tables, TextChain, TextRule

# By table, chain and rule: the rule of the source; "" if it only leads to other rules.
Origins = dict[str, dict[str, list[str]]]


def of_source(program: Program) -> Origins:
    """The origins of a rule set that is loaded as it is."""
    origins: Origins = {}
    for table in program:
        chains = origins.setdefault(table.name, {})
        for chain in table.chains:
            seen: Counter[str] = Counter()
            keys = []
            for rule in chain.rules:
                rule_meaning = meaning(rule)
                keys.append(f"{chain.name}\0{rule_meaning}\0{seen[rule_meaning]}")
                seen[rule_meaning] += 1
            chains[chain.name] = keys
    return origins


def of_compiled(source: Program, source_map: Mapping[str, Any]) -> Origins:
    """The origins of a compiled rule set by its map, which has the numbers of rules (emit/sourcemap.py)."""
    origins: Origins = {}
    by_source = of_source(source)
    for table in source_map["tables"]:
        name = table["name"]
        keys = [key for chain in source.table(name).chains for key in by_source[name][chain.name]]
        origins[name] = {
            chain["name"]: [keys[number - 1] if number else "" for number in chain["rules"]]
            for chain in table["chains"]
        }
    return origins


def keyed(tables: Tables, origins: Origins) -> Tables:
    """*tables* with the keys of *origins*, which are those of the same tables."""
    return {
        table: {
            name: replace(
                chain,
                rules=tuple(
                    rule.with_key(key) for rule, key in zip(chain.rules, origins[table][name], strict=True)
                ),
            )
            if name in origins.get(table, {})
            else chain
            for name, chain in chains.items()
        }
        for table, chains in tables.items()
    }


def recognised(present: Tables, loaded: Tables) -> Tables:
    """*present* with the keys that equal rules have in *loaded*, chain by chain.

    Other rules keep their keys; those that have none are known by their text.
    """
    return {
        table: {
            name: _recognised(name, chain, loaded.get(table, {}).get(name, TextChain()))
            for name, chain in chains.items()
        }
        for table, chains in present.items()
    }


def _recognised(name: str, chain: TextChain, loaded: TextChain) -> TextChain:
    known: dict[str, list[str]] = {}
    for rule in reversed(loaded.rules):
        known.setdefault(rule.body, []).append(rule.key)
    seen: Counter[str] = Counter()
    rules = []
    for rule in chain.rules:
        if known.get(rule.body):
            rules.append(rule.with_key(known[rule.body].pop()))
        elif rule.key:
            rules.append(rule)
        else:
            rules.append(rule.with_key(f"{name}\0text {rule.body}\0{seen[rule.body]}"))
            seen[rule.body] += 1
    return replace(chain, rules=tuple(rules))


def sums(chains: Chains, names: Collection[str]) -> dict[str, Count]:
    """By key: what the rules with it counted in the chains *names*."""
    counts: dict[str, Count] = {}
    for name in names:
        for rule in chains[name].rules if name in chains else ():
            if rule.key and rule.count != NO_COUNT:
                packets, size = counts.get(rule.key, NO_COUNT)
                counts[rule.key] = packets + rule.count[0], size + rule.count[1]
    return counts


_VERDICTS = tuple(f"-j {verdict}" for verdict in ("ACCEPT", "DROP"))


def returned_by_policy(chains: Chains, names: Collection[str]) -> dict[str, Count]:
    """By built-in chain of the source: what rules of *names* counted that RETURN there and are printed as its
    policy (compiler/policy_returns.py).  The counter of the policy lacks their packets.
    """
    counts: dict[str, Count] = {}
    for name in names:
        for rule in chains[name].rules if name in chains else ():
            if "RETURN\0" not in rule.key or rule.count == NO_COUNT or not rule.body.endswith(_VERDICTS):
                continue
            base, rule_meaning, _ = rule.key.split("\0")
            if rule_meaning.rpartition(" | ")[2] == "RETURN":
                packets, size = counts.get(base, NO_COUNT)
                counts[base] = packets + rule.count[0], size + rule.count[1]
    return counts


def keys_of(chains: Chains, names: Iterable[str]) -> set[str]:
    """The keys of the rules of the chains *names*."""
    return {rule.key for name in names if name in chains for rule in chains[name].rules}


def carry(
    target: Chains, names: Collection[str], counts: dict[str, Count], goes_on: Collection[str] = ()
) -> Chains:
    """*target*, in whose chains *names* the first copy of each rule has its count, taken from *counts*.

    A rule that *counts* does not have keeps the count that it has in *target*, unless it is one of *goes_on*:
    then another copy of it, in a chain that does not change, has its count.
    """
    counted = set(counts)

    def count_of(rule: TextRule) -> Count:
        if rule.key in counted:
            return counts.pop(rule.key, NO_COUNT)
        return NO_COUNT if rule.key in goes_on else rule.count

    return {
        name: replace(chain, rules=tuple(replace(rule, count=count_of(rule)) for rule in chain.rules))
        if name in names
        else chain
        for name, chain in target.items()
    }


def counted_as(recorded: Tables, present: Tables) -> Tables:
    """*recorded* with the counters that its rules and policies have in *present*; both have keys."""
    counted: Tables = {}
    for table, chains in recorded.items():
        now = present.get(table, {})
        zeroed = {
            name: replace(
                chain,
                rules=tuple(replace(rule, count=NO_COUNT) for rule in chain.rules),
                count=now[name].count if name in now else chain.count,
            )
            for name, chain in chains.items()
        }
        counted[table] = carry(zeroed, list(zeroed), sums(now, list(now)))
    return counted


def origins_of(tables: Tables) -> Origins:
    """The keys of *tables*."""
    return {
        table: {name: [rule.key for rule in chain.rules] for name, chain in chains.items()}
        for table, chains in tables.items()
    }
