"""Figures 5 to 8 and table II of the SFL paper, from the data of benchmarks.lcn2016 only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hitables.files import write_text
from hitables.report.svg import svg

from ..lcn2016_sets import FORMS, KINDS, STATIC

Row = dict[str, Any]

# One colour an algorithm; what SFL made of it is dashed; the paper's form is thin.
COLOURS = {"linear": "C7", "tss": "C4", "hypersplit": "C0", "rfc": "C1", "bit_vector": "C2"}


def draw(data: dict[str, Any], folder: Path) -> None:
    """Write sfl.svg into *folder*; parts that were not measured leave their panels empty."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(5, 4, figsize=(22, 26))
    durations = sorted({row["seconds"] for row in data.get("deltas", [])})
    for column, kind in enumerate(KINDS):
        isolated, updated = data.get("figure5", []), data.get("table2", [])
        over_updates(
            panels[0][column], isolated, kind, "seconds", f"figure 5: seconds for k {kind}s", "updates k"
        )
        over_updates(
            panels[0][2 + column],
            isolated,
            kind,
            "ns",
            f"figure 5: ns per header after k {kind}s",
            "updates k",
        )
        over_time(panels[1][column], updated, kind)
        over_updates(
            panels[1][2 + column],
            updated,
            kind,
            "millions",
            f"table II: million headers, {kind}s",
            "updates asked for",
        )
        for row, (value, title) in enumerate(
            (("millions", "figure 7: million headers"), ("done", "figure 8: updates done"))
        ):
            for half, seconds in enumerate([*durations[:2], None, None][:2]):
                rows = [
                    each
                    for each in data.get("deltas", [])
                    if (each["kind"], each["seconds"]) == (kind, seconds)
                ]
                name = f"{title}, {kind}s in {seconds:g} s" if seconds else f"{title}, {kind}s"
                over_delta(panels[2 + row][2 * column + half], rows, value, name)
    for column, kind in enumerate(KINDS):
        over_updates(
            panels[4][column],
            data.get("table2", []),
            kind,
            "done",
            f"table II: updates done, {kind}s",
            "updates asked for",
        )
        bars(panels[4][2 + column], data.get("table2", []), kind)
    legend(figure, panels)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    write_text(str(folder / "sfl.svg"), svg(figure, letters="none"))
    plt.close(figure)


def plans() -> list[tuple[str, str, str]]:
    """Form, name and plan, each plan once."""
    seen: dict[str, tuple[str, str, str]] = {}
    for form, names in FORMS.items():
        for name, plan in names.items():
            seen.setdefault(plan, (form, name, plan))
    return list(seen.values())


def style(form: str, name: str) -> dict[str, Any]:
    inner = name.removeprefix("sfl(").removesuffix(")")
    thin = form == "paper"
    return {
        "color": COLOURS[inner], "ls": "--" if inner != name else "-", "label": label_of(form, name),
        "lw": 0.8 if thin else 1.8, "marker": "x" if thin else ".", "markersize": 4,
    }  # fmt: skip


def with_bars(panel: Any, x: list[float], rows: list[Row], value: str, look: dict[str, Any]) -> None:
    """A line of means with their intervals."""
    heights = [row[value]["mean"] for row in rows]
    errors = [row[value]["interval"] or 0.0 for row in rows]
    panel.errorbar(x, heights, yerr=errors, **look)


def over_updates(panel: Any, rows: list[Row], kind: str, value: str, title: str, below: str) -> None:
    for form, name, plan in plans():
        mine = sorted(
            (row for row in rows if row["plan"] == plan and row["kind"] == kind),
            key=lambda row: row["updates"],
        )
        if mine:
            with_bars(panel, [row["updates"] for row in mine], mine, value, style(form, name))
    panel.set_yscale("log")
    finish(panel, title, below)


def over_time(panel: Any, rows: list[Row], kind: str) -> None:
    for form, name, plan in plans():
        if name not in ("tss", "rfc", "sfl(rfc)"):
            continue
        for row in rows:
            if (row["plan"], row["kind"], row["updates"]) == (plan, kind, 100):
                part = row["seconds"] / len(row["ticks"])
                panel.plot(
                    [part * (number + 1) for number in range(len(row["ticks"]))],
                    [headers / part / 1e6 for headers in row["ticks"]],
                    **style(form, name),
                )
    finish(panel, f"figure 6: million headers/s, 100 {kind}s", "seconds")


def bars(panel: Any, rows: list[Row], kind: str) -> None:
    """Table II at 100 updates, with intervals."""
    for form, name, plan in plans():
        for row in rows:
            if (row["plan"], row["kind"], row["updates"]) == (plan, kind, 100):
                values = row["millions"]
                look = style(form, name)
                panel.barh(
                    f"{name} (paper)" if form == "paper" else name,
                    values["mean"],
                    xerr=values["interval"] or 0.0,
                    color=look["color"],
                    alpha=0.5 if form == "paper" else 1.0,
                    capsize=3,
                )
    panel.invert_yaxis()
    panel.set_title(f"table II: million headers with 100 {kind}s")


def over_delta(panel: Any, rows: list[Row], value: str, title: str) -> None:
    for form in FORMS:
        for inner in STATIC:
            # RFC without SFL is the same in both forms.
            mine = sorted(
                (
                    row
                    for row in rows
                    if row["algorithm"] == inner
                    and (row["form"] == form or (row["delta"] == 0 and row["plan"] == FORMS[form][inner]))
                ),
                key=lambda row: row["delta"],
            )
            if mine:
                look = style(form, f"sfl({inner})")
                with_bars(panel, [row["delta"] for row in mine], mine, value, look)
    finish(panel, title, "delta")


def legend(figure: Any, panels: Any) -> None:
    """One for all panels, at the bottom."""
    lines: dict[str, Any] = {}
    for panel in panels.flat:
        handles, labels = panel.get_legend_handles_labels()
        lines |= dict(zip(labels, handles, strict=True))
    shown = [label_of(form, name) for form, name, _ in plans() if label_of(form, name) in lines]
    if shown:
        figure.legend([lines[label] for label in shown], shown, loc="lower center", ncol=5)


def label_of(form: str, name: str) -> str:
    return f"{name}, the paper's form" if form == "paper" else name


def finish(panel: Any, title: str, below: str) -> None:
    panel.set_xlabel(below)
    panel.set_title(title)
