"""Figures 5a to 5f are drawn from the benchmark's data alone.

Not with the tests of the C engine: matplotlib's own C++ does not run under the sanitizers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.figures.conext2014 import SCHEMES, SHOWN, SPREAD, draw


def test_every_panel_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    row = {"linear": 500.0, "mean": 12.0, "growth": 1.2, "seconds": 0.1, "percentiles": list(range(101)), "barred": 0,
           "ns": {"empty": 700.0, "input": 1500.0, "output": 800.0}}  # fmt: skip
    sizes = [
        {**row, "scheme": scheme, "rules": size, "run": run}
        for scheme in SCHEMES
        for size in SHOWN
        for run in (0, 1)
    ]
    public = [{**row, "scheme": scheme, "set": name} for scheme in SCHEMES for name in SPREAD]
    draw({"public": public, "sizes": sizes, "barred": sizes}, tmp_path)
    shown = (tmp_path / "figure5.svg").read_text()
    assert all(f"<!-- {letter}:" in shown for letter in "abcdef")
    assert all(f"<!-- {name} -->" in shown for name in SPREAD)
    assert (tmp_path / "figure5.png").stat().st_size > 1000
