"""Whether one part of a rule may change the answer of a later part: what the table of options says.

Both proof engines take a match for unchanged past a writer when this says so; bench.matrix holds
the answers against the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

from .rule import Match, Role, Rule, State, Target
from .semantics import FIELDS_WRITTEN


def writes(part: Match | Target) -> frozenset[State]:
    """What a target or match writes."""
    written: frozenset[State] = getattr(part, "writes", frozenset())
    return written


def may_change(writer: Match | Target, reader: Match) -> bool:
    """Whether *reader*, asked before and behind *writer* about one packet, may answer otherwise.

    A match with memory or chance (NAMED, ONCE) may always: each question has an outcome of its own.
    A test of header fields may where the writer writes such a field (FIELDS_WRITTEN), and a CONSTANT
    match besides where it reads what is written, or where either is not known.
    """
    if reader.role in (Role.NAMED, Role.ONCE):
        return True
    written = writes(writer)
    fields = {field for state in written for field in FIELDS_WRITTEN.get(state, ())}
    if any(test.field in fields for test in reader.tests):
        return True
    if reader.role is Role.SPACE or not written:
        return False
    return State.ANYTHING in written | reader.reads or bool(written & reader.reads)


def parts(rule: Rule) -> Iterator[Match | Target]:
    """The matches of *rule*, then its target."""
    yield from rule.matches
    if rule.target is not None:
        yield rule.target


def rule_may_change(writer: Rule, reader: Rule) -> bool:
    """Whether some part of the rule *writer* may change some match of the rule *reader*."""
    return any(may_change(part, match) for part in parts(writer) for match in reader.matches)
