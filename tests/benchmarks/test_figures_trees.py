"""The curves of growth against rules read are drawn from the benchmark's data alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.doc_tables import between, markdown
from benchmarks.figures.trees import draw, table
from benchmarks.trees import GOALS, goals_table

DOCS = Path(__file__).parents[2] / "docs"
FOLDER = DOCS / "evaluation"


def data() -> dict[str, object]:
    result: dict[str, object] = json.loads((FOLDER / "trees.json").read_text())
    return result


def test_the_figure_in_the_docs_is_drawn_from_the_data_beside_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(data(), tmp_path)
    drawn = (tmp_path / "trees.svg").read_text()
    assert drawn == (FOLDER / "trees.svg").read_text()
    assert all(f">{row['set']}<" in drawn for row in data()["pareto"])  # type: ignore[attr-defined]
    assert {row["set"] for row in data()["pareto"]} <= set(GOALS)  # type: ignore[attr-defined]


def test_the_page_shows_the_data() -> None:
    page = (DOCS / "trees.md").read_text()
    for name, made in (("pareto", table(data())), ("goals", goals_table(data()))):
        shown = between(name).search(page)
        assert shown is not None and shown.group() == markdown(*made)


def test_no_chain_grew_more_than_was_asked_for() -> None:
    assert all(row["growth"] <= row["max_expansion"] for row in data()["pareto"])  # type: ignore[index, attr-defined]
