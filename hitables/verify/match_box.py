"""The box of header fields outside of which a rule cannot affect a packet.

Invariant: the box may be larger than needed, never smaller.

Users: lint.py, which runs the prover on that box only; rules_for_packet.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from hitables.ir.fields import Family, Field
from hitables.ir.hooks import Box, hook_box
from hitables.ir.intervals import Values
from hitables.ir.program import Table
from hitables.ir.rule import Match, Role
from hitables.ir.semantics import FIELDS_WRITTEN

from .packet_classes import PacketClass

NOWHERE: Mapping[Field, Values] = MappingProxyType({})
MOST_INTERVALS = 16  # of the tests on the way to a chain; of more, their hull


class MatchBox:
    """Where a packet must be, in a class, to match all of *matches* or be dropped by one of them that is -p.

    written  fields that some rule of the table may change: a test of them restricts no packet as it enters
    entry    tests that all packets pass on their way to the matches (`entry_tests`)
    """

    def __init__(
        self,
        matches: Sequence[Match],
        written: set[Field],
        family: Family,
        entry: Mapping[Field, Values] = NOWHERE,
    ) -> None:
        self.family, self.entry = family, entry
        self.tests: dict[Field, Values] = {}
        self.before_protocol: dict[Field, Values] | None = None  # tests before the first -p
        for match in matches:
            if match.is_protocol and self.before_protocol is None:
                self.before_protocol = dict(self.tests)
            if match.either:
                continue
            for test in match.tests:
                if test.field not in written and test.field is not Field.MAC:
                    earlier = self.tests.get(test.field)
                    self.tests[test.field] = (
                        test.values if earlier is None else earlier.intersect(test.values)
                    )

    def of(self, packets: PacketClass, root: str) -> Box | None:
        """The box for packets of the class at *root* ("": anywhere); None: no packet is in it."""
        box = dict(hook_box(root, self.family))
        if packets.protocols is not None:
            box[Field.PROTO] = packets.protocols
        box[Field.FRAG] = Values(((2, 2),)) if packets.later else Values(((0, 1),))
        tests = self.tests
        if packets.cut_short and self.before_protocol is not None:
            tests = self.before_protocol
        for field, values in (*self.entry.items(), *tests.items()):
            if field in packets.present:
                box[field] = values.intersect(box[field]) if field in box else values
                if not box[field]:
                    return None
            elif field not in packets.native:
                return None
        return box


def written_fields(table: Table) -> set[Field]:
    """Fields that some rule of the table may change."""
    states = {state for chain in table.chains for rule in chain.rules for state in rule.writes}
    return {field for state in states for field in FIELDS_WRITTEN.get(state, ())}


def harmless_matches(matches: Sequence[Match]) -> list[Match]:
    """The matches before the first that may do more than hold or not, except -p (`MatchBox`)."""
    out = []
    for match in matches:
        if match.role is not Role.SPACE or match.needs or match.option:
            break
        out.append(match)
    return out


def entry_tests(
    table: Table, callers_first: Iterable[str], written: set[Field], family: Family
) -> dict[str, Mapping[Field, Values]]:
    """By chain of *callers_first*: tests that every packet passes before it reaches the chain's rules.

    The tests of the rules that enter the chain, and of those that enter their chains, united by field; a
    field that some way leaves open has none.  Cost: linear in the rules.
    """
    ways: dict[str, Mapping[Field, Values]] = {}
    for name in callers_first:
        chain = table[name]
        own = NOWHERE if chain.policy is not None else ways.get(name, NOWHERE)
        ways[name] = own
        for rule in chain.rules:
            if rule.enters is None:
                continue
            tests = dict(own)
            for field, values in MatchBox(rule.matches, written, family).tests.items():
                tests[field] = values.intersect(tests[field]) if field in tests else values
            if not all(tests.values()):
                continue  # no packet takes this way
            known = ways.get(rule.enters)
            ways[rule.enters] = tests if known is None else _united(known, tests)
    return ways


def _united(one: Mapping[Field, Values], other: Mapping[Field, Values]) -> dict[Field, Values]:
    united = {}
    for field in one.keys() & other.keys():
        values = one[field] if one[field] is other[field] else one[field].union(other[field])
        if len(values.pairs) > MOST_INTERVALS:
            values = Values(((values.pairs[0][0], values.pairs[-1][1]),))
        united[field] = values
    return united
