"""A seed -> a rule set of any size.

Protocols, port classes, ports, flags and prefix lengths are drawn independently, rule by rule, as the
seed has them.  Addresses come from two binary trees that all rules walk down together: at each node the
seed says for its level whether the rules part, and how unevenly; a destination follows its source
with the chance that the seed gives.  A seed saw few rules per node; a node of a set several times larger
parts as if it had that many more chances.  When the rules still do not come out distinct, nodes part more
often than the seed says, in steps.

Rules stand by rising size, so none is hidden by one that stands before it and is larger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import HitablesError
from .seed import ANY, HIGH, LOW, Branching, Seed, columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..parse.classbench import Filter, FilterRule

# How far nodes go from what the seed says towards always parting, attempt by attempt.
WIDER = (0.0, 0.1, 0.25, 0.5, 1.0)


def rules(seed: Seed, count: int, number: int = 0, smoothness: int = 0) -> Filter:
    """*count* distinct rules, the same for the same *number*.

    smoothness  prefix lengths are spread by up to so many bits to either side
    HitablesError if the seed does not have so many.
    """
    import numpy as np

    from ..parse.classbench import Filter

    if count < 1:
        raise HitablesError(f"{count} rules cannot be made; ask for one at least")
    for wider in WIDER:
        for more in (1.15, 2.0):
            drawn = _draw(seed, int(count * more) + 20, np.random.default_rng(number), smoothness, wider)
            _, first = np.unique(drawn, axis=0, return_index=True)
            if len(first) >= count:
                kept = drawn[np.sort(first)[:count]]
                kept = kept[np.argsort(_size(kept), kind="stable")]
                lines = enumerate(kept.tolist(), start=1)
                return Filter(tuple(_rule(line, *row) for line, row in lines), "generated")
    raise HitablesError(
        f"this seed has fewer than {count} distinct rules; give it a smoothness, or ask for fewer"
    )


# Columns of what is drawn.
_SOURCE, _DESTINATION, _PORTS, _PROTOCOL, _FLAGS = slice(0, 2), slice(2, 4), slice(4, 8), 8, slice(9, 11)


def _rule(line: int, *row: int) -> FilterRule:
    from ..parse.classbench import FilterRule

    src, src_length, dst, dst_length, low, high, first, last, protocol, value, mask = row
    return FilterRule(
        (src, src + (1 << 32 - src_length) - 1), (dst, dst + (1 << 32 - dst_length) - 1),
        (low, high), (first, last), protocol or None, (value, mask) if mask else None, line,
    )  # fmt: skip


def _size(rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """The logarithm of the number of headers that each matches."""
    import numpy as np

    ports = rows[:, _PORTS]
    free = 64 - rows[:, _SOURCE][:, 1] - rows[:, _DESTINATION][:, 1] + 8 * (rows[:, _PROTOCOL] == 0)
    return np.asarray(free + np.log2((ports[:, 1] - ports[:, 0] + 1) * (ports[:, 3] - ports[:, 2] + 1)))


def _draw(
    seed: Seed, count: int, rng: np.random.Generator, smoothness: int, wider: float
) -> NDArray[np.int64]:
    """[count][11]: source, its length, destination, its length, ports, protocol (0: any), flags."""
    import numpy as np

    protocols, shares = columns(seed.protocols)
    protocol = np.array(protocols)[rng.choice(len(protocols), count, p=shares)]
    ports = np.empty((count, 2, 2), np.int64)
    lengths = np.empty((count, 2), np.int64)
    flags = np.zeros((count, 2), np.int64)
    for each in protocols:
        mine = np.flatnonzero(protocol == each)
        if each in seed.flags and len(mine):
            flags[mine] = _pick(seed.flags[each], len(mine), rng)
        names, shares = columns(seed.classes[each])
        classes = rng.choice(len(names), len(mine), p=shares)
        for number, name in enumerate(names):
            here = mine[classes == number]
            if not len(here):
                continue
            pairs = _pick(seed.lengths[name], len(here), rng)
            lengths[here] = np.stack([pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1)
            for side, (letter, kind) in enumerate(zip("sd", name.split("_"), strict=True)):
                fixed = {"wc": ANY, "hi": HIGH, "lo": LOW}.get(kind)
                table = {fixed: 1.0} if fixed else seed.ports[f"{letter}p{kind}"]
                ports[here, side] = _pick(table, len(here), rng)
    if smoothness:
        # A prefix that covers everything is a wildcard, no length to spread.
        spread = rng.binomial(2 * smoothness, 0.5, lengths.shape) - smoothness
        lengths = np.where(lengths > 0, np.clip(lengths + spread, 1, 32), 0)
    growth = max(1.0, count / seed.scale)
    source, source_length = _addresses(seed.source, lengths[:, 0], rng, growth, wider)
    follow = source, source_length, np.array(seed.correlation)
    destination, destination_length = _addresses(seed.destination, lengths[:, 1], rng, growth, wider, follow)
    addresses = np.stack([source, source_length, destination, destination_length], axis=1)
    return np.concatenate([addresses, ports.reshape(count, 4), protocol[:, None], flags], axis=1)


def _pick(table: dict[Any, float], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    import numpy as np

    what, shares = columns(table)
    return np.array(what, np.int64)[rng.choice(len(what), count, p=shares)]


def _addresses(
    tree: Branching,
    lengths: NDArray[np.int64],
    rng: np.random.Generator,
    growth: float,
    wider: float,
    follow: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First addresses, and lengths, of prefixes of about those lengths.

    A prefix that would nest deeper than the tree has it ends where the last one on its path did.
    """
    import numpy as np

    count = len(lengths)
    address = np.zeros(count, np.int64)
    length = lengths.copy()
    nested = np.zeros(count, np.int64)
    last = np.zeros(count, np.int64)
    along = np.full(count, follow is not None)
    for level in range(32):
        _, node = np.unique(address, return_inverse=True)
        nodes = int(node.max()) + 1 if count else 0
        ends = (length == level) & (level > 0)
        deep = ends & (nested >= tree.nest)
        length[deep] = last[deep]
        has_end = np.zeros(nodes, bool)
        has_end[node[ends & ~deep]] = True
        passed = has_end[node] & (length > level)
        nested[passed] += 1
        last[passed] = level
        two = tree.two[level]
        # A node through which several times as many rules pass has that many chances to part.
        chance_two = 0.5 if two is None else 1 - (1 - two) ** growth
        parts = rng.random(nodes) < chance_two + wider * (1 - chance_two)
        heavy = 1 / (2 - tree.skew[level] * (1 - wider))
        first = rng.integers(0, 2, nodes)
        other = parts[node] & (rng.random(count) >= heavy)
        bit = first[node] ^ other
        if follow is not None:
            source, source_length, chance = follow
            along &= source_length > level
            wanted = source >> (31 - level) & 1
            agree = rng.random(count) < chance[level]
            bit = np.where(along, wanted ^ ~agree, bit)
            along &= agree
        address = np.where(length > level, address | bit << (31 - level), address)
    top = np.int64(0xFFFFFFFF) << (32 - length) & 0xFFFFFFFF
    return address & top, length
