"""Figures 4 to 12 of the flow state paper, and the kernel's flow table, from data of benchmarks.flow_tables.

Figures 4 to 11 have the packets of a day, in comparisons beyond the first of hits (the count that fits the
paper's) and in processor time; figure 12 has TCP without purging.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hitables.files import write_text
from hitables.report.svg import svg

COLOURS = {
    "normal": "C3", "move_front": "C1", "circular": "C2", "insert_move_front": "C0", "ring": "C4",
}  # fmt: skip
# The first figure of the paper for each kind of packets: comparisons and times, of two traces.
NUMBERS = {"ip": 4, "tcp": 8}
WAYS = {"no tracking": "C7", "tracked": "C1", "established first": "C0"}

Row = dict[str, Any]


def draw(data: dict[str, Any], folder: Path) -> None:
    """Write flows.svg into *folder*: panels of parts that are not in the data stay empty."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    day = [row for row in data.get("day", ()) if row["part"] == "purged"]
    figure, panels = plt.subplots(3, 4, figsize=(20, 13))
    presets = list(dict.fromkeys(row["preset"] for row in day))[:2]
    for column, (kind, number) in enumerate((kind, number) for kind in NUMBERS for number in (0, 1)):
        preset = presets[number] if number < len(presets) else ""
        rows = [row for row in day if (row["preset"], row["kind"]) == (preset, kind)]
        first = NUMBERS[kind] + 2 * number
        title = f"{preset}, {kind}, {rows[0]['packets'] / 1e6:.0f} million packets" if rows else "no data"
        over_size(panels[0][column], rows, "beyond_first", f"figure {first}: {title}", "comparisons")
        over_size(panels[1][column], rows, "ns", f"figure {first + 1}: {title}", "ns per packet")
    unpurged = [row for row in data.get("day", ()) if row["part"] == "unpurged"]
    over_size(panels[2][0], unpurged, "ns", "figure 12: TCP, no flow purged", "ns per packet")
    over_size(
        panels[2][1], data.get("unpurged", ()), "ns", "figure 12: fewer packets, all sizes", "ns per packet"
    )
    for panel, backend in zip(panels[2][2:], ("legacy", "nft"), strict=True):
        conntrack(panel, [row for row in data.get("kernel", ()) if row["backend"] == backend], backend)
    figure.tight_layout()
    write_text(str(folder / "flows.svg"), svg(figure, letters="none"))
    plt.close(figure)


def over_size(panel: Any, rows: Iterable[Row], what: str, title: str, unit: str) -> None:
    """A line per scheme over the number of buckets; logarithmic.  Rows without the value have no point."""
    rows = [row for row in rows if what in row]
    for scheme, colour in COLOURS.items():
        points = [(row["buckets"], row[what]) for row in rows if row["scheme"] == scheme]
        if points:
            panel.plot(*zip(*points, strict=True), marker="o", color=colour, label=scheme)
    panel.set_title(title)
    if not rows:
        return
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xlabel("buckets")
    panel.set_ylabel(unit)
    panel.legend(fontsize=7)


def conntrack(panel: Any, rows: Sequence[Row], backend: str) -> None:
    """ns over the share of established packets, of the chain of 1,000 rules as it is and compiled."""
    rows = [row for row in rows if row["rules"] == 1000]
    for chain, style in (("as it is", "--"), ("compiled", "-")):
        for way, colour in WAYS.items():
            points = [
                (row["ratio"], each["ns"])
                for row in rows
                for each in row["ns"]
                if (each["chain"], each["way"]) == (chain, way)
            ]
            if points:
                label = f"{chain}, {way}"
                panel.plot(*zip(*points, strict=True), style, marker="o", color=colour, label=label)
    panel.set_title(f"1,000 rules in the kernel, {backend}")
    if rows:
        panel.set_yscale("log")
        panel.set_xlabel("share of packets of established flows")
        panel.set_ylabel("ns per packet above an empty rule set")
        panel.legend(fontsize=7)
