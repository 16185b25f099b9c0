"""Whether one part of a rule may change the answer of a later part: what syntax/access.py says.

Both proof engines take a match for unchanged past a writer when this says so; bench.matrix holds
the answers against the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

from .rule import Match, Role, Rule, Target
from .semantics import FIELDS_WRITTEN


def may_change(writer: Match | Target, reader: Match) -> bool:
    """Whether *reader*, asked before and behind *writer* about one packet, may answer otherwise.

    A match with memory or chance (NAMED, ONCE) may always: each question has an outcome of its own.
    A test of header fields may where the writer writes such a field (FIELDS_WRITTEN), and a CONSTANT
    match besides where it reads what is written.
    """
    if reader.role in (Role.NAMED, Role.ONCE):
        return True
    fields = {field for state in writer.writes for field in FIELDS_WRITTEN.get(state, ())}
    if any(test.field in fields for test in reader.tests):
        return True
    return reader.role is Role.CONSTANT and bool(writer.writes & reader.reads)


def parts(rule: Rule) -> Iterator[Match | Target]:
    """The matches of *rule*, then its target."""
    yield from rule.matches
    if rule.target is not None:
        yield rule.target


def rule_may_change(writer: Rule, reader: Rule) -> bool:
    """Whether some part of the rule *writer* may change some match of the rule *reader*."""
    return any(may_change(part, match) for part in parts(writer) for match in reader.matches)
