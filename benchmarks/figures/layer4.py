"""Tables 1 to 4 and figures 6 to 10 of the layer-4 paper, from the data of benchmarks.layer4 only.

The paper's figures are beside ours, where it has any: microseconds on a Pentium II, KB, lines.  Figures 8
to 10 have its axes, to 8,000 filters: solid lines are its structures, dashed ones those that it leaves out,
bars the 90 % confidence intervals; searches are one header at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hitables.files import write_text
from hitables.report.svg import svg

from ..doc_tables import markdown

NAMES = {
    "grid_of_tries": "Grid-of-Tries",
    "tss_tries(table=1)": "TSS behind tries, one table",
    "pacars(cascade=0, list=1)": "PACARS, skip lists",
    "pacars(list=1)": "PACARS, skip lists, cascading",
    "pacars(cascade=0, list=2)": "PACARS, buckets",
    "pacars(list=2)": "PACARS, buckets, cascading",
    "pacars(cascade=0)": "PACARS, arrays",
    "pacars": "PACARS, arrays, cascading",
    "tss_tries": "TSS behind tries, a table each",
    "tss": "TSS, vectors",
}
PAPER = list(NAMES)[:3]
DRAWN = [*PAPER, "pacars(list=1)", "pacars(cascade=0)", "tss_tries", "tss"]
COLOURS = {plan: f"C{number}" for number, plan in enumerate(NAMES)}
MOST_DRAWN = 8000
# Table 2: search, build (microseconds), space (KB); table 3: filters at the root, search; table 4.
_TSS, _PACARS = "tss_tries(table=1)", "pacars(cascade=0, list=1)"
PAPER_FIREWALL = {
    ("F1", "grid_of_tries"): (1.63, 1212, 32.06), ("F1", _TSS): (6.25, 53.39, 229.48),
    ("F1", _PACARS): (5.511, 52.11, 13.7), ("F2", "grid_of_tries"): (2.017, 3033, 63.376),
    ("F2", _TSS): (6.72, 54.60, 257.44), ("F2", _PACARS): (6.608, 88.34, 34.989),
    ("F3", "grid_of_tries"): (1.798, 781, 25.88), ("F3", _TSS): (6.07, 56.41, 224.88),
    ("F3", _PACARS): (5.38, 51.34, 9.30),
}  # fmt: skip
PAPER_ROOT = {59: 3.412, 117: 4.287, 206: 5.004, 408: 6.089}
PAPER_LINES = {"grid_of_tries": 1074, "tss_tries": 1385, "pacars": 3854}

Row = dict[str, Any]


def draw(data: dict[str, Any], folder: Path) -> None:
    """Write layer4.svg into *folder*."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(3, 4, figsize=(20, 13))
    small, large = (at(row["filters"] for row in data["compression"]) for at in (min, max))
    title = f"figure 6: {large:,} filters, KB against compression"
    compressed(panels[0][0], data, large, "bytes", 1024, title)
    for panel, filters in ((panels[0][1], small), (panels[0][2], large)):
        title = f"figure 7: {filters:,} filters, descent alone, µs"
        compressed(panel, data, filters, "walk_alone_us", 1, title)
    title = f"figure 7: {large:,} filters, whole search, µs"
    compressed(panels[0][3], data, large, "alone_us", 1, title)
    lines(panels[1][0], data["random"], "alone_us", "figure 8: random filters, search, µs")
    roots_drawn(panels[1][1], data["root"])
    hashes_drawn(panels[1][2], data["hashes"])
    lists_drawn(panels[1][3], data["lists"])
    for number, kind in enumerate(("routed", "edge")):
        rows = [row for row in data["dynamic"] if row["kind"] == kind]
        lines(panels[2][number], rows, "alone_us", f"figure 9: {kind} filters and flows, search, µs")
        few = [row for row in rows if row["plan"] in (*PAPER, "pacars(cascade=0)", "tss")]
        lines(panels[2][2 + number], few, "insert_us", "", ", insert")
        lines(panels[2][2 + number], few, "remove_us", f"figure 10: {kind}, an update, µs", ", remove")
    figure.tight_layout()
    write_text(str(folder / "layer4.svg"), svg(figure, letters="none"))
    plt.close(figure)


def compressed(panel: Any, data: dict[str, Any], filters: int, what: str, unit: float, title: str) -> None:
    """A line per algorithm and form over the compression factor; values are logarithmic."""
    measured = [row for row in data["compression"] if row["filters"] == filters and what in row]
    styles = dict(zip(dict.fromkeys(row["form"] for row in measured), ("-", "--", ":"), strict=False))
    for number, name in enumerate(dict.fromkeys(row["algorithm"] for row in measured)):
        for form, style in styles.items():
            rows = [row for row in measured if row["algorithm"] == name and row["form"] == form]
            bars(
                panel, [row["factor"] for row in rows], rows, what, unit,
                fmt=style, marker="o", color=f"C{number}", label=f"{name}, {form}",
            )  # fmt: skip
    panel.set_yscale("log")
    panel.set_xticks([1, 2, 4, 8])
    panel.set_xlabel("compression factor: log2 of a node's children")
    panel.set_title(title)
    panel.legend(fontsize=6)


def bars(panel: Any, x: Sequence[float], rows: Sequence[Row], what: str, unit: float = 1, **how: Any) -> None:
    """A line with the confidence intervals of its values, where there are any."""
    values, spread = ([row.get(name, 0) / unit for row in rows] for name in (what, f"{what}_ci"))
    panel.errorbar(x, values, yerr=spread if any(spread) else None, capsize=2, **how)


def lines(panel: Any, rows: Sequence[Row], what: str, title: str, more: str = "") -> None:
    """A line per plan over the number of filters, from 0 on as in the paper."""
    for plan in DRAWN:
        mine = [row for row in rows if row["plan"] == plan and row["filters"] <= MOST_DRAWN]
        style = ":" if more == ", remove" else "-" if plan in PAPER else "--"
        if mine:
            bars(
                panel, [row["filters"] for row in mine], mine, what,
                fmt=style, marker="o", color=COLOURS[plan], label=NAMES[plan] + more,
            )  # fmt: skip
    if title:  # the last lines of the panel: limits are those of all
        panel.set_xlim(left=0)
        panel.set_ylim(bottom=0)
    panel.set_xlabel("filters")
    panel.set_title(title)
    panel.legend(fontsize=6)


def roots_drawn(panel: Any, rows: Sequence[Row]) -> None:
    for name in dict.fromkeys(row["lists"] for row in rows):
        mine = [row for row in rows if row["lists"] == name]
        bars(panel, [row["occupancy"] for row in mine], mine, "alone_us", fmt="-", marker="o", label=name)
    panel.set_ylim(bottom=0)
    panel.set_xlabel("filters at the root")
    panel.set_title("table 3: search of the root alone, µs")
    panel.legend(fontsize=7)


def hashes_drawn(panel: Any, rows: Sequence[Row]) -> None:
    for kind in dict.fromkeys(row["kind"] for row in rows):
        mine = [row for row in rows if row["kind"] == kind and row["plan"] == "tss_tries(table=1)"]
        bars(panel, [row["hashes"] for row in mine], mine, "alone_us", fmt="-", marker="o", label=kind)
    panel.set_ylim(bottom=0)
    panel.set_xlabel("hashes of the search")
    panel.set_title("section 4.2: TSS, search, µs")
    panel.legend(fontsize=7)


def lists_drawn(panel: Any, rows: Sequence[Row]) -> None:
    for number, name in enumerate(dict.fromkeys(row["lists"] for row in rows)):
        mine = [row for row in rows if row["lists"] == name]
        for what, style in (("insert_us", "-"), ("alone_us", ":")):
            label = f"{name}, {what.removesuffix('_us').replace('alone', 'search')}"
            bars(
                panel, [row["filters"] for row in mine], mine, what,
                fmt=style, marker="o", color=f"C{number}", label=label,
            )  # fmt: skip
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("prefixes of the list")
    panel.set_title("section 2.2: one list, µs")
    panel.legend(fontsize=7)


# -- tables ----------------------------------------------------------------------------------------


def plus(row: Row, name: str, digits: int = 2) -> str:
    """A mean with its interval."""
    spread = f" ± {row[f'{name}_ci']:.{digits}f}" if f"{name}_ci" in row else ""
    return f"{row[name]:.{digits}f}{spread}"


def firewall_table(rows: Sequence[Row]) -> str:
    """Table 2 for the docs, with the paper's figures in brackets and what a search reads; of the structures
    that figures show.
    """
    head = (
        "set, structure", "one at a time, µs", "in batches, µs", "build, µs", "KB", "tuples", "tried",
        "hashes", "lists", "nodes",
    )  # fmt: skip
    lines_ = []
    for row in (row for row in rows if row["plan"] in DRAWN):
        its = PAPER_FIREWALL.get((row["set"], row["plan"]))
        search, build, space = (f" ({value:g})" for value in its) if its else ("", "", "")
        lines_.append(
            (
                f"{row['set']}, {row['filters']} filters, {NAMES[row['plan']]}",
                plus(row, "alone_us", 3) + search,
                plus(row, "search_us", 3),
                plus(row, "build_us", 0) + build,
                f"{row['bytes'] / 1024:.1f}{space}",
                f"{row['tuples']:.0f}",
                *(f"{row[name]:.1f}" if row[name] else "–" for name in ("tried", "hashes", "lists", "nodes")),
            )
        )
    return markdown(head, lines_)


def list_table(rows: Sequence[Row]) -> str:
    """Search and updates of one list for the docs, by form and length."""
    head = (
        "list",
        "prefixes",
        "search, one at a time, µs",
        "in batches, µs",
        "insert, µs",
        "remove, µs",
        "KB",
    )
    return markdown(
        head,
        [
            (
                row["lists"],
                f"{row['filters']:,}",
                *(plus(row, name, 3) for name in ("alone_us", "search_us")),
                *(plus(row, name) for name in ("insert_us", "remove_us")),
                f"{row['bytes'] / 1024:,.0f}",
            )
            for row in rows
        ],
    )


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
        ours = (plus(row, "alone_us", 3), f"{row['build_us']:.0f}", f"{row['bytes'] / 1024:.1f}")
        cells = (f"{mine} ({its})" for mine, its in zip(ours, paper, strict=True))
        work = (f"{row[name]:.1f}" for name in ("tried", "hashes", "lists", "nodes", "compared"))
        lines_.append((f"{row['set']}, {row['filters']} filters", NAMES[row["plan"]], *cells, *work))
    head = [
        "set",
        "algorithm",
        "search us",
        "build us",
        "KB",
        "tried",
        "hashes",
        "lists",
        "nodes",
        "compared",
    ]
    return grid("table 2: firewalls", head, lines_)


def roots(data: dict[str, Any]) -> str:
    lines_ = []
    for row in data["root"]:
        its = f" ({PAPER_ROOT[row['occupancy']]})" if row["lists"] == "skip lists" else ""
        alone = f"{plus(row, 'alone_us', 3)}{its}"
        cells = (alone, plus(row, "search_us", 3), f"{row['empty_alone_us']:.3f}")
        lines_.append((row["filters"], f"({row['occupancy']})", row["lists"], *cells))
    head = ["filters", "at the root", "lists", "search us", "in batches us", "without filters us"]
    return grid("table 3: PACARS, the root alone", head, lines_)


def sources(data: dict[str, Any]) -> str:
    lines_ = [(name, f"{count} ({PAPER_LINES.get(name, '-')})") for name, count in data["lines"].items()]
    return grid("table 4: lines of C", ["algorithm", "lines"], lines_)


def grid(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns side by side, as wide as they need."""
    text = [list(map(str, row)) for row in (head, *rows)]
    widths = [max(len(row[column]) for row in text) for column in range(len(head))]
    body = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in text)
    return "\n".join([f"{title} (the paper)", *(line.rstrip() for line in body)])
