"""Boundary values: members and neighbours of sets of integers of up to 128 bits, many at once.

Invariant: a value that is drawn from a set is a member of it, and one that is drawn outside is adjacent to
one of its intervals, unless the interval contains all values.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from hitables.ir import fields
from hitables.ir.fields import (
    BRIDGE_PORTS,
    DCCP,
    ICMP,
    ICMPV6,
    SCTP,
    TCP,
    UDP,
    UDPLITE,
    Family,
    Field,
    interface_number,
    top,
)
from hitables.ir.intervals import Values

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Wide = tuple[Words, Words]  # upper and lower half of 128-bit values

MASK = (1 << 64) - 1
INTERVALS = 16  # kept of one set; of more, the first, the last and some between
PROTOCOLS = (TCP, TCP, TCP, UDP, UDP, ICMP, ICMPV6, SCTP, DCCP, UDPLITE, 47, 50, 51, 2, 253, 0)
INTERFACES = tuple(map(interface_number, ("eth0", "eth1", "lo", "wg0", "docker0")))
PORTS = (0, 0, 0, *map(interface_number, ("tap0", "vnet0")))  # of a bridge; most packets cross none
COMMON = {
    Field.SRC: (0x7F000001, 0x0A000001, 0xC0A80101, 0),
    Field.DST: (0x7F000001, 0x0A000001, 0xC0A80101, 0xE0000001, 0xFFFFFFFF),
    Field.PROTO: PROTOCOLS,
    Field.SPORT: (53, 1023, 1024, 32768, 65535, 0),
    Field.DPORT: (22, 53, 80, 443, 8080, 65535, 0),
    Field.ICMP: (0x0800, 0x0000, 0x0301, 0x0B00, 0x8000, 0x8700),
    Field.FLAGS: (0x02, 0x12, 0x10, 0x18, 0x04, 0x01, 0x29, 0x00, 0x3F),
    Field.IIF: INTERFACES,
    Field.OIF: INTERFACES,
    **dict.fromkeys(BRIDGE_PORTS, PORTS),
    Field.MAC: (0x020000000001,),
    Field.STATE: (2, 2, 2, 6, 6, 10, 0, 1),
}


class Catalog:
    """The sets of one field that boxes use, by number, and values in and around them."""

    def __init__(self, field: Field, family: Family) -> None:
        self.field, self.top = field, top(field, family)
        self.named = field in fields.INTERFACES
        self._numbers: dict[Values, int] = {}
        self._starts, self._counts = array("q"), array("q")
        # By interval: upper and lower half of both ends, and the bits of their difference.
        self._low, self._high = (array("Q"), array("Q")), (array("Q"), array("Q"))
        self._bits = array("q")

    def number(self, values: Values) -> int:
        number = self._numbers.setdefault(values, len(self._numbers))
        if number == len(self._starts):
            pairs = values.pairs
            if len(pairs) > INTERVALS:
                step = len(pairs) / (INTERVALS - 1)
                pairs = (*(pairs[int(n * step)] for n in range(INTERVALS - 1)), pairs[-1])
            self._starts.append(len(self._bits))
            self._counts.append(len(pairs))
            for low, high in pairs:
                for halves, value in ((self._low, low), (self._high, high)):
                    halves[0].append(value >> 64)
                    halves[1].append(value & MASK)
                self._bits.append((high - low).bit_length())
        return number

    def some_points(self) -> tuple[int, ...]:
        step = max(1, len(self._bits) // 16)
        points = [
            high << 64 | low
            for halves in (self._low, self._high)
            for high, low in zip(halves[0][::step], halves[1][::step], strict=True)
        ]
        return tuple(dict.fromkeys([*points, *COMMON.get(self.field, ())]))

    def draw(self, rng: np.random.Generator, sets: Ints, outside: Bools) -> Wide:
        """A value of each of *sets*, or just outside; where the set is -1, any value."""
        count = len(sets)
        if self.field in BRIDGE_PORTS and not self._bits:
            return np.zeros(count, np.uint64), np.zeros(count, np.uint64)
        high, low = self._anything(rng, count)
        if not self._bits:
            return high, low
        where = np.flatnonzero(sets >= 0)
        # A free field sometimes takes a value that some other rule tests.
        borrowed = np.flatnonzero((sets < 0) & (rng.random(count) < 0.4))
        if len(where) or len(borrowed):
            starts, counts = np.array(self._starts), np.array(self._counts)
            interval = np.concatenate(
                [
                    starts[sets[where]] + rng.integers(counts[sets[where]]),
                    rng.integers(len(self._bits), size=len(borrowed)),
                ]
            )
            where = np.concatenate([where, borrowed])
            high[where], low[where] = self._near(rng, interval, outside[where])
        if self.named:
            low &= np.uint64(MASK ^ 0xFF)
        return high, low

    def _near(self, rng: np.random.Generator, interval: Ints, out: Bools) -> Wide:
        """A value of each interval, by number, or where *out* is set just outside."""
        bottom = np.array(self._low[0])[interval], np.array(self._low[1])[interval]
        ceiling = np.array(self._high[0])[interval], np.array(self._high[1])[interval]
        point = rng.integers(3, size=len(interval))
        values = self._inside(rng, bottom, ceiling, np.array(self._bits)[interval])
        values = _chosen(point == 0, bottom, _chosen(point == 1, ceiling, values))
        if out.any():
            below, above = _minus_one(bottom), _plus_one(ceiling)
            if self.named:  # a name is 15 bytes and a zero
                above = _plus_byte(above)
            no_below = (bottom[0] | bottom[1]) == 0
            no_above = (ceiling[0] == self.top >> 64) & (ceiling[1] == (self.top & MASK))
            go_below = out & ((point == 0) | no_above) & ~no_below
            go_above = out & ~go_below & ~no_above
            values = _chosen(go_below, below, _chosen(go_above, above, values))
        return values

    def _anything(self, rng: np.random.Generator, count: int) -> Wide:
        """Any value, or a common one."""
        common = COMMON.get(self.field, ())
        size = self.top.bit_length()
        low = rng.integers(min(self.top, MASK), size=count, endpoint=True, dtype=np.uint64)
        high = np.zeros(count, np.uint64)
        if size > 64:
            high = rng.integers(self.top >> 64, size=count, endpoint=True, dtype=np.uint64)
        if common:
            picked = rng.integers(len(common), size=count)
            use = (rng.random(count) < 0.6) | self.named
            low = np.where(use, np.array([value & MASK for value in common], np.uint64)[picked], low)
            high = np.where(use, np.array([value >> 64 for value in common], np.uint64)[picked], high)
        return high, low

    def _inside(self, rng: np.random.Generator, bottom: Wide, ceiling: Wide, bits: Ints) -> Wide:
        """A value between *bottom* and *ceiling*, whose difference has *bits* bits."""
        if self.named:
            # The letter after a prefix is the top byte of the difference, and a digit is below half of it.
            digit = np.uint64(ord("0")) + rng.integers(10, size=len(bits), dtype=np.uint64)
            amount = _shifted(np.where(bits >= 8, digit, np.uint64(0)), np.maximum(bits - 8, 0) & ~7)
        else:
            span = _minus(ceiling, bottom)
            random = [rng.integers(1 << 64, size=len(bits), dtype=np.uint64) for _ in range(2)]
            amount = (random[0] & _ones(bits - 64), random[1] & _ones(bits))
            too_far = (amount[0] > span[0]) | ((amount[0] == span[0]) & (amount[1] > span[1]))
            one = np.uint64(1)
            halved = (amount[0] >> one, amount[1] >> one | (amount[0] & one) << np.uint64(63))
            amount = (np.where(too_far, halved[0], amount[0]), np.where(too_far, halved[1], amount[1]))
        low = bottom[1] + amount[1]
        return bottom[0] + amount[0] + (low < bottom[1]).astype(np.uint64), low


def _chosen(which: Bools, one: Wide, other: Wide) -> Wide:
    return np.where(which, one[0], other[0]), np.where(which, one[1], other[1])


def _ones(bits: Ints) -> Words:
    """Words with the lowest *bits* bits set, 0 to 64."""
    bits = np.clip(bits, 0, 64)
    some = np.uint64(MASK) >> np.uint64(64) - np.maximum(bits, 1).astype(np.uint64)
    return np.where(bits > 0, some, np.uint64(0))


def _shifted(value: Words, shift: Ints) -> Wide:
    """Bytes *value*, shifted to the left by *shift* bits, a multiple of 8."""
    near = shift < 64
    low = np.where(near, value << np.where(near, shift, 0).astype(np.uint64), np.uint64(0))
    high = np.where(near, np.uint64(0), value << np.where(near, 0, shift - 64).astype(np.uint64))
    return high, low


def _minus(a: Wide, b: Wide) -> Wide:
    return a[0] - b[0] - (a[1] < b[1]).astype(np.uint64), a[1] - b[1]


def _minus_one(value: Wide) -> Wide:
    one = np.uint64(1)
    return value[0] - (value[1] == 0).astype(np.uint64), value[1] - one


def _plus_one(value: Wide) -> Wide:
    low = value[1] + np.uint64(1)
    return value[0] + (low == 0), low


def _plus_byte(value: Wide) -> Wide:
    low = (value[1] + np.uint64(0xFF)) & np.uint64(MASK ^ 0xFF)
    return value[0] + (low < value[1]).astype(np.uint64), low
