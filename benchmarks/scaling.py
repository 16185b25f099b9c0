"""Cost as the number of rules grows: `make bench-engine`, or `python -m benchmarks.scaling [--short]`.

Rule sets of 1,000 to a million rules are generated from the public seeds, and every classifier searches
each with headers drawn from its rules.  Lookups per second, seconds of a build and bytes are fitted by a
power of the number of rules, over the sizes that the classifier can build.  One that takes too long, or too
much memory, gets no larger set of that seed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from hitables import engine
from hitables.engine import Rules
from hitables.generate import rules as generated
from hitables.generate import seed, trace
from hitables.kernel.machine import machine

from . import command_line
from .classifiers import measured
from .doc_tables import DOCS, fill, markdown
from .public_sets import SHARED

OUTPUT = DOCS / "evaluation" / "growth.json"
KINDS = ("acl1", "fw1", "ipc1")
SIZES = (1_000, 10_000, 100_000, 1_000_000)
SHORT = ("best", "tss")
HEADERS = 1 << 18
# Seconds after which a classifier has no figure: a build of 100,000 rules may take ten.
PATIENCE = 30.0
COSTS = {"lookups_per_s": "lookups a second", "build_s": "seconds of a build", "bytes": "bytes"}

Line = dict[str, Any]


def growth(algorithms: list[str], sizes: tuple[int, ...], seconds: float) -> list[Line]:
    """A line for each seed and algorithm: its figures by size, and the fitted exponents."""
    points: dict[tuple[str, str], list[dict[str, float]]] = {}
    for kind in KINDS:
        path = SHARED / f"rulesets/classbench/seeds/{kind}_seed"
        drawn = seed.parse(path.read_text(), path.name)
        able = list(algorithms)
        for size in sizes:
            rules = Rules.of_filter(generated.rules(drawn, size))
            headers = trace.headers(rules, HEADERS)
            for algorithm in list(able):
                got = measured(algorithm, rules, headers, seconds, PATIENCE)
                if got is None:
                    able.remove(algorithm)
                    continue
                got.pop("found")
                points.setdefault((kind, algorithm), []).append({"rules": len(rules.boxes), **got})
                print(kind, size, algorithm, got, flush=True)
    return [
        {"seed": kind, "algorithm": algorithm, "points": there, "exponents": exponents(there)}
        for (kind, algorithm), there in points.items()
    ]


def exponents(points: list[dict[str, float]]) -> dict[str, float]:
    """The e of y = c * rules ** e, by least squares of the logarithms."""
    if len(points) < 2:
        return {}
    rules = np.log([point["rules"] for point in points])
    return {
        key: round(float(np.polyfit(rules, np.log([point[key] for point in points]), 1)[0]), 2)
        for key in COSTS
    }


def draw(lines: list[Line], path: Path) -> None:
    """A row of panels per seed, a panel per cost, a curve per classifier."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(len(KINDS), len(COSTS), figsize=(13, 11), sharex=True, squeeze=False)
    colours = {name: f"C{number}" for number, name in enumerate(dict.fromkeys(x["algorithm"] for x in lines))}
    for row, kind in zip(panels, KINDS, strict=True):
        for panel, (key, title) in zip(row, COSTS.items(), strict=True):
            for line in (each for each in lines if each["seed"] == kind):
                name, there = line["algorithm"], line["points"]
                panel.loglog(
                    [point["rules"] for point in there],
                    [point[key] for point in there],
                    "o-",
                    markersize=3,
                    linewidth=2.5 if name == "best" else 1,
                    color=colours[name],
                    label=name,
                )
            panel.set_title(f"{kind}: {title}")
        row[0].legend(fontsize=7)
    for panel in panels[-1]:
        panel.set_xlabel("rules")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def table(lines: list[Line]) -> str:
    """Exponents, of each seed's sets, and the most rules that were built of them."""
    rows = []
    for name in dict.fromkeys(line["algorithm"] for line in lines):
        there = {line["seed"]: line for line in lines if line["algorithm"] == name}
        cells = [
            " ".join(str(there[kind]["exponents"].get(key, "–")) if kind in there else "–" for kind in KINDS)
            for key in COSTS
        ]
        most = " ".join(
            f"{round(there[kind]['points'][-1]['rules'], -2):,}" if kind in there else "–" for kind in KINDS
        )
        rows.append([name, *cells, most])
    return markdown(("classifier", *COSTS.values(), "rules at most"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--algorithms", help="separated by commas; by default all but wrappers")
    parser.add_argument(
        "-o", "--output", type=Path, help="write the figures here, and draw no pages; of a part: out/"
    )
    args = parser.parse_args()
    if args.short or args.algorithms:  # the figures of the docs are of the whole run
        args.output = args.output or Path("out/growth.json")
        args.output.parent.mkdir(parents=True, exist_ok=True)
    every = [name for name, algorithm in engine.ALGORITHMS.items() if not algorithm.wraps]
    algorithms = args.algorithms.split(",") if args.algorithms else list(SHORT) if args.short else every
    lines = growth(algorithms, SIZES[:3] if args.short else SIZES, 0.2 if args.short else 0.5)
    data = {"machine": machine(), "headers": HEADERS, "growth": lines}
    (args.output or OUTPUT).write_text(json.dumps(data, indent=1) + "\n")
    if not args.output:
        fill(DOCS / "classifiers.md", "growth", table(lines))
        draw(lines, OUTPUT.with_suffix(".svg"))
    print(table(lines))


if __name__ == "__main__":
    command_line.run(main)
