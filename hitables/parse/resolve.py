"""Names bound when a table is complete (COMMIT): jumps to chains, and extensions to where the kernel
accepts them.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ParseError
from ..ir.program import BUILT_IN
from ..ir.rule import Kind, Rule, Target
from ..syntax.extension import Scope
from ..syntax.extensions import MATCHES, TARGETS
from ..syntax.limits import scopes_of
from .drafts import ChainDraft, TableDraft
from .part_meaning import as_jump
from .rule_parts import nearest


class Resolver:
    """Binds the names of one table; *error_at* makes the error at a word of a line."""

    def __init__(self, table: TableDraft, error_at: Callable[..., ParseError]) -> None:
        self.table, self.error_at = table, error_at

    def rules(self, chain: ChainDraft) -> tuple[Rule, ...]:
        """Bind targets to chains: a declared chain wins over a target extension of its name."""
        checked: set[str] = set()
        rules = []
        for rule in chain.rules:
            target = rule.target
            if target is not None and target.enters and target.name not in checked:
                self._check_jump(target, rule)
                checked.add(target.name)
            elif target is not None and target.kind is Kind.VERDICT and target.name in self.table.chains:
                if target.words:
                    word = target.words[0]
                    raise self.error_at(rule.line, f"unknown option {word}: {target.name} is a chain", word)
                declared = self.table.chains[target.name].line
                if declared > rule.line:
                    raise self.error_at(
                        rule.line,
                        f"{target.name} is a target here and a chain from line {declared} on",
                        target.name,
                        "declare the chain in front of the rule, or give it another name",
                    )
                rule = Rule(rule.matches, as_jump(target), rule.line, rule.counters, rule.notes)
            rules.append(rule)
        return tuple(rules)

    def _check_jump(self, target: Target, rule: Rule) -> None:
        chain = self.table.chains.get(target.name)
        if chain is None:
            hint = (
                nearest(target.name, [*self.table.chains, *TARGETS])
                or f"declare it by a line :{target.name} - [0:0]"
            )
            raise self.error_at(
                rule.line,
                f"{target.name} is neither a chain of table {self.table.name} nor a known target",
                target.name,
                hint,
            )
        if chain.policy is not None:
            raise self.error_at(rule.line, f"cannot jump to the built-in chain {target.name}", target.name)
        if chain.line > rule.line:
            raise self.error_at(
                rule.line,
                f"chain {target.name} is declared behind this, in line {chain.line}",
                target.name,
                "declare chains in front of the rules",
            )

    def check_scopes(self) -> None:
        """Refuse matches and targets that the kernel does not take in this table, or below these chains."""
        bound = [
            (chain.name, rule, name, scope)
            for chain in self.table.chains.values()
            for rule in chain.rules
            for name, words in _named(rule)
            if name not in self.table.chains
            for scope in _scopes(name, words)
        ]
        if not bound:
            return
        below = _below(self.table)
        for chain, rule, name, scope in bound:
            if scope.tables and self.table.name not in scope.tables:
                raise self.error_at(
                    rule.line,
                    f"{name} is not allowed in table {self.table.name}",
                    name,
                    f"it belongs to {' or '.join(sorted(scope.tables))}",
                )
            wrong = sorted(below[chain] - scope.chains) if scope.chains else []
            if wrong:
                raise self.error_at(
                    rule.line,
                    f"{name}, with these options, is not allowed in a chain that {wrong[0]} reaches",
                    name,
                    f"it is allowed below {', '.join(sorted(scope.chains))}",
                )


def _scopes(name: str, words: tuple[str, ...]) -> list[Scope]:
    """The scopes of a match or target of that name with these words."""
    extension = MATCHES.get(name) or TARGETS.get(name)
    return scopes_of(extension, words) if extension is not None else []


def _named(rule: Rule) -> list[tuple[str, tuple[str, ...]]]:
    """The names of a rule's extensions, with their words."""
    extensions = [(match.name, match.words) for match in rule.matches if match.name]
    if rule.target is not None and rule.target.kind is Kind.VERDICT:
        extensions.append((rule.target.name, rule.target.words))
    return extensions


def _below(table: TableDraft) -> dict[str, set[str]]:
    """For each chain, the built-in chains from which it can be reached."""
    below: dict[str, set[str]] = {name: set() for name in table.chains}
    for name in BUILT_IN[table.name]:
        pending, seen = [name], {name}
        while pending:
            chain = pending.pop()
            below[chain].add(name)
            for rule in table.chains[chain].rules:
                to = rule.target.name if rule.target is not None else ""
                if to in table.chains and to not in seen:
                    seen.add(to)
                    pending.append(to)
    return below
