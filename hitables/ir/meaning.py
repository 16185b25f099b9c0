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
from .rule import Match, Role, Rule

_PORTS = (Field.SPORT, Field.DPORT)
_ANY_PORT = Values(((0, 65535),))
DIGITS = 16  # hexadecimal digits of a digest: 64 bits tell rule sets apart that were not made to collide


def meaning(rule: Rule) -> str:
    """Equal for rules that test and do the same in any spelling."""
    tests = [_test(match) for match in rule.matches if match.name or match.tests]
    return " | ".join([*tests, rule.target.key if rule.target else "counts"])


def _test(match: Match) -> str:
    if match.role is not Role.SPACE or not match.tests:
        return match.key
    # The kernel does not store --dport 0:65535; the match still asks for a header.
    tests = tuple(test for test in match.tests if test.values != _ANY_PORT or test.field not in _PORTS)
    return f"{match.name} {tests} {match.either} {match.native}" if tests else match.name


def digest_of_rules(rules: Iterable[Rule]) -> str:
    """The digest of the rules of one chain, in order; `DIGITS` hexadecimal digits."""
    # Copies share their matches and targets: each text is made once.
    texts: dict[tuple[int, int], bytes] = {}
    sha = hashlib.sha256()
    for rule in rules:
        shared = id(rule.matches), id(rule.target)
        text = texts.get(shared)
        if text is None:
            text = texts[shared] = meaning(rule).encode("utf-8", "surrogateescape") + b"\n"
        sha.update(text)
    return sha.hexdigest()[:DIGITS]


def digest_of_table(table: Table) -> str:
    """The digest of a table: its chains by name, with their rules and policies.

    A built-in chain without rules counts only if it drops, because tools print such chains or leave them out.
    """
    sha = hashlib.sha256(f"{table.name}\n".encode())
    for chain in sorted(table.chains, key=lambda each: each.name):
        if chain.rules or chain.policy != "ACCEPT":
            line = f"{chain.name} {chain.policy} {digest_of_rules(chain.rules)}\n"
            sha.update(line.encode("utf-8", "surrogateescape"))
    return sha.hexdigest()[:DIGITS]
