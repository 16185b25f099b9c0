"""Figures 5b and 5c of "Trees in the List" at saturation, from the data of benchmarks.saturation only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hitables.files import write_text
from hitables.report.svg import svg

COLOURS = {"paper": "C0", "tree": "C1"}
NAME = "hitables-saturation.svg"
PANELS = {
    "sizes": ("rules", "figure 5b: times faster, by packets received"),
    "barred": ("barred", "figure 5c: the same, 1,000 rules, some of which the paper does not transform"),
}

Row = dict[str, Any]


def draw(data: dict[str, Any], folder: Path) -> None:
    """Write hitables-saturation.svg into *folder*: panels of parts that are not in the data stay empty."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(13, 9))
    for column, (part, (over, title)) in enumerate(PANELS.items()):
        rows = data.get(part, [])
        gains(panels[0][column], rows, over, "", title)
        gains(panels[1][column], rows, over, "cpu_", "the same run by the processor clock of the sender")
    figure.tight_layout()
    write_text(str(folder / NAME), svg(figure, letters="none"))
    plt.close(figure)


def gains(panel: Any, rows: Sequence[Row], over: str, clock: str, title: str) -> None:
    """Mean and standard deviation of the speed-up without I/O (solid) and with it (dashed)."""
    for scheme, colour in COLOURS.items():
        mine = [row for row in rows if row["scheme"] == scheme]
        for style, what in (("-", "without_io"), ("--", "with_io")):
            there = [(row[over], row[clock + what]) for row in mine if row[clock + what] is not None]
            if there:
                panel.errorbar(
                    [place for place, _ in there],
                    [value["mean"] for _, value in there],
                    [value["deviation"] or 0 for _, value in there],
                    fmt=style,
                    color=colour,
                    capsize=2,
                    label=f"{scheme}, {what.replace('_io', ' I/O')}",
                )
    panel.set_title(title)
    panel.set_xlabel(over if over == "rules" else "rules that the paper does not transform")
    if rows:
        panel.axhline(1, color="C7", lw=0.5)
        panel.set_yscale("log")
        panel.legend(fontsize=8)
