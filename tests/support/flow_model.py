"""Flow state tables by their definition: each chain a list in the order of a search."""

from __future__ import annotations


class Chains:
    """The schemes of the paper's section 3 and the ring of its section 4.1, over lists of (key, value)."""

    def __init__(self, scheme: str, buckets: int, purge_at: int, purge: int) -> None:
        self.scheme, self.purge_at, self.purge = scheme, purge_at, purge
        self.chain: list[list[tuple[bytes, int]]] = [[] for _ in range(buckets)]
        self.turned = [0] * buckets  # of a ring: slots between its first flow and the one it points to
        self.longest = 0
        self.counts = dict.fromkeys(
            ["hits", "inserts", "purged", "returned", "hit_comparisons", "miss_comparisons", "moves",
             "move_writes", "insert_writes"],
            0,
        )  # fmt: skip
        self.seen: set[bytes] = set()

    def keys(self, bucket: int) -> list[bytes]:
        return [key for key, _ in self.chain[bucket]]

    def search(self, key: bytes, bucket: int, value: int) -> int:
        """The stored value of the key, which becomes *value* where the key is missing."""
        chain, counts = self.chain[bucket], self.counts
        for place, (other, stored) in enumerate(chain):
            if other == key:
                counts["hits"] += 1
                counts["hit_comparisons"] += place + 1
                if place and self.scheme != "normal":
                    self._move(chain, place, bucket)
                return stored
        counts["miss_comparisons"] += len(chain)
        counts["inserts"] += 1
        counts["returned"] += key in self.seen
        self.seen.add(key)
        self._insert(chain, (key, value), bucket)
        return value

    def _move(self, chain: list[tuple[bytes, int]], place: int, bucket: int) -> None:
        """A hit behind the first place: a circular list and a ring turn, the others take the flow to the front."""
        self.counts["moves"] += 1
        if self.scheme in ("circular", "ring"):
            self.counts["move_writes"] += 1
            chain[:] = chain[place:] + chain[:place]
            self.turned[bucket] = (self.turned[bucket] + place) % len(chain)
        else:
            self.counts["move_writes"] += 3
            chain.insert(0, chain.pop(place))

    def _insert(self, chain: list[tuple[bytes, int]], flow: tuple[bytes, int], bucket: int) -> None:
        if self.scheme == "ring":
            if len(chain) == self.purge_at:
                chain.pop()
                self.counts["purged"] += 1
                self.turned[bucket] = (self.turned[bucket] - 1) % self.purge_at
            elif chain:  # before the first slot in use, and the ring points to it
                back = len(chain) - self.turned[bucket]
                chain[:] = chain[back:] + chain[:back]
                self.turned[bucket] = 0
            self.counts["insert_writes"] += 1
        else:
            self.counts["insert_writes"] += 3 if self.scheme == "circular" and chain else 2
        chain.insert(len(chain) if self.scheme == "move_front" else 0, flow)
        self.longest = max(self.longest, len(chain))
        if self.scheme != "ring" and self.purge and len(chain) == self.purge_at:
            del chain[-self.purge :]
            self.counts["purged"] += self.purge
