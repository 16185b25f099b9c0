"""Flow state tables of the C engine (include/flows.h): one table, its searches and its statistics.

A thin layer: arrays go in and out without a copy, and a status becomes an exception.  `hitables.engine.flows`
checks what users give and is the interface for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._engine import ffi, lib
from .arrays import pointer
from .classifiers import Classifier, U32Array
from .records import as_values
from .status import FLOWS, check

# In the order of the numbers of enum flow_scheme and enum flow_hash.
SCHEMES = ("normal", "move_front", "circular", "insert_move_front", "ring")
HASHES = ("zobel", "crc32c", "multiply_shift", "siphash", "folded")
ZOBEL_SEED = int(lib.FLOW_ZOBEL_SEED)


class Flows:
    """A flow state table.  *scheme* and *hash_name* are among SCHEMES and HASHES, *bits* the width of each
    dimension of a header; *limit* 0: any number of bytes.  The memory is freed with the last reference.
    """

    def __init__(
        self,
        scheme: str,
        buckets: int,
        purge_at: int,
        purge: int,
        hash_name: str,
        seed: int,
        bits: Sequence[int],
        history: bool,
        limit: int,
    ) -> None:
        self._buckets = buckets
        widths = ffi.new("uint8_t[]", list(bits))
        options = ffi.new("struct flow_options *")
        options.scheme, options.hash, options.buckets = (
            SCHEMES.index(scheme),
            HASHES.index(hash_name),
            buckets,
        )
        options.purge_at, options.purge, options.history = purge_at, purge, history
        options.seed = [seed & (1 << 64) - 1, seed >> 64]
        options.dims, options.bits = len(bits), widths
        handle = ffi.new("struct flow_table **")
        self._check(lib.flow_table_open(options, limit, handle))
        self._table = ffi.gc(handle[0], lib.flow_table_close)

    def _check(self, status: int) -> None:
        check(FLOWS, status, buckets=self._buckets)

    def clear(self) -> None:
        """Forget the flows."""
        lib.flow_table_clear(self._table)

    def replay(
        self,
        headers: U32Array,
        rules: Classifier | None,
        given: U32Array | None,
        answers: U32Array | None,
        group: int,
        counted: bool,
    ) -> None:
        """Search *headers* [packets][dims] in order, and insert what is missing (flow_table_replay)."""
        status = lib.flow_table_replay(
            self._table,
            pointer("uint32_t", headers),
            len(headers),
            rules.handle if rules else ffi.NULL,
            pointer("uint32_t", given),
            pointer("uint32_t", answers),
            group,
            counted,
        )
        self._check(status)

    def statistics(self) -> dict[str, Any]:
        """struct flow_stats, by name."""
        stats = ffi.new("struct flow_stats *")
        lib.flow_table_stats(self._table, stats)
        return as_values(stats)

    def chains(self) -> dict[str, Any]:
        """struct flow_chains, by name."""
        chains = ffi.new("struct flow_chains *")
        lib.flow_table_chains(self._table, chains)
        return as_values(chains)

    def chain(self, bucket: int) -> list[bytes]:
        """The keys of a bucket, in the order of a search."""
        size = int(lib.flow_table_key_bytes(self._table))
        length = int(lib.flow_table_chain(self._table, bucket, ffi.NULL, 0))
        keys = ffi.new("uint8_t[]", max(1, length * size))
        lib.flow_table_chain(self._table, bucket, keys, length)
        text = bytes(ffi.buffer(keys))
        return [text[at : at + size] for at in range(0, length * size, size)]

    def key(self, header: U32Array) -> bytes | None:
        """The key of a header [dims]; None where a word is wider than its dimension."""
        key = ffi.new("uint8_t[]", int(lib.flow_table_key_bytes(self._table)))
        keyed = lib.flow_table_key(self._table, pointer("uint32_t", header), key)
        return bytes(ffi.buffer(key)) if keyed else None

    def bucket(self, key: bytes) -> int:
        """The bucket of a key."""
        return int(lib.flow_table_bucket(self._table, key))

    def bytes(self) -> int:
        """The memory of the table, counted."""
        return int(lib.flow_table_bytes(self._table))


def hash_of(hash_name: str, key: bytes, seed: int) -> int:
    """The hash of a key: 31 bits of zobel, 32 of crc32c and multiply_shift, 64 of the others."""
    words = ffi.new("uint64_t[2]", [seed & (1 << 64) - 1, seed >> 64])
    return int(lib.flow_hash_of(HASHES.index(hash_name), words, key, len(key)))
