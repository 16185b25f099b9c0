"""Cost as work grows: measured on small sets, fitted, drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import scaling


def test_exponents_are_those_of_a_power_law() -> None:
    points = [
        {"rules": n, "lookups_per_s": 7e6 / n**0.5, "build_s": 3e-9 * n**2, "bytes": 40.0 * n}
        for n in (100, 900, 5000)
    ]
    assert scaling.exponents(points) == {"lookups_per_s": -0.5, "build_s": 2.0, "bytes": 1.0}
    assert scaling.exponents(points[:1]) == {}


def test_classifiers_are_measured_as_far_as_they_can_be_built(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "HEADERS", 2000)
    monkeypatch.setattr(scaling, "PATIENCE", 250.0)  # how busy the machine is decides nothing here
    lines = scaling.growth(["linear", "hypersplit(mb=1, leaf=1)"], (50, 2000), 0.01)
    sizes = {
        (line["seed"], line["algorithm"]): [point["rules"] for point in line["points"]] for line in lines
    }
    assert all(len(sizes[kind, "linear"]) == 2 for kind in scaling.KINDS)
    assert (
        len(sizes["fw1", "hypersplit(mb=1, leaf=1)"]) == 1
    )  # 2,000 firewall rules do not fit into a megabyte
    figure = pytest.importorskip("matplotlib.figure")
    monkeypatch.setattr(figure.Figure, "tight_layout", lambda self: None)  # half of the time of a drawing
    scaling.draw(lines, tmp_path / "growth.svg")
    assert "<svg" in (tmp_path / "growth.svg").read_text()
    assert scaling.table(lines).count("\n") == 4
