"""The layer-4 paper (Sahasranaman and Buddhikot), measured again: `make papers-layer4`.

Its three experiments with filters of two prefixes.  I (figures 6 and 7, table 1): space of compressed
tries, plain and as bitmaps, and the time of their descent.  II (tables 2 and 3, figure 8): static sets,
firewalls and random filters.  III (figures 9 and 10): sets to which 10,000 flows are added and from which
they are removed.  Table 4: the lines of code.  What the paper says beside its figures is in `layer4_lists`:
the search of one list, updates in O(2 sqrt n), time by the number of hashes, one filter alone.

Searches are averages over 200,000 and 400,000 headers as in the paper, one at a time (the next begins when
the last has answered), and in batches, whose cache misses overlap.  Each value is the mean over several
sets of filters, with its 90 % confidence interval over the sets and the deviation between blocks of
searches.  The filters are those of `layer4_filters`: the paper's are not public.  A sample of each timed
search is compared with linear search.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hitables import engine
from hitables.kernel.machine import machine

from . import command_line, layer4_lists
from .doc_tables import DOCS, fill
from .figures.layer4 import draw, firewall_table, list_table, tables
from .layer4_filters import (
    FLOWS,
    KINDS,
    Boxes,
    Headers,
    distinct,
    firewall_filters,
    mixed_filters,
    packets,
    random_filters,
    ruled,
    tuples_of,
)
from .layer4_timing import (
    FULL,
    PLANS,
    SHORT,
    UPDATABLE,
    Effort,
    Row,
    over_sets,
    rng_of,
    searched,
    timed,
    walked,
    work_of,
    wrong,
)  # fmt: skip

OUTPUT = DOCS / "evaluation" / "layer4.json"

FORMS = {"plain": 0, "bitmap": 1, "bitmap, counted by an instruction": 2}
# By compression factor: PACARS takes half as many bits of each address.
COMPRESSED = {
    "pacars": {2 * k: f"pacars(stride={k}, form={{form}}, cascade=0, list=1)" for k in (1, 2, 4)},
    "tss_tries": {k: f"tss_tries(stride={k}, form={{form}}, table=1)" for k in (1, 2, 4, 8)},
    "grid_of_tries": {k: f"grid_of_tries(stride={k}, form={{form}})" for k in (1, 2, 4, 8)},
}
SMALL = 1000  # filters at most that are built once before, since a build takes microseconds
FIREWALLS = {"F1": 72, "F2": 128, "F3": 60}
SOURCES = {
    "grid_of_tries": ["grid_of_tries.c", "grid_of_tries_build.c", "grid_of_tries.h"],
    "tss_tries": ["tss_tries.c", "tuples.c", "tuples.h", "tuple_table.c", "tuple_table.h"],
    "pacars": ["pacars.c", "pacars_squares.c", "pacars_internal.h"],
    "pacars: arrays": ["pacars_arrays.c"],
    "pacars: skip lists": ["pacars_skip.c"],
    "pacars: buckets": ["pacars_buckets.c"],
    "tss": ["tss.c", "tss.h", "tuples.c", "tuples.h"],
    "shared": ["trie.c", "trie.h", "../memory/slab.c", "../memory/slab.h"],
}


def seconds_expected(effort: Effort) -> float:
    """Seconds of CPU of a whole run.

    By part: searches, and microseconds for each in batches and alone together, builds and updates included,
    from a recorded run.
    """
    forms = sum(len(plans) for plans in COMPRESSED.values()) * len(FORMS)
    searches = {
        "compression": (2 * forms * effort.few * effort.searches, 2.0),
        "firewall": (len(FIREWALLS) * len(PLANS) * effort.sets * effort.searches, 0.3),
        "random": (len(effort.sizes) * len(PLANS) * effort.sets * effort.searches, 0.6),
        "dynamic": (len(FLOWS) * len(effort.sizes) * len(UPDATABLE) * effort.few * effort.dynamic, 1.2),
        "lists": (6 * 4 * effort.sets * effort.searches, 4.0),
    }
    return sum(count * each for count, each in searches.values()) / 1e6


def static(plan: str, boxes: Boxes, headers: Headers, effort: Effort) -> Row:
    """Build, space, search and work of one set under one plan."""
    rules = ruled(boxes)
    if len(boxes) <= SMALL:
        engine.open(plan, rules).close()
    started = time.thread_time()
    with engine.open(plan, rules) as db:
        built = time.thread_time() - started
        return {
            "build_us": [built * 1e6],
            "bytes": db.bytes,
            **searched(db, headers, effort.block),
            **work_of(db, headers[: 2 * effort.block]),
            "wrong": wrong(db, boxes, headers, effort.checked),
        }


# -- the experiments -------------------------------------------------------------------------------


def compression(seed: int, effort: Effort) -> Iterator[Row]:
    """Experiment I: routed filters with a tenth of fully specified ones, every factor in every form; a set
    that fits into the caches, and one that does not.

    Headers are those of fully specified filters, whose descent leads to a leaf: the whole search, and the
    descent alone (but for Grid-of-Tries, whose search is nothing else).
    """
    for number, count in enumerate((effort.sizes[1], effort.sizes[-1])):
        rngs = [rng_of(seed, "compression", number, turn) for turn in range(effort.few)]
        sets = [distinct(mixed_filters, rng, count) for rng in rngs]
        hosts = [boxes[(boxes[:, :, 0] == boxes[:, :, 1]).all(axis=1)] for boxes in sets]
        headers = [packets(rng, some, effort.searches) for rng, some in zip(rngs, hosts, strict=True)]
        for name, plans in COMPRESSED.items():
            for factor, pattern in plans.items():
                for form, value in FORMS.items():
                    plan = pattern.format(form=value)
                    rows = []
                    for boxes, some in zip(sets, headers, strict=True):
                        rows.append(static(plan, boxes, some, effort))
                        if name != "grid_of_tries":
                            with engine.open(plan, ruled(boxes)) as db:
                                rows[-1] |= walked(db, some, effort.block)
                    fixed = {"algorithm": name, "factor": factor, "form": form}
                    yield over_sets({**fixed, "plan": plan, "filters": count}, rows)


def firewalls(seed: int, effort: Effort) -> Iterator[Row]:
    """Table 2, with the tuples of each set and what a search reads."""
    for number, (name, count) in enumerate(FIREWALLS.items()):
        rngs = [rng_of(seed, "firewall", number, turn) for turn in range(effort.sets)]
        sets = [distinct(firewall_filters, rng, count) for rng in rngs]
        headers = [packets(rng, boxes, effort.searches) for rng, boxes in zip(rngs, sets, strict=True)]
        for plan in PLANS:
            rows = [static(plan, boxes, some, effort) for boxes, some in zip(sets, headers, strict=True)]
            fixed = {"set": name, "plan": plan, "filters": count}
            yield over_sets(fixed, rows) | {"tuples": float(np.mean([tuples_of(boxes) for boxes in sets]))}


def randoms(seed: int, effort: Effort) -> Iterator[Row]:
    """Figure 8; filters at the root are those with a side of length 0."""
    for number, count in enumerate(effort.sizes):
        rngs = [rng_of(seed, "random", number, turn) for turn in range(effort.sets)]
        sets = [distinct(random_filters, rng, count) for rng in rngs]
        headers = [packets(rng, boxes, effort.searches) for rng, boxes in zip(rngs, sets, strict=True)]
        root = [int((boxes[:, :, 1] - boxes[:, :, 0] == 0xFFFFFFFF).any(axis=1).sum()) for boxes in sets]
        more = {
            "tuples": float(np.mean([tuples_of(boxes) for boxes in sets])),
            "root": float(np.mean(root)),
        }
        for plan in PLANS:
            rows = [static(plan, boxes, some, effort) for boxes, some in zip(sets, headers, strict=True)]
            yield over_sets({"plan": plan, "filters": count}, rows) | more


def dynamic(seed: int, effort: Effort) -> Iterator[Row]:
    """Experiment III: among static filters, flows come, are searched, and go."""
    for kind, flows in FLOWS.items():
        for number, count in enumerate(effort.sizes):
            rngs = [rng_of(seed, f"dynamic {kind}", number, turn) for turn in range(effort.few)]
            sets = [
                (distinct(KINDS[kind], rng, count), distinct(flows, rng, effort.flows), rng) for rng in rngs
            ]
            drawn = [
                (boxes, coming, packets(rng, np.concatenate([boxes, coming]), effort.dynamic))
                for boxes, coming, rng in sets
            ]
            tuples = float(np.mean([tuples_of(np.concatenate(both)) for *both, _ in drawn]))
            for plan in UPDATABLE:
                fixed = {"kind": kind, "plan": plan, "filters": count, "flows": effort.flows}
                yield over_sets(fixed, [updated(plan, *one, effort) for one in drawn]) | {"tuples": tuples}


def updated(plan: str, boxes: Boxes, coming: Boxes, headers: Headers, effort: Effort) -> Row:
    """All flows inserted, searched among, and removed in another order."""
    both, yes = np.concatenate([boxes, coming]), np.ones(len(coming), bool)
    priority = np.arange(len(boxes), len(both), dtype=np.uint32)
    turn = np.random.default_rng(len(coming)).permutation(len(coming))
    step = max(1, len(coming) // 20)

    def updates(wanted: Boxes, of: Any, inserts: bool) -> list[float]:
        return [
            timed(
                lambda part=slice(at, at + step): db.update(  # type: ignore[misc]
                    yes[part] == inserts, np.ascontiguousarray(wanted[part]), of[part].copy()
                )
            )
            / step
            for at in range(0, len(coming) - step + 1, step)
        ]

    with engine.open(plan, ruled(boxes)) as db:
        row: Row = {"insert_us": updates(coming, priority, True)}
        row |= searched(db, headers, effort.block) | work_of(db, headers[: 2 * effort.block])
        row["bytes"] = db.bytes
        row["wrong"] = wrong(db, both, headers, effort.checked)
        row["remove_us"] = updates(coming[turn], priority[turn], False)
        left = len(coming) // step * step
        if left == len(coming):
            row["wrong"] += wrong(db, boxes, headers, effort.checked)
        return row


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

Part = Callable[[int, Effort], Iterator[Row]]


def parts() -> dict[str, Part]:
    return {
        "compression": compression,
        "firewall": firewalls,
        "random": randoms,
        "dynamic": dynamic,
        "root": layer4_lists.root,
        "lists": layer4_lists.lists,
        "hashes": layer4_lists.hashes,
        "one": layer4_lists.one,
        "paths": layer4_lists.paths,
    }


def line_of(part: str, row: Row) -> str:
    """A row for the terminal."""
    names: tuple[str, ...] = ("set", "kind", "filters", "occupancy", "plan", "trie", "hashes")
    if part == "paths":
        names += ("nodes", "skipped")
    where = " ".join(
        f"{row[name]:.4g}" if isinstance(row[name], float) else str(row[name])
        for name in names
        if name in row
    )
    times = " ".join(
        f"{name.removesuffix('_us')} {row[name]:.3f} ± {row.get(f'{name}_ci', 0):.3f}"
        for name in row
        if name.endswith("_us")
    )
    return f"{part:<12}{where:<60} {times}"


def measure(
    data: Row, seed: int, effort: Effort, only: list[str] | None, report: Callable[[str], None]
) -> Iterator[Row]:
    """Measures part by part, and yields *data* when a part is whole."""
    for part, measured in parts().items():
        if only and part not in only:
            continue
        started, rows = time.monotonic(), []
        for row in measured(seed, effort):
            rows.append(row)
            report(line_of(part, row))
        data[part] = rows
        today, spent = datetime.date.today().isoformat(), round(time.monotonic() - started)
        used = {name: getattr(effort, name) for name in Effort.__slots__}
        data.setdefault("measured", {})[part] = {"date": today, "seconds": spent, "effort": used}
        if "random" in data and "hashes" in data:
            data["correlation"] = layer4_lists.correlations(data)
        yield data


def failures(data: Row) -> list[str]:
    """Searches whose answers were wrong."""
    return [
        f"{part}: {row['plan']}, {row['filters']} filters: {row['wrong']} wrong answers"
        for part in parts()
        for row in data.get(part, ())
        if row.get("wrong")
    ]


def write_pages(data: Row) -> None:
    """The figure and the tables of the docs, from the data alone."""
    if set(parts()) <= set(data):
        draw(data, OUTPUT.parent)
    for name, part, show in (
        ("layer4-firewalls", "firewall", firewall_table),
        ("layer4-lists", "lists", list_table),
    ):
        if data.get(part):
            fill(DOCS / "classifiers.md", name, show(data[part]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="smaller sets, fewer searches; into out/ or -o")
    parser.add_argument("--searches", type=int, help="at most, of each value; the data say how many")
    parser.add_argument(
        "--sets", type=int, help="of filters at most, of each value; two or more for intervals"
    )
    parser.add_argument("--only", nargs="+", choices=list(parts()), help="measure these, and keep the others")
    parser.add_argument("--draw", action="store_true", help="tables and figures from the data that is there")
    parser.add_argument("-o", "--output", type=Path, help="write the data here, and no tables")
    args = parser.parse_args()
    effort, path = SHORT if args.short else FULL, args.output or OUTPUT
    if args.searches:
        few = max(args.searches, effort.block)
        effort = replace(effort, searches=min(effort.searches, few), dynamic=min(effort.dynamic, few))
    if args.sets:
        effort = replace(effort, sets=min(effort.sets, args.sets), few=min(effort.few, args.sets))
    if args.short:  # the figures of the docs are of the whole run
        path = args.output or Path("out/layer4.json")
    if args.draw:
        write_pages(json.loads(path.read_text()))
        return
    data: Row = json.loads(path.read_text()) if args.only and path.exists() else {}
    data |= {"machine": machine(), "seed": args.seed}
    data["lines"] = lines_of_code()
    path.parent.mkdir(parents=True, exist_ok=True)
    if not args.only:
        print(f"a whole run takes about {seconds_expected(effort) / 60:.1f} minutes on an idle machine")
    for whole in measure(data, args.seed, effort, args.only, lambda line: print(line, flush=True)):
        path.write_text(json.dumps(whole, indent=1) + "\n")
    if path == OUTPUT:
        write_pages(data)
    elif set(parts()) <= set(data):
        draw(data, path.parent)
        print("\n" + tables(data))
    print(f"data: {path}")
    misses = failures(data)
    for line in misses:
        print(line, file=sys.stderr)
    sys.exit(1 if misses else 0)


if __name__ == "__main__":
    command_line.run(main)
