"""Figures of papers are drawn from the benchmarks' data alone.

Not with the tests of the C engine: matplotlib's own C++ does not run under the sanitizers.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.figures import flows, lcn2016, lcn2016_kernel, saturation, storm

FOLDER = Path(__file__).parents[2] / "docs/evaluation"
# Of each figure: the numbers of the paper's that it has.
DRAWN = {
    "flows": (flows.draw, (4, 5, 6, 7, 8, 9, 10, 11, 12)),
    "storm": (storm.draw, (6, 7, 8, 9, 10)),
    "sfl": (lcn2016.draw, (5, 6, 7, 8)),
    "sfl-kernel": (lcn2016_kernel.draw, ()),
    "hitables-saturation": (saturation.draw, ("5b", "5c")),
}


def message(svg: str) -> list[str]:
    """Titles, names and ticks, whose values follow the data."""
    return re.findall(r"<text[^>]*>([^<]*)<", svg)


@pytest.fixture
def no_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels stand where they are made: to make room for their names takes half of the time, and changes no text."""
    figure = pytest.importorskip("matplotlib.figure")
    monkeypatch.setattr(figure.Figure, "tight_layout", lambda self, **options: None)


@pytest.mark.parametrize("name", DRAWN)
def test_the_figure_in_the_docs_is_drawn_from_the_data_beside_it(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("matplotlib")
    if name != "storm":  # which has more ticks where there is more room
        request.getfixturevalue("no_layout")
    draw, numbers = DRAWN[name]
    draw(json.loads((FOLDER / f"{name}.json").read_text()), tmp_path)
    drawn, kept = ((folder / f"{name}.svg").read_text() for folder in (tmp_path, FOLDER))
    assert message(drawn) == message(kept)
    assert all(f"figure {number}" in drawn for number in numbers)


@pytest.mark.parametrize("name", DRAWN)
def test_parts_that_were_not_measured_leave_their_panels_empty(
    name: str, tmp_path: Path, no_layout: None
) -> None:
    DRAWN[name][0]({}, tmp_path)
    assert (tmp_path / f"{name}.svg").stat().st_size > 0
