"""Figures and tables of the layer-4 paper are drawn from the benchmark's data alone.

Not with the tests of the C engine: matplotlib's own C++ does not run under the sanitizers.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.figures.layer4 import NAMES, draw, tables

FOLDER = Path(__file__).parents[2] / "docs/evaluation"


def message(svg: str) -> list[str]:
    """Titles, names and ticks, whose values follow the data."""
    return re.findall(r"<text[^>]*>([^<]*)<", svg)


def test_the_figure_in_the_docs_is_drawn_from_the_data_beside_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(json.loads((FOLDER / "layer4.json").read_text()), tmp_path)
    drawn, kept = ((folder / "layer4.svg").read_text() for folder in (tmp_path, FOLDER))
    assert message(drawn) == message(kept)
    assert all(f"figure {number}:" in drawn for number in (6, 7, 8, 9, 10))


def test_tables_show_the_papers_figures_beside_ours() -> None:
    shown = tables(json.loads((FOLDER / "layer4.json").read_text()))
    assert all(f"table {number}:" in shown for number in (1, 2, 3, 4))
    assert all(name in shown for name in NAMES.values())
    for cell in ("(1.63)", "(229.48)", "(408)", "(6.089)", "(3854)", "(96%)"):
        assert cell in shown
