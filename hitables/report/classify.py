"""`hitables algorithms`, `classify` and `bench classify`: the algorithms and their results as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from .columns import open_console, print_table

if TYPE_CHECKING:
    from ..engine import Algorithm
    from ..engine.run import Classified


def show_algorithms(builders: Sequence[str], classifiers: Iterable[Algorithm]) -> None:
    """Print the names of the tree builders, and a table of the classifiers."""
    console = open_console(110, highlight=False)
    console.print(f"Tree builders (hitables compile --algorithm): {', '.join(builders)}")
    table = Table(title="Classifiers (hitables classify --algorithm)", title_justify="left")
    for name in ("name", "dimensions", "updates", "parameters", "description"):
        table.add_column(name)
    for each in classifiers:
        lowest, highest = each.dims
        params = "\n".join(f"{param.name}={param.default}  {param.meaning}" for param in each.params)
        table.add_row(
            f"{each.name}(…)" if each.wraps else each.name,
            str(lowest) if lowest == highest else f"{lowest}-{highest}",
            "in place" if each.updates else "by rebuild",
            params,
            each.title,
        )
    console.print(table)


def show_classified(rows: Sequence[Classified]) -> None:
    """Print a row of results for each classifier."""
    names = ("rules", "packets", "build s", "bytes", "lookups/s", "ns alone", "mismatches")
    columns = [("algorithm", False), *((name, True) for name in names)]
    with_work = any(row.work is not None for row in rows)
    if with_work:
        columns.append(("reads (most)", True))
    cells = []
    for row in rows:
        speed = "" if row.lookups_per_s is None else f"{row.lookups_per_s:,.0f}"
        alone = "" if row.lookup_ns is None else f"{row.lookup_ns:,.0f}"
        wrong = "" if row.mismatches is None else f"{row.mismatches:,}"
        sizes = f"{row.rules:,}", f"{len(row.found):,}", f"{row.build_s:.3f}", f"{row.bytes:,}"
        reads = "\n".join(f"{mean:,.1f} ({most:,}) {name}" for name, (mean, most) in (row.work or {}).items())
        cells.append([row.algorithm, *sizes, speed, alone, wrong, *([reads] if with_work else [])])
    print_table(open_console(110, highlight=False), columns, cells)
