"""Classes of packets: what fragments, the bytes of layer 4 and broken headers let rules see.

Idea: within a class, packets differ in header values only: each field exists for all of them or for none,
and each match that drops short packets drops all of them or none.  The prover compares two programs class
by class.

Invariant: each packet that can exist (ir/headers.py) is in a class, or the rules cannot distinguish it from
a packet that is, and of which more is required: of packets that look alike, the well-formed represent the
malformed, of which less is required.

Cost: a few classes per rule set, about twelve with the usual matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from hitables.ir.fields import ICMP, ICMPV6, PORT_PROTOCOLS, TCP, Family, Field
from hitables.ir.headers import FIELD_BYTES, HEADER_BYTES, TCP_OFFSET_BYTES
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend
from hitables.ir.rule import Match, Role

ORDINARY_BYTES = 64
_MOST_BYTES = 65535
_PAYLOAD = (Field.SPORT, Field.DPORT, Field.FLAGS)


@dataclass(frozen=True)
class PacketClass:
    """Packets that differ in header values only.

    protocols        of its packets; None: the protocol cannot be found (IPv6)
    present, native  fields that matches find through xtables, and natively; of the fields that only some
                     packets have, only those that are tested
    bytes            of layer 4, of one packet of the class
    """

    protocols: Values | None
    present: frozenset[Field]
    native: frozenset[Field]
    bytes: int
    later: bool = False
    bad_offset: bool = False
    offset_one: bool = False
    malformed: bool = False

    def sets(self) -> dict[Field, Values]:
        """The values that its packets have."""
        fragment = Values(((2, 2),)) if self.later else Values(((0, 1),))
        if self.protocols is None:
            return {Field.FRAG: fragment}
        return {Field.FRAG: fragment, Field.PROTO: self.protocols}

    @property
    def cut_short(self) -> bool:
        return self.protocols is None


@dataclass(frozen=True)
class Need:
    """What a match requires of a packet whose protocol is one of *protocols* (None: any)."""

    protocols: Values | None
    bytes: int
    strict: bool
    option: bool

    def concerns(self, protocol: int) -> bool:
        return self.protocols is None or protocol in self.protocols


def needs_of(matches: Sequence[Match], backend: Backend) -> Iterator[Need]:
    """What the matches of one rule require of the packets that reach them."""
    protocols: Values | None = None
    for match in matches:
        if (match.needs and not (match.native and backend is Backend.NFT)) or match.option:
            yield Need(protocols, match.needs, match.strict, match.option)
        if match.role is Role.SPACE and not match.either:
            for test in match.tests:
                if test.field is Field.PROTO:
                    protocols = test.values if protocols is None else protocols.intersect(test.values)


@lru_cache(maxsize=256)  # many small proofs have the same needs (sflgen/local_proof.py)
def classes(needs: frozenset[Need], tested: frozenset[Field], family: Family) -> tuple[PacketClass, ...]:
    """The classes that rules with these *needs* and tested fields can distinguish; plain packets first."""
    by_sight: dict[object, list[int]] = {}
    for protocol in range(256):
        header = _fields(protocol, family) & tested, HEADER_BYTES.get(protocol, 0)
        concerning = frozenset(
            (need.bytes, need.strict, need.option) for need in needs if need.concerns(protocol)
        )
        by_sight.setdefault((header, concerning), []).append(protocol)
    parts: list[PacketClass] = []
    for protocols in by_sight.values():
        parts += _whole(protocols, needs, tested, family)
    parts += _later(needs, tested)
    if family is Family.IPV6:
        parts += _cut_short(needs)
    return tuple(sorted(_joined(parts), key=lambda each: (each.malformed, each.later, each.cut_short)))


def _fields(protocol: int, family: Family) -> frozenset[Field]:
    """The fields that packets of *protocol* have when they are long enough."""
    has = {
        Field.SPORT: protocol in PORT_PROTOCOLS,
        Field.DPORT: protocol in PORT_PROTOCOLS,
        Field.ICMP: protocol == (ICMP if family is Family.IPV4 else ICMPV6),
        Field.FLAGS: protocol == TCP,
    }
    return frozenset(field for field, present in has.items() if present)


_ALWAYS = frozenset(field for field in Field if field not in FIELD_BYTES)


def _sizes(needed: set[int]) -> Iterator[int]:
    """One size between each two bounds, the most ordinary one."""
    bounds = sorted({0, *needed})
    for low, next_low in zip(bounds, [*bounds[1:], _MOST_BYTES + 1], strict=True):
        yield ORDINARY_BYTES if low <= ORDINARY_BYTES < next_low else next_low - 1


def _whole(
    protocols: list[int], needs: frozenset[Need], tested: frozenset[Field], family: Family
) -> Iterator[PacketClass]:
    """Whole packets and first fragments, of protocols that the rules cannot distinguish."""
    protocol = protocols[0]
    concerning = [need for need in needs if need.concerns(protocol)]
    has = _fields(protocol, family) & tested
    size = HEADER_BYTES.get(protocol, 0)
    bounds = {need.bytes for need in concerning} | {FIELD_BYTES[field] for field in has}
    option = any(need.option for need in concerning) and protocol == TCP
    seen: dict[object, PacketClass] = {}
    for bad_offset in (False, True) if option else (False,):
        for count in _sizes(bounds | {size} | ({TCP_OFFSET_BYTES} if option else set())):
            if bad_offset and count < TCP_OFFSET_BYTES:
                continue
            present = frozenset(field for field in has if count >= FIELD_BYTES[field])
            candidate = PacketClass(
                Values.only(*protocols),
                _ALWAYS | present,
                _ALWAYS | present,
                count,
                bad_offset=bad_offset,
                malformed=count < size or bad_offset,
            )
            sight = present, frozenset(need for need in concerning if count < need.bytes), bad_offset
            _keep(seen, sight, candidate)
    yield from seen.values()


def _later(needs: frozenset[Need], tested: frozenset[Field]) -> Iterator[PacketClass]:
    payload = [field for field in _PAYLOAD if field in tested]
    strict = any(need.strict for need in needs)
    for count in _sizes({FIELD_BYTES[field] for field in payload}):
        read = frozenset(field for field in _PAYLOAD if count >= FIELD_BYTES[field])
        for offset_one in (False, True) if strict else (False,):
            yield PacketClass(
                Values(((0, 255),)),
                _ALWAYS,
                _ALWAYS | read,
                count,
                later=True,
                offset_one=offset_one,
                malformed=offset_one,
            )


def _cut_short(needs: frozenset[Need]) -> Iterator[PacketClass]:
    """IPv6 packets whose extension headers end early: no protocol can be found."""
    fields = _ALWAYS - {Field.PROTO}
    strict = any(need.strict for need in needs)
    for count in _sizes({need.bytes for need in needs}):
        yield PacketClass(None, fields, fields, count, malformed=True)
    for offset_one in (False, True) if strict else (False,):
        yield PacketClass(
            None, fields, fields, ORDINARY_BYTES, later=True, offset_one=offset_one, malformed=True
        )


def _keep(seen: dict[object, PacketClass], sight: object, candidate: PacketClass) -> None:
    """Of classes with the same *sight* keep a well-formed one, and of these the one of ordinary size."""
    before = seen.get(sight)
    if before is None or (before.malformed, before.bytes != ORDINARY_BYTES) > (
        candidate.malformed,
        candidate.bytes != ORDINARY_BYTES,
    ):
        seen[sight] = candidate


def _joined(parts: list[PacketClass]) -> Iterator[PacketClass]:
    """Classes that differ only in their protocols, as one."""
    groups: dict[object, list[PacketClass]] = {}
    for each in parts:
        content = (
            each.present, each.native, each.bytes, each.later, each.bad_offset, each.offset_one,
            each.malformed, each.cut_short,
        )  # fmt: skip
        groups.setdefault(content, []).append(each)
    for first, *others in groups.values():
        protocols = first.protocols
        for other in others:
            assert protocols is not None and other.protocols is not None
            protocols = protocols.union(other.protocols)
        yield replace(first, protocols=protocols)
