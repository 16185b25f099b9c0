"""Tables of the SFL evaluation, from the data of benchmarks.lcn2016."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .doc_tables import markdown
from .lcn2016_sets import FORMS, KINDS, STATIC

Row = dict[str, Any]

# The paper's: millions of headers and updates done with 100 insertions in ten seconds (table II).
PAPER = {
    "linear": (1.2, 100), "tss": (2.4, 100), "hypersplit": (4.5, 75.6), "sfl(hypersplit)": (28.7, 100),
    "rfc": (16.0, 44.1), "sfl(rfc)": (43.6, 75.7), "bit_vector": (17.8, 100), "sfl(bit_vector)": (31.0, 100),
}  # fmt: skip
CLASSICS = ("linear", "tss", *STATIC)


def named() -> list[tuple[str, str]]:
    """Each plan once, with the paper's name of it."""
    pairs = {plan: name for plans in FORMS.values() for name, plan in plans.items()}
    return [(name, plan) for plan, name in pairs.items()]


def one(rows: Sequence[Row], **wanted: Any) -> Row | None:
    """The row with those values."""
    return next((row for row in rows if all(row[key] == value for key, value in wanted.items())), None)


def short(value: float) -> str:
    """Three figures."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def with_interval(values: Row) -> str:
    """Mean ± half of the 90 % interval."""
    return short(values["mean"]) + (
        f" ± {short(values['interval'])}" if values["interval"] is not None else ""
    )


def table_two(rows: Sequence[Row]) -> str:
    """Millions of headers / updates done, by the updates asked for; the paper's of 100 insertions."""
    seconds = "/".join(f"{each:g}" for each in sorted({row["seconds"] for row in rows}))
    asked = sorted({row["updates"] for row in rows})
    cells = [(kind, count) for kind in KINDS for count in asked]
    lines = []
    for name, plan in named():
        there = [one(rows, plan=plan, kind=kind, updates=count) for kind, count in cells]
        shown = [
            f"{with_interval(row['millions'])} / {short(row['done']['mean'])}" if row else "–"
            for row in there
        ]
        headers, updates = PAPER[name]
        lines.append([f"`{plan}`", *shown, f"{headers:g} / {updates:g}"])
    columns = [f"{count} {kind}s in {seconds} s" for kind, count in cells]
    return markdown(("classifier", *columns, "paper: 100 inserts in 10 s"), lines)


def claims(rows: Sequence[Row]) -> str:
    """SFL(A) over A and over both forms of tuple space search: headers classified with 100 insertions."""
    lines = []
    for plans in FORMS.values():
        for inner in STATIC:
            mine = one(rows, plan=plans[f"sfl({inner})"], kind="insert", updates=100)
            others = [
                one(rows, plan=plan, kind="insert", updates=100)
                for plan in (plans[inner], FORMS["ours"]["tss"], FORMS["paper"]["tss"])
            ]
            times = [
                short(mine["millions"]["mean"] / other["millions"]["mean"])
                if mine and other and other["millions"]["mean"]
                else "–"
                for other in others
            ]
            paper = PAPER[f"sfl({inner})"][0]
            papers = [short(paper / PAPER[name][0]) for name in (inner, "tss")]
            lines.append([f"`{plans[f'sfl({inner})']}`", *times, *papers])
    head = ("SFL", "times A", f"times `{FORMS['ours']['tss']}`", f"times `{FORMS['paper']['tss']}`")
    return markdown((*head, "paper: times A", "paper: times tuple space search"), lines)


def exponents(rows: Sequence[Row]) -> str:
    """Table I: exponents by case and seed."""
    seeds = list(dict.fromkeys(row["seed"] for row in rows))
    columns = [
        ("rules", "spawn"),
        ("rules", "update"),
        ("rules", "classify"),
        ("pending", "classify"),
        ("deleted", "classify"),
    ]
    titles = {"rules": "of rules", "pending": "of pending updates", "deleted": "of rules, rule deleted"}
    lines = []
    for _, plan in named():
        cells = []
        for case, what in columns:
            fits = [one(rows, case=case, plan=plan, seed=seed) for seed in seeds]
            values = [(fit.get("exponents") or {}).get(what) if fit else None for fit in fits]
            cells.append(" ".join(f"{value['mean']:.2f}" if value else "–" for value in values))
        lines.append([f"`{plan}`", *cells])
    return markdown(("classifier", *(f"{what}: {titles[case]}" for case, what in columns)), lines)


# Of each table of the docs: the part of the data, and what shows it.
TABLES: dict[str, tuple[str, Callable[[Sequence[Row]], str]]] = {
    "sfl-updates": ("table2", table_two),
    "sfl-claims": ("table2", claims),
    "sfl-growth": ("table1", exponents),
}
