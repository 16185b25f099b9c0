"""What the searches of a flow state table did, and its chains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FlowStatistics:
    """What the searches of a table did: packets = hits + inserts + renewed + passed + unkept.

    renewed            the key was there, with the answer of older rules
    passed             headers without a key: a word is wider than its field
    unkept             flows for which no memory was left
    purged             flows dropped from chains that were full
    returned           inserts of keys that were in the table before; None without a history
    hit_comparisons    of keys, in searches that found theirs; miss_comparisons: in those that did not
    moves              hits that changed the order of a chain
    move_writes        pointers written for that; insert_writes: for inserts
    places             [65] hits (and renewed) at place 1, 2, ... of their chain; the last: at further ones
    longest            chain so far, flows
    Comparisons, moves, writes, places and longest are those of replays with counted=True.
    """

    packets: int
    hits: int
    inserts: int
    renewed: int
    passed: int
    unkept: int
    purged: int
    returned: int | None
    hit_comparisons: int
    miss_comparisons: int
    moves: int
    move_writes: int
    insert_writes: int
    longest: int
    places: tuple[int, ...]

    @property
    def comparisons(self) -> int:
        """All comparisons of keys: the calls of memcmp of the paper's program."""
        return self.hit_comparisons + self.miss_comparisons

    @property
    def beyond_first(self) -> int:
        """Keys compared before the right one, over all hits: the count that fits the paper's figures."""
        return self.hit_comparisons - sum(self.places)

    def as_data(self) -> dict[str, Any]:
        """The statistics, for JSON."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return data | {"comparisons": self.comparisons, "beyond_first": self.beyond_first}


@dataclass(frozen=True, slots=True)
class FlowChains:
    """The chains of a table as they are now.

    flows    in all chains; used: how many buckets are not empty; longest: flows of the longest chain
    lengths  [65] how many buckets have 0, 1, ... flows, the last: any further number
    """

    flows: int
    used: int
    longest: int
    lengths: tuple[int, ...]

    @property
    def mean(self) -> float:
        """The mean length of the chains that are not empty."""
        return self.flows / self.used if self.used else 0.0


def statistics(stats: dict[str, Any], history: bool) -> FlowStatistics:
    """The statistics of a table from those of the engine; *history*: it remembers each key."""
    places = tuple(stats.pop("place"))
    returned = stats.pop("returned") if history else None
    return FlowStatistics(
        **{name: value for name, value in stats.items() if name != "returned"},
        returned=returned,
        places=places,
    )
