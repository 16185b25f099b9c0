"""The C interpreter of tables: words in, one result per packet out (include/interp.h).

A `TableCode` owns one table in the interpreter's instructions.  It is immutable, so several threads may run
it at once.  Out of memory is MemoryError; a table that nests deeper than its *depth* is a broken invariant.

Caller: simulate/interpreter.py, which writes the instructions; simulate/batch.py lays out the packets.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import status
from ._engine import ffi, lib
from .arrays import Array, pointer

# Laid out as struct interp_result.
RESULT = np.dtype([
    ("effects", "u8"), ("effect_count", "u4"), ("verdict", "u4"), ("reads", "u4"),
    ("rule", "i4"), ("open", "u4"), ("unused", "u4"),
])  # fmt: skip
OPEN_FACT, OPEN_OUTCOME = int(lib.INTERP_OPEN_FACT), int(lib.INTERP_OPEN_OUTCOME)  # bits of "open"
EVERY_OUTCOME = 0xFFFFFFFF  # as an epoch: all evaluations of a key


class InterpOp(enum.IntEnum):
    """Instructions; enum interp_op lists the words that follow each."""

    RANGE = lib.INTERP_RANGE
    RANGES = lib.INTERP_RANGES
    WIDE = lib.INTERP_WIDE
    EITHER = lib.INTERP_EITHER
    GUARD = lib.INTERP_GUARD
    CUT = lib.INTERP_CUT
    OPTION = lib.INTERP_OPTION
    FACT = lib.INTERP_FACT
    EVENT = lib.INTERP_EVENT
    COUNT = lib.INTERP_COUNT
    FIRE = lib.INTERP_FIRE
    JUMP = lib.INTERP_JUMP
    GOTO = lib.INTERP_GOTO
    RETURN = lib.INTERP_RETURN
    VERDICT = lib.INTERP_VERDICT


class BatchInput(NamedTuple):
    """Packets and the answers that they give (struct interp_batch).

    packets     rows of struct interp_packet
    seeded      answers not given follow from the seed of the packet; else they are "no", and reported open
    keys        of each row of answers, its key
    epochs      of each row of answers, the writes so far that it holds for, or EVERY_OUTCOME
    answers     [row, packet]: 0 no, 1 yes, 2 dropped; more: not given
    rewrites    values that fields may be rewritten to, two words each, the low one first
    starts      by field: where its values start in *rewrites*, counted in values; then their number
    limits      by packet: how many effects to hash; None: all
    attributes  keys of the attributes that have values of their own
    first_numbers, numbers  by attribute: where its values start in *numbers*, then their number; the values
    """

    packets: Array
    seeded: bool
    keys: array[int]
    epochs: array[int]
    answers: npt.NDArray[np.uint8]
    rewrites: array[int]
    starts: Sequence[int]
    limits: npt.NDArray[np.uint32] | None
    attributes: array[int]
    first_numbers: array[int]
    numbers: array[int]


class TableCode:
    """One table, ready to run; *depth*: how deep its jumps nest.

    words, starts  the instructions, and where each chain starts in them
    ends           by chain: the verdict at its end
    drop           the verdict of a packet that a match drops
    hashes         by key, verdict and effect: its hash
    rules          how many rules the table has
    writers        by field: a mask of the states whose writers may change it
    """

    def __init__(
        self, words: array[int], starts: array[int], ends: array[int], drop: int,
        hashes: npt.NDArray[np.uint64], rules: int, depth: int, writers: Sequence[int],
    ) -> None:  # fmt: skip
        self._rules, self._words = rules, len(words)
        field_writers = ffi.new("uint32_t[]", list(writers))
        code = ffi.new("struct interp_code *", {
            "code": pointer("uint32_t", words), "words": len(words),
            "starts": pointer("uint32_t", starts), "chains": len(starts),
            "ends": pointer("uint32_t", ends), "drop": drop,
            "hashes": pointer("uint64_t", hashes), "keys": len(hashes),
            "rules": rules, "depth": depth, "field_writers": field_writers,
        })  # fmt: skip
        failure = ffi.new("enum interp_status *")
        handle = lib.interp_new(code, failure)
        if handle == ffi.NULL:
            status.check(status.INTERPRETER, failure[0], what=f"a table of {rules} rules")
        self._handle = ffi.gc(handle, lib.interp_free)

    def bytes(self) -> int:
        """Memory that the table takes."""
        return int(lib.interp_bytes(self._handle))

    def run(
        self, chain: int, batch: BatchInput, *, hits: bool, visits: bool, matched: int
    ) -> tuple[Any, npt.NDArray[np.uint64] | None, npt.NDArray[np.uint64] | None, npt.NDArray[np.int32]]:
        """Send the packets into chain number *chain*.

        Returns an array of RESULT; by rule how often its matches all held, and by word of the code how often
        its instruction was run, each None unless asked for; and by packet the first *matched* rules that
        matched, then -1.
        """
        count = len(batch.packets)
        results: Any = np.zeros(count, RESULT)
        hit_counts = np.zeros(self._rules, np.uint64) if hits else None
        visit_counts = np.zeros(self._words, np.uint64) if visits else None
        rules = np.zeros((count, matched), np.int32)
        counts = ffi.new(
            "struct interp_counts *",
            {
                "hits": pointer("uint64_t", hit_counts),
                "visits": pointer("uint64_t", visit_counts),
                "matched": pointer("int32_t", rules if matched else None),
                "room": matched,
            },
        )
        c_batch = ffi.new(
            "struct interp_batch *",
            {
                "packets": pointer("struct interp_packet", batch.packets),
                "count": count,
                "seeded": batch.seeded,
                "given": len(batch.keys),
                "given_key": pointer("uint32_t", batch.keys),
                "given_epoch": pointer("uint32_t", batch.epochs),
                "given_value": pointer("uint8_t", batch.answers),
                "pool": pointer("uint64_t", batch.rewrites),
                "pool_start": list(batch.starts),
                "limits": pointer("uint32_t", batch.limits),
                "attributes": len(batch.attributes),
                "attribute_key": pointer("uint32_t", batch.attributes),
                "number_start": pointer("uint32_t", batch.first_numbers),
                "numbers": pointer("uint64_t", batch.numbers),
            },
        )
        code = lib.interp_run(self._handle, chain, c_batch, pointer("struct interp_result", results), counts)
        status.check(status.INTERPRETER, code, what=f"{count} packets")
        return results, hit_counts, visit_counts, rules


def mix(value: int) -> int:
    """The interpreter's hash of a 64-bit integer (simulate.batch.mix)."""
    return int(lib.interp_mix(value))


def draw(seed: int, key: int, ordinal: int) -> int:
    """The interpreter's answer number *ordinal* to *key* for a packet of *seed* (simulate.batch.draw)."""
    return int(lib.interp_draw(seed, key, ordinal))


def layout(struct: str) -> dict[str, tuple[int, int]]:
    """By field of a structure of the engine: its offset and size in bytes; "" is the structure itself."""
    ctype = ffi.typeof(f"struct {struct}")
    fields = {name: (field.offset, ffi.sizeof(field.type)) for name, field in ctype.fields}
    return {"": (0, ffi.sizeof(ctype))} | fields
