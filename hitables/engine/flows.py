"""Flow state tables (Peng, Leckie and Ramamohanarao, "Exploiting Traffic Localities for Efficient Flow State
Lookup"): the four ways to keep a chain, and what each costs.

A table by itself, for measurements: packets are replayed, and a flow that is missing is inserted.  Inside a
classifier it is the plan `flows(A)`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ..core.flows import HASHES, SCHEMES, ZOBEL_SEED, Flows, hash_of
from ..errors import DatabaseError
from .arguments import check_array, check_headers, check_in_place, in_place, one_of, whole
from .closable import Closable
from .database import LIMIT, Database
from .flow_statistics import FlowChains, FlowStatistics, statistics
from .layout import FIVE_TUPLE, Layout

# Layouts of headers, by the bytes of a key: addresses, ports and protocol of IPv4 and of IPv6.
LAYOUTS = {13: FIVE_TUPLE, 37: Layout((128, 128, 16, 16, 8))}
PURGE_AT_LIMIT = 65536

Headers = npt.NDArray[np.uint32]


class FlowTable(Closable[Flows]):
    """Chains of flows under a hash of their keys.  Any number of threads may replay at a time.

    scheme      "normal", "move_front", "circular", "insert_move_front", or "ring", the array of section 4.1
    buckets     of the hash table
    purge_at    the length, 2 at least, at which a chain loses its last *purge* flows; purge=0: it grows on.
                A ring holds purge_at flows, and a new flow takes the place of its last one.
    hash        "zobel" (the paper's), "crc32c", "multiply_shift", "siphash" or "folded"
    key_bytes   13 for headers of IPv4, [packets][5] as in FIVE_TUPLE; 37 for IPv6, [packets][11]
    seed        of the hash, up to 128 bits; None: the usual one
    history     remember each key, to count the flows that were purged and came back
    limit       bytes that the table may take, 0 for any number
    """

    CLOSED = "the flow table is closed"

    def __init__(
        self,
        scheme: str = "insert_move_front",
        buckets: int = 65536,
        purge_at: int = 10,
        purge: int = 5,
        hash: str = "folded",
        key_bytes: int = 13,
        *,
        seed: int | None = None,
        history: bool = False,
        limit: int = 0,
    ) -> None:
        one_of("scheme", scheme, SCHEMES)
        one_of("hash", hash, HASHES)
        one_of("key_bytes", key_bytes, LAYOUTS)
        buckets = whole("buckets", buckets, 1, (1 << 32) - 1)
        purge_at = whole("purge_at", purge_at, 2, PURGE_AT_LIMIT - 1)
        purge = whole("purge", purge, 0, purge_at - 1)
        limit = whole("limit", limit, 0, LIMIT)
        seed = _seed(hash, seed)
        self.scheme, self.buckets, self.key_bytes, self.history = scheme, buckets, key_bytes, history
        self.layout = LAYOUTS[key_bytes]
        self._handle = Flows(
            scheme, buckets, purge_at, purge, hash, seed, self.layout.bits, bool(history), limit
        )

    def replay(
        self,
        headers: Headers | Iterable[Headers],
        *,
        classifier: Database | None = None,
        values: npt.NDArray[np.uint32] | None = None,
        out: npt.NDArray[np.uint32] | None = None,
        group: int = 0,
        counted: bool = True,
    ) -> FlowStatistics:
        """Search *headers* one after another, insert what is missing, and give the statistics so far.

        headers     [packets][fields], or blocks of them, of which one is in memory at a time
        classifier  gives the answers of missing flows, as the priority of a rule, 2**32 - 1 for none.  The
                    table does not know when its rules change: clear() it then, or take the plan flows(A).
        values      [packets] their answers instead; without either, all are 0
        out         [packets] receives the stored answer of each packet; then headers is one array, as with
                    values
        group       packets that are fetched from memory side by side: 1 as the paper does, 0 is fastest
        counted     False: no comparisons, places and writes are counted, which is faster
        OutOfMemory when a flow could not be kept.
        """
        blocks = [headers] if isinstance(headers, np.ndarray) else headers
        if (values is not None or out is not None) and not isinstance(headers, np.ndarray):
            raise DatabaseError("values and out need the headers as one array")
        if values is not None and classifier is not None:
            raise DatabaseError(
                "the answers of missing flows come from values or from a classifier, not from both"
            )
        if classifier is not None and not isinstance(classifier, Database):
            raise DatabaseError(f"the classifier must be a Database, not {classifier!r}")
        if classifier is not None and classifier.layout != self.layout:
            raise DatabaseError(
                f"the rules of the classifier have fields of {classifier.layout.widths} bits, "
                f"the table those of {self.layout.widths}"
            )
        group = min(whole("group", group, 0, sys.maxsize), 1 << 16)
        rules = classifier.opened() if classifier else None
        for block in blocks:
            check_headers(block, self.layout.dims)
            check_in_place("headers", block)
            for name, array in (("values", values), ("out", out)):
                if array is not None:
                    check_array(name, array, np.uint32, len(block))
                    check_in_place(name, array, written=name == "out")
            self._opened().replay(block, rules, values, out, group, bool(counted))
        return self.statistics()

    def statistics(self) -> FlowStatistics:
        """Of all replays so far."""
        return statistics(self._opened().statistics(), self.history)

    def chains(self) -> FlowChains:
        """The lengths of all chains, which takes a pass over the table."""
        chains = self._opened().chains()
        return FlowChains(chains["flows"], chains["used"], chains["longest"], tuple(chains["length"]))

    def clear(self) -> None:
        """Forget the flows; the statistics remain.  No other thread may use the table meanwhile."""
        self._opened().clear()

    def chain(self, bucket: int) -> list[bytes]:
        """The keys of a bucket, in the order in which a search compares them."""
        return self._opened().chain(whole("bucket", bucket, 0, self.buckets - 1))

    def key(self, header: npt.NDArray[np.uint32]) -> bytes:
        """The key of one header [fields]: source, its port, destination, its port, protocol, each as in a
        packet.
        """
        check_array("the header", header, np.uint32, self.layout.dims)
        key = self._opened().key(in_place(header))
        if key is None:
            raise DatabaseError(f"a value of {header.tolist()} is wider than its field")
        return key

    def bucket_of(self, key: bytes) -> int:
        """The bucket of a key."""
        _check_key(key)
        if len(key) != self.key_bytes:
            raise DatabaseError(f"a key of {len(key)} bytes; those of the table have {self.key_bytes}")
        return self._opened().bucket(key)

    @property
    def bytes(self) -> int:
        """The memory of the table, counted."""
        return self._opened().bytes()


def flow_hash(name: str, key: bytes, seed: int | None = None) -> int:
    """The hash of a key of any bytes: 31 bits of zobel, 32 of crc32c and multiply_shift, 64 of the others."""
    one_of("hash", name, HASHES)
    _check_key(key)
    if not 1 <= len(key) <= 80:
        raise DatabaseError(f"a key has 1 to 80 bytes, not {len(key)}")
    return hash_of(name, key, _seed(name, seed))


def _seed(hash_name: str, seed: int | None) -> int:
    if seed is None:
        return ZOBEL_SEED if hash_name == "zobel" else 0
    return whole("seed", seed, 0, (1 << 128) - 1)


def _check_key(key: object) -> None:
    if not isinstance(key, bytes):
        raise DatabaseError(f"a key must be bytes, not {type(key).__name__}")
