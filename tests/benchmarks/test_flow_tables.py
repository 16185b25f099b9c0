"""The benchmark of flow tables: its traffic, its bursts, its tables."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import flow_kinds, flow_tables
from hitables.generate.traffic_presets import PRESETS, TCP


@pytest.mark.parametrize("preset", flow_tables.PRESETS)
def test_packets_of_tcp_are_those_of_all_packets_in_their_order(preset: str) -> None:
    headers, tcp = (flow_tables.packets_of(preset, 3000, tcp=tcp) for tcp in (False, True))
    assert headers.shape == (3000, 5) and headers.dtype == tcp.dtype == np.uint32
    assert 0 < len(tcp) < 3000 and tcp.tolist() == headers[headers[:, 4] == TCP].tolist()


def test_bursts_are_runs_of_a_flow_in_one_bucket() -> None:
    a, b = [1, 2, 3, 4, 6], [1, 2, 3, 4, 17]
    alone = flow_tables.burst_lengths(np.array([a] * 6, np.uint32))
    assert set(alone.values()) == {6.0} and 1 << 10 in alone and 1 << 20 in alone
    both = flow_tables.burst_lengths(np.array([a, b, a, a, b, b], np.uint32))
    assert set(both.values()) <= {3.0, 6 / 4}, "a bucket each, or one for both"
    assert both[1 << 20] == 3.0


def test_counts_and_times_are_those_of_replays() -> None:
    headers = flow_tables.packets_of("uplink", 5000)
    counted = flow_tables.counts(headers, scheme="normal", buckets=64, hash="zobel")
    assert counted["packets"] == 5000 and counted["inserts"] > counted["returned"]
    assert counted["comparisons"] == counted["hit_comparisons"] + counted["miss_comparisons"]
    timed = flow_tables.timed(headers, 2, scheme="normal", buckets=64, hash="zobel")
    assert timed["ns"] > 0 and timed["bytes"] > 64 * 8


def test_the_tables_of_the_page_have_a_cell_for_each_figure() -> None:
    worth = [
        {"inner": "tss", "flows": 4000, "alone_per_s": 2e7, "flows_per_s": ratio * 1e8}
        for ratio in flow_tables.HIT_RATIOS
    ]
    table = flow_tables.worth_table(worth)
    assert "| tss | 4,000 | 20.0 | 50.0 | 80.0 | 95.0 | 99.0 | 99.9 |" in table
    schemes = [
        {
            "preset": "uplink", "kind": "ip", "buckets": 4096, "scheme": scheme,
            "packets": 100, "beyond_first": 150, "ns": 20.4,
        }
        for scheme in (*flow_tables.SCHEMES, "ring")
    ]  # fmt: skip
    assert flow_tables.scheme_table(schemes).count("1.50 / 20") == 5
    batches = [{"table": "ring", "flows": 5, "purge_at": 10, "lookups_per_s": 12.34e6}]
    assert "| ring | 12.3 |" in flow_tables.batch_table(batches)


def test_longer_bursts_meet_longer_in_a_bucket() -> None:
    lengths = [
        flow_tables.burst_lengths(
            flow_kinds.headers_of(flow_kinds.stretched(PRESETS["uplink"], times), 20_000)
        )
        for times in (0.25, 1, 8)
    ]
    ks = [each[1 << 20] for each in lengths]
    assert ks[0] < ks[1] and ks[0] < ks[2]


def test_a_class_alone_has_its_flows_only() -> None:
    department = PRESETS["department"]
    for name, port in (("ssh", 22), ("dns", 53)):
        headers = flow_kinds.headers_of(flow_kinds.alone(department, name), 2000)
        assert (headers[:, 2:4] == port).any(axis=1).all()
    scan = flow_kinds.headers_of(flow_kinds.alone(department, "scan"), 2000)
    assert flow_tables.counts(scan, scheme="normal", buckets=64, hash="zobel")["inserts"] > 1990


def test_kinds_have_a_row_for_each_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_kinds, "STRETCHED", (1,))
    rows = list(flow_tables.kinds(2000, 1))
    classes = [each.name for each in PRESETS["department"].classes]
    assert [row["preset"] for row in rows[::5]] == [*classes, "uplink, bursts x 1"]
    assert flow_kinds.table(rows).count("\n") == 2 + len(classes) + 1
