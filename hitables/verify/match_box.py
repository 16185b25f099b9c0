"""The packets that a rule can affect, as a box of header fields and matches that hold.

Invariant: the set may be larger than needed, never smaller.

Users: lint.py, which runs the prover on that box only; rules_for_packet.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from hitables.ir.fact import Fact
from hitables.ir.fields import Family, Field
from hitables.ir.hooks import Box, hook_box
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend
from hitables.ir.program import Table
from hitables.ir.rule import Match, Metadata, Role
from hitables.ir.semantics import FIELDS_WRITTEN

from .packet_classes import PacketClass

NOWHERE: Mapping[Field, Values] = MappingProxyType({})
MOST_WAYS = 4096  # to a chain that are held, before they are united
MOST_INTERVALS = 1024  # of the tests on the way to a chain; of more, their hull


class TableWrites(NamedTuple):
    """What the rules of a table may change: states, and the header fields that depend on them."""

    states: frozenset[Metadata]
    fields: frozenset[Field]


class PacketSet(NamedTuple):
    """Packets of a class.

    box       the values of their fields
    facts     facts (Match.fact) that hold for all of them as they enter the table
    expected  those that the rule asks
    """

    box: Box
    facts: tuple[Fact, ...] = ()
    expected: tuple[Fact, ...] = ()


class MatchBox:
    """Where a packet must be, in a class, for all of these matches to hold, or to be dropped by -p.

    written     what the table may change: a test of it restricts no packet as it enters
    entry       tests that all packets pass on their way to the rule (`entry_tests`)
    may_act     or for one of them to do more than hold or not: to drop it, or to ask a memory or chance
    only_acts   without the packets for which all hold, and none does more
    """

    def __init__(
        self,
        matches: Sequence[Match],
        written: TableWrites,
        family: Family,
        entry: Mapping[Field, Values] = NOWHERE,
        *,
        may_act: bool = False,
        only_acts: bool = False,
    ) -> None:
        self.matches, self.written, self.family, self.entry = matches, written, family, entry
        self.may_act, self.only_acts = may_act or only_acts, only_acts

    def of(self, packets: PacketClass, backend: Backend, root: str) -> PacketSet | None:
        """The packets of the class at *root* ("": anywhere); None: there are none."""
        box = dict(hook_box(root, self.family))
        if packets.protocols is not None:
            box[Field.PROTO] = packets.protocols
        fragments = Values(((2, 2),)) if packets.later else Values(((0, 1),))
        box[Field.FRAG] = fragments.intersect(box.get(Field.FRAG, fragments))
        if not box[Field.FRAG]:
            return None
        for field, values in self.entry.items():
            if field in packets.present:
                box[field] = values.intersect(box[field]) if field in box else values
                if not box[field]:
                    return None
            elif field not in packets.native:
                return None
        facts: dict[Fact, None] = {}
        allowed: dict[tuple[str, int], Values] = {}  # by attribute and the bits that are compared
        expected: dict[Fact, None] = {}
        for match in self.matches:
            if packets.cut_short and match.is_protocol:
                break
            if self.may_act and (match.role > Role.CONSTANT or _may_drop(match, packets, backend)):
                break
            native = match.native and backend is Backend.NFT
            if packets.later and match.needs and not native:
                return None
            if match.role is Role.CONSTANT:
                fact = match.fact
                expected[fact] = None
                if match.reads.isdisjoint(self.written.states):
                    facts[fact] = None
                    bits = fact.attribute, fact.mask
                    allowed[bits] = fact.values.intersect(allowed.get(bits, fact.values))
                    if not allowed[bits]:
                        return None
            if match.either:
                continue
            for field, values in match.tests:
                if field not in (packets.native if native else packets.present):
                    return None
                if field not in self.written.fields and field is not Field.MAC:
                    box[field] = values.intersect(box[field]) if field in box else values
                    if not box[field]:
                        return None
        else:
            if self.only_acts:
                return None
        return PacketSet(box, tuple(facts), tuple(expected))


def _may_drop(match: Match, packets: PacketClass, backend: Backend) -> bool:
    """Whether the match may drop packets of the class, whatever it tests."""
    if match.option and packets.bad_offset:
        return True
    if not match.needs or (match.native and backend is Backend.NFT):
        return False
    if packets.later:
        return match.strict and packets.offset_one
    return packets.bytes < match.needs


def written_by(table: Table) -> TableWrites:
    states = table.states_written()
    return TableWrites(
        states, frozenset(field for state in states for field in FIELDS_WRITTEN.get(state, ()))
    )


def _tests_of(matches: Sequence[Match], written: TableWrites) -> dict[Field, Values]:
    """What the matches ask of the fields of a packet as it enters the table."""
    tests: dict[Field, Values] = {}
    for match in matches:
        for field, values in () if match.either else match.tests:
            if field not in written.fields and field is not Field.MAC:
                tests[field] = values.intersect(tests[field]) if field in tests else values
    return tests


def entry_tests(
    table: Table, callers_first: Iterable[str], written: TableWrites
) -> dict[str, Mapping[Field, Values]]:
    """By chain of *callers_first*: tests that every packet passes before it reaches the chain's rules.

    The tests of the rules that enter the chain, and of those that enter their chains, united by field; a
    field that some way leaves open has none.  Cost: linear in the rules, and for each rule in the intervals
    of its chain's tests.
    """
    ways: dict[str, list[Mapping[Field, Values]]] = {}
    entry: dict[str, Mapping[Field, Values]] = {}
    for name in callers_first:
        chain = table[name]
        own = entry[name] = NOWHERE if chain.policy is not None else _united(ways.pop(name, []))
        for rule in chain.rules:
            if rule.enters is None:
                continue
            tests = dict(own)
            for field, values in _tests_of(rule.matches, written).items():
                tests[field] = values.intersect(tests[field]) if field in tests else values
            if not all(tests.values()):
                continue  # no packet takes this way
            known = ways.setdefault(rule.enters, [])
            known.append(tests)
            if len(known) == MOST_WAYS:
                known[:] = [_united(known)]
    return entry


def _united(ways: Sequence[Mapping[Field, Values]]) -> Mapping[Field, Values]:
    """The values of each field that all ways restrict; NOWHERE: of none."""
    united = {}
    for field in set[Field]().union(*ways[:1]).intersection(*ways[1:]):
        values = Values.of(*(pair for way in ways for pair in way[field].pairs))
        if len(values.pairs) > MOST_INTERVALS:
            values = Values(((values.pairs[0][0], values.pairs[-1][1]),))
        united[field] = values
    return united
