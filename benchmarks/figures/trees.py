"""Growth against rules read, one panel for each public set: docs/evaluation/trees.svg, from trees.json only.

Ours for several --max-expansion; beside it the 2014 tool (with its paper's parameters) and the first
prototype of the scheme.  Lower left is better; both scales are logarithmic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hitables.files import write_text
from hitables.report.svg import svg

# Growth and mean rules read: of the 2014 tool where it was run, of the prototype (one or two settings).
TOOL: dict[str, list[tuple[float, float]]] = {
    "wustl/acl1_1K": [(2.2, 44)], "wustl/acl1_10K": [(4.3, 338)], "wustl/fw1_1K": [(71.7, 113)],
    "wustl/fw1_5K": [(157, 338)], "wustl/fw1_10K": [(251, 586), (208.5, 591), (750, 580)],
    "wustl/ipc1_1K": [(1.7, 98)], "wustl/ipc1_10K": [(1.7, 663)],
}  # fmt: skip
PROTOTYPE: dict[str, list[tuple[float, float]]] = {
    "wustl/acl1_1K": [(1.4, 12.7)], "wustl/acl1_10K": [(1.5, 15.6)], "wustl/ipc1_1K": [(2.3, 15.7)],
    "wustl/ipc1_10K": [(2.5, 20.3)], "wustl/fw1_1K": [(3.0, 19.3)], "wustl/fw1_5K": [(4.0, 23.3)],
    "wustl/fw1_10K": [(3.4, 29.0), (3.8, 24.5)], "classbench/acl3_10k": [(2.2, 17.4)],
    "classbench/fw1_10k": [(3.9, 32.3), (4.3, 27.2)], "classbench/acl1_100k": [(1.3, 18.9)],
    "classbench/fw1_100k": [(7.6, 33.2)], "classbench/ipc1_100k": [(5.0, 28.5)],
}  # fmt: skip
COLUMNS = 4


def draw(data: dict[str, Any], folder: Path) -> None:
    """Write trees.svg into *folder*."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(row["set"] for row in data["pareto"]))
    rows = -(-len(names) // COLUMNS)
    figure, panels = plt.subplots(rows, COLUMNS, figsize=(4 * COLUMNS, 3 * rows), squeeze=False)
    for at, panel in enumerate(panels.flat):
        if at >= len(names):
            panel.set_axis_off()
            continue
        one_set(panel, data, names[at])
    panels[0][0].legend(fontsize=8)
    figure.supxlabel("growth: rules printed over rules read")
    figure.supylabel("mean rules read over the trace")
    figure.tight_layout()
    write_text(str(folder / "trees.svg"), svg(figure, letters="none"))
    plt.close(figure)


def one_set(panel: Any, data: dict[str, Any], name: str) -> None:
    ours = sorted((row["growth"], row["mean"]) for row in data["pareto"] if row["set"] == name)
    panel.plot(*zip(*ours, strict=True), "o-", color="C1", markersize=4, label="hitables")
    for points, mark, colour, label in (
        (PROTOTYPE.get(name, []), "^", "C2", "prototype"),
        (TOOL.get(name, []), "s", "C0", "2014 tool"),
    ):
        # An empty list draws nothing, but adds an entry to the legend.
        panel.plot([x for x, _ in points], [y for _, y in points], mark, color=colour, label=label)
    goal = data["goals"].get(name)
    if goal:
        panel.plot([goal["growth"]], [goal["mean"]], "+", color="black", markersize=10, label="goal")
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_title(name)
    panel.tick_params(labelsize=7, which="both")


def table(data: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """The same in figures, growth and mean rules read: a line per set, a column per --max-expansion."""
    asked = sorted({row["max_expansion"] for row in data["pareto"]})
    lines: list[list[object]] = []
    for name in dict.fromkeys(row["set"] for row in data["pareto"]):
        by_bound = {row["max_expansion"]: row for row in data["pareto"] if row["set"] == name}
        cells = [
            f"{by_bound[each]['growth']:.2f}, {by_bound[each]['mean']:.1f}" if each in by_bound else ""
            for each in asked
        ]
        beside = [
            "; ".join(f"{x:g}, {y:g}" for x, y in points.get(name, [])[:1]) for points in (PROTOTYPE, TOOL)
        ]
        lines.append([name.partition("/")[2], *cells, *beside])
    return ["set", *(f"{each:g}" for each in asked), "prototype", "2014 tool"], lines
