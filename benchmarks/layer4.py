"""The layer-4 paper (Sahasranaman and Buddhikot) measured again: `make papers-layer4`.

Its three experiments on filters of two prefixes.  I (figures 6 and 7, table 1): space and search time of
compressed tries, plain and as bitmaps.  II (tables 2 and 3, figure 8): static sets, firewalls and random
filters.  III (figures 9 and 10): sets in which flows come and go.  And table 4, the lines of code.

The paper's filters are not public. *firewall*: a site's networks, nested, and few outside, as many
filters as its three firewalls had. *random*: lengths of 0 to 32, any as likely, which gives as many
filters at the root as its table 3 has. *routed*: prefixes of a routing table whose lengths are spread
as those of 1998 were (mostly /24). *edge*: fixed shares of hosts, subnets, several subnets and domains,
after Woo. Packets match a filter, any as likely. Every answer that is timed is compared with linear
search on a sample.

The figures are drawn from the data that this writes (benchmarks.figures.layer4).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables import engine
from hitables.engine import Layout, Rules
from hitables.kernel.machine import machine

PAIR = Layout((32, 32))
Row = dict[str, Any]
Boxes = npt.NDArray[np.uint32]

# As the paper had them, then with what it left out, and tuple space search as we would do it.  All with
# its compression factor of 4.
PLANS = ["grid_of_tries", "tss_tries", "pacars(cascade=0)", "pacars", "tss"]
UPDATABLE = PLANS[1:]
FORMS = {"plain": 0, "bitmap": 1, "bitmap, counted by an instruction": 2}
# By compression factor: PACARS takes half as many bits of each address.
COMPRESSED = {
    "pacars": {
        2: "pacars(stride=1, form={form}, cascade=0)",
        4: "pacars(stride=2, form={form}, cascade=0)",
        8: "pacars(stride=4, form={form}, cascade=0)",
    },
    "tss_tries": {factor: f"tss_tries(stride={factor}, form={{form}})" for factor in (1, 2, 4, 8)},
    "grid_of_tries": {factor: f"grid_of_tries(stride={factor}, form={{form}})" for factor in (1, 2, 4, 8)},
}
FIREWALLS = {"F1": 72, "F2": 128, "F3": 60}
SOURCES = {
    "grid_of_tries": ["grid_of_tries.c"],
    "tss_tries": ["tss_tries.c", "tuples.c"],
    "pacars": ["pacars.c"],
    "tss": ["tss.c", "tuples.c"],
    "shared": ["trie.c", "trie.h", "../memory/slab.c"],
}


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: of filters, packets timed, runs of which the best counts, flows, rounds.

    Rounds repeat everything, and the best counts again: what else a machine does lasts longer than a run.
    """

    sizes: tuple[int, ...] = (1000, 2000, 4000, 8000, 32000)
    packets: int = 100_000
    runs: int = 3
    flows: int = 5000
    checked: int = 1000
    rounds: int = 3


FULL = Effort()
SHORT = Effort(sizes=(500, 1000), packets=10_000, runs=1, flows=500, checked=300, rounds=1)


# -- filters and packets ---------------------------------------------------------------------------

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


# -- measuring -------------------------------------------------------------------------------------


def ruled(boxes: Boxes) -> Rules:
    return Rules(PAIR, boxes, np.arange(len(boxes), dtype=np.uint32))


def best(runs: int, work: Callable[[], object]) -> float:
    """CPU seconds of the fastest of *runs*."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def searched(db: engine.Database, headers: npt.NDArray[np.uint32], effort: Effort) -> float:
    """Microseconds per search."""
    out = np.empty(len(headers), np.int32)
    return best(effort.runs, lambda: db.search(headers, out)) / len(headers) * 1e6


def wrong(db: engine.Database, boxes: Boxes, headers: npt.NDArray[np.uint32], effort: Effort) -> int:
    """Answers that linear search would not give, of the first few."""
    some = headers[: effort.checked]
    with engine.open("linear", ruled(boxes)) as linear:
        return int((db.search(some) != linear.search(some)).sum())


def static(plan: str, boxes: Boxes, headers: npt.NDArray[np.uint32], effort: Effort) -> Row:
    """Build, space and search of one set under one plan."""
    rules = ruled(boxes)
    built = best(max(effort.runs, 3), lambda: engine.open(plan, rules).close())
    with engine.open(plan, rules) as db:
        return {
            "plan": plan,
            "filters": len(boxes),
            "build_us": built * 1e6,
            "bytes": db.bytes,
            "search_us": searched(db, headers, effort),
            "wrong": wrong(db, boxes, headers, effort),
        }


# -- the experiments -------------------------------------------------------------------------------


def compression(rng: np.random.Generator, effort: Effort) -> Iterator[Row]:
    """Experiment I: routed filters with a tenth of fully specified ones, every factor in every form; a set
    that fits into the caches, and one that does not."""

    def mixed(rng: np.random.Generator, count: int) -> Boxes:
        return np.concatenate([routed_filters(rng, count - count // 10), host_filters(rng, count // 10)])

    for count in (effort.sizes[1], effort.sizes[-1]):
        boxes = distinct(mixed, rng, count)
        headers = packets(rng, boxes, effort.packets)
        for name, plans in COMPRESSED.items():
            for factor, plan in plans.items():
                for form, number in FORMS.items():
                    row = static(plan.format(form=number), boxes, headers, effort)
                    yield {"algorithm": name, "factor": factor, "form": form, **row}


def firewalls(rng: np.random.Generator, effort: Effort) -> Iterator[Row]:
    for name, count in FIREWALLS.items():
        boxes = distinct(firewall_filters, rng, count)
        headers = packets(rng, boxes, effort.packets)
        for plan in PLANS:
            yield {"set": name, **static(plan, boxes, headers, effort)}


def randoms(rng: np.random.Generator, effort: Effort) -> Iterator[Row]:
    """Figure 8, and table 3: filters at the root are those with a side of length 0."""
    for count in effort.sizes:
        boxes = distinct(random_filters, rng, count)
        headers = packets(rng, boxes, effort.packets)
        root = int((boxes[:, :, 1] - boxes[:, :, 0] == 0xFFFFFFFF).any(axis=1).sum())
        for plan in PLANS:
            yield {"root": root, **static(plan, boxes, headers, effort)}


def dynamic(rng: np.random.Generator, effort: Effort) -> Iterator[Row]:
    """Experiment III: among static filters, flows come, are searched, and go."""
    for kind, flows in FLOWS.items():
        for count in effort.sizes:
            boxes = distinct(KINDS[kind], rng, count)
            coming = distinct(flows, rng, effort.flows)
            both = np.concatenate([boxes, coming])
            headers = packets(rng, both, effort.packets)
            priority = np.arange(count, len(both), dtype=np.uint32)
            turn = rng.permutation(effort.flows)
            for plan in UPDATABLE:
                yield {"kind": kind, **updated(plan, boxes, coming, priority, turn, headers, effort)}


def updated(
    plan: str,
    boxes: Boxes,
    coming: Boxes,
    priority: npt.NDArray[np.uint32],
    turn: npt.NDArray[Any],
    headers: npt.NDArray[np.uint32],
    effort: Effort,
) -> Row:
    both, yes = np.concatenate([boxes, coming]), np.ones(len(coming), bool)
    with engine.open(plan, ruled(boxes)) as db:
        inserts, removals = [], []
        for _ in range(effort.runs):
            inserts.append(best(1, lambda: db.update(yes, coming, priority)))
            search, bad = searched(db, headers, effort), wrong(db, both, headers, effort)
            removals.append(best(1, lambda: db.update(~yes, coming[turn], priority[turn])))
        bad += wrong(db, boxes, headers, effort)
        return {
            "plan": plan,
            "filters": len(boxes),
            "flows": len(coming),
            "search_us": search,
            "wrong": bad,
            "insert_us": min(inserts) / len(coming) * 1e6,
            "remove_us": min(removals) / len(coming) * 1e6,
        }


def lines_of_code() -> dict[str, int]:
    """Lines neither blank nor comment, of what each algorithm has alone, and of what they share."""
    folder = Path(engine.__file__).parents[1] / "core" / "c" / "classify"
    counted = {}
    for name, files in SOURCES.items():
        text = "\n".join((folder / file).read_text() for file in files)
        bare = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        counted[name] = sum(bool(line.strip()) for line in bare.splitlines())
    return counted


# -- all of it -------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[np.random.Generator, Effort], Iterator[Row]]] = {
    "compression": compression,
    "firewall": firewalls,
    "random": randoms,
    "dynamic": dynamic,
}


def line_of(part: str, row: Row) -> str:
    where = ", ".join(str(row[key]) for key in ("set", "kind") if key in row)
    line = f"{part:<12}{where:<8}{row['filters']:>6} {row['plan']:<40}{row['search_us']:>8.3f} us a search"
    if "build_us" in row:
        line += f"{row['build_us']:>10.0f} us to build{row['bytes'] / 1024:>9.0f} KB"
    if "insert_us" in row:
        line += f"{row['insert_us']:>8.2f} us to insert{row['remove_us']:>8.2f} us to remove"
    return line


def better(first: Row, second: Row) -> Row:
    """The lesser of each time; wrong answers of both count."""
    lesser = {key: min(first[key], second[key]) for key in first if key.endswith("_us")}
    return {**second, **lesser, "wrong": first["wrong"] + second["wrong"]}


def measure(seed: int, effort: Effort, report: Callable[[str], None]) -> dict[str, Any]:
    data: dict[str, Any] = {"machine": machine(), "seed": seed}
    data |= {"packets": effort.packets, "runs": effort.runs, "rounds": effort.rounds}
    data |= {part: [] for part in PARTS}
    for turn in range(effort.rounds):
        for number, (part, measured) in enumerate(PARTS.items()):
            for place, row in enumerate(measured(np.random.default_rng([seed, number]), effort)):
                if turn == 0:
                    data[part].append(row)
                else:
                    row = better(data[part][place], row)
                    data[part][place] = row
                if turn == effort.rounds - 1:
                    report(line_of(part, row))
    data["lines"] = lines_of_code()
    return data


def failures(data: dict[str, Any]) -> list[str]:
    """Searches whose answers were wrong."""
    return [
        f"{part}: {row['plan']}, {row['filters']} filters: {row['wrong']} wrong answers"
        for part in PARTS
        for row in data[part]
        if row["wrong"]
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="a few seconds, to see that it works")
    parser.add_argument("-o", "--output", type=Path, default=Path("out/papers-layer4"))
    args = parser.parse_args(arguments)
    data = measure(args.seed, SHORT if args.short else FULL, lambda line: print(line, flush=True))
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "layer4.json").write_text(json.dumps(data, indent=1) + "\n")
    from .figures.layer4 import draw, tables

    draw(data, args.output)
    print("\n" + tables(data))
    print(f"figures and data: {args.output}/")
    misses = failures(data)
    for line in misses:
        print(line, file=sys.stderr)
    sys.exit(1 if misses else 0)


if __name__ == "__main__":
    main()
