"""Table II of the SFL paper in the kernel, as curves, from the data of benchmarks.lcn2016_kernel only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hitables.files import write_text
from hitables.report.svg import svg

COLOURS = {"linear": "C7", "reload": "C1", "overlay": "C2", "graft": "C0", "ipset": "C3", "nft set": "C4"}
NAME = "sfl-kernel.svg"
# The rate of the panels over time: the paper's figure 6 has 10 updates a second.
OVER_TIME = 10

Row = dict[str, Any]


def draw(data: dict[str, Any], folder: Path) -> None:
    """Write sfl-kernel.svg into *folder*: a column for each part."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    parts: dict[str, list[Row]] = data.get("parts", {})
    figure, panels = plt.subplots(3, max(1, len(parts)), figsize=(5 * max(1, len(parts)), 12), squeeze=False)
    for column, (part, rows) in enumerate(parts.items()):
        title = part.replace("-", ", ")
        over_rate(panels[0][column], rows, "per_second", 1e-3, f"{title}: thousand packets/s")
        over_rate(panels[1][column], [row for row in rows if row["asked"]], "done", 1, "updates done")
        over_time(panels[2][column], rows)
    figure.tight_layout()
    write_text(str(folder / NAME), svg(figure, letters="none"))
    plt.close(figure)


def over_rate(panel: Any, rows: Sequence[Row], what: str, unit: float, title: str) -> None:
    """Means with their intervals over updates asked for a second."""
    for way, colour in COLOURS.items():
        mine = [row for row in rows if row["way"] == way]
        if mine:
            panel.errorbar(
                [row["rate"] for row in mine],
                [unit * row[what]["mean"] for row in mine],
                [unit * (row[what]["ci90"] or 0) for row in mine],
                color=colour,
                marker=".",
                capsize=2,
                label=way,
            )
    panel.set_title(title)
    panel.set_xlabel("updates asked for a second")
    panel.set_xscale("symlog")
    if rows:
        panel.set_yscale("symlog" if what == "done" else "log")
        panel.legend(fontsize=8)


def over_time(panel: Any, rows: Iterable[Row]) -> None:
    """Packets per second over time, at the rate closest to OVER_TIME, of the first rule set."""
    rows = list(rows)
    asked = sorted({row["rate"] for row in rows if row["rate"]}, key=lambda rate: abs(rate - OVER_TIME))
    for row in rows:
        if asked and row["rate"] == asked[0]:
            panel.plot([each / 1e2 for each in row["ticks"]], color=COLOURS[row["way"]], label=row["way"])
    panel.set_title(f"thousand packets/s, {asked[0] if asked else 0} updates/s")
    panel.set_xlabel("tenths of a second")
    if rows:
        panel.set_ylim(bottom=0)
        panel.legend(fontsize=8)
