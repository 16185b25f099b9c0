"""Sets of packets as decision diagrams (oxidd), and what a match does to each packet.

Idea: a field is encoded in bits, most significant first, of the number of its value's *class*: two values
are of one class when no test of the two programs separates them.  Further bits encode what else a match can
see: bytes of layer 4, a bad data offset, fragment offset 1, a chain of IPv6 headers that ends early,
whether there is a mac.  An attribute (ir/fact.py) has those of its bits that some fact looks at.  The bits of
ports and flags serve twice: for the header's own, and for what a native nft expression reads out of a later
fragment, as no packet has both.

Invariant: a set is exact.  A packet is in it or not, and `PacketSets.exist` holds the packets to which
headers.inconsistency has no objection.

Cost: nodes of diagrams, which the order of the bits decides (ORDER).
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from hitables.errors import MissingLibrary
from hitables.ir.fact import Assignment, Fact, ordinary
from hitables.ir.fields import (
    BRIDGE_PORTS,
    ICMP,
    ICMPV6,
    INTERFACES,
    PORT_PROTOCOLS,
    STATES,
    TCP,
    UDP,
    Family,
    Field,
    Fragment,
    interface_number,
    top,
)
from hitables.ir.headers import FIELD_BYTES, HEADER_BYTES, TCP_OFFSET_BYTES
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend, Packet
from hitables.ir.rule import Match, Metadata, Role
from hitables.ir.semantics import FIELDS_WRITTEN

if TYPE_CHECKING:
    from oxidd.bcdd import BCDDFunction as Set
    from oxidd.bcdd import BCDDManager as Manager


class Flag(enum.Enum):
    """What a match can see of a packet besides its fields."""

    BAD_OFFSET = "bad offset"
    OFFSET_ONE = "offset one"
    CUT_SHORT = "cut short"
    MAC = "has a mac"


SIZE = "bytes of layer 4"
Coordinate = Field | str  # a field or SIZE
Point = dict[int, bool]  # one packet of a set, by bit

# The order of the bits, measured: 1.7 s for acl1_10K, 3.7 s for ipc1_10K and fw1_10K, 5.2 s for a
# real set of 5,556 rules that bind macs to source addresses.  That one takes 35 s with the
# destination behind the source and more than a minute with the addresses in front of the rest;
# ipc1_10K takes more than a minute with the ports in front of the addresses.
ORDER: tuple[Coordinate, ...] = (
    Field.PROTO, Field.FRAG, SIZE, Field.STATE, *INTERFACES, Field.DST, Field.SRC, Field.MAC,
    Field.DPORT, Field.SPORT, Field.FLAGS, Field.ICMP,
)  # fmt: skip
RAW = (Field.SPORT, Field.DPORT, Field.FLAGS)
LARGEST = 65535

# Bytes per node of a diagram, with its entry in the unique table, and per cached result; measured.
NODE_BYTES, CACHE_BYTES = 40, 16
# The cache of results is allocated at once: this many entries per match, and at most a million.
ENTRIES_PER_MATCH, MOST_ENTRIES = 1 << 8, 1 << 20
MOST_NODES = 1 << 27  # when the memory is not limited
FEWEST = 1 << 12

# The values of an ordinary packet, the most typical first.
ORDINARY: dict[Coordinate, tuple[int, ...]] = {
    SIZE: (64, 20, 40),
    Field.FRAG: (Fragment.WHOLE,),
    Field.STATE: (STATES.index("NEW"), STATES.index("ESTABLISHED")),
    Field.PROTO: (TCP, UDP, ICMP, ICMPV6),
    Field.IIF: tuple(map(interface_number, ("eth0", "eth1", "eth2", "lo"))),
    Field.OIF: tuple(map(interface_number, ("eth1", "eth0", "eth2", "lo"))),
    **dict.fromkeys(BRIDGE_PORTS, (0,)),
    Field.FLAGS: (2, 16),
    Field.ICMP: (8 << 8, 128 << 8),
    Field.SPORT: (40000, 1024),
    Field.DPORT: (22, 80, 443, 53, 1024, 40000),
}
ADDRESSES = {
    Family.IPV4: (0x0A000001, 0xC0000201, 0x08080808),
    Family.IPV6: (0xFD << 120 | 1, 0x20010DB8 << 96 | 1),
}
MAC = 0x020000000001


class Filtered:
    """What a match does: the packets that it holds for, and those that it drops."""

    __slots__ = ("drops", "holds")

    def __init__(self, holds: Set, drops: Set) -> None:
        self.holds, self.drops = holds, drops


class PacketSets:
    """The sets of packets that the *matches* of two programs can separate.

    exist             the packets that can exist
    malformed         packets with broken headers
    later, cut        later fragments; packets whose protocol cannot be found (IPv6)
    reads             by attribute: the states that it depends on
    inconsistent      a key of matches that ask one attribute and read different states; None: there is none

    MemoryError when more than *max_memory* bytes would be used.
    """

    def __init__(self, family: Family, matches: Iterable[Match], max_memory: int | None) -> None:
        self.family = family
        distinct = list({id(match): match for match in matches}.values())
        manager = self._manager = _manager(len(distinct), max_memory)
        self.nothing, self.everything = manager.false(), manager.true()
        self._classes = _classes(family, distinct)
        self._flags: dict[Flag, int] = {flag: manager.add_vars(1)[0] for flag in Flag}
        self._bits: dict[Coordinate, range] = {
            where: manager.add_vars(max(len(self._classes[where]) - 1, 0).bit_length()) for where in ORDER
        }
        constant = [match for match in distinct if match.role is Role.CONSTANT]
        self._attributes = self._bits_of_attributes(match.fact for match in constant)
        self.reads: dict[str, frozenset[Metadata]] = {match.fact.attribute: match.reads for match in constant}
        # Such an attribute has no single value that a write could change.
        self.inconsistent = next(
            (each.key for each in constant if each.reads != self.reads[each.fact.attribute]), None
        )
        self._lower_bounds: dict[tuple[Coordinate, int], Set] = {}
        self._sets: dict[tuple[Coordinate, tuple[tuple[int, int], ...]], Set] = {}
        self._matches: dict[tuple[int, Backend], tuple[Match, Filtered]] = {}
        self._presence: dict[tuple[Field, bool], Set] = {}
        self.later = self.within(Field.FRAG, Values.only(Fragment.LATER))
        self.cut = self.flag(Flag.CUT_SHORT)
        self.exist = self._existing()
        self.malformed = self._malformed()

    # ---- sets ----

    def flag(self, flag: Flag) -> Set:
        return self._manager.var(self._flags[flag])

    def within(self, where: Coordinate, values: Values) -> Set:
        """Packets whose value at *where*, if they have one, is one of *values*."""
        cached = self._sets.get((where, values.pairs))
        if cached is None:
            parts = [
                self._at_least(where, low) & ~self._at_least(where, high + 1) for low, high in values.pairs
            ]
            cached = self._sets[where, values.pairs] = union(parts, self.nothing)
        return cached

    def smaller(self, size: int) -> Set:
        """Packets with fewer than *size* bytes of layer 4."""
        return ~self._at_least(SIZE, size)

    def box(self, box: Mapping[Field, Values]) -> Set:
        """Packets in the box."""
        packets = self.everything
        for field, values in box.items():
            packets &= self.within(field, values)
        return packets

    def match(self, match: Match, backend: Backend) -> Filtered:
        """For which packets *match* holds (up to its memory or chance), and which it drops."""
        cached = self._matches.get((id(match), backend))
        if cached is None:
            # The cache holds the match, so that no other object gets its id.
            cached = self._matches[id(match), backend] = match, self._filtered(match, backend)
        return cached[1]

    def forget(self, packets: Set, writes: Iterable[Metadata], makes: Assignment | None = None) -> Set:
        """What *packets* may be after writes to these states, one of which *makes* a number.

        They have any value in place of any other old one.
        """
        after = packets
        kept = self._kept(makes)
        for bits, later_too in self._written(frozenset(writes)):
            if lost := [bit for bit in bits if bit not in kept]:
                anything = after.exists(self._cube({bit: True for bit in lost}))
                after = anything if later_too else self.later.ite(after, anything)
        for bit, flips in kept.items():
            if flips:
                one = self._manager.var(bit)
                cube = self._cube({bit: True})
                after = (one & (after & ~one).exists(cube)) | (~one & (after & one).exists(cube))
        return after & self._cube(self._set_bits(makes))

    def _kept(self, makes: Assignment | None) -> dict[int, bool]:
        """The bits that an assignment keeps, and whether it flips them."""
        places = {} if makes is None else self._attributes.get(makes.attribute, {})
        return {
            bit: bool(makes.flip >> at & 1)
            for at, bit in places.items()
            if makes is not None and makes.keep >> at & 1
        }

    def _set_bits(self, makes: Assignment | None) -> dict[int, bool]:
        """The bits that an assignment sets, and to what."""
        places = {} if makes is None else self._attributes.get(makes.attribute, {})
        return {
            bit: bool(makes.flip >> at & 1)
            for at, bit in places.items()
            if makes is not None and not makes.keep >> at & 1
        }

    def share(self, part: Set, whole: Set) -> float:
        """The share of the classes of packets of *whole* that is in *part*."""
        bits = self._manager.num_vars()
        return part.sat_count_float(bits) / (whole.sat_count_float(bits) or 1.0)

    # ---- single packets ----

    def plainest(self, packets: Set) -> Point:
        """The most ordinary of *packets*."""
        chosen = packets
        for typical in self._ordinary_sets():
            if (narrowed := chosen & typical).satisfiable():
                chosen = narrowed
        return self._pick(chosen)

    def before(
        self, packets: Set, point: Point, writes: Iterable[Metadata], makes: Assignment | None = None
    ) -> Set:
        """Those of *packets* that writes to these states may have turned into *point*."""
        later = self._is_later(point)
        rewritten = {
            bit
            for bits, later_too in self._written(frozenset(writes))
            if later_too or not later
            for bit in bits
        }
        kept = self._kept(makes)
        same = {bit: value for bit, value in point.items() if bit not in rewritten}
        return packets & self._cube(same | {bit: point[bit] != flips for bit, flips in kept.items()})

    def value(self, point: Point, where: Coordinate) -> int:
        """A value of the class of *point* at *where*, an ordinary one if the class has one."""
        number = 0
        for bit in self._bits[where]:
            number = number << 1 | point[bit]
        classes = self._classes[where]
        number = min(number, len(classes) - 1)
        low = classes[number]
        high = classes[number + 1] - 1 if number + 1 < len(classes) else _top(where, self.family)
        return next((value for value in self._ordinary(where) if low <= value <= high), low)

    def number(self, point: Point, attribute: str) -> int:
        """The value of an attribute; bits that no fact looks at are 0."""
        return sum(1 << at for at, bit in self._attributes[attribute].items() if point[bit])

    def packet(self, point: Point) -> Packet:
        """The packet of *point*, without answers about facts and outcomes."""
        later, cut = self._is_later(point), point[self._flags[Flag.CUT_SHORT]]
        size, proto = self.value(point, SIZE), self.value(point, Field.PROTO)
        values = {
            field: self.value(point, field)
            for field in (Field.SRC, Field.DST, Field.FRAG, Field.IIF, Field.OIF, Field.STATE)
        }
        raw = {}
        if not cut:
            values[Field.PROTO] = proto
        for field, carriers in _carriers(self.family).items():
            if size < FIELD_BYTES[field] or cut:
                continue
            if later and field in RAW:
                raw[field] = self.value(point, field)
            if not later and proto in carriers:
                values[field] = self.value(point, field)
        for field in BRIDGE_PORTS:
            port = self.value(point, field)
            if port:
                values[field] = port
        if point[self._flags[Flag.MAC]]:
            values[Field.MAC] = self.value(point, Field.MAC)
        return Packet(
            self.family,
            values,
            raw,
            size,
            point[self._flags[Flag.BAD_OFFSET]],
            point[self._flags[Flag.OFFSET_ONE]],
            cut,
        )

    # ---- helpers ----

    def _at_least(self, where: Coordinate, low: int) -> Set:
        """Packets whose value at *where* is *low* or more; *low* begins a class."""
        classes = self._classes[where]
        number = bisect_left(classes, low)
        if number == 0:
            return self.everything
        if number == len(classes):
            return self.nothing
        assert classes[number] == low, "a bound that no class begins at"
        cached = self._lower_bounds.get((where, number))
        if cached is None:
            # From the lowest bit up: a 1 of *number* requires the bit to be set; at a 0 a set bit suffices.
            cached = self.everything
            for shift, bit in enumerate(reversed(self._bits[where])):
                one = self._manager.var(bit)
                cached = one & cached if number >> shift & 1 else one | cached
            self._lower_bounds[where, number] = cached
        return cached

    def _present(self, field: Field, native: bool) -> Set:
        """Packets in which a match, native or not, finds *field*."""
        cached = self._presence.get((field, native))
        if cached is None:
            cached = self._presence[field, native] = self._find_present(field, native)
        return cached

    def _find_present(self, field: Field, native: bool) -> Set:
        if field is Field.PROTO:
            return ~self.cut
        if field is Field.MAC:
            return self.flag(Flag.MAC)
        carriers = _carriers(self.family).get(field)
        if carriers is None:
            return self.everything
        long = ~self.smaller(FIELD_BYTES[field]) & ~self.cut
        own = ~self.later & long & self.within(Field.PROTO, carriers)
        return own | (self.later & long) if native and field in RAW else own

    def _filtered(self, match: Match, backend: Backend) -> Filtered:
        native = match.native and backend is Backend.NFT
        drops, alive = self.nothing, self.everything
        if backend is Backend.LEGACY and match.is_protocol:
            drops, alive = self.cut, ~self.cut
        if match.needs and not native:
            short = ~self.later & self.smaller(match.needs)
            if match.strict:
                short |= self.later & self.flag(Flag.OFFSET_ONE)
            drops |= alive & short
            alive &= ~self.later & ~self.smaller(match.needs)
        truths = [
            self._present(test.field, native) & self.within(test.field, test.values) for test in match.tests
        ]
        if match.either:
            alive &= union(truths, self.nothing)
        else:
            for truth in truths:
                alive &= truth
        if match.option:
            bad = self.flag(Flag.BAD_OFFSET)
            drops |= alive & bad
            alive &= ~bad
        if match.role is Role.CONSTANT:
            alive &= self._where(match.fact)
        return Filtered(alive, drops)

    def _bits_of_attributes(self, facts: Iterable[Fact]) -> dict[str, dict[int, int]]:
        """By attribute: by place of a bit that some fact looks at, highest first, the bit of the diagrams."""
        masks: dict[str, int] = {}
        for fact in facts:
            masks[fact.attribute] = masks.get(fact.attribute, 0) | fact.mask
        places = {
            name: [at for at in reversed(range(mask.bit_length())) if mask >> at & 1]
            for name, mask in masks.items()
        }
        return {name: {at: self._manager.add_vars(1)[0] for at in own} for name, own in places.items()}

    def _where(self, fact: Fact) -> Set:
        """The packets for which a fact holds."""
        parts = [
            self._number_from(fact, low) & ~self._number_from(fact, high + 1)
            for low, high in fact.values.pairs
        ]
        return union(parts, self.nothing)

    def _number_from(self, fact: Fact, low: int) -> Set:
        """The packets whose attribute, under the fact's mask, is *low* or more."""
        bits = self._attributes[fact.attribute]
        found = self.everything
        for at in range(max(low.bit_length(), fact.mask.bit_length())):
            one = self._manager.var(bits[at]) if fact.mask >> at & 1 else self.nothing
            found = one & found if low >> at & 1 else one | found
        return found

    def _existing(self) -> Set:
        """Packets to which headers.inconsistency has no objection."""
        tcp = self.within(Field.PROTO, Values.only(TCP)) & ~self.cut
        bad, one = self.flag(Flag.BAD_OFFSET), self.flag(Flag.OFFSET_ONE)
        exist = ~bad | (tcp & ~self.later & ~self.smaller(TCP_OFFSET_BYTES))
        exist &= ~one | self.later
        return exist & ~self.cut if self.family is Family.IPV4 else exist

    def _malformed(self) -> Set:
        short = self.nothing
        for proto, size in HEADER_BYTES.items():
            short |= self.within(Field.PROTO, Values.only(proto)) & self.smaller(size)
        short &= ~self.later & ~self.cut
        return short | self.flag(Flag.BAD_OFFSET) | self.flag(Flag.OFFSET_ONE) | self.cut

    def _written(self, writes: frozenset[Metadata]) -> list[tuple[list[int], bool]]:
        """Bits that writes to these states change; and whether they do so in later fragments too."""
        fields = set().union(*(FIELDS_WRITTEN.get(state, frozenset()) for state in writes))
        own = [bit for field in fields if field in RAW for bit in self._bits[field]]
        both = [bit for field in fields if field not in RAW for bit in self._bits[field]]
        for attribute, reads in self.reads.items():
            both += self._attributes[attribute].values() if reads & writes else ()
        return [(own, False), (both, True)]

    def _is_later(self, point: Point) -> bool:
        return self.value(point, Field.FRAG) == Fragment.LATER

    def _pick(self, packets: Set) -> Point:
        cube = packets.pick_cube()
        assert cube is not None, "no packet in an empty set"
        return {bit: bool(value) for bit, value in enumerate(cube)}

    def _cube(self, literals: Mapping[int, bool]) -> Set:
        cube = self.everything
        for bit in sorted(literals, reverse=True):
            one = self._manager.var(bit)
            cube = (one if literals[bit] else ~one) & cube
        return cube

    def _ordinary(self, where: Coordinate) -> tuple[int, ...]:
        if where in (Field.SRC, Field.DST):
            return ADDRESSES[self.family]
        return (MAC,) if where is Field.MAC else ORDINARY.get(where, ())

    def _ordinary_sets(self) -> Iterable[Set]:
        yield ~self.malformed
        for where in ORDINARY:
            for value in self._ordinary(where):
                classes = self._classes[where]
                number = bisect_right(classes, value) - 1
                end = classes[number + 1] - 1 if number + 1 < len(classes) else _top(where, self.family)
                yield self.within(where, Values.interval(classes[number], end))
        yield ~self.flag(Flag.MAC)
        for attribute, bits in self._attributes.items():
            value = ordinary(attribute)
            yield self._cube({bit: bool(value >> at & 1) for at, bit in bits.items()})
            for bit in bits.values():
                yield ~self._manager.var(bit)


def union(sets: list[Set], nothing: Set) -> Set:
    """All packets of any of *sets*; joined in pairs, which keeps the diagrams small."""
    while len(sets) > 1:
        paired = [one | other for one, other in zip(sets[::2], sets[1::2], strict=False)]
        sets = paired + sets[len(sets) & ~1 :]
    return sets[0] if sets else nothing


def _manager(matches: int, max_memory: int | None) -> Manager:
    try:
        from oxidd.bcdd import BCDDManager
    except ImportError:
        raise MissingLibrary(
            "decision diagrams need the library oxidd: pip install oxidd, or pipx inject hitables oxidd"
        ) from None
    nodes, cache = MOST_NODES, min(max(ENTRIES_PER_MATCH * matches, FEWEST), MOST_ENTRIES)
    if max_memory is not None:
        cache = max(min(cache, max_memory // (4 * CACHE_BYTES)), FEWEST)
        nodes = min(nodes, max((max_memory - cache * CACHE_BYTES) // NODE_BYTES, FEWEST))
    return BCDDManager(nodes, cache, 1)


def _classes(family: Family, matches: list[Match]) -> dict[Coordinate, list[int]]:
    """By coordinate, the first value of each class, from 0."""
    starts: dict[Coordinate, set[int]] = {where: {0} for where in ORDER}
    for proto in (*HEADER_BYTES, *PORT_PROTOCOLS):
        starts[Field.PROTO] |= {proto, proto + 1}
    starts[Field.FRAG] = set(map(int, Fragment))
    for field in INTERFACES:
        starts[field].add(1)
    starts[SIZE] |= {*FIELD_BYTES.values(), *HEADER_BYTES.values(), TCP_OFFSET_BYTES}
    for match in matches:
        starts[SIZE].add(min(match.needs, LARGEST + 1))
        for test in match.tests:
            own = starts[test.field]
            for low, high in test.values.pairs:
                own.add(low)
                own.add(high + 1)
    return {
        where: sorted(value for value in values if value <= _top(where, family))
        for where, values in starts.items()
    }


def _top(where: Coordinate, family: Family) -> int:
    return top(where, family) if isinstance(where, Field) else LARGEST


def _carriers(family: Family) -> dict[Field, Values]:
    """The protocols that have a field."""
    ports = Values.only(*PORT_PROTOCOLS)
    return {
        Field.SPORT: ports,
        Field.DPORT: ports,
        Field.FLAGS: Values.only(TCP),
        Field.ICMP: Values.only(ICMP if family is Family.IPV4 else ICMPV6),
    }
