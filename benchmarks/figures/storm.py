"""Figures 6 to 10 of the Storm paper, and what belongs to them, from the data of benchmarks.storm alone.

Panels of threads say whether a point is real or of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hitables.files import write_text
from hitables.report.svg import svg

LOCAL = "edge, s 2.2"
# The hit ratios of the paper's section 5.3.
PAPER_HITS = (0.95, 0.98)

Row = dict[str, Any]


def draw(data: dict[str, Any], folder: Path) -> None:
    """Write storm.svg into *folder*: panels of parts that are not in the data stay empty."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(3, 4, figsize=(22, 14))
    part = {name: data.get(name, []) for name in (
        "partitions", "hits", "locality", "unevolved", "ramp", "cache", "formula", "windows", "agreement",
    )}  # fmt: skip
    rates(panels[0][0], part["partitions"], "paper", "figure 6, model: the paper's costs")
    rates(panels[0][1], part["partitions"], "measured", "figure 6, model: costs measured here")
    scaling(panels[0][2], part["partitions"])
    ramps(panels[0][3], part["ramp"])
    by_set(panels[1][0], part["hits"])
    by_locality(panels[1][1], part["hits"], part["locality"])
    entries(panels[1][2], part["hits"])
    cache_sizes(panels[1][3], part["cache"])
    formula(panels[2][0], part["formula"])
    evolution(panels[2][1], part["hits"], part["unevolved"])
    windows(panels[2][2], part["windows"])
    agreement(panels[2][3], part["agreement"])
    for panel in panels.flat:
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=7)
    figure.tight_layout()
    write_text(str(folder / "storm.svg"), svg(figure, letters="none"))
    plt.close(figure)


def names_of(rows: Iterable[Row], what: str = "set") -> list[Any]:
    return list(dict.fromkeys(row[what] for row in rows))


def bars(panel: Any, groups: Sequence[str], series: dict[str, list[float]]) -> None:
    """Groups of bars side by side, one of each series."""
    width = 0.85 / max(1, len(series))
    for number, (label, values) in enumerate(series.items()):
        at = np.arange(len(values)) + (number - (len(series) - 1) / 2) * width
        panel.bar(at, values, width, label=label)
    panel.set_xticks(range(len(groups)), groups, fontsize=7)
    panel.margins(y=0.4)  # for the legend


def rates(panel: Any, rows: Sequence[Row], costs: str, title: str) -> None:
    rows = [row for row in rows if row["costs"] == costs and "lossless_per_s" in row and "scaling" not in row]
    series = {
        plan: [row["lossless_per_s"] / 1e6 for row in rows if row["plan"] == plan]
        for plan in names_of(rows, "plan")
    }
    bars(panel, names_of(rows), series)
    panel.set_title(title)
    panel.set_ylabel("million packets a second without loss")


def scaling(panel: Any, rows: Sequence[Row]) -> None:
    """Relative to the smallest number of cores."""
    rows = [row for row in rows if "scaling" in row]
    for costs, style in (("paper", "--"), ("measured", "-")):
        for name in names_of(rows):
            points = [
                (row["scaling"], row["lossless_per_s"])
                for row in rows if (row["set"], row["costs"]) == (name, costs)
            ]  # fmt: skip
            if points and points[0][1]:
                cores, values = zip(*points, strict=True)
                relative = [value / values[0] for value in values]
                panel.plot(cores, relative, style, marker="o", label=f"{name}, {costs} costs")
    panel.set_title("figure 7, model: 1-1-1, 2-2-1, 4-4-1, 8-8-1")
    panel.set_xlabel("cores")
    panel.set_ylabel("times the rate of 1-1-1")


def ramps(panel: Any, rows: Sequence[Row]) -> None:
    for row in rows:
        label = f"{row['set']}, {row['preset']}"
        panel.plot(np.arange(len(row["by_ms"])) + 1, row["by_ms"], label=label)
    panel.set_title("figure 8: hit ratio over time at 10 Gb/s")
    panel.set_xlabel("ms")
    panel.set_ylabel("hit ratio of the millisecond")


def of_permit(rows: Iterable[Row], every: int = 16) -> list[Row]:
    return [row for row in rows if row["classes"] == "90" and row.get("every", every) == every]


def by_set(panel: Any, rows: Sequence[Row]) -> None:
    rows = of_permit(rows)
    for preset in names_of(rows, "preset"):
        points = [(row["set"], row["steady"]) for row in rows if row["preset"] == preset]
        panel.plot(*zip(*points, strict=True), marker="o", label=preset)
    if rows:
        panel.axhspan(*PAPER_HITS, alpha=0.2, label="the paper")
    panel.set_title("figure 9: steady hit ratio, 20 entries")


def by_locality(panel: Any, hits: Sequence[Row], locality: Sequence[Row]) -> None:
    """Over the share of packets of the 20 most popular rules in 1,024 packets."""
    shares = {(row["set"], row["preset"]): row["window_shares"][2] for row in locality}
    rows = [row for row in of_permit(hits) if (row["set"], row["preset"]) in shares]
    for preset in names_of(rows, "preset"):
        points = [(shares[row["set"], preset], row["steady"]) for row in rows if row["preset"] == preset]
        panel.plot(*zip(*points, strict=True), "o", label=preset)
    if rows:
        panel.plot((0, 1), (0, 1), "k:", linewidth=0.8)
        panel.axhspan(*PAPER_HITS, alpha=0.2, label="the paper")
    panel.set_title("hit ratio over locality")
    panel.set_xlabel("share of the 20 most popular rules per 1,024 packets")


def entries(panel: Any, rows: Sequence[Row]) -> None:
    rows = [row for row in of_permit(rows) if row["set"] == "R2"] or of_permit(rows)[:3]
    for row in rows:
        searched = np.array(row["entries"])
        # A packet that no entry holds is compared with all 20.
        searched = np.append(searched[:-2], searched[-2:].sum())
        panel.step(np.arange(1, 21), np.cumsum(searched), where="mid", label=f"{row['set']}, {row['preset']}")
    panel.set_title("figure 10: entries searched, cumulative")
    panel.set_xlabel("entries")


def cache_sizes(panel: Any, rows: Sequence[Row]) -> None:
    for preset in names_of(rows, "preset"):
        points = [(row["cache"], row["hit_ratio"]) for row in rows if row["preset"] == preset]
        panel.plot(*zip(*points, strict=True), marker="o", label=f"hit ratio, {preset}")
    if rows:
        panel.axhspan(*PAPER_HITS, alpha=0.2, label="the paper")
    panel.set_title("table 5: hit ratio over the size of the cache, R3")
    panel.set_xlabel("entries")


def formula(panel: Any, rows: Sequence[Row]) -> None:
    """Rates over cache threads, relative to the best; a vertical line where formula (1) has its optimum."""
    for number, row in enumerate(row for row in rows if row["threads"] == 7):
        best = max(row["per_s"])
        caches = np.arange(len(row["per_s"])) + 1
        label = f"{row['set']}, {row['costs']} costs"
        panel.plot(caches, np.array(row["per_s"]) / best, marker="o", color=f"C{number}", label=label)
        panel.axvline(row["formula_1"], color=f"C{number}", linestyle=":")
    panel.set_title("formula (1) (dotted) and the model, 7 threads")
    panel.set_xlabel("cache threads")


def evolution(panel: Any, hits: Sequence[Row], rows: Sequence[Row]) -> None:
    """Hit ratios of evolving rules over those of a cache of original rules."""
    evolved = {
        (row["set"], row["preset"], row["classes"]): row["steady"] for row in hits if row["every"] == 16
    }
    for kind, marker in (("90", "o"), ("own", "x")):
        points = [
            (row["steady"], evolved[row["set"], row["preset"], kind])
            for row in rows
            if row["classes"] == kind and (row["set"], row["preset"], kind) in evolved
        ]
        if points:
            label = "permit, deny" if kind == "90" else "a class for each rule"
            panel.plot(*zip(*points, strict=True), marker, label=label)
    panel.plot((0, 1), (0, 1), "k:", linewidth=0.8)
    panel.set_title("evolving rules beside original rules in the cache")
    panel.set_xlabel("hit ratio of 20 original rules")
    panel.set_ylabel("hit ratio of 20 evolving rules")


def windows(panel: Any, rows: Sequence[Row]) -> None:
    chosen = [row for row in rows if row["prune"] and row["tries"] == 32 and row["classes"] == "90"]
    for name in names_of(chosen):
        for preset in names_of(chosen, "preset"):
            points = [
                (row["window"], row["evolving"])
                for row in chosen if (row["set"], row["preset"]) == (name, preset)
            ]  # fmt: skip
            if points:
                panel.plot(*zip(*points, strict=True), marker="o", label=f"{name}, {preset}")
    if chosen:
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.axhspan(20, 30, alpha=0.2, label="the paper, at 1,024")
    panel.set_title("evolving rules over the window")
    panel.set_xlabel("samples")


def agreement(panel: Any, rows: Sequence[Row]) -> None:
    labels = [f"{row['plan']}\n{row['set']}" for row in rows]
    bars(panel, labels, {
        "real": [row["real_per_s"] / 1e6 for row in rows],
        "model": [row["model_per_s"] / 1e6 for row in rows],
    })  # fmt: skip
    panel.tick_params(axis="x", rotation=75)
    panel.set_title("the model beside real threads, a core for each")
    panel.set_ylabel("million packets a second")
