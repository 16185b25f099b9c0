"""Packets that no kernel has: their state is one that packets of their kind do not have.

The kernel looks a packet up in its connections before any table but raw sees it.  Those with a broken header
of TCP, UDP or ICMP are INVALID, fragments are put together or not tracked, and connection_states.py tells the
states by the flags of TCP and the type of ICMP (tests/kernel/test_connection_states.py).

`without_unreal` puts rules in front of the built-in chains that drop these packets.  If it is done to both of
two programs, the two treat them alike, whatever else they have: what then is equal is equal for all packets
that a kernel may have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from .connection_states import ICMP_OF, why_no_state, why_not_of_kind
from .fields import STATES, TCP, UDP, Family, Field, Fragment
from .headers import HEADER_BYTES, is_malformed
from .intervals import Values
from .packet import Packet
from .program import Program, Table
from .rule import Ends, Kind, Match, Role, Rule, Target, Test

_TRACKED = ("NEW", "ESTABLISHED", "RELATED")
_FRAGMENT = Values.only(Fragment.FIRST, Fragment.LATER)
_FLAGS, _ICMP_TYPES = 64, 256


def why_unreal(packet: Packet, table: str) -> str:
    """Why no kernel has *packet* in *table*; "" if some may."""
    if table == "raw":
        return ""
    state, protocol = STATES[packet.values.get(Field.STATE, 0)], packet.values.get(Field.PROTO)
    if state.partition("+")[0] in _TRACKED:
        if packet.values.get(Field.FRAG, Fragment.WHOLE) != Fragment.WHOLE:
            return "a fragment is put together where connections are tracked, or is UNTRACKED"
        if protocol in _checked(packet.family) and is_malformed(packet):
            return "a packet with a broken header is INVALID"
    elsewhere = why_no_state(table, False, state)
    return elsewhere or why_not_of_kind(packet.family, packet.values, state)


def without_unreal(program: Program, tables: Collection[str], chains: Collection[str]) -> Program:
    """*program* with rules that drop unreal packets in front of these *chains*, if they are built-in."""
    guarded = (
        _guarded(table, program.family, chains) if table.name in tables and table.name != "raw" else table
        for table in program
    )
    return replace(program, tables=tuple(guarded))


def _guarded(table: Table, family: Family, chains: Collection[str]) -> Table:
    dropping = tuple(_dropping(table.name, family))
    guarded = (
        chain.with_rules((*dropping, *chain.rules))
        if chain.policy is not None and chain.name in chains
        else chain
        for chain in table.chains
    )
    return replace(table, chains=tuple(guarded))


def _dropping(table: str, family: Family) -> Iterator[Rule]:
    tracked = Values.only(*(at for at, state in enumerate(STATES) if state.partition("+")[0] in _TRACKED))
    yield drop(asking({Field.STATE: tracked, Field.FRAG: _FRAGMENT}))
    for protocol in _checked(family):
        yield drop_broken(protocol, asking({Field.STATE: tracked, Field.PROTO: Values.only(protocol)}))
    elsewhere = Values.only(*(at for at, state in enumerate(STATES) if why_no_state(table, False, state)))
    if elsewhere:
        yield drop(asking({Field.STATE: elsewhere}))
    yield from _of_kinds(family, {Field.PROTO: TCP}, Field.FLAGS, range(_FLAGS), 1)
    yield from _of_kinds(family, {Field.PROTO: ICMP_OF[family]}, Field.ICMP, range(_ICMP_TYPES), 256)


def _of_kinds(
    family: Family, protocol: Mapping[Field, int], field: Field, kinds: range, values_of_kind: int
) -> Iterator[Rule]:
    """Rules that drop the packets of each kind in states that they do not have."""
    by_states: dict[Values, list[tuple[int, int]]] = {}
    for kind in kinds:
        low = kind * values_of_kind
        values = {**protocol, field: low}
        unreal = Values.only(
            *(at for at, state in enumerate(STATES) if why_not_of_kind(family, values, state))
        )
        if unreal:
            by_states.setdefault(unreal, []).append((low, low + values_of_kind - 1))
    number = protocol[Field.PROTO]
    for states, pairs in by_states.items():
        asked = {Field.PROTO: Values.only(number), field: Values.of(*pairs), Field.STATE: states}
        yield drop(asking(asked))


def _checked(family: Family) -> tuple[int, ...]:
    """The protocols whose headers connection tracking checks, as it was measured."""
    return TCP, UDP, ICMP_OF[family]


# ---- rules that drop packets ----


def asking(asked: Mapping[Field, Values]) -> Match:
    tests = tuple(Test(field, values) for field, values in asked.items())
    key = " ".join(f"{field.name}={values.pairs}" for field, values in asked.items())
    return Match("", ("unreal",), Role.SPACE, key, tests)


def drop_broken(protocol: int, *asked: Match) -> Rule:
    """A rule that drops packets of *protocol* with a broken header, those for which *asked* hold.

    The match of the whole header drops what is too short or has a bad data offset; the next one stops others.
    """
    whole = asking({Field.PROTO: Values.only(protocol)})
    whole = whole._replace(needs=HEADER_BYTES[protocol], option=protocol == TCP)
    return drop(*asked, whole, asking({Field.FRAG: Values.only(Fragment.LATER)}))


def drop(*matches: Match) -> Rule:
    return Rule(matches, Target("DROP", Kind.VERDICT, "DROP", ends=Ends.SURELY))
