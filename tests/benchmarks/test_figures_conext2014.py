"""Figures 5a to 5f are drawn from the benchmark's data alone.

Not with the tests of the C engine: matplotlib's own C++ does not run under the sanitizers.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.figures.conext2014 import SCHEMES, SHOWN, SPREAD, draw

FOLDER = Path(__file__).parents[2] / "docs/evaluation"


@pytest.fixture(autouse=True)
def no_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels stand where they are made: to make room for their names takes half of the time, and changes no text."""
    figure = pytest.importorskip("matplotlib.figure")
    monkeypatch.setattr(figure.Figure, "tight_layout", lambda self, **options: None)


def test_every_panel_is_drawn(tmp_path: Path) -> None:
    row = {"linear": 500.0, "mean": 12.0, "growth": 1.2, "seconds": 0.1, "percentiles": list(range(101)), "barred": 0,
           "ns": {"empty": 700.0, "input": 1500.0, "output": 800.0}}  # fmt: skip
    sizes = [
        {**row, "scheme": scheme, "rules": size, "run": run}
        for scheme in SCHEMES
        for size in SHOWN
        for run in (0, 1)
    ]
    public = [{**row, "scheme": scheme, "set": name} for scheme in SCHEMES for name in SPREAD]
    built = [
        {"set": "fw1_10K", "binth": binth, "seconds": 3.0, "seconds_deviation": 0.1} for binth in (8, 20)
    ]
    draw({"public": public, "sizes": sizes, "barred": sizes, "build": built}, tmp_path)
    shown = (tmp_path / "hitables.svg").read_text()
    assert all(f"<!-- {letter}:" in shown for letter in "abcdef")
    assert all(f"<!-- {name} -->" in shown for name in (*SPREAD, "fw1_10K, binth 8", "fw1_10K, binth 20"))


def test_parts_that_were_not_measured_leave_their_panels_empty(tmp_path: Path) -> None:
    draw({}, tmp_path)
    assert "<!-- d: path lengths -->" in (tmp_path / "hitables.svg").read_text()


def test_the_figure_in_the_docs_is_drawn_from_the_data_beside_it(tmp_path: Path) -> None:
    draw(json.loads((FOLDER / "hitables.json").read_text()), tmp_path)
    drawn, kept = ((folder / "hitables.svg").read_text() for folder in (tmp_path, FOLDER))
    texts = [re.findall(r"<!-- ([^>]*) -->", text) for text in (drawn, kept)]
    assert texts[0] == texts[1] and len(texts[0]) > 50
