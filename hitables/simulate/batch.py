"""Batches of packets: each packet is a row of an array, and can be read as an `ir.packet.Packet`.

Invariant: `PacketBatch.packet(i)` has the values (fields, truths of predicates, outcomes, rewritten fields)
that the C interpreter computes for row i.  Values that the batch does not contain follow from the row's seed,
by `draw`; interp.c computes the same function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hitables.ir.fields import BRIDGE_PORTS, INTERFACES, Family, Field, Fragment
from hitables.ir.headers import HEADER_BYTES
from hitables.ir.packet import Outcome, Packet
from hitables.ir.rule import Match

K = TypeVar("K")

Rows = npt.NDArray[Any]

# Laid out as struct interp_packet in core/include/interp.h; a test compares the two.
PACKET = np.dtype([
    ("low", "u8", (len(Field),)), ("high", "u8", (6,)), ("seed", "u8"), ("present", "u2"),
    ("l4_bytes", "u2"), ("raw_sport", "u2"), ("raw_dport", "u2"), ("raw_flags", "u1"),
    ("raw_present", "u1"), ("classes", "u1"), ("unused", "u1", (5,)),
])  # fmt: skip
# Index into "high".
HALF = {Field.SRC: 0, Field.DST: 1, **{name: at for at, name in enumerate(INTERFACES, 2)}}
RAW = {Field.SPORT: "raw_sport", Field.DPORT: "raw_dport", Field.FLAGS: "raw_flags"}
RAW_BIT = {Field.SPORT: 1, Field.DPORT: 2, Field.FLAGS: 4}
BAD_OFFSET, OFFSET_ONE, CUT_SHORT = 1, 2, 4  # bits of "classes"
NOT_GIVEN = 255

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_EVENT_SALT, _FIELD_SALT = 0x6576656E74000000, 0x6669656C64000000
_YES_OF_256 = (128, 8, 32, 224)  # by the two lowest bits of the seed: see interp.c
_DROPPED_FROM = 248


def mix(value: int) -> int:
    """A hash of *value*: a 64-bit integer that looks random."""
    value = value + _GOLDEN & _WORD
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _WORD
    return value ^ value >> 31


def draw(seed: int, key: int, ordinal: int) -> int:
    """The answer number *ordinal* to *key* of a packet of *seed*."""
    return mix(seed ^ mix(key + ordinal * _GOLDEN & _WORD))


def text_hash(text: str) -> int:
    """The 64-bit hash of a key, verdict or effect."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def effects_hash(effects: Iterable[str]) -> int:
    """The hash of a sequence of effects, as in `Result.effects`."""
    value = 0
    for effect in effects:
        value = mix(value ^ text_hash(effect))
    return value


def drawn_fact(seed: int, key: str, epoch: int) -> bool:
    return draw(seed, text_hash(key), epoch) >> 56 < _YES_OF_256[seed & 3]


def drawn_number(seed: int, attribute: str, epoch: int, numbers: Sequence[int] = ()) -> int:
    """A value of an attribute: one of *numbers*; without any 1 or 0."""
    if not numbers:
        return int(drawn_fact(seed, attribute, epoch))
    return numbers[draw(seed, text_hash(attribute), epoch) % len(numbers)]


def drawn_facts(seeds: npt.NDArray[np.uint64], key: str) -> npt.NDArray[np.bool_]:
    """`drawn_fact` of each seed, before any write."""
    yes: npt.NDArray[np.bool_] = (_draws(seeds, key) >> np.uint64(56)) < np.array(_YES_OF_256, np.uint64)[
        (seeds & np.uint64(3)).astype(int)
    ]
    return yes


def drawn_numbers(
    seeds: npt.NDArray[np.uint64], attribute: str, numbers: Sequence[int] = ()
) -> npt.NDArray[np.uint64]:
    """`drawn_number` of each seed, before any write."""
    if not numbers:
        return drawn_facts(seeds, attribute).astype(np.uint64)
    which = _draws(seeds, attribute) % np.uint64(len(numbers))
    return np.array(numbers, np.uint64)[which.astype(np.int64)]


def _draws(seeds: npt.NDArray[np.uint64], key: str) -> npt.NDArray[np.uint64]:
    """`draw` of each seed, the answer number 0."""
    value = seeds ^ np.uint64(mix(text_hash(key)))
    value = value + np.uint64(_GOLDEN)
    value = (value ^ value >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ value >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(31)
    return value


def drawn_outcome(seed: int, key: str, ordinal: int) -> Outcome:
    value = draw(seed, text_hash(key) ^ _EVENT_SALT, ordinal) >> 56
    if value < _YES_OF_256[seed & 3]:
        return Outcome.YES
    return Outcome.DROPPED if value >= _DROPPED_FROM else Outcome.NO


@dataclass(frozen=True)
class PacketBatch:
    """Packets of one family.

    rows      an array of `PACKET`
    rewrites  values that a field may get when a target writes it; without any it keeps its value
    facts     truths of CONSTANT matches (predicates) by key and number of writes so far; a byte for each
              row: 0 false, 1 true, NOT_GIVEN (then a negated match is told by the one that it negates)
    outcomes  results of every evaluation of a NAMED or ONCE match by key; a byte for each row: an `Outcome`,
              or NOT_GIVEN
    numbers   values that an attribute (ir/fact.py) may have; without any it is 1 or 0
    seeded    values that are not given follow from the seed; otherwise they are unknown: the truth of a
              predicate is open, an outcome is "no"
    """

    family: Family
    rows: Rows
    rewrites: Mapping[Field, tuple[int, ...]] = field(default_factory=dict)
    facts: Mapping[tuple[str, int], npt.NDArray[np.uint8]] = field(default_factory=dict)
    outcomes: Mapping[str, npt.NDArray[np.uint8]] = field(default_factory=dict)
    seeded: bool = True
    numbers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, family: Family, packets: Iterable[Packet], seeds: Iterable[int] | None = None) -> PacketBatch:
        """The headers of *packets*; without *seeds*, predicates and outcomes are unknown."""
        listed = list(packets)
        rows = np.zeros(len(listed), PACKET)
        for row, packet in zip(rows, listed, strict=True):
            _fill(row, packet)
        if seeds is not None:
            rows["seed"] = np.fromiter(seeds, np.uint64, len(listed))
        return cls(family, rows, seeded=seeds is not None)

    @classmethod
    def join(cls, batches: Iterable[PacketBatch]) -> PacketBatch:
        """All packets of *batches*, which must be of one family, and have neither facts nor outcomes."""
        listed = list(batches)
        assert listed and len({(batch.family, batch.seeded) for batch in listed}) == 1
        assert not any(batch.facts or batch.outcomes for batch in listed)
        rewrites = _joined(batch.rewrites for batch in listed)
        numbers = _joined(batch.numbers for batch in listed)
        rows = np.concatenate([batch.rows for batch in listed])
        return cls(listed[0].family, rows, rewrites, seeded=listed[0].seeded, numbers=numbers)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Packet]:
        return (self.packet(at) for at in range(len(self)))

    def pick(self, which: npt.NDArray[Any] | slice) -> PacketBatch:
        """The packets at *which*: a mask, indices or a slice."""
        facts = {key: answers[which] for key, answers in self.facts.items()}
        outcomes = {key: answers[which] for key, answers in self.outcomes.items()}
        return replace(self, rows=self.rows[which], facts=facts, outcomes=outcomes)

    def packet(self, at: int) -> Packet:
        """Packet *at*, with all values that semantics may need."""
        row = self.rows[at]
        values, raw = _values(row), _raw(row)
        seed, classes = int(row["seed"]), int(row["classes"])

        def fact(match: Match, epoch: int) -> bool | None:
            for key, truth in ((match.key, True), (match.negates, False)):
                truths = self.facts.get((key, epoch))
                if truths is not None and truths[at] <= 1:
                    return bool(truths[at]) == truth
            value = number(match.fact.attribute, epoch)
            return None if value is None else match.fact.holds(value)

        def number(attribute: str, epoch: int) -> int | None:
            pool = self.numbers.get(attribute, ())
            return drawn_number(seed, attribute, epoch, pool) if self.seeded else None

        def outcome(match: Match, ordinal: int) -> Outcome:
            outcomes = self.outcomes.get(match.key)
            if outcomes is not None and outcomes[at] <= max(Outcome):
                return Outcome(int(outcomes[at]))
            return drawn_outcome(seed, match.key, ordinal) if self.seeded else Outcome.NO

        def rewritten(which: Field, epoch: int) -> int | None:
            pool = self.rewrites.get(which)
            return pool[draw(seed, _FIELD_SALT + which, epoch) % len(pool)] if pool else None

        return Packet(
            self.family,
            values,
            raw,
            int(row["l4_bytes"]),
            bool(classes & BAD_OFFSET),
            bool(classes & OFFSET_ONE),
            bool(classes & CUT_SHORT),
            fact,
            number,
            outcome,
            rewritten,
        )

    def malformed(self) -> npt.NDArray[np.bool_]:
        """Whether each packet is malformed, as `is_malformed` says."""
        short = np.zeros(len(self), bool)
        proto = self.rows["low"][:, Field.PROTO]
        known = (self.rows["present"] >> Field.PROTO & 1).astype(bool)
        for number, size in HEADER_BYTES.items():
            short |= known & (proto == number) & (self.rows["l4_bytes"] < size)
        later = self.rows["low"][:, Field.FRAG] == Fragment.LATER
        malformed: npt.NDArray[np.bool_] = short & ~later | (self.rows["classes"] != 0)
        return malformed


def _joined(maps: Iterable[Mapping[K, tuple[int, ...]]]) -> dict[K, tuple[int, ...]]:
    """By key, the values of all maps, each once."""
    joined: dict[K, tuple[int, ...]] = {}
    for each in maps:
        for key, values in each.items():
            joined[key] = tuple(dict.fromkeys(joined.get(key, ()) + values))
    return joined


def _values(row: Any) -> dict[Field, int]:
    present, low = int(row["present"]), row["low"].tolist()
    values = {which: low[which] for which in Field if present >> which & 1}
    for which, at in HALF.items():
        if which in values:
            values[which] |= int(row["high"][at]) << 64
    return {which: value for which, value in values.items() if value or which not in BRIDGE_PORTS}


def _raw(row: Any) -> dict[Field, int]:
    if int(row["low"][Field.FRAG]) != Fragment.LATER:
        return {}
    return {which: int(row[RAW[which]]) for which, bit in RAW_BIT.items() if int(row["raw_present"]) & bit}


def _fill(row: Any, packet: Packet) -> None:
    for which, value in packet.values.items():
        row["low"][which] = value & _WORD
        if which in HALF:
            row["high"][HALF[which]] = value >> 64
    row["present"] = sum(1 << which for which in packet.values)
    for which, value in packet.raw.items():
        row[RAW[which]] = value
    row["raw_present"] = sum(RAW_BIT[which] for which in packet.raw)
    row["l4_bytes"] = packet.l4_bytes
    row["classes"] = (
        packet.bad_offset * BAD_OFFSET | packet.offset_one * OFFSET_ONE | packet.cut_short * CUT_SHORT
    )
