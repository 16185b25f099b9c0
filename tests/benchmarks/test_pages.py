"""The tables of the docs are those of the recorded figures, and only whole runs record figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import (
    classifiers,
    cliffs,
    conext2014,
    conext2014_tables,
    events,
    events_tables,
    flow_kernel,
    flow_kinds,
    flow_model,
    flow_tables,
    hot,
    kernel,
    layer4,
    lcn2016,
    lcn2016_kernel,
    lcn2016_tables,
    real,
    scaling,
    storm,
    storm_threads,
)
from benchmarks.doc_tables import DOCS, between


def of_real(rows: list[dict[str, Any]]) -> str:
    return real.table([real.Row(**row) for row in rows])


# Of each table: its page, the file in docs/evaluation, the part of that file, and what shows it.
TABLES: dict[str, tuple[str, str, str, Callable[[Any], str]]] = {
    "modelled": ("costs", "kernel", "cases", kernel.modelled_table),
    "kernel-updates": ("sflgen", "sfl-kernel", "parts", lcn2016_kernel.table),
    "hot": ("hot", "hot", "cases", hot.table_of),
    "real": ("trees", "real", "rows", of_real),
    "cliffs": ("limits", "cliffs", "lines", cliffs.table),
    "cliffs-more": ("limits", "cliffs", "lines", cliffs.more_table),
    "engine": ("classifiers", "engine", "rows", classifiers.table),
    "engine-all": ("classifiers", "engine", "rows", classifiers.all_rates),
    "engine-published": ("classifiers", "engine-published", "rows", classifiers.all_rates),
    "growth": ("classifiers", "growth", "growth", scaling.table),
    "flow-batches": ("classifiers", "flows", "batches", flow_tables.batch_table),
    "flow-schemes": ("classifiers", "flows", "schemes", flow_tables.scheme_table),
    "flow-worth": ("classifiers", "flows", "worth", flow_tables.worth_table),
    "flow-kinds": ("classifiers", "flows", "kinds", flow_kinds.table),
    "flow-model": ("classifiers", "flows", "model", flow_model.table),
    "flow-kernel": ("classifiers", "flows", "kernel", flow_kernel.table),
    "layer4-firewalls": ("classifiers", "layer4", "firewall", layer4.firewall_table),
    "layer4-lists": ("classifiers", "layer4", "lists", layer4.list_table),
    **{f"events-{part}": ("filters", "events", part, table) for part, table in events_tables.TABLES.items()},
    "storm-hits": ("classifiers", "storm", "hits", storm.hit_table),
    "storm-worth": ("classifiers", "storm", "worth", storm.worth_table),
    "storm-delays": ("classifiers", "storm", "delays", storm_threads.delay_table),
    "storm-rates": ("classifiers", "storm", "partitions", storm_threads.rate_table),
    "storm-agreement": ("classifiers", "storm", "agreement", storm_threads.agreement_table),
    **{
        name: ("conext2014", "hitables", part, show)
        for name, (part, show) in conext2014_tables.TABLES.items()
    },
    **{name: ("classifiers", "sfl", part, show) for name, (part, show) in lcn2016_tables.TABLES.items()},
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_the_docs_is_that_of_the_recorded_figures(name: str) -> None:
    page, file, part, show = TABLES[name]
    rows = json.loads((DOCS / "evaluation" / f"{file}.json").read_text())[part]
    shown = between(name).search((DOCS / f"{page}.md").read_text())
    assert shown is not None
    assert shown[0] == show(rows)


# A run of a part, its benchmark, and the function that measures, which measures nothing here.
PARTS: list[tuple[ModuleType, str, list[str]]] = [
    (flow_tables, "hashes", ["--short", "--only", "hashes"]),
    (layer4, "compression", ["--short", "--only", "compression"]),
    (storm, "windows", ["--short", "--only", "windows"]),
    (lcn2016_kernel, "measured_cells", ["--short", "--only", "rules-nft"]),
    (events, "cost", ["--short", "--only", "cost"]),
    (classifiers, "compare", ["--short"]),
    (classifiers, "compare", ["--published", "--algorithms", "tss"]),
    (scaling, "growth", ["--algorithms", "tss"]),
    (cliffs, "grown", ["--sizes", "10,20"]),
    (cliffs, "grown", ["--short"]),
    (lcn2016, "table_two", ["--short", "--only", "table2"]),
    (conext2014, "measured", ["--short"]),
    (conext2014, "measured", ["--no-kernel"]),
    (conext2014, "measured", ["--sets", "nowhere"]),
]


@pytest.mark.parametrize(("module", "measures", "options"), PARTS)
def test_a_run_of_a_part_leaves_the_recorded_figures_and_the_pages_as_they_are(
    module: ModuleType,
    measures: str,
    options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded = tmp_path / "recorded.json"
    recorded.write_text("{}")

    def filled(*of: object) -> None:
        raise AssertionError(f"a page is filled: {of}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "OUTPUT", recorded)
    monkeypatch.setattr(module, "fill", filled)
    monkeypatch.setattr(module, measures, lambda *of: [])
    monkeypatch.setattr(sys, "argv", [module.__name__, *options])
    with suppress(SystemExit):
        module.main()
    assert recorded.read_text() == "{}"
    assert [path for path in tmp_path.iterdir() if path.name not in ("recorded.json", "out")] == []


@pytest.mark.parametrize(
    ("module", "asks", "measures", "file"),
    [(storm, "stand_ins", "windows", "storm.json"), (flow_tables, "missing", "hashes", "flows.json")],
)
def test_a_run_with_made_sets_says_so_and_writes_into_out(
    module: ModuleType,
    asks: str,
    measures: str,
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorded = tmp_path / "recorded.json"
    recorded.write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "OUTPUT", recorded)
    monkeypatch.setattr(module, measures, lambda *of: [])
    monkeypatch.setattr(module, asks, lambda *of: ["made rules stand in for a set"])
    monkeypatch.setattr(sys, "argv", [module.__name__, "--only", measures])
    module.main()
    assert "made rules stand in" in capsys.readouterr().out
    assert recorded.read_text() == "{}"
    assert json.loads((tmp_path / "out" / file).read_text())["sets"] == ["made rules stand in for a set"]
