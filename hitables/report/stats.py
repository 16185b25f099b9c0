"""`hitables stats`: statistics of a rule set as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..nouns import counted
from .columns import open_console, print_table


def show_stats(document: Mapping[str, Any]) -> None:
    """Print the data of `costs.stats.profile`, and under "trace" that of `read_over_trace`."""
    console = open_console(110)
    rows = []
    for each in document["chains"]:
        if not each["rules"] and each["policy"] is None:
            continue
        roles = each["roles"]
        rows.append(
            [
                each["table"],
                each["chain"] + ("" if each["reached"] else " (not reached)"),
                str(each["rules"]),
                *(str(roles[role] or "") for role in ("SPACE", "CONSTANT", "NAMED", "ONCE")),
                *(str(each.get(key, "")) for key in ("mean_read", "longest_read", "modelled_ns")),
            ]
        )
    title = f"{document['source']}: {counted(document['rules'], 'rule')}, read as {document['backend']}"
    numbers = ("rules", "space", "constant", "named", "once", "mean read", "longest", "ns")
    columns = [("table", False), ("chain", False), *((name, True) for name in numbers)]
    print_table(console, columns, rows, keys=2, title=title)
    trace = document["trace"]
    if trace is not None:
        console.print(
            f"{trace['source']}: {counted(trace['packets'], 'packet')} through {trace['chain']} read "
            f"{trace['mean_read']} rules on average, {trace['longest_read']} at most; "
            f"modelled: {trace['modelled_ns']:.0f} ns"
        )
