"""Names bound when a table is complete (COMMIT): jumps to chains, and extensions to where the kernel
accepts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain as joined
from operator import attrgetter

from ..errors import ParseError
from ..ir.program import BUILT_IN
from ..ir.rule import Kind, Match, Rule, Target
from ..syntax.extension import Scope
from ..syntax.extensions import MATCHES, TARGETS
from ..syntax.limits import scopes_of
from ..syntax.options import RESERVED
from .drafts import ChainDraft, TableDraft
from .part_meaning import as_jump
from .rule_parts import nearest

# Names of the extensions that the kernel does not take everywhere.
_WITH_SCOPES = {
    name for extensions in (MATCHES, TARGETS) for name, extension in extensions.items() if extension.scopes
}


class Resolver:
    """Binds the names of one table.

    *error_at* makes the error at a word of a line, and *note* takes it, so that all are found; of one unknown
    name in a chain only the first.
    """

    def __init__(
        self, table: TableDraft, error_at: Callable[..., ParseError], note: Callable[[ParseError], None]
    ) -> None:
        self.table, self._error_at, self._note = table, error_at, note

    def _refuse(self, line: int, reason: str, word: str, hint: str = "") -> None:
        self._note(self._error_at(line, reason, word, hint))

    def is_bound(self) -> bool:
        """Whether the rules of all chains stand as they are, so that `rules` need not look at any.

        A large rule set has many short chains, of which each would take longer than its rules.
        """
        rules = list(joined.from_iterable(chain.rules for chain in self.table.chains.values()))
        first = min(map(attrgetter("line"), rules), default=0)
        targets = list(map(attrgetter("target"), rules))
        distinct = dict(zip(map(id, targets), targets, strict=True)).values()
        return all(self._is_bound(target, first) for target in distinct)

    def rules(self, chain: ChainDraft) -> tuple[Rule, ...]:
        """Bind targets to chains: a declared chain wins over a target extension of its name."""
        targets = list(map(attrgetter("target"), chain.rules))
        # The first rule of each target: a dictionary keeps what comes last.
        rule_of = dict(zip(map(id, reversed(targets)), reversed(chain.rules), strict=True))
        if all(self._is_bound(rule.target, rule.line) for rule in rule_of.values()):
            return tuple(chain.rules)
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
                    self._refuse(rule.line, f"unknown option {word}: {target.name} is a chain", word)
                declared = self.table.chains[target.name].line
                if declared > rule.line:
                    self._refuse(
                        rule.line,
                        f"{target.name} is a target here and a chain from line {declared} on",
                        target.name,
                        "declare the chain in front of the rule, or give it another name",
                    )
                rule = Rule(rule.matches, as_jump(target), rule.line, rule.counters, rule.notes)
            rules.append(rule)
        return tuple(rules)

    def _is_bound(self, target: Target | None, line: int) -> bool:
        """Whether rules with this target, the first in *line*, stand as they are and make no mistake."""
        if target is None:
            return True
        chain = self.table.chains.get(target.name)
        if target.enters:
            return chain is not None and chain.policy is None and chain.line <= line
        return chain is None or target.kind is not Kind.VERDICT

    def _check_jump(self, target: Target, rule: Rule) -> None:
        chain = self.table.chains.get(target.name)
        if chain is None:
            hint = (
                _meant(target.name, [each.name for each in self.table.chains.values() if each.policy is None])
                or f"declare it by a line :{target.name} - [0:0], or -N {target.name}"
            )
            self._refuse(
                rule.line,
                f"{target.name} is neither a chain of table {self.table.name} nor a known target",
                target.name,
                hint,
            )
            return
        if chain.policy is not None:
            self._refuse(rule.line, f"cannot jump to the built-in chain {target.name}", target.name)
        elif chain.line > rule.line:
            self._refuse(
                rule.line,
                f"chain {target.name} is declared behind this, in line {chain.line}",
                target.name,
                "declare chains in front of the rules",
            )

    def _scopes(self, part: Match | Target) -> list[Scope]:
        """The scopes of a match or target with its words; a target is one unless it enters a chain."""
        if part.name in self.table.chains:
            return []
        if isinstance(part, Target) and part.kind is not Kind.VERDICT:
            return []
        extension = MATCHES.get(part.name) or TARGETS.get(part.name)
        return scopes_of(extension, part.words) if extension is not None else []

    def check_scopes(self) -> None:
        """Refuse matches and targets that the kernel does not take in this table, or below these chains."""
        scopes = self._scopes_to_check()
        if not scopes:
            return
        below = _below(self.table)
        for name, chain in self.table.chains.items():
            parts = {id(part) for rule in chain.rules for part in (*rule.matches, rule.target)}
            bound = joined.from_iterable(scopes[key] for key in parts & scopes.keys())
            if any(self._refusal(scope, below[name]) for scope in bound):
                for error in self._errors(chain, scopes, below[name]):
                    self._note(error)

    def _scopes_to_check(self) -> dict[int, list[Scope]]:
        """The scopes that not every chain of this table is in, by the identity of the match or target.

        A large rule set has many short chains, whose rules share equal matches and targets; so all chains are
        looked at together.
        """
        rules = list(joined.from_iterable(chain.rules for chain in self.table.chains.values()))
        matches = joined.from_iterable(map(attrgetter("matches"), rules))
        targets = filter(None, map(attrgetter("target"), rules))
        parts = {id(part): part for part in joined(matches, targets) if part.name in _WITH_SCOPES}
        every = set(BUILT_IN[self.table.name])
        scopes = {
            key: [scope for scope in self._scopes(part) if self._refusal(scope, every)]
            for key, part in parts.items()
        }
        return {key: bound for key, bound in scopes.items() if bound}

    def _errors(
        self, chain: ChainDraft, scopes: dict[int, list[Scope]], below: set[str]
    ) -> Iterator[ParseError]:
        """The errors of the chain's rules, from the first rule on."""
        for rule in chain.rules:
            for part in (*rule.matches, rule.target):
                for scope in scopes.get(id(part), ()):
                    refusal = self._refusal(scope, below)
                    if part is not None and refusal:
                        reason, hint = refusal
                        yield self._error_at(rule.line, f"{part.name}{reason}", part.name, hint)

    def _refusal(self, scope: Scope, below: set[str]) -> tuple[str, str] | None:
        """Why a chain that the chains *below* reach may not use what has this scope, with a hint."""
        if scope.tables and self.table.name not in scope.tables:
            reason = f" is not allowed in table {self.table.name}"
            return reason, f"it belongs to {' or '.join(sorted(scope.tables))}"
        wrong = sorted(below - scope.chains) if scope.chains else []
        if wrong:
            reason = f", with these options, is not allowed in a chain that {wrong[0]} reaches"
            return reason, f"it is allowed below {', '.join(sorted(scope.chains))}"
        return None


# Words of other firewalls, and the targets that they stand for.
_OTHER_WORDS = {
    "ALLOW": "ACCEPT", "PERMIT": "ACCEPT", "PASS": "ACCEPT",
    "DENY": "DROP", "BLOCK": "DROP", "DISCARD": "DROP",
}  # fmt: skip


def _meant(name: str, chains: list[str]) -> str:
    """A hint at the target, or the one of *chains*, that *name* may stand for; "" if there is none."""
    for known in chains:
        if known.upper() == name.upper():
            return f"did you mean {known}?"
    capitals = name.upper()
    if capitals in TARGETS or capitals in RESERVED:
        return f"did you mean {capitals}? Targets are written in capitals"
    if capitals in _OTHER_WORDS:
        return nearest(name, chains) or f"did you mean {_OTHER_WORDS[capitals]}?"
    return nearest(name, [*chains, *TARGETS])


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
