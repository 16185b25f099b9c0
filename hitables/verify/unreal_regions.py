"""Regions of packets that no kernel has (ir/unreal.py): `diff` leaves them out, as `check` does."""

from __future__ import annotations

from collections.abc import Iterator

from hitables.ir.connection_states import ICMP_OF
from hitables.ir.fields import TCP, Field
from hitables.ir.intervals import Values
from hitables.ir.packet import Packet
from hitables.ir.unreal import why_unreal

from .exact import Comparison, DifferingRegion

_KIND_FIELDS: dict[int | None, Field] = {TCP: Field.FLAGS}
_FEW = 4  # protocols that are looked at one by one


def is_unreal(comparison: Comparison, region: DifferingRegion) -> bool:
    """Whether no kernel has any packet of *region*."""
    packets = _one_of_each_kind(comparison, region)
    return all(why_unreal(packet, comparison.table) for packet in packets)


def _one_of_each_kind(comparison: Comparison, region: DifferingRegion) -> Iterator[Packet]:
    """A packet for each state, kind of fragment, protocol and flags or type of ICMP in *region*.

    Nothing else decides whether a kernel may have a packet.  Of many protocols some are not checked.
    """
    of_class, family = region.packets, comparison.tables.family
    for protocol in _protocols(_values(comparison, region, Field.PROTO)):
        known = {} if protocol is None else {Field.PROTO: protocol}
        field = _KIND_FIELDS.get(protocol, Field.ICMP if protocol == ICMP_OF[family] else None)
        kinds: list[dict[Field, int]] = [{}]
        if field is not None and field in of_class.present:
            kinds = [{field: kind} for kind in _kinds(_values(comparison, region, field), field)]
        for state in _values(comparison, region, Field.STATE).members():
            for fragment in _values(comparison, region, Field.FRAG).members():
                for kind in kinds:
                    yield Packet(
                        family,
                        {Field.STATE: state, Field.FRAG: fragment, **known, **kind},
                        l4_bytes=of_class.bytes,
                        bad_offset=of_class.bad_offset,
                        offset_one=of_class.offset_one,
                        cut_short=of_class.cut_short,
                    )


def _values(comparison: Comparison, region: DifferingRegion, field: Field) -> Values:
    coordinates = comparison.tables.encoding.matches.tests.coordinates[field]
    return coordinates.values(region.sets[field, 0])[0]


def _protocols(values: Values) -> list[int | None]:
    return [*values.members()] if 0 < values.count <= _FEW else [None]


def _kinds(values: Values, field: Field) -> Iterator[int]:
    """The first value of each kind: a combination of flags, or a type of ICMP, which has 256 codes."""
    width = 256 if field is Field.ICMP else 1
    for low, high in values.pairs:
        yield from range(low // width * width, high + 1, width)
