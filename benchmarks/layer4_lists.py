"""What the layer-4 paper says beside its figures, measured: lists of PACARS, hashes of TSS, one filter,
paths.

*root* (table 3): the search of the root's lists alone, at the paper's occupancies; the databases have no
other filters, and an empty one tells what a search takes without lists.  *lists* (2.2): one list of n
prefixes, its search and its updates, for "O(2 sqrt n)".  *hashes* (4.2): time of the searches that take h
hashes, for "the search times correlate directly with the number of hashes".  *one* (4.2): one fully
specified filter.  *paths* (3.1): nodes that path compression would leave out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hitables import engine

from .layer4_filters import (
    Boxes,
    Headers,
    distinct,
    edge_filters,
    firewall_filters,
    host_filters,
    listed_filters,
    packets,
    random_filters,
    root_filters,
    routed_filters,
    ruled,
)
from .layer4_timing import (
    PLANS,
    Effort,
    Row,
    by_block,
    correlation,
    over_sets,
    rng_of,
    searched,
    slope,
    timed,
    work_of,
    wrong,
)  # fmt: skip

Numbers = npt.NDArray[np.int64]
LISTS = {"skip lists": 1, "buckets": 2, "arrays": 0}
# Table 3: filters, and how many of them were at the root.
OCCUPANCY = {1000: 59, 2000: 117, 4000: 206, 8000: 408}
LENGTHS = (100, 1000, 10_000, 100_000)
HASHED = {"random": random_filters, "routed": routed_filters, "firewall": firewall_filters}
TSS = ("tss_tries(table=1)", "tss_tries")


def root(seed: int, effort: Effort) -> Iterator[Row]:
    """Table 3.  Headers match filters of a whole set, each with equal chance."""
    for count, occupancy in OCCUPANCY.items():
        rngs = [rng_of(seed, "root", count, turn) for turn in range(effort.sets)]
        sets = [distinct(root_filters, rng, occupancy) for rng in rngs]
        headers = [packets(rng, random_filters(rng, count), effort.searches) for rng in rngs]
        for name, form in LISTS.items():
            plan, rows = f"pacars(cascade=0, list={form})", list[Row]()
            for boxes, some in zip(sets, headers, strict=True):
                with engine.open(plan, ruled(boxes)) as db, engine.open(plan, ruled(boxes[:0])) as empty:
                    rows.append(searched(db, some, effort.block))
                    rows[-1] |= {
                        f"empty_{key}": us for key, us in searched(empty, some, effort.block).items()
                    }
                    rows[-1] |= {"wrong": wrong(db, boxes, some, effort.checked)}
            yield over_sets({"filters": count, "occupancy": occupancy, "lists": name, "plan": plan}, rows)


def lists(seed: int, effort: Effort) -> Iterator[Row]:
    """One list: its search, and updates of prefixes of any length."""
    lengths = LENGTHS if effort.flows >= 1000 else LENGTHS[:2]
    for number, count in enumerate(lengths):
        rngs = [rng_of(seed, "lists", number, turn) for turn in range(effort.few)]
        updates = min(2000, effort.flows)
        sets = [distinct(listed_filters, rng, count + updates) for rng in rngs]
        headers = [
            packets(rng, boxes[:count], effort.searches) for rng, boxes in zip(rngs, sets, strict=True)
        ]
        for name, form in LISTS.items():
            plan = f"pacars(cascade=0, list={form})"
            rows = [
                _listed(plan, boxes, count, some, effort) for boxes, some in zip(sets, headers, strict=True)
            ]
            yield over_sets({"lists": name, "plan": plan, "filters": count}, rows)


def _listed(plan: str, boxes: Boxes, count: int, headers: Headers, effort: Effort) -> Row:
    step = max(1, (len(boxes) - count) // 4)
    flags = np.ones(len(boxes), bool)
    priority = np.arange(len(boxes), dtype=np.uint32)

    def update(inserts: bool) -> list[float]:
        spent = []
        for at in range(count, len(boxes), step):
            part = slice(at, at + step)
            chosen = np.ascontiguousarray(boxes[part]), priority[part].copy()
            spent.append(timed(lambda flag=flags[part] == inserts, of=chosen: db.update(flag, *of)) / step)  # type: ignore[misc]
        return spent

    with engine.open(plan, ruled(boxes[:count])) as db:
        row = searched(db, headers, effort.block)
        row["insert_us"] = update(True)
        row["remove_us"] = update(False)
        assert len(db) == count
        return row | {"bytes": db.bytes, "wrong": wrong(db, boxes[:count], headers, effort.checked)}


def hashes(seed: int, effort: Effort) -> Iterator[Row]:
    """Headers of each number of hashes timed by themselves, one at a time."""
    count = effort.sizes[-2]
    for number, (kind, make) in enumerate(HASHED.items()):
        filters = 128 if kind == "firewall" else count
        rng = rng_of(seed, "hashes", number)
        boxes = distinct(make, rng, filters)
        headers = packets(rng, boxes, effort.dynamic)
        for plan in TSS:
            with engine.open(plan, ruled(boxes)) as db:
                taken = db.work(headers)[1]["hashes"]
                for many in np.unique(taken):
                    some = np.ascontiguousarray(headers[taken == many][: 5 * effort.block])
                    if len(some) < effort.block // 2:
                        continue
                    block = effort.block // 10
                    row = {"alone_us": by_block(db.search_one_by_one, some, block), **work_of(db, some)}
                    fixed = {
                        "kind": kind,
                        "plan": plan,
                        "filters": filters,
                        "share": float((taken == many).mean()),
                    }
                    yield over_sets(fixed, [row])


def correlations(data: Row) -> list[Row]:
    """Of TSS: of time with hashes over the numbers of hashes of a set, with nanoseconds for each hash, and
    over the sizes of random filters.
    """
    result = []
    for plan in TSS:
        groups = [
            (
                f"{kind}, by hashes",
                [row for row in data["hashes"] if (row["kind"], row["plan"]) == (kind, plan)],
            )
            for kind in HASHED
        ]
        groups.append(("random, by filters", [row for row in data["random"] if row["plan"] == plan]))
        for name, rows in groups:
            x, y = ([row[key] for row in rows] for key in ("hashes", "alone_us"))
            if len(set(x)) > 1:
                row = {"plan": plan, "over": name, "points": len(rows), "r": correlation(x, y)}
                result.append(row | {"ns_per_hash": 1000 * slope(x, y)})
    return result


def one(seed: int, effort: Effort) -> Iterator[Row]:
    """One fully specified filter, beside 8,000 routed ones."""
    for count in (1, effort.sizes[-2]):
        rngs = [rng_of(seed, "one", turn) for turn in range(effort.sets)]
        sets = [distinct(host_filters if count == 1 else routed_filters, rng, count) for rng in rngs]
        headers = [packets(rng, boxes, effort.searches) for rng, boxes in zip(rngs, sets, strict=True)]
        for plan in PLANS:
            rows: list[Row] = []
            for boxes, some in zip(sets, headers, strict=True):
                with engine.open(plan, ruled(boxes)) as db:
                    rows.append(dict(searched(db, some, effort.block)))
                    rows[-1] |= work_of(db, some[: effort.block])
                    rows[-1] |= {"wrong": wrong(db, boxes, some, effort.checked)}
            yield over_sets({"plan": plan, "filters": count}, rows)


# -- paths -----------------------------------------------------------------------------------------


def paths(seed: int, effort: Effort) -> Iterator[Row]:
    """Nodes on the descent of a header in the trie of destinations, and those of them, with one child and no
    filter, that path compression would leave out; by bits to a node."""
    makers = {"random": random_filters, "routed": routed_filters, "edge": edge_filters}
    for number, (kind, make) in enumerate(makers.items()):
        rng = rng_of(seed, "paths", number)
        boxes = distinct(make, rng, effort.sizes[-2])
        values = packets(rng, boxes, effort.block)[:, 1].astype(np.int64)
        for stride in (1, 2, 4, 8):
            nodes, skipped = descent(boxes[:, 1].astype(np.int64), values, stride)
            row = {"trie": kind, "filters": len(boxes), "stride": stride, "nodes": nodes, "skipped": skipped}
            yield row | {"plan": f"tss_tries(stride={stride})"}


def descent(sides: Numbers, values: Numbers, stride: int) -> tuple[float, float]:
    """Mean nodes that *values* [headers] meet in a trie of prefixes *sides* [filters][2], *stride* bits to a
    node, and how many of them have one child and no filter; the root always stays.
    """
    length = np.array([32 - int(high - low).bit_length() for low, high in sides])
    level = -(-length // stride)
    nodes = skipped = 0.0
    met = np.ones(len(values), bool)
    for at in range(0, 32 // stride + 1):
        free = max(0, 32 - at * stride)
        # A prefix of no whole number of strides is several nodes.
        here = [
            np.arange(low >> free, (high >> free) + 1)
            for (low, high), own in zip(sides, level, strict=True)
            if own == at
        ]
        filled = np.unique(np.concatenate(here)) if here else np.empty(0, np.int64)
        below = free - stride
        children = np.unique(
            np.concatenate(
                [np.arange(low >> below, (high >> below) + 1) if own == at + 1 else [low >> below]
                 for (low, high), own in zip(sides, level, strict=True) if own > at] or [[]]
            ).astype(np.int64)
        )  # fmt: skip
        parents, many = np.unique(children >> stride, return_counts=True)
        there = np.union1d(filled, parents)
        met &= np.isin(values >> free, there)
        nodes += float(met.mean())
        if at:
            idle = np.setdiff1d(parents[many == 1], filled)
            skipped += float((met & np.isin(values >> free, idle)).mean())
    return nodes, skipped
