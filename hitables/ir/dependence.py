"""Whether one part of a rule may change the result of a later part, by the table of syntax/access.py.

Both proof engines assume that a match keeps its result past a writer that cannot change it; benchmarks/matrix
compares these answers with the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

from .rule import Match, Role, Rule, Target
from .semantics import FIELDS_WRITTEN


def may_change(writer: Match | Target, reader: Match) -> bool:
    """Whether *reader* may have different results before and after *writer*, for one packet.

    A match with memory or chance (NAMED, ONCE) always may: each evaluation has its own outcome.  A test of
    header fields may if the writer writes such a field (FIELDS_WRITTEN); a CONSTANT match also if the writer
    writes state that it reads.
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
