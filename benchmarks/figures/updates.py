"""Figures 6 to 8 of "The Small, the Fast and the Lazy" (LCN 2016) for jump trees, drawn from the data of
benchmarks.updates alone.

Left: rules read against pending updates, all in front of the tree and where the cost model puts them.
Middle: the cost of delta at a given load; its lowest point is the best delta.  Right: possible updates
per second, by delta.  One row of panels per rule set.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hitables.files import write_text
from hitables.report.svg import svg

STYLES = {"insert": "-", "delete": "--"}
SHADES = {"overlay": "0.6", "graft": "black"}
# The load for which a best delta is read off, a second; nanoseconds that nft takes to read a rule
# (docs/costs.md: 12 for a protocol that misses, 35 for a jump that is taken).
PACKETS, UPDATES, RULE = 1_000_000, 10, 20
NAMES = {"overlay": "in front", "graft": "by cost"}

Row = dict[str, Any]


def draw(data: Row, path: Path) -> None:
    """Write the figure to *path*, an .svg."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    sets = data["growth"]
    figure, panels = plt.subplots(len(sets), 3, figsize=(13, 3.6 * len(sets)), squeeze=False)
    for line, growth in zip(panels, sets, strict=True):
        times = next(row for row in data["times"] if (row["set"], row["backend"]) == (growth["set"], "nft"))
        for curve in growth["curves"]:
            look = {
                "linestyle": STYLES[curve["kind"]],
                "color": SHADES[curve["strategy"]],
                "label": f"{curve['kind']}, {NAMES[curve['strategy']]}",
            }
            line[0].plot(growth["pending"], curve["reads"], **look)
            costs = delta_costs(curve["reads"], growth["pending"], times)
            line[1].plot(growth["pending"], costs, **look)
            lowest = costs.index(min(costs))
            line[1].plot([growth["pending"][lowest]], [costs[lowest]], "o", color=look["color"])
        line[2].plot(growth["pending"], updates_per_second(times, growth["pending"]), color="black")
        title(line, growth["set"])
    panels[0][0].legend()
    figure.tight_layout()
    write_text(str(path), svg(figure))
    plt.close(figure)


def title(line: Sequence[Any], name: str) -> None:
    words = (
        (f"{name}: rules read", "pending updates"),
        ("cost: processors", "delta"),
        ("updates a second", "delta"),
    )
    for panel, (above, below) in zip(line, words, strict=True):
        panel.set_title(above)
        panel.set_xlabel(below)
        panel.set_ylim(bottom=0)


def delta_costs(reads: Sequence[float], deltas: Sequence[int], times: Row) -> list[float]:
    """The cost of each delta, in processors: more rules read, and a fold every delta + 1 updates."""
    costs = []
    for at, delta in enumerate(deltas):
        more = statistics.mean(reads[: at + 1]) - reads[0]
        each = (delta * patch_ms(times) + times["rebuild_ms"] + times["load_ms"]) / (delta + 1)
        costs.append(PACKETS * more * RULE * 1e-9 + UPDATES * each / 1000)
    return costs


def patch_ms(times: Row) -> float:
    """The time of one update, from reading its command to the kernel's answer."""
    return float(sum(each["mean"] for each in times["spent_ms"].values()))


def updates_per_second(times: Row, deltas: Sequence[int]) -> list[float]:
    """The rate if one of delta + 1 updates waits for a fold."""
    fold = times["rebuild_ms"] + times["load_ms"]
    return [1000 * (delta + 1) / (delta * patch_ms(times) + fold) for delta in deltas]


def times_table(data: Row) -> tuple[list[str], list[list[object]]]:
    """Head and rows for the page: milliseconds, medians, all anew, the linear set."""
    head = [
        "set, backend", "plan", "text", "proof", "kernel", "a fold in the kernel", "all anew",
        "`iptables`, linear set",
    ]  # fmt: skip
    rows: list[list[object]] = []
    for row in data["times"]:
        spent = [f"{row['spent_ms'][name]['median']:.1f}" for name in ("plan", "text", "proof", "kernel")]
        anew = f"{row['rebuild_ms'] + row['load_ms']:,.0f}"
        fold, linear = f"{row['fold']['counter_window_ms']:,.0f}", f"{row['linear']['median']:.0f}"
        rows.append([f"{row['set']}, {row['backend']}", *spent, fold, anew, linear])
    return head, rows


def sustained_table(data: Row) -> tuple[list[str], list[list[object]]]:
    """Head and rows for the page: the rate that `stream` sustains."""
    head = [
        "set", "kernel", "updates/s", "answer, ms", "longest, ms", "processor, ms",
        "rules read", "folded then", "times",
    ]  # fmt: skip
    rows: list[list[object]] = []
    for row in data["sustained"]:
        answer = row["answer_ms"]
        rows.append(
            [
                f"{row['set']} {row['kind']}",
                row["kernel"],
                f"{row['per_second']:.0f}",
                f"{answer['median']:.0f}",
                f"{answer['max']:,.0f}",
                f"{row['cpu_ms_per_update']:.0f}",
                f"{row['mean_reads']:.1f}",
                f"{row['mean_folded']:.1f}",
                f"{row['ratio']:.1f}",
            ]
        )
    return head, rows


def growth_table(data: Row) -> tuple[list[str], list[list[object]]]:
    """Head and rows for the page: rules read with no and with all pending updates, the best delta."""
    head = ["set", "updates", "entries", "rules read, none pending", "all pending", "best delta"]
    rows: list[list[object]] = []
    for growth in data["growth"]:
        times = next(row for row in data["times"] if (row["set"], row["backend"]) == (growth["set"], "nft"))
        for curve in growth["curves"]:
            costs = delta_costs(curve["reads"], growth["pending"], times)
            first, last = curve["reads"][0], curve["reads"][-1]
            where = NAMES[curve["strategy"]]
            rows.append(
                [
                    growth["set"],
                    f"{growth['pending'][-1]} × {curve['kind']}",
                    where,
                    f"{first:.1f}",
                    f"{last:.1f}",
                    growth["pending"][costs.index(min(costs))],
                ]
            )
    return head, rows
