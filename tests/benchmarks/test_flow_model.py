"""Table 2 of the flow state paper: its formulas are exact where packets come as it assumes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import flow_model, flow_tables

UNITS = {"first_ns": 20.0, "comparison_ns": 2.0, "write_ns": 1.0, "insert_ns": 5.0}


def row_of(scheme: str, burst: int, buckets: int, flows: int = 4) -> dict[str, Any]:
    """Counts of bursts of *burst* packets of flows in turn, which all meet in one bucket."""
    one = flow_model.flows_of_bucket(flows)
    turns = np.repeat(np.tile(one, (500, 1)), burst, axis=0)
    counted = flow_tables.counts(turns, scheme=scheme, buckets=1, hash="zobel", purge=0)
    return {
        "preset": "made", "kind": "ip", "scheme": scheme, "buckets": buckets, "k": float(burst), "ns": 30.0,
    } | counted  # fmt: skip


@pytest.mark.parametrize("scheme", flow_model.NUMBER)
def test_comparisons_of_bursts_are_predicted_from_other_bursts(scheme: str) -> None:
    rows = [row_of(scheme, 3, flow_model.AT), row_of(scheme, 12, 1 << 14)]
    same, other = flow_model.predictions(rows, UNITS)
    assert same["predicted_comparisons"] == pytest.approx(same["comparisons"])
    assert other["predicted_comparisons"] == pytest.approx(other["comparisons"], rel=0.01)


@pytest.mark.parametrize(("scheme", "writes"), [("move_front", 3), ("circular", 1), ("insert_move_front", 3)])
def test_a_burst_moves_one_flow_and_writes_its_pointers(scheme: str, writes: int) -> None:
    row = flow_model.measured(row_of(scheme, 5, flow_model.AT))
    assert row["writes_of_a_move"] == writes
    assert row["y"] == pytest.approx(writes, rel=0.01)


def test_a_predicted_time_is_the_sum_of_its_parts() -> None:
    (row,) = flow_model.predictions([row_of("circular", 4, flow_model.AT)], UNITS)
    parts = 20 + 2 * (row["comparisons"] - 1) + row["y"] / 4
    assert row["predicted_ns"] == pytest.approx(parts)
    assert row["predicted_ns_with_inserts"] == pytest.approx(parts + 5 * 4 / 8000)


def test_schemes_that_table_2_does_not_have_are_left_out() -> None:
    assert not list(flow_model.predictions([row_of("ring", 4, flow_model.AT)], UNITS))


def test_costs_are_measured_where_comparisons_differ() -> None:
    flows = flow_model.flows_of_bucket(9)
    ns, counted = flow_model.replay_ns("normal", flows, np.repeat(flows[:1], 100, axis=0), 1)
    assert ns > 0 and counted == {"comparisons": 9.0, "writes": 0.0}
    assert set(flow_model.unit_costs(1)) == set(UNITS)


def test_the_table_of_the_page_has_a_cell_for_each_size() -> None:
    rows = list(flow_model.predictions([row_of("normal", 4, flow_model.AT)], UNITS))
    assert "4,096 buckets" in flow_model.table(rows) and " / 30 |" in flow_model.table(rows)
