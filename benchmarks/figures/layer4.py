"""Tables 1 to 4 and figures 6 to 10 of the layer-4 paper, from the data of bench.papers_layer4 alone.

What the paper says stands beside it, where it gives figures: microseconds on a Pentium II, KB, lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

NAMES = {
    "grid_of_tries": "Grid-of-Tries",
    "tss_tries": "TSS behind tries",
    "pacars(cascade=0)": "PACARS, lists halved",
    "pacars": "PACARS, cascading",
    "tss": "TSS, vectors",
}
COLOURS = {plan: f"C{number}" for number, plan in enumerate(NAMES)}
# Table 2: search, build (microseconds), space (KB); table 3: filters at the root, search; table 4.
PAPER_FIREWALL = {
    ("F1", "grid_of_tries"): (1.63, 1212, 32.06), ("F1", "tss_tries"): (6.25, 53.39, 229.48),
    ("F1", "pacars(cascade=0)"): (5.511, 52.11, 13.7), ("F2", "grid_of_tries"): (2.017, 3033, 63.376),
    ("F2", "tss_tries"): (6.72, 54.60, 257.44), ("F2", "pacars(cascade=0)"): (6.608, 88.34, 34.989),
    ("F3", "grid_of_tries"): (1.798, 781, 25.88), ("F3", "tss_tries"): (6.07, 56.41, 224.88),
    ("F3", "pacars(cascade=0)"): (5.38, 51.34, 9.30),
}  # fmt: skip
PAPER_ROOT = {1000: (59, 3.412), 2000: (117, 4.287), 4000: (206, 5.004), 8000: (408, 6.089)}
PAPER_LINES = {"grid_of_tries": 1074, "tss_tries": 1385, "pacars": 3854}

Row = dict[str, Any]


def draw(data: dict[str, Any], folder: Path) -> None:
    """Write layer4.svg into *folder*."""
    import matplotlib

    matplotlib.use("Agg")
    # The same data give the same file.
    matplotlib.rcParams["svg.hashsalt"] = "hitables"
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, 4, figsize=(20, 9))
    small, large = (at(row["filters"] for row in data["compression"]) for at in (min, max))
    title = f"figure 6: {large:,} filters, KB against compression"
    compressed(panels[0][0], data, large, "bytes", 1024, title)
    for panel, filters in ((panels[0][1], small), (panels[0][2], large)):
        title = f"figure 7: {filters:,} filters, search, µs against compression"
        compressed(panel, data, filters, "search_us", 1, title)
    lines(panels[0][3], data["random"], "search_us", "figure 8: random filters, search, µs")
    for number, kind in enumerate(("routed", "edge")):
        rows = [row for row in data["dynamic"] if row["kind"] == kind]
        lines(panels[1][number], rows, "search_us", f"figure 9: {kind} filters and flows, search, µs")
        lines(panels[1][2 + number], rows, "insert_us", "", "-", ", insert")
        lines(panels[1][2 + number], rows, "remove_us", f"figure 10: {kind}, an update, µs", ":", ", remove")
    figure.tight_layout()
    figure.savefig(folder / "layer4.svg", metadata={"Date": None})
    plt.close(figure)


def compressed(panel: Any, data: dict[str, Any], filters: int, what: str, unit: float, title: str) -> None:
    """A line per algorithm and form over the compression factor; logarithmic."""
    measured = [row for row in data["compression"] if row["filters"] == filters]
    styles = dict(zip(dict.fromkeys(row["form"] for row in measured), ("-", "--", ":"), strict=False))
    for number, name in enumerate(dict.fromkeys(row["algorithm"] for row in measured)):
        for form, style in styles.items():
            rows = [row for row in measured if row["algorithm"] == name and row["form"] == form]
            factors, values = [row["factor"] for row in rows], [row[what] / unit for row in rows]
            panel.plot(factors, values, style, marker="o", color=f"C{number}", label=f"{name}, {form}")
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    panel.set_xlabel("compression factor: log2 of a node's children")
    panel.set_title(title)
    panel.legend(fontsize=6)


def lines(panel: Any, rows: Sequence[Row], what: str, title: str, style: str = "-", more: str = "") -> None:
    """A line per plan over the number of filters; logarithmic."""
    for plan in dict.fromkeys(row["plan"] for row in rows):
        mine = [row for row in rows if row["plan"] == plan]
        sizes, values = [row["filters"] for row in mine], [row[what] for row in mine]
        panel.plot(sizes, values, style, marker="o", color=COLOURS[plan], label=NAMES[plan] + more)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("filters")
    panel.set_title(title)
    panel.legend(fontsize=7)


def tables(data: dict[str, Any]) -> str:
    """Tables 1 to 4, ours and the paper's in brackets."""
    return "\n\n".join((savings(data), firewalls(data), roots(data), sources(data)))


def savings(data: dict[str, Any]) -> str:
    """Table 1: what bitmaps save in a quadtree, against the paper's count of pointers."""
    quadtrees = [row for row in data["compression"] if row["algorithm"] == "pacars"]
    large, lines_ = max(row["filters"] for row in quadtrees), []
    for factor in dict.fromkeys(row["factor"] for row in quadtrees):
        rows = {
            row["form"]: row["bytes"]
            for row in quadtrees
            if row["factor"] == factor and row["filters"] == large
        }
        plain, bitmap = 4 << factor, 4 + 2**factor / 8
        lines_.append((factor, f"{1 - rows['bitmap'] / rows['plain']:.0%} ({1 - bitmap / plain:.0%})"))
    head = ["factor", "of the whole structure (of a node's pointers)"]
    return grid("table 1: space that bitmaps save a quadtree", head, lines_)


def firewalls(data: dict[str, Any]) -> str:
    lines_ = []
    for row in data["firewall"]:
        paper = PAPER_FIREWALL.get((row["set"], row["plan"]), ("-", "-", "-"))
        ours = (f"{row['search_us']:.3f}", f"{row['build_us']:.0f}", f"{row['bytes'] / 1024:.1f}")
        cells = (f"{mine} ({its})" for mine, its in zip(ours, paper, strict=True))
        lines_.append((f"{row['set']}, {row['filters']} filters", NAMES[row["plan"]], *cells))
    return grid("table 2: firewalls", ["set", "algorithm", "search us", "build us", "KB"], lines_)


def roots(data: dict[str, Any]) -> str:
    lines_ = []
    for row in data["random"]:
        if not row["plan"].startswith("pacars"):
            continue
        paper = PAPER_ROOT.get(row["filters"], ("-", "-"))
        halved = row["plan"] != "pacars"
        search = f"{row['search_us']:.3f}" + (f" ({paper[1]})" if halved else "")
        lines_.append((row["filters"], f"{row['root']} ({paper[0]})", NAMES[row["plan"]], search))
    return grid("table 3: PACARS, random filters", ["filters", "at the root", "lists", "search us"], lines_)


def sources(data: dict[str, Any]) -> str:
    lines_ = [(name, f"{count} ({PAPER_LINES.get(name, '-')})") for name, count in data["lines"].items()]
    return grid("table 4: lines of C", ["algorithm", "lines"], lines_)


def grid(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns side by side, as wide as they need."""
    text = [list(map(str, row)) for row in (head, *rows)]
    widths = [max(len(row[column]) for row in text) for column in range(len(head))]
    body = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in text)
    return "\n".join([f"{title} (the paper)", *(line.rstrip() for line in body)])
