"""What updates cost is drawn, and told on the page, from the recorded data alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.doc_tables import DOCS, between, markdown
from benchmarks.figures.updates import draw, growth_table, sustained_table, times_table, updates_per_second

DATA = DOCS / "evaluation" / "sflgen.json"


def test_the_figure_is_drawn_from_the_data(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    data = json.loads(DATA.read_text())
    draw(data, tmp_path / "figure.svg")
    shown = (tmp_path / "figure.svg").read_text()
    assert all(f"<!-- {made['set']}: rules read -->" in shown for made in data["growth"])


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("updates", times_table),
        ("sustained", sustained_table),
        ("growth", growth_table),
    ],
)
def test_the_tables_of_the_page_are_those_of_the_data(name: str, table: object) -> None:
    head, rows = table(json.loads(DATA.read_text()))  # type: ignore[operator]
    found = between(name).search((DOCS / "sflgen.md").read_text())
    assert found and found[0] == markdown(head, rows), "run python -m benchmarks.updates --page"


def test_more_updates_a_second_are_made_the_later_trees_are_folded() -> None:
    (row, *_) = json.loads(DATA.read_text())["times"]
    rates = updates_per_second(row, [0, 10, 100])
    assert rates == sorted(rates) and rates[0] < 5 < rates[-1]
