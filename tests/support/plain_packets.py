"""Packets drawn in the simplest way: each field independently, at the ends of the intervals of its tests.

Slower to find a difference than hitables.simulate.boundary_packets, and independent of its code, so that one can be
compared with the other.
"""

from __future__ import annotations

import random

from hitables.ir.fields import (
    BRIDGE_PORTS,
    ICMP,
    ICMPV6,
    PORT_PROTOCOLS,
    STATES,
    TCP,
    Family,
    Field,
    Fragment,
    top,
)  # fmt: skip
from hitables.ir.headers import FIELD_BYTES, inconsistency
from hitables.ir.packet import Packet
from hitables.ir.program import Program

RAW = (Field.SPORT, Field.DPORT, Field.FLAGS)


def points_of(program: Program) -> dict[Field, list[int]]:
    """By field, both ends of each interval of any test, and what stands beside them."""
    points: dict[Field, set[int]] = {field: {0, top(field, program.family)} for field in Field}
    points |= {field: {0} for field in BRIDGE_PORTS}
    for table in program:
        for chain in table.chains:
            for rule in chain.rules:
                for match in rule.matches:
                    for test in match.tests:
                        for low, high in test.values.pairs:
                            points[test.field] |= {low, high, low - 1, high + 1}
    points[Field.PROTO] |= {TCP, 17, 132, 47, ICMP if program.family is Family.IPV4 else ICMPV6}
    points[Field.STATE] = set(range(len(STATES)))
    return {
        field: sorted(value for value in values if 0 <= value <= top(field, program.family))
        for field, values in points.items()
    }


def plain_packet(rng: random.Random, points: dict[Field, list[int]], family: Family, chain: str) -> Packet:
    """A packet that can be, with whatever values."""
    values = {field: rng.choice(points[field]) for field in Field}
    values[Field.FRAG] = rng.choice([Fragment.WHOLE, Fragment.WHOLE, Fragment.WHOLE, *Fragment])
    later = values[Field.FRAG] == Fragment.LATER
    size = rng.choice([64, 64, 64, 64, 0, 2, 5, 10, 15, 30])
    cut = family is Family.IPV6 and rng.random() < 0.05
    proto = values[Field.PROTO]
    ported = proto in PORT_PROTOCOLS
    has = {
        Field.SPORT: ported,
        Field.DPORT: ported,
        Field.FLAGS: proto == TCP,
        Field.ICMP: proto == (ICMP if family is Family.IPV4 else ICMPV6),
    }
    raw = {field: values[field] for field in RAW if later and not cut and size >= FIELD_BYTES[field]}
    for field, right in has.items():
        if not right or later or cut or size < FIELD_BYTES[field]:
            del values[field]
    if cut:
        del values[Field.PROTO]
    absent = {"OUTPUT": Field.IIF, "INPUT": Field.OIF, "PREROUTING": Field.OIF}
    if chain == "POSTROUTING" and rng.random() < 0.5:  # a packet of our own
        absent[chain] = Field.IIF
    for field in (Field.IIF, Field.OIF):
        values[field] = 0 if absent.get(chain) is field else values[field] or 1 << 120
    for field in BRIDGE_PORTS:
        if not values[field]:
            del values[field]
    if not values[Field.IIF] or rng.random() < 0.3:
        del values[Field.MAC]
    bad = proto == TCP and not later and not cut and size >= 20 and rng.random() < 0.1
    packet = Packet(family, values, raw, size, bad, later and rng.random() < 0.2, cut)
    assert inconsistency(packet) is None
    return packet
