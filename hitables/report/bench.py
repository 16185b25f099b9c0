"""`hitables bench kernel`: the measured times as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .columns import open_console, print_table


def show_bench(data: Mapping[str, Any]) -> None:
    """Print `Measured.as_data()` to standard output."""
    console = open_console(110)
    title = (
        f"chain {data['chain']}, {data['backend']}, {data['packets']} packets in turn; "
        f"without rules a packet takes {data['empty_ns']:.0f} ns"
    )
    rows = []
    for row in data["rows"]:
        if "ns" not in row:
            rows.append([row["name"], "", "", "", "", "", f"not measured: {row['why']}"])
            continue
        modelled = "" if row["modelled_ns"] is None else f"{row['modelled_ns']:,.0f}"
        rows.append(
            [
                row["name"],
                f"{row['rules']:,}",
                f"{row['ns']:,.0f}",
                f"{row['doubt_ns']:,.0f}",
                modelled,
                f"{row['ns_with_io']:,.0f}",
                row["note"],
            ]
        )
    numbers = ("rules", "ns above", "+-", "modelled", "ns total")
    print_table(console, [("", False), *((name, True) for name in numbers), ("", False)], rows, title=title)
    for line in data["advice"]:
        console.print(line)
