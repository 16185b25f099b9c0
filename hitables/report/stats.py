"""Statistics of a rule set as a table for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def show_stats(found: Mapping[str, Any], over: Mapping[str, Any] | None) -> None:
    """Print what profile() found, and what a trace read, to standard output."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    shown = Table(
        title=f"{found['source']}: {found['rules']} rules, read as {found['backend']}", title_justify="left"
    )
    for name in ("table", "chain"):
        shown.add_column(name)
    for name in ("rules", "space", "constant", "named", "once", "mean read", "longest", "ns"):
        shown.add_column(name, justify="right")
    for each in found["chains"]:
        if not each["rules"] and each["policy"] is None:
            continue
        roles = each["roles"]
        shown.add_row(
            each["table"],
            each["chain"] + ("" if each["reached"] else " (not reached)"),
            str(each["rules"]),
            *(str(roles[role] or "") for role in ("SPACE", "CONSTANT", "NAMED", "ONCE")),
            *(str(each.get(key, "")) for key in ("mean_read", "longest_read", "modelled_ns")),
        )
    console.print(shown)
    if over is not None:
        console.print(
            f"{over['source']}: {over['packets']} packets through {over['chain']} read "
            f"{over['mean_read']} rules on average, {over['longest_read']} at most; "
            f"modelled: {over['modelled_ns']:.0f} ns"
        )
