"""What a rule tests and does as one text, whatever its spelling; digests of chains and tables of such texts.

iptables-save prints a rule otherwise than it was written (`--dport ssh`, `-s 10.1.2.3`), so a rule set that
comes back from a kernel is compared with what was loaded by these texts, not by its bytes.  Counters, comment
lines and line numbers are no part of them.

Invariant: a rule set and what a kernel prints of it have equal digests, in both backends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from .fields import Field
from .intervals import Values
from .program import Table
from .rule import FIRST_LOADED, Match, Role, Rule, Target, Test

_NAMES = {field: field.name for field in Field}  # the attribute takes longer than all the rest
_ANY = {
    Field.SPORT: Values(((0, 65535),)),
    Field.DPORT: Values(((0, 65535),)),
    Field.FLAGS: Values(((0, 63),)),
}
DIGITS = 16  # hexadecimal digits of a digest: 64 bits tell rule sets apart that were not made to collide


def meaning(rule: Rule) -> str:
    """Equal for rules that test and do the same in any spelling."""
    tests = [_test(match) for match in rule.matches if _is_stored(match)]
    return " | ".join([*tests, rule.target.key if rule.target else "counts"])


def is_any(field: Field, values: Values) -> bool:
    """Whether the test allows every value: --dport 0:65535, --tcp-flags NONE NONE.

    For tcp and udp the kernel stores no such test, so it is not printed; the match still asks for a header.
    """
    return field in _ANY and values == _ANY[field]


def _is_stored(match: Match) -> bool:
    """Whether the kernel stores the match: not -s 0.0.0.0/0, but an address under a mask with gaps."""
    return bool(match.name or match.tests) or match.role is not Role.SPACE


def _test(match: Match) -> str:
    if match.role is not Role.SPACE or not match.tests:
        # Which rule of a shared memory is loaded first depends on the order in which tables are printed.
        return match.key.partition(FIRST_LOADED)[0].rstrip()
    # In the order of the fields, as the kernel prints them: `--syn --dport 22` is `--dport 22 --syn`.
    in_order = match.tests if len(match.tests) == 1 else sorted(match.tests, key=_by_field)
    tests = [f"{_NAMES[field]} {values.pairs!s}" for field, values in in_order if not is_any(field, values)]
    return f"{match.name} {' '.join(tests)} {match.either!s} {match.native!s}" if tests else match.name


def _by_field(test: Test) -> Field:
    return test.field


class Digests:
    """Digests of the chains and tables of programs, which may share matches and targets.

    Each of these is put into words once; a program and its compiled form take as long as one of them.
    """

    def __init__(self) -> None:
        self._matches: dict[int, tuple[Match, bytes]] = {}  # by id; the match itself keeps the id valid
        self._targets: dict[int, tuple[Target | None, bytes]] = {}
        self._tables: dict[int, tuple[Table, str]] = {}

    def of_rules(self, rules: Iterable[Rule]) -> str:
        """The digest of the rules of one chain, in order; `DIGITS` hexadecimal digits."""
        known, parts = self._matches, []
        for rule in rules:
            for match in rule.matches:
                found = known.get(id(match))
                if found is None:
                    text = f"{_test(match)} | " if _is_stored(match) else ""
                    found = known[id(match)] = match, text.encode("utf-8", "surrogateescape")
                parts.append(found[1])
            target = self._targets.get(id(rule.target))
            if target is None:
                text = f"{rule.target.key if rule.target else 'counts'}\n"
                target = self._targets[id(rule.target)] = rule.target, text.encode("utf-8", "surrogateescape")
            parts.append(target[1])
        return hashlib.sha256(b"".join(parts)).hexdigest()[:DIGITS]

    def of_table(self, table: Table) -> str:
        """The digest of a table: its chains by name, with their rules and policies.

        A built-in chain without rules counts only if it drops, because tools print such chains or leave them
        out.
        """
        found = self._tables.get(id(table))
        if found is None:
            sha = hashlib.sha256(f"{table.name}\n".encode())
            for chain in sorted(table.chains, key=lambda each: each.name):
                if chain.rules or chain.policy != "ACCEPT":
                    line = f"{chain.name} {chain.policy} {self.of_rules(chain.rules)}\n"
                    sha.update(line.encode("utf-8", "surrogateescape"))
            found = self._tables[id(table)] = table, sha.hexdigest()[:DIGITS]
        return found[1]
