"""Flow state tables (Peng, Leckie and Ramamohanarao, "Exploiting Traffic Localities for Efficient Flow State
Lookup"): the four ways to keep a chain, and what each costs.

A table by itself, for measurements: packets are replayed, and a flow that is missing is inserted.  Inside a
classifier it is the plan `flows(A)`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ..core.flows import HASHES, SCHEMES, ZOBEL_SEED, Flows, hash_of
from ..errors import DatabaseError
from .arguments import check_array, check_headers, check_in_place, in_place
from .closable import Closable
from .database import Database, check_limit
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
    purge_at    the length at which a chain loses its last *purge* flows; 0: none.  A ring holds purge_at
                flows, and a new flow takes the place of its last one.
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
        _one_of("scheme", scheme, SCHEMES)
        _one_of("hash", hash, HASHES)
        _one_of("key_bytes", key_bytes, LAYOUTS)
        if not 1 <= buckets < 1 << 32:
            raise DatabaseError(f"a flow table has 1 to {(1 << 32) - 1} buckets, not {buckets}")
        if not 2 <= purge_at < PURGE_AT_LIMIT:
            raise DatabaseError(f"purge_at must lie in 2..{PURGE_AT_LIMIT - 1}, not {purge_at}")
        if not 0 <= purge < purge_at:
            raise DatabaseError(f"purge must lie in 0..{purge_at - 1}, below purge_at, not {purge}")
        check_limit(limit)
        if seed is None:
            seed = ZOBEL_SEED if hash == "zobel" else 0
        if not 0 <= seed < 1 << 128:
            raise DatabaseError(f"a seed has up to 128 bits; {seed} has not")
        self.scheme, self.buckets, self.key_bytes, self.history = scheme, buckets, key_bytes, history
        self.layout = LAYOUTS[key_bytes]
        self._handle = Flows(scheme, buckets, purge_at, purge, hash, seed, self.layout.bits, history, limit)

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
        if classifier is not None and classifier.layout != self.layout:
            raise DatabaseError(
                f"the rules of the classifier have fields of {classifier.layout.widths} bits, "
                f"the table those of {self.layout.widths}"
            )
        if group < 0:
            raise DatabaseError(f"a group of {group} packets")
        rules = classifier.opened() if classifier else None
        for block in blocks:
            check_headers(block, self.layout.dims)
            check_in_place("headers", block)
            for name, array in (("values", values), ("out", out)):
                if array is not None:
                    check_array(name, array, np.uint32, len(block))
                    check_in_place(name, array, written=name == "out")
            self._opened().replay(block, rules, values, out, min(group, 1 << 16), counted)
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
        if not 0 <= bucket < self.buckets:
            raise DatabaseError(f"bucket {bucket}: the table has {self.buckets}")
        return self._opened().chain(bucket)

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
        if len(key) != self.key_bytes:
            raise DatabaseError(f"a key of {len(key)} bytes; those of the table have {self.key_bytes}")
        return self._opened().bucket(key)

    @property
    def bytes(self) -> int:
        """The memory of the table, counted."""
        return self._opened().bytes()


def flow_hash(name: str, key: bytes, seed: int | None = None) -> int:
    """The hash of a key of any bytes: 31 bits of zobel, 32 of crc32c and multiply_shift, 64 of the others."""
    _one_of("hash", name, HASHES)
    if not 1 <= len(key) <= 80:
        raise DatabaseError(f"a key has 1 to 80 bytes, not {len(key)}")
    return hash_of(name, key, (ZOBEL_SEED if name == "zobel" else 0) if seed is None else seed)


def _one_of(name: str, value: object, known: Iterable[object]) -> None:
    if value not in known:
        raise DatabaseError(f"{name} is {value!r}; it is one of {', '.join(map(str, known))}")
