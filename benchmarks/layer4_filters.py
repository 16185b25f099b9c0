"""Filters and packets of the layer-4 paper's experiments, as far as it says what they were.

Its own are not public.  *firewall*: the nested networks of a site and few others, as many filters as in its
three firewalls.  *random*: lengths of 0 to 32 with equal chance, which gives as many filters at the root as
in its table 3.  *routed*: prefixes of a routing table with the lengths of 1998 (mostly /24).  *edge*: fixed
shares of hosts, subnets, several subnets and domains, after Woo.  Packets match a filter, each with equal
chance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables.engine import Layout, Rules

PAIR = Layout((32, 32))
Boxes = npt.NDArray[np.uint32]
Headers = npt.NDArray[np.uint32]

# Length of prefix: weight.  Of routes: a table of 1998, in which /24 are more than half; of the prefixes
# that traffic meets: fewer /24, more short ones.
ROUTES = {8: 1, 12: 1, 14: 1, 15: 1, 16: 13, 17: 2, 18: 3, 19: 8, 20: 4, 21: 4, 22: 5, 23: 6, 24: 51}
TRAFFIC = {8: 8, 14: 3, 15: 3, 16: 32, 17: 3, 18: 4, 19: 9, 20: 4, 21: 3, 22: 3, 23: 4, 24: 24}
EDGE = {
    (32, 32): 30, (24, 24): 20, (24, 22): 10, (22, 24): 10,
    (16, 24): 10, (24, 16): 10, (0, 24): 5, (24, 0): 5,
}  # fmt: skip
EDGE_FLOWS = {(24, 24): 40, (24, 22): 15, (22, 24): 15, (16, 24): 15, (24, 16): 15}


def prefixes(low: npt.NDArray[Any], length: npt.NDArray[Any]) -> Boxes:
    """[count][2]: the prefix of each length around each address."""
    free = (np.uint64(32) - length.astype(np.uint64)).astype(np.uint64)
    start = low.astype(np.uint64) >> free << free
    return np.stack([start, start + (np.uint64(1) << free) - np.uint64(1)], axis=-1).astype(np.uint32)


def addresses(rng: np.random.Generator, count: int) -> npt.NDArray[np.uint64]:
    return rng.integers(0, 1 << 32, count, np.uint64)


def pick(rng: np.random.Generator, weights: dict[Any, int], count: int) -> npt.NDArray[Any]:
    """[count] keys, or [count][2] where keys are pairs, as often as weighed."""
    share, keys = np.array(list(weights.values()), float), np.array(list(weights))
    chosen: npt.NDArray[Any] = keys[rng.choice(len(weights), count, p=share / share.sum())]
    return chosen


def random_filters(rng: np.random.Generator, count: int) -> Boxes:
    lengths = rng.integers(0, 33, (2, count))
    return np.stack([prefixes(addresses(rng, count), length) for length in lengths], axis=1)


def route_addresses(rng: np.random.Generator, count: int) -> npt.NDArray[np.uint64]:
    """Networks of a routing table: blocks of /16 in some 60 of the /8, many in few."""
    blocks = rng.choice(np.arange(1, 224, dtype=np.uint64), 60, replace=False) << np.uint64(24)
    sites = blocks[rng.integers(0, 60, 800)] | rng.integers(0, 256, 800, np.uint64) << np.uint64(16)
    popular = np.minimum(rng.zipf(1.3, count) - 1, 799)
    addresses: npt.NDArray[np.uint64] = sites[popular] | rng.integers(0, 1 << 16, count, np.uint64)
    return addresses


def routed_filters(rng: np.random.Generator, count: int, weights: dict[int, int] = ROUTES) -> Boxes:
    lengths = [pick(rng, weights, count) for _ in range(2)]
    return np.stack([prefixes(route_addresses(rng, count), length) for length in lengths], axis=1)


def edge_filters(rng: np.random.Generator, count: int, weights: dict[tuple[int, int], int] = EDGE) -> Boxes:
    length = pick(rng, weights, count)
    return np.stack([prefixes(addresses(rng, count), length[:, d]) for d in range(2)], axis=1)


def host_filters(rng: np.random.Generator, count: int) -> Boxes:
    """Fully specified: their way leads through the whole trie."""
    return np.stack([prefixes(route_addresses(rng, count), np.full(count, 32)) for _ in range(2)], axis=1)


def firewall_filters(rng: np.random.Generator, count: int) -> Boxes:
    """Mostly from anywhere or few outside networks to hosts and subnets of one site, or back."""
    site = rng.integers(1 << 8, 224 << 8, dtype=np.uint64) << np.uint64(16)
    inside = site | rng.integers(0, 1 << 12, count, np.uint64)
    inner = prefixes(inside, pick(rng, {16: 5, 20: 10, 24: 25, 26: 5, 28: 10, 32: 45}, count))
    few = route_addresses(rng, 12)
    outer = prefixes(few[rng.integers(0, 12, count)], pick(rng, {0: 60, 8: 5, 16: 10, 24: 15, 32: 10}, count))
    turned = (rng.random(count) < 0.4)[:, None, None]
    return np.where(turned, np.stack([inner, outer], axis=1), np.stack([outer, inner], axis=1))


Maker = Callable[[np.random.Generator, int], Boxes]
KINDS: dict[str, Maker] = {
    "firewall": firewall_filters,
    "random": random_filters,
    "routed": routed_filters,
    "edge": edge_filters,
}
FLOWS: dict[str, Maker] = {
    "routed": lambda rng, count: routed_filters(rng, count, TRAFFIC),
    "edge": lambda rng, count: edge_filters(rng, count, EDGE_FLOWS),
}


def distinct(make: Maker, rng: np.random.Generator, count: int) -> Boxes:
    """*count* filters, no two alike, in the order drawn."""
    drawn = make(rng, count)
    while True:
        _, first = np.unique(drawn.reshape(-1, 4), axis=0, return_index=True)
        if len(first) >= count:
            return np.ascontiguousarray(drawn[np.sort(first)[:count]])
        drawn = np.concatenate([drawn[np.sort(first)], make(rng, count)])


def packets(rng: np.random.Generator, boxes: Boxes, count: int) -> npt.NDArray[np.uint32]:
    """Headers anywhere in a filter, any filter as likely."""
    chosen = boxes[rng.integers(0, len(boxes), count)].astype(np.uint64)
    drawn = rng.integers(chosen[:, :, 0], chosen[:, :, 1], endpoint=True)
    return np.ascontiguousarray(drawn.astype(np.uint32))


def root_filters(rng: np.random.Generator, count: int) -> Boxes:
    """Random filters of which a side has length 0: those at the root of the quadtree."""
    kept = np.empty((0, 2, 2), np.uint32)
    while len(kept) < count:
        drawn = random_filters(rng, 40 * count)
        kept = np.concatenate([kept, drawn[(drawn[:, :, 1] - drawn[:, :, 0] == 0xFFFFFFFF).any(axis=1)]])
    return kept[:count]


def listed_filters(rng: np.random.Generator, count: int) -> Boxes:
    """Prefixes of 1 to 32 bits, long ones as often as there are many, from any source: one list at the
    root.
    """
    length = np.minimum(rng.integers(1, 33, count) + rng.integers(0, 17, count), 32)
    boxes = np.zeros((count, 2, 2), np.uint32)
    boxes[:, 0, 1] = 0xFFFFFFFF
    boxes[:, 1] = prefixes(addresses(rng, count), length)
    return boxes


def mixed_filters(rng: np.random.Generator, count: int) -> Boxes:
    """Routed filters and, behind them, a tenth that are fully specified."""
    hosts = count // 10
    return np.concatenate([routed_filters(rng, count - hosts), host_filters(rng, hosts)])


def ruled(boxes: Boxes) -> Rules:
    return Rules(PAIR, boxes, np.arange(len(boxes), dtype=np.uint32))


def tuples_of(boxes: Boxes) -> int:
    """How many combinations of prefix lengths filters have."""
    widths = boxes[:, :, 1].astype(np.int64) - boxes[:, :, 0]
    return len(np.unique(widths, axis=0))
