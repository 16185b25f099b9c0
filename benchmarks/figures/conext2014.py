"""Figures 5a to 5f of "Trees in the List" (CoNEXT 2014), from the data of benchmarks.conext2014 only.

Scheme paper and the default.  a: how many times shorter paths get.  b: times faster in the kernel, over the
size of synthetic sets.  c: the same over the number of rules that the paper cannot transform.  d: the
distribution of path lengths.  e: growth.  f: build time.  Of synthetic sets: mean and deviation.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hitables.files import write_text
from hitables.report.svg import svg

SCHEMES = {"paper": "C0", "tree": "C1"}
SHOWN = (100, 1500, 3500)  # the synthetic sizes of figures 5a, 5d, 5e, 5f
SPREAD = ("ipc1_1K", "acl1_5K", "fw1_10K")  # the public sets of figure 5d
BUILT = "{set}, binth {binth}".format  # a bar of panel f, of the part "build"
STYLES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1)))

Row = dict[str, Any]


def draw(data: dict[str, Any], folder: Path) -> None:
    """Write hitables.svg into *folder*; parts that were not measured leave their panels empty."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    data = {"public": [], "sizes": [], "barred": [], "build": [], **data}
    figure, panels = plt.subplots(2, 3, figsize=(15, 8))
    bars(panels[0][0], data, "a: path length, times shorter", lambda row: row["linear"] / row["mean"])
    gains(panels[0][1], data["sizes"], "rules", "b: time per packet, times shorter", "rules")
    gains(
        panels[0][2],
        data["barred"],
        "barred",
        "c: the same, 1000 rules",
        "rules that the paper cannot transform",
    )
    spread(panels[1][0], data)
    bars(panels[1][1], data, "e: growth", lambda row: row["growth"])
    bars(panels[1][2], data, "f: build time, seconds", lambda row: row["seconds"], data["build"])
    figure.tight_layout()
    write_text(str(folder / "hitables.svg"), svg(figure))
    plt.close(figure)


def of_scheme(rows: Sequence[Row], scheme: str) -> list[Row]:
    """One row per public set: where there are several, the last (in the paper's figures: binth 20)."""
    return list({row["set"]: row for row in rows if row["scheme"] == scheme}.values())


def bars(
    panel: Any, data: dict[str, Any], title: str, value: Callable[[Row], float], built: Sequence[Row] = ()
) -> None:
    """A bar per public set and per synthetic size shown, for each scheme; logarithmic.

    *built*: rows of the part "build", which are of scheme paper.
    """
    for at, (scheme, colour) in enumerate(SCHEMES.items()):
        public = of_scheme(data["public"], scheme)
        heights = [value(row) for row in public]
        names = [row["set"] for row in public]
        spread = [0.0] * len(names)
        for size in SHOWN:
            values = [value(row) for row in data["sizes"] if row["scheme"] == scheme and row["rules"] == size]
            if values:
                heights.append(statistics.fmean(values))
                spread.append(statistics.pstdev(values))
                names.append(f"s_{size}")
        if scheme == "paper":
            names += [BUILT(**row) for row in built]
            heights += [value(row) for row in built]
            spread += [row["seconds_deviation"] for row in built]
        if not names:
            continue
        places = [x + 0.4 * at for x in range(len(names))]
        panel.bar(places, heights, 0.4, yerr=spread, color=colour, label=scheme)
        if scheme == "paper":
            panel.set_xticks([x + 0.2 for x in range(len(names))], names, rotation=90)
        panel.set_yscale("log")
        panel.legend()
    panel.set_title(title)


def gains(panel: Any, rows: Sequence[Row], over: str, title: str, label: str) -> None:
    """Mean and deviation of the gain in the kernel, without I/O (solid) and with it (dashed)."""
    timed = [row for row in rows if "ns" in row]
    for scheme, colour in SCHEMES.items():
        for style, gain in (("-", _without), ("--", _with)):
            places = sorted({row[over] for row in timed})
            matching = [
                [gain(row["ns"]) for row in timed if row["scheme"] == scheme and row[over] == x]
                for x in places
            ]
            name = f"{scheme}, {'without' if style == '-' else 'with'} I/O"
            middles = [statistics.fmean(each) for each in matching]
            spread = [statistics.pstdev(each) for each in matching]
            panel.errorbar(places, middles, spread, fmt=style, color=colour, label=name)
    if timed:
        panel.set_yscale("log")
        panel.legend()
    panel.set_xlabel(label)
    panel.set_title(title)


def _without(ns: dict[str, float]) -> float:
    return (ns["input"] - ns["empty"]) / max(ns["output"] - ns["empty"], 1.0)


def _with(ns: dict[str, float]) -> float:
    return ns["input"] / ns["output"]


def spread(panel: Any, data: dict[str, Any]) -> None:
    """Path lengths by percentile of the packets."""
    styles = dict(zip((*SPREAD, *(f"s_{size}" for size in SHOWN)), STYLES, strict=True))
    for scheme, colour in SCHEMES.items():
        curves = {
            row["set"]: [row["percentiles"]]
            for row in of_scheme(data["public"], scheme)
            if row["set"] in SPREAD
        }
        for size in SHOWN:
            sample = [
                row["percentiles"]
                for row in data["sizes"]
                if row["scheme"] == scheme and row["rules"] == size
            ]
            if sample:
                curves[f"s_{size}"] = sample
        for name, runs in curves.items():
            mean = [statistics.fmean(values) for values in zip(*runs, strict=True)]
            panel.plot(
                mean, range(len(mean)), linestyle=styles[name], color=colour, label=f"{name}, {scheme}"
            )
    if panel.lines:
        panel.set_xscale("log")
        panel.legend(fontsize=6)
    panel.set_xlabel("rules read")
    panel.set_ylabel("% of packets")
    panel.set_title("d: path lengths")
