"""Which rules of a file are rules of the kernel in another spelling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..ir.foreign import is_foreign
from ..ir.program import Chain, Program
from ..ir.rule import Role, Rule
from ..nouns import counted

_SHOWN = 5  # chains in a note


def rule_key(rule: Rule) -> object:
    """The same for all spellings of a rule, but for those of its comments."""
    plain = frozenset(
        (match.name, match.either, frozenset(match.tests) or match.key) for match in rule.matches
    )
    in_order = tuple(match.key for match in rule.matches if match.role in (Role.NAMED, Role.ONCE))
    return rule.target and rule.target.key, plain, in_order


def with_jumps_as_spelled(program: Program, kernel: Program, patterns: Sequence[str]) -> Program:
    """*program*, whose jumps to foreign chains are spelled as in the same chains of *kernel*.

    Their programs delete them by these texts, and so a jump is not taken for two.
    """
    if not patterns:
        return program
    present = {(table.name, chain.name): chain for table in kernel for chain in table.chains}
    tables = []
    for table in program:
        chains = (_spelled(chain, present.get((table.name, chain.name)), patterns) for chain in table.chains)
        tables.append(replace(table, chains=tuple(chains)))
    return replace(program, tables=tuple(tables))


def _spelled(chain: Chain, present: Chain | None, patterns: Sequence[str]) -> Chain:
    if present is None or not any(rule.enters and is_foreign(rule.enters, patterns) for rule in chain.rules):
        return chain
    spellings: dict[object, list[Rule]] = {}
    for rule in present.rules:
        if rule.enters and is_foreign(rule.enters, patterns):
            spellings.setdefault(rule_key(rule), []).append(rule)
    rules = []
    for rule in chain.rules:
        foreign = rule.enters and is_foreign(rule.enters, patterns)
        same = spellings.get(rule_key(rule)) if foreign else None
        if same:
            rule = same.pop(0)._replace(line=rule.line, counters=rule.counters, notes=rule.notes)
        rules.append(rule)
    return chain.with_rules(tuple(rules))


def rules_not_loaded(program: Program, kernel: Program, patterns: Sequence[str]) -> list[str]:
    """Notes on the rules of *program* in foreign chains, which stay as *kernel* has them."""
    present = {(table.name, chain.name): chain.rules for table in kernel for chain in table.chains}
    notes = []
    for table in program:
        missing = {}
        for chain in table.chains:
            if chain.rules and is_foreign(chain.name, patterns):
                here = Counter(map(rule_key, present.get((table.name, chain.name), ())))
                missing[chain.name] = (Counter(map(rule_key, chain.rules)) - here).total()
        shown = [f"{name} ({counted(number, 'rule')})" for name, number in missing.items() if number]
        if shown:
            more = [f"and {counted(len(shown) - _SHOWN, 'more chain')}"] if len(shown) > _SHOWN else []
            notes.append(
                f"table {table.name}: --leave leaves chains as the kernel has them: rules that only the file "
                f"has there are not loaded: {', '.join([*shown[:_SHOWN], *more])}"
            )
    return notes
