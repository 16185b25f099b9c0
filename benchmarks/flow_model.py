"""The complexity model of the flow state paper (table 2), with its quantities measured.

A search costs 1 + X0 a with `normal`, and 1 + (Xi a + Yi) / k with the others: a is the load (flows per
bucket), k the burst length in a bucket, Xi the keys compared by the first packet of a burst per unit of load,
Yi the pointers written when it changes the order.  Comparisons beyond the first of a packet are those of
first packets of bursts, so Xi a is their mean times k; for `normal` k is left out, as in the paper.

Xi and Yi are measured in one size of table and stand for all others, so that the model predicts something.
Times are predicted by the costs of a packet, of a comparison and of a write, measured in a table that lies in
the caches; *with inserts* adds the measured cost of a new flow, which the paper leaves out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables.engine import FlowTable

from .doc_tables import markdown

# The size in which Xi and Yi are measured, and the number of each scheme in the paper's table 2.
AT = 1 << 12
NUMBER = {"normal": 0, "move_front": 1, "circular": 2, "insert_move_front": 3}
# Sizes in the table of the page.
SHOWN = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18)
# Packets of a measurement of costs.
PACKETS = 1 << 17

Headers = npt.NDArray[np.uint32]
Row = dict[str, Any]


def flows_of_bucket(count: int) -> Headers:
    """*count* flows, for a table of one bucket."""
    headers = np.zeros((count, 5), np.uint32)
    headers[:, 0] = np.arange(count)
    headers[:, 4] = 6
    return headers


def replay_ns(scheme: str, warm: Headers, headers: Headers, runs: int, purge: int = 0) -> tuple[float, Row]:
    """ns per packet of *headers* after *warm*, one bucket, best of *runs*; and what one replay counts."""
    with FlowTable(scheme, 1, purge=purge, hash="zobel") as table:
        table.replay(warm)
        before = table.statistics()
        stats = table.replay(headers)
        counted = {
            "comparisons": (stats.comparisons - before.comparisons) / len(headers),
            "writes": (stats.move_writes - before.move_writes) / len(headers),
        }
    spent = []
    for _ in range(runs):
        with FlowTable(scheme, 1, purge=purge, hash="zobel") as table:
            table.replay(warm)
            start = time.thread_time()
            table.replay(headers, group=1, counted=False)
            spent.append((time.thread_time() - start) / len(headers) * 1e9)
    return min(spent), counted


def unit_costs(runs: int = 5) -> Row:
    """ns of a packet whose flow is first, of a comparison more, of a pointer written, and of a new flow.

    The first three are the least squares over chains of 1 to 9 flows: packets of the last flow of `normal`,
    and flows in turn with `insert_move_front` and `circular`.
    """
    equations: list[tuple[float, float, float]] = []
    times: list[float] = []
    for length in (1, 2, 3, 5, 7, 9):
        flows = flows_of_bucket(length)
        last = np.repeat(flows[:1], PACKETS, axis=0)
        turns = flows[np.arange(PACKETS) % length]
        for scheme, headers in (("normal", last), ("insert_move_front", turns), ("circular", turns)):
            ns, counted = replay_ns(scheme, flows, headers, runs)
            equations.append((1.0, counted["comparisons"] - 1, counted["writes"]))
            times.append(ns)
    first, comparison, write = np.linalg.lstsq(np.array(equations), np.array(times), rcond=None)[0]
    # New flows only, one or two more comparisons than a purge of 5 leaves: chains are 5 to 9 long.
    ns, counted = replay_ns("normal", flows_of_bucket(5), flows_of_bucket(PACKETS + 5)[5:], runs, purge=5)
    insert = ns - first - (counted["comparisons"] - 1) * comparison
    return {
        "first_ns": float(first), "comparison_ns": float(comparison), "write_ns": max(0.0, float(write)),
        "insert_ns": max(0.0, float(insert)),
    }  # fmt: skip


def measured(row: Row) -> Row:
    """The quantities of table 2 in one row of flow_tables.schemes."""
    packets, k = row["packets"], row["k"]
    beyond = (row["comparisons"] - packets) / packets
    share = 1.0 if row["scheme"] == "normal" else k
    return {
        "x": beyond * share / row["load"],
        "y": row["move_writes"] / packets * k,
        "writes_of_a_move": row["move_writes"] / row["moves"] if row["moves"] else 0.0,
    }


def predictions(rows: Sequence[Row], units: Row) -> Iterator[Row]:
    """Comparisons and ns per packet, predicted and measured, of each scheme, size and kind of packets."""
    for row in rows:
        number = NUMBER.get(row["scheme"])
        if number is None:
            continue
        same = ("preset", "kind", "scheme")
        fixed = next(
            measured(each)
            for each in rows
            if each["buckets"] == AT and all(each[name] == row[name] for name in same)
        )
        k = 1.0 if number == 0 else row["k"]
        comparisons = 1 + fixed["x"] * row["load"] / k
        writes = fixed["y"] / row["k"]
        ns = units["first_ns"] + (comparisons - 1) * units["comparison_ns"] + writes * units["write_ns"]
        yield {
            **{name: row[name] for name in (*same, "buckets", "k", "load")},
            "number": number,
            **{name: measured(row)[name] for name in ("x", "y", "writes_of_a_move")},
            "fixed_x": fixed["x"],
            "fixed_y": fixed["y"],
            "comparisons": row["comparisons"] / row["packets"],
            "predicted_comparisons": comparisons,
            "ns": row["ns"],
            "predicted_ns": ns,
            "predicted_ns_with_inserts": ns + row["inserts"] / row["packets"] * units["insert_ns"],
        }


def table(rows: Sequence[Row]) -> str:
    """Table 2 for all packets of each preset: comparisons and ns per packet, predicted and measured."""
    chosen = [row for row in rows if row["kind"] == "ip"]
    sizes = [size for size in dict.fromkeys(row["buckets"] for row in chosen) if size in SHOWN]
    lines = []
    for preset, scheme in dict.fromkeys((row["preset"], row["scheme"]) for row in chosen):
        there = {row["buckets"]: row for row in chosen if (row["preset"], row["scheme"]) == (preset, scheme)}
        cells = [
            f"{row['predicted_comparisons']:.2f} / {row['comparisons']:.2f}, "
            f"{row['predicted_ns_with_inserts']:.0f} / {row['ns']:.0f}"
            for row in (there[size] for size in sizes)
        ]
        one = next(iter(there.values()))
        lines.append([f"{preset}, {scheme}", f"{one['fixed_x']:.2f}", f"{one['fixed_y']:.2f}", *cells])
    return markdown(("packets", "Xi", "Yi", *(f"{size:,} buckets" for size in sizes)), lines)
