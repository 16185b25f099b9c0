"""The tables of docs/filters.md, from the figures that benchmarks/events.py records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .doc_tables import markdown

Row = dict[str, Any]


def number(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def shown(value: Row) -> str:
    """A mean, and half of its confidence interval."""
    half = value["ci90"]
    return number(value["mean"]) + ("" if half is None else f" ± {number(half)}")


def by_plan(rows: list[Row], head: str, cell: Callable[[Row], str]) -> str:
    """A row for each plan, and a column for each number of filters."""
    sizes = sorted({row["filters"] for row in rows})
    cells = {(row["plan"], row["filters"]): cell(row) for row in rows}
    lines = [
        [plan, *(cells.get((plan, size), "–") for size in sizes)]
        for plan in dict.fromkeys(row["plan"] for row in rows)
    ]
    return markdown((head, *(f"{size:,} filters" for size in sizes)), lines)


def cost_table(rows: list[Row]) -> str:
    return by_plan(
        rows,
        f"search / classify / event, ns, {rows[0]['search_ns']['sets']} sets",
        lambda row: " / ".join(number(row[f"{name}_ns"]["mean"]) for name in ("search", "classify", "event")),
    )


def latency_table(rows: list[Row]) -> str:
    return by_plan(
        rows,
        f"insert / remove, µs (medians), {rows[0]['insert_us']['sets']} sets",
        lambda row: " / ".join(
            f"{shown(row[f'{name}_us'])} ({number(row[f'{name}_median_us'])})"
            for name in ("insert", "remove")
        ),
    )


def queue_table(rows: list[Row]) -> str:
    lines = [
        [
            f"{row['room']:,} events", row["caused"], shown(row["delivered"]), shown(row["lost"]),
            shown(row["answered_per_s"]),
        ]
        for row in rows
    ]  # fmt: skip
    return markdown(
        (f"queue, {rows[0]['lost']['sets']} sets", "caused", "delivered", "lost", "answered a second"), lines
    )


def socket_table(rows: list[Row]) -> str:
    lines = [[row["plan"], row["filters"], shown(row["insert_us"]), *quantiles(row)] for row in rows]
    return markdown(
        ("plan", "filters", f"mean µs, {rows[0]['insert_us']['sets']} sets", "median", "99 %"), lines
    )


def connection_table(rows: list[Row]) -> str:
    lines = [
        [
            row["plan"], row["filters"], row["begun"], shown(row["insert_us"]), *quantiles(row),
            row["lost_events"], row["missed"],
        ]
        for row in rows
    ]  # fmt: skip
    mean = f"mean µs, {rows[0]['insert_us']['sets']} sets"
    head = ("plan", "filters", "connections", mean, "median", "99 %", "events lost", "packets missed")
    return markdown(head, lines)


def quantiles(row: Row) -> list[str]:
    return [number(row["insert_median_us"]), number(row["insert_p99_us"])]


TABLES = {
    "cost": cost_table, "latency": latency_table, "queue": queue_table, "socket": socket_table,
    "connections": connection_table,
}  # fmt: skip
