"""`make bench-generate`: sets generated from the public seeds, compared with the published sets of the same
seeds.

Writes docs/evaluation/generate.json: the statistics of both, with machine and seed.
"""

from __future__ import annotations

import argparse
import gzip
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hitables.generate import rules, seed
from hitables.generate.likeness import Likeness, likeness
from hitables.kernel.machine import machine
from hitables.parse import classbench

from . import command_line
from .public_sets import SHARED

SIZES = {"1K": 1000, "5K": 5000, "10K": 10000}
WRITTEN = Path("docs/evaluation/generate.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=WRITTEN)
    args = parser.parse_args()
    rows = []
    for name in ("acl1", "fw1", "ipc1"):
        path = SHARED / f"rulesets/classbench/seeds/{name}_seed"
        drawn = seed.parse(path.read_text(), path.name)
        for size, count in SIZES.items():
            packed = (SHARED / f"rulesets/wustl/{name}_{size}.gz").read_bytes()
            published = likeness(classbench.parse(gzip.decompress(packed).decode()))
            generated = likeness(rules.rules(drawn, count))
            rows.append(
                {
                    "set": f"{name}_{size}",
                    "pairs_apart": generated.parts_from(published),
                    "published": _data(published),
                    "made": _data(generated),
                }
            )
    args.output.write_text(json.dumps({"machine": machine(), "number": 0, "rows": rows}, indent=1) + "\n")
    _show(rows)


def _data(statistics_: Likeness) -> dict[str, Any]:
    data = asdict(statistics_)
    del data["pairs"]
    return data


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="published / made")
    for name in (
        "set",
        "pairs apart",
        "any source",
        "any dest.",
        "any sport",
        "any dport",
        "any proto",
        "overlap",
    ):
        table.add_column(name)
    for row in rows:
        both = row["published"], row["made"]
        shares = [
            " / ".join(f"{each[name]:.2f}" for each in both)
            for name in ("any_source", "any_destination", "any_sport", "any_dport", "any_protocol")
        ]
        overlap = " / ".join(f"{each['overlap'] * each['rules']:.1f}" for each in both)
        table.add_row(row["set"], f"{row['pairs_apart']:.2f}", *shares, overlap)
    Console(width=110).print(table)


if __name__ == "__main__":
    command_line.run(main)
