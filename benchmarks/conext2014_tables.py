"""The tables of docs/conext2014.md, from the data of benchmarks.conext2014 alone.

Means are followed by the standard deviation, as in the paper; of times and gains over the sets, of rules read
over the packets.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from .conext2014 import TOOL, gains
from .doc_tables import DOCS, fill, markdown
from .figures.conext2014 import of_scheme

PAGE = DOCS / "conext2014.md"
# Seconds that the paper states for fw1_10K, by binth.
PUBLISHED_SECONDS = {8: 14.3, 20: 4.3}

Row = dict[str, Any]


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean and deviation."""
    return f"{statistics.fmean(values):,.{digits}f} ± {statistics.pstdev(values):,.{digits}f}"


def _reads(row: Row) -> str:
    return f"{row['mean']:,.1f} ± {row['deviation']:,.1f}"


def tool_table(rows: Sequence[Row]) -> str:
    """Scheme paper as the tool of 2014 prints it, beside what that tool gave: growth, mean, longest path."""
    lines = []
    for row in rows:
        found = TOOL.get((row["set"], row["binth"], row["cuts"]))
        if row["scheme"] != "tool" or found is None:
            continue
        case = f"{row['set']}, binth {row['binth']}, {row['cuts']} cuts"
        ours = f"{row['growth']:.1f}", f"{row['mean']:,.0f}", row["longest"]
        lines.append([case, *(f"{each:,}" for each in found[:3]), *ours])
    head = "set", "tool: growth", "mean path", "longest", "ours: growth", "mean path", "longest"
    return markdown(head, lines)


def set_table(rows: Sequence[Row]) -> str:
    """Figures 5a, 5d, 5e and 5f of the public sets."""
    by_scheme = {scheme: {row["set"]: row for row in of_scheme(rows, scheme)} for scheme in ("paper", "tree")}
    lines = []
    for name, paper in by_scheme["paper"].items():
        line: list[object] = [name, paper["rules"], f"{paper['linear']:,.0f}"]
        for row in (paper, by_scheme["tree"][name]):
            line += [f"{row['linear'] / row['mean']:.1f}", _reads(row), row["longest"]]
            line += [f"{row['growth']:.1f}", f"{row['seconds']:.2f}"]
        lines.append(line)
    of_one = "times shorter", "rules read", "longest", "growth", "s"
    head = ["set", "rules", "linear", *(f"paper: {each}" for each in of_one[:1]), *of_one[1:]]
    return markdown([*head, "default: times shorter", *of_one[1:]], lines)


def synthetic_table(rows: Sequence[Row]) -> str:
    """Figures 5a, 5b, 5e and 5f of the synthetic sets, by their number of rules."""
    return _synthetic(rows, "rules", "rules")


def barred_table(rows: Sequence[Row]) -> str:
    """Figure 5c: 1,000 rules, some of which the paper cannot transform."""
    return _synthetic(rows, "barred", "barred of 1,000")


def _synthetic(rows: Sequence[Row], over: str, title: str) -> str:
    lines = []
    for place in sorted({row[over] for row in rows}):
        line: list[object] = [f"{place:,}"]
        for scheme in ("paper", "tree"):
            there = [row for row in rows if row["scheme"] == scheme and row[over] == place]
            line += [
                spread([row["linear"] / row["mean"] for row in there]),
                max(row["longest"] for row in there),
                spread([row["growth"] for row in there], 2),
                spread([row["seconds"] for row in there], 2),
                *_gains([row["ns"] for row in there if "ns" in row]),
            ]
        lines.append(line)
    of_one = "times shorter", "longest", "growth", "s", "times faster", "with I/O"
    return markdown([title, f"paper: {of_one[0]}", *of_one[1:], f"default: {of_one[0]}", *of_one[1:]], lines)


def _gains(times: Sequence[dict[str, float]]) -> list[str]:
    """Times faster in the kernel, without I/O and with it."""
    if not times:
        return ["not measured", "not measured"]
    without, whole = zip(*map(gains, times), strict=True)
    return [spread(without), spread(whole, 2)]


def variant_table(rows: Sequence[Row]) -> str:
    """Growth, mean and longest path of each set: runs of the tool and of the paper, by both heuristics."""
    cases = list(dict.fromkeys((row["runs"], row["dim_choice"]) for row in rows))
    by_set: dict[str, list[object]] = {}
    for row in rows:
        cells = by_set.setdefault(row["set"], [row["set"]])
        shown = f"{row['growth']:,.1f}, {row['mean']:,.1f}, {row['longest']:,}" if "growth" in row else "–"
        cells.append(shown)
    return markdown(["set", *(f"runs {runs}, {choice}" for runs, choice in cases)], by_set.values())


def build_table(rows: Sequence[Row]) -> str:
    """Figure 5f: the largest set at two sizes of leaves."""
    lines = [
        [
            f"{row['set']}, binth {row['binth']}",
            PUBLISHED_SECONDS.get(row["binth"], "") if row["set"] == "fw1_10K" else "",
            f"{row['trees']:.2f} ± {row['trees_deviation']:.2f}",
            f"{row['seconds']:.1f} ± {row['seconds_deviation']:.1f}",
            f"{row['growth']:.1f}",
            f"{row['megabytes']:,.0f}",
        ]
        for row in rows
    ]
    return markdown(("set", "paper, s", "trees, s", "with their rules, s", "growth", "MB"), lines)


def measured_table(measured: dict[str, Row]) -> str:
    """Of each part of the data: how it was measured."""
    lines = [
        [
            part,
            f"{about['sets']}: {len(about['names'])}" if "names" in about else "synthetic",
            about["runs"],
            about["machine"]["date"],
            about["machine"]["cpu"],
            about["machine"]["cores"],
        ]
        for part, about in measured.items()
    ]
    return markdown(("part", "sets", "runs", "date", "machine", "cores"), lines)


# Of each table of the page: the part of the data, and what shows it.
TABLES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "hitables-measured": ("measured", measured_table),
    "hitables-tool": ("public", tool_table),
    "hitables-sets": ("public", set_table),
    "hitables-synthetic": ("sizes", synthetic_table),
    "hitables-barred": ("barred", barred_table),
    "hitables-limited": ("limited", barred_table),
    "hitables-build": ("build", build_table),
    "hitables-variants": ("variants", variant_table),
}


def fill_page(data: Row) -> None:
    """Fill the tables whose parts were measured."""
    for name, (part, show) in TABLES.items():
        if data.get(part):
            fill(PAGE, name, show(data[part]))
