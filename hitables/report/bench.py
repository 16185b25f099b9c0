"""What `hitables bench kernel` found, as a table for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def show_bench(found: Mapping[str, Any]) -> None:
    """Print `Measured.as_data()` to standard output."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    title = (
        f"chain {found['chain']}, {found['backend']}, {found['packets']} packets in turn; "
        f"without rules a packet takes {found['empty_ns']:.0f} ns"
    )
    shown = Table(title=title, title_justify="left")
    shown.add_column("")
    for name in ("rules", "ns above", "+-", "modelled", "ns in all"):
        shown.add_column(name, justify="right")
    shown.add_column("")
    for row in found["rows"]:
        if "ns" not in row:
            shown.add_row(row["name"], "", "", "", "", "", f"cannot: {row['why']}")
            continue
        modelled = "" if row["modelled_ns"] is None else f"{row['modelled_ns']:,.0f}"
        shown.add_row(
            row["name"],
            f"{row['rules']:,}",
            f"{row['ns']:,.0f}",
            f"{row['doubt_ns']:,.0f}",
            modelled,
            f"{row['ns_with_io']:,.0f}",
            row["note"],
        )
    console.print(shown)
    for line in found["advice"]:
        console.print(line)
