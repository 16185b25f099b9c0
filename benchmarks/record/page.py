"""The page docs/evaluation.md, filled from the data in docs/evaluation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..doc_tables import DOCS, fill

PAGE = DOCS / "evaluation.md"
HEAD = ("where", "what", "paper", "here", "here / paper", "why they differ, or what it is worth")

Row = dict[str, Any]
# A number, the least and the most of several, or words where a paper gives no number.
Value = float | tuple[float, float] | str


@dataclass(frozen=True)
class Result:
    """What a paper says at a place, and what was measured here, in the same unit."""

    place: str
    quantity: str
    paper: Value
    here: Value
    why: str = ""


@dataclass(frozen=True)
class Paper:
    """A paper, the data of its experiments, and its results as functions of these data.

    `sources` maps names of files in docs/evaluation to the commands that measure them, in the order in which
    `results` takes the data.
    """

    name: str
    sources: Mapping[str, str]
    results: Callable[..., Iterable[Result]]
    # What its text numbers: "figure 5", "table 2", …
    places: Sequence[str]


def recorded(source: str) -> Row:
    """The data of docs/evaluation/*source*.json."""
    data: Row = json.loads((DOCS / "evaluation" / f"{source}.json").read_text())
    return data


def chosen(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The rows whose items equal *wanted*; an exception where there are none, so that no result is empty."""
    there = [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]
    if not there:
        raise LookupError(f"the data have no row with {wanted}")
    return there


def the(rows: Iterable[Row], **wanted: object) -> Row:
    """The one row whose items equal *wanted*."""
    (row,) = chosen(rows, **wanted)
    return row


def span(values: Iterable[float]) -> tuple[float, float]:
    """The least and the most."""
    there = list(values)
    return min(there), max(there)


def number(value: float) -> str:
    """A whole number as it is; of others three digits that count: 0.0123, 1.23, 123, 12,300."""
    if value == int(value):
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{float(f'{value:.3g}'):g}"


def words(value: Value) -> str:
    """A value as it is printed: a range whose ends print alike is one number."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        low, high = map(number, value)
        return low if low == high else f"{low} to {high}"
    return number(value)


def ratio(result: Result) -> str:
    """Here over paper, of the least and of the most where one of both is a range; nothing without numbers."""
    paper, here = result.paper, result.here
    if isinstance(paper, str) or isinstance(here, str):
        return ""
    papers = paper if isinstance(paper, tuple) else (paper, paper)
    heres = here if isinstance(here, tuple) else (here, here)
    if 0 in papers:
        return ""
    return words(span(ours / theirs for ours, theirs in zip(heres, papers, strict=True)))


def table(results: Iterable[Result]) -> str:
    """The table of a paper, for the docs."""
    lines = [
        HEAD,
        ("---", "---", "--:", "--:", "--:", "---"),
        *(
            (each.place, each.quantity, words(each.paper), words(each.here), ratio(each), each.why)
            for each in results
        ),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def provenance(paper: Paper) -> str:
    """Which command measured, on which machine, and when."""
    lines = []
    for source, command in paper.sources.items():
        machine = recorded(source)["machine"]
        lines.append(
            f"`{command}`: [data](evaluation/{source}.json) of {machine['date']}, {machine['cpu']}, "
            f"{machine['cores']} cores, Linux {machine['kernel']}.\n"
        )
    return "".join(lines)


def section(paper: Paper) -> str:
    """What stands between the marks of a paper."""
    data = map(recorded, paper.sources)
    return f"{provenance(paper)}\n{table(paper.results(*data))}"


def write(papers: Iterable[Paper]) -> None:
    """Fill the sections of *papers*."""
    for paper in papers:
        fill(PAGE, f"paper-{paper.name}", section(paper))
