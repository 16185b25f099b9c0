"""The benchmark of flow tables: its traffic, its buckets, its tables."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import flow_tables
from benchmarks.flow_traffic import PRESETS, TCP, burst_length, traffic
from hitables.engine import FlowTable


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_gives_as_many_packets_as_asked_for_and_the_same_again(preset: str) -> None:
    blocks = list(traffic(preset, 3000, block=2000))
    headers = np.concatenate(blocks)
    assert headers.shape == (3000, 5) and headers.dtype == np.uint32
    assert (headers == np.concatenate(list(traffic(preset, 3000, block=2000)))).all()
    assert (headers[:, 2:4] < 65536).all() and (headers[:, 4] < 256).all()


def test_presets_have_the_traits_of_the_traces() -> None:
    """One direction and over 95 % TCP; both directions and about half TCP."""
    uplink, department = (np.concatenate(list(traffic(name, 60_000, block=40_000))) for name in PRESETS)
    inside = [(headers[:, 0] >> 24 == 10).mean() for headers in (uplink, department)]
    tcp = [(headers[:, 4] == TCP).mean() for headers in (uplink, department)]
    assert inside[0] == 1 and 0.4 < inside[1] < 0.6
    assert tcp[0] > 0.95 and 0.35 < tcp[1] < 0.65


def test_the_buckets_of_the_benchmark_are_those_of_the_table() -> None:
    headers = np.concatenate(list(traffic("department", 500, block=1000)))
    buckets = flow_tables.zobel_buckets(headers, 1000)
    with FlowTable("normal", 1000, hash="zobel") as table:
        assert buckets.tolist() == [table.bucket_of(table.key(row)) for row in headers]


def test_a_burst_is_what_follows_in_one_bucket() -> None:
    a, b = np.array([1, 2, 3, 4, 6], np.uint32), np.array([1, 2, 3, 4, 17], np.uint32)
    headers = np.array([a, b, a, a, b, b], np.uint32)
    assert burst_length(headers, np.array([0, 1, 0, 0, 1, 1])) == 3, "a bucket each"
    assert burst_length(headers, np.zeros(6, np.int64)) == 6 / 4, "a, b, a a, b b"


def test_counts_and_times_are_those_of_replays() -> None:
    headers = np.concatenate(list(traffic("uplink", 5000, block=5000)))
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
