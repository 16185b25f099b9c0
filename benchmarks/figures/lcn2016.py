"""Figures 5 to 8 and table II of the SFL paper, from the data of benchmarks.lcn2016 only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]

# One colour an algorithm; what SFL made of it is dashed.
COLOURS = {"linear": "C7", "tss": "C4", "hypersplit": "C0", "rfc": "C1", "bit_vector": "C2"}

# Millions of packets and updates done with 100 inserts in ten seconds, as the paper has them.
PAPER = {
    "linear": (1.2, 100), "tss": (2.4, 100), "hypersplit": (4.5, 75.6), "sfl(hypersplit)": (28.7, 100),
    "rfc": (16.0, 44.1), "sfl(rfc)": (43.6, 75.7), "bit_vector": (17.8, 100), "sfl(bit_vector)": (31.0, 100),
}  # fmt: skip


def draw(data: dict[str, Any], folder: Path) -> None:
    """Write sfl.svg into *folder*."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(3, 4, figsize=(20, 13))
    for column, kind in enumerate(("insert", "delete")):
        lines(panels[0][column], data["figure5"], kind, "seconds", f"5: seconds for k updates, {kind}")
        lines(panels[0][2 + column], data["figure5"], kind, "ns", f"5: ns per packet after them, {kind}")
        over_time(panels[1][column], data["table2"], kind)
        bars(panels[1][2 + column], data["table2"], kind)
        for row, (value, title) in enumerate(
            (("millions_per_s", "7: million packets/s"), ("done", "8: updates done"))
        ):
            over_delta(panels[2][2 * row + column], data["figure7"], kind, value, f"{title}, {kind}")
    figure.tight_layout()
    figure.savefig(folder / "sfl.svg")
    plt.close(figure)


def style(algorithm: str) -> dict[str, Any]:
    inner = algorithm.removeprefix("sfl(").removesuffix(")")
    return {"color": COLOURS[inner], "ls": "--" if inner != algorithm else "-", "label": algorithm}


def names(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["algorithm"] for row in rows))


def lines(panel: Any, rows: list[Row], kind: str, value: str, title: str) -> None:
    for name in names(rows):
        mine = [row for row in rows if row["algorithm"] == name and row["kind"] == kind]
        panel.plot([row["updates"] for row in mine], [row[value] for row in mine], marker=".", **style(name))
    panel.set_yscale("log")
    panel.set_xlabel("updates k")
    panel.set_title(title)
    panel.legend(fontsize=7)


def over_time(panel: Any, rows: list[Row], kind: str) -> None:
    for name in ("tss", "rfc", "sfl(rfc)"):
        for row in rows:
            if (row["algorithm"], row["kind"], row["updates"]) == (name, kind, 100):
                panel.plot([packets / 1e5 for packets in row["ticks"]], **style(name))
    panel.set_xlabel("tenths of a second")
    panel.set_title(f"6: million packets/s, 100 × {kind}")
    panel.legend(fontsize=7)


def bars(panel: Any, rows: list[Row], kind: str) -> None:
    for name in names(rows):
        mine = [row for row in rows if row["algorithm"] == name and row["kind"] == kind]
        panel.plot(
            [row["updates"] for row in mine], [row["millions"] for row in mine], marker=".", **style(name)
        )
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("updates asked for in 10 s")
    panel.set_title(f"table II: million packets in 10 s, {kind}")
    panel.legend(fontsize=7)


def over_delta(panel: Any, rows: list[Row], kind: str, value: str, title: str) -> None:
    for name in names(rows):
        mine = [row for row in rows if row["algorithm"] == name and row["kind"] == kind]
        panel.plot(
            [row["delta"] for row in mine],
            [row[value] for row in mine],
            marker=".",
            color=COLOURS[name],
            label=name,
        )
    panel.set_xlabel("delta")
    panel.set_title(title)
    panel.legend(fontsize=7)


def show(data: dict[str, Any]) -> None:
    """Print table II with the paper's figures, and table I's exponents."""
    table = Table(
        title=f"Table II, scaled to 10 s from {data['seconds']:g} s: million packets / updates done"
    )
    table.add_column("algorithm")
    kinds = [(kind, asked) for kind in ("insert", "delete") for asked in (10, 100, 300, 600)]
    for kind, asked in kinds:
        table.add_column(f"{asked} {kind[:3]}", justify="right")
    table.add_column("paper, 100 ins", justify="right")
    for name in names(data["table2"]):
        cells = []
        for kind, asked in kinds:
            row = next(
                row
                for row in data["table2"]
                if (row["algorithm"], row["kind"], row["updates"]) == (name, kind, asked)
            )
            cells.append(f"{row['millions']:.0f}/{row['done']:.0f}")
        table.add_row(name, *cells, "{:.0f}/{:.0f}".format(*PAPER[name]))
    console = Console(width=130)
    console.print(table)
    fitted = Table(title="Table I, exponents of n fitted from 250 to 4,000 rules")
    for column in ("algorithm", "spawn", "update", "classify"):
        fitted.add_column(column)
    for row in data["table1"]:
        fitted.add_row(
            row["algorithm"], *(f"{row['exponents'][what]:.2f}" for what in ("spawn", "update", "classify"))
        )
    console.print(fitted)
