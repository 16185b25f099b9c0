"""A seed -> a rule set of any size.

Protocols, port classes, ports, flags and prefix lengths are drawn independently for each rule, with the
seed's probabilities.  Addresses come from two binary trees that all rules descend together: at each node,
the seed's statistics of its level decide whether the rules split, and how unevenly; a destination follows
its source with the seed's probability.  A set s times larger than the seed's has 2 log2 s levels on top at
which all nodes split evenly, and the seed's trees below them, as in the sets that ClassBench's authors
published (top levels of acl1, fw1, ipc1 at 1K, 5K, 10K).  If the rules are not distinct, more levels split
evenly.

Rules are sorted by rising size, so no rule is shadowed by a larger one before it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..errors import HitablesError
from .seed import ANY, HIGH, LOW, Branching, Seed, columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..parse.classbench import ClassbenchFilter, FilterRule

# Additional levels that split evenly, by attempt.
MORE_EVEN = (0, 2, 4, 8, 16, 32)


def rules(seed: Seed, count: int, number: int = 0, smoothness: int = 0) -> ClassbenchFilter:
    """*count* distinct rules, the same for the same *number*.

    smoothness  the most bits by which prefix lengths vary in either direction

    HitablesError if the seed cannot yield *count* distinct rules.
    """
    import numpy as np

    from ..parse.classbench import ClassbenchFilter

    if count < 1:
        raise HitablesError(f"{count} rules cannot be generated; ask for at least one")
    even = round(2 * math.log2(max(1.0, count / seed.scale)))
    for more_even in MORE_EVEN:
        for more in (1.15, 2.0):
            rng = np.random.default_rng(number)
            drawn = _draw(seed, int(count * more) + 20, rng, smoothness, even + more_even)
            _, first = np.unique(drawn, axis=0, return_index=True)
            if len(first) >= count:
                chosen = drawn[np.sort(first)[:count]]
                chosen = chosen[np.argsort(_size(chosen), kind="stable")]
                lines = enumerate(chosen.tolist(), start=1)
                return ClassbenchFilter(tuple(_rule(line, *row) for line, row in lines), "generated")
    raise HitablesError(
        f"this seed has fewer than {count} distinct rules; give it a smoothness, or ask for fewer"
    )


# Columns of the drawn rows.
_SOURCE, _DESTINATION, _PORTS, _PROTOCOL, _FLAGS = slice(0, 2), slice(2, 4), slice(4, 8), 8, slice(9, 11)


def _rule(line: int, *row: int) -> FilterRule:
    from ..parse.classbench import FilterRule

    src, src_length, dst, dst_length, low, high, first, last, protocol, value, mask = row
    return FilterRule(
        (src, src + (1 << 32 - src_length) - 1),
        (dst, dst + (1 << 32 - dst_length) - 1),
        (low, high),
        (first, last),
        protocol or None,
        (value, mask) if mask else None,
        line,
    )


def _size(rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """The logarithm of the number of headers that each row matches."""
    import numpy as np

    ports = rows[:, _PORTS]
    free = 64 - rows[:, _SOURCE][:, 1] - rows[:, _DESTINATION][:, 1] + 8 * (rows[:, _PROTOCOL] == 0)
    return np.asarray(free + np.log2((ports[:, 1] - ports[:, 0] + 1) * (ports[:, 3] - ports[:, 2] + 1)))


def _draw(seed: Seed, count: int, rng: np.random.Generator, smoothness: int, even: int) -> NDArray[np.int64]:
    """[count][11]: source, its length, destination, its length, ports, protocol (0: any), flags."""
    import numpy as np

    protocols, shares = columns(seed.protocols)
    protocol = np.array(protocols)[rng.choice(len(protocols), count, p=shares)]
    ports = np.empty((count, 2, 2), np.int64)
    lengths = np.empty((count, 2), np.int64)
    flags = np.zeros((count, 2), np.int64)
    for each in protocols:
        of_protocol = np.flatnonzero(protocol == each)
        if each in seed.flags and len(of_protocol):
            flags[of_protocol] = _pick(seed.flags[each], len(of_protocol), rng)
        names, shares = columns(seed.classes[each])
        classes = rng.choice(len(names), len(of_protocol), p=shares)
        for number, name in enumerate(names):
            of_class = of_protocol[classes == number]
            if not len(of_class):
                continue
            pairs = _pick(seed.lengths[name], len(of_class), rng)
            lengths[of_class] = np.stack([pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1)
            for side, (letter, kind) in enumerate(zip("sd", name.split("_"), strict=True)):
                fixed = {"wc": ANY, "hi": HIGH, "lo": LOW}.get(kind)
                table = {fixed: 1.0} if fixed else seed.ports[f"{letter}p{kind}"]
                ports[of_class, side] = _pick(table, len(of_class), rng)
    if smoothness:
        # A prefix of length 0 is a wildcard, whose length does not vary.
        spread = rng.binomial(2 * smoothness, 0.5, lengths.shape) - smoothness
        lengths = np.where(lengths > 0, np.clip(lengths + spread, 1, 32), 0)
    source = _addresses(seed.source, lengths[:, 0], rng, even)
    follow = source, lengths[:, 0], np.array(seed.correlation)
    destination = _addresses(seed.destination, lengths[:, 1], rng, even, follow)
    addresses = np.stack([source, lengths[:, 0], destination, lengths[:, 1]], axis=1)
    return np.concatenate([addresses, ports.reshape(count, 4), protocol[:, None], flags], axis=1)


def _pick(table: dict[Any, float], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    import numpy as np

    what, shares = columns(table)
    return np.array(what, np.int64)[rng.choice(len(what), count, p=shares)]


def _addresses(
    tree: Branching,
    lengths: NDArray[np.int64],
    rng: np.random.Generator,
    even: int,
    follow: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]] | None = None,
) -> NDArray[np.int64]:
    """First addresses of prefixes of those lengths, nested no deeper than in the tree if there is room.

    The first *even* levels split evenly.
    """
    import numpy as np

    count = len(lengths)
    address = np.zeros(count, np.int64)
    nested = np.zeros(count, np.int64)
    along = np.full(count, follow is not None)
    for level in range(32):
        ends = (lengths == level) & (level > 0)
        _make_room(address, ends, lengths > level, nested, tree.nest, level)
        _, node = np.unique(address, return_inverse=True)
        nodes = int(node.max()) + 1 if count else 0
        has_end = np.zeros(nodes, bool)
        has_end[node[ends]] = True
        nested[has_end[node] & (lengths > level)] += 1
        two = tree.two[level]
        chance, skew = (1.0, 0.0) if level < even else (0.5 if two is None else two, tree.skew[level])
        parts = rng.random(nodes) < chance
        heavy = 1 / (2 - skew)
        first = rng.integers(0, 2, nodes)
        other = parts[node] & (rng.random(count) >= heavy)
        bit = first[node] ^ other
        if follow is not None:
            source, source_length, agreeing = follow
            along &= source_length > level
            source_bit = source >> (31 - level) & 1
            agree = rng.random(count) < agreeing[level]
            bit = np.where(along, source_bit ^ ~agree, bit)
            along &= agree
        address = np.where(lengths > level, address | bit << (31 - level), address)
    return address


def _make_room(
    address: NDArray[np.int64],
    ends: NDArray[np.bool_],
    on: NDArray[np.bool_],
    nested: NDArray[np.int64],
    nest: int,
    level: int,
) -> None:
    """Move prefixes that end at this level away from nodes where prefixes that go *on* would nest too deep.

    All prefixes of a node move to the nearest node where no prefix goes on; if there is none they stay.
    """
    import numpy as np

    full = set(address[on & (nested + 1 >= nest)].tolist())
    occupied = set(address[on].tolist())
    for prefix in np.unique(address[ends]).tolist():
        if prefix not in full:
            continue
        for bit in range(32 - level, 32):
            free = (prefix ^ 1 << bit) >> bit << bit
            if free not in occupied:
                address[ends & (address == prefix)] = free
                break
