"""`hitables bench kernel`: the measured times as a table."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def show_bench(data: Mapping[str, Any]) -> None:
    """Print `Measured.as_data()` to standard output."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    title = (
        f"chain {data['chain']}, {data['backend']}, {data['packets']} packets in turn; "
        f"without rules a packet takes {data['empty_ns']:.0f} ns"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in ("rules", "ns above", "+-", "modelled", "ns total"):
        table.add_column(name, justify="right")
    table.add_column("")
    for row in data["rows"]:
        if "ns" not in row:
            table.add_row(row["name"], "", "", "", "", "", f"not measured: {row['why']}")
            continue
        modelled = "" if row["modelled_ns"] is None else f"{row['modelled_ns']:,.0f}"
        table.add_row(
            row["name"],
            f"{row['rules']:,}",
            f"{row['ns']:,.0f}",
            f"{row['doubt_ns']:,.0f}",
            modelled,
            f"{row['ns_with_io']:,.0f}",
            row["note"],
        )
    console.print(table)
    for line in data["advice"]:
        console.print(line)
