"""The evaluation of the layer-4 paper: its filters are what they are said to be, and wrong answers are told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import layer4 as bench
from benchmarks import layer4_filters as filters
from benchmarks import layer4_lists as listed
from benchmarks import layer4_timing as timing
from hitables import engine

TINY = timing.Effort(
    (40, 80), searches=200, dynamic=400, block=50, flows=30, sets=2, few=2, checked=200
)  # fmt: skip
DATA = Path(__file__).parents[2] / "docs/evaluation/layer4.json"


@pytest.mark.parametrize("kind", filters.KINDS)
def test_filters_are_distinct_pairs_of_prefixes(kind: str) -> None:
    boxes = filters.distinct(filters.KINDS[kind], np.random.default_rng(1), 500)
    assert boxes.shape == (500, 2, 2) and len(np.unique(boxes.reshape(-1, 4), axis=0)) == 500
    size = boxes[:, :, 1].astype(np.int64) - boxes[:, :, 0] + 1
    assert (size & (size - 1) == 0).all() and (boxes[:, :, 0] % size == 0).all()


def test_lengths_are_spread_as_the_paper_says() -> None:
    rng = np.random.default_rng(2)
    drawn = filters.random_filters(rng, 8000)
    root = (drawn[:, :, 1].astype(np.int64) - drawn[:, :, 0] == 0xFFFFFFFF).any(axis=1).sum()
    assert 400 < root < 560  # the paper: 408 of 8000; 1 - (32/33)^2 of them is 478
    routed = filters.routed_filters(rng, 4000)
    assert 0.4 < (routed[:, :, 1] - routed[:, :, 0] == 255).mean() < 0.6
    flows = filters.FLOWS["edge"](rng, 4000)
    assert not (flows[:, :, 1].astype(np.int64) - flows[:, :, 0] >= 1 << 16).any(), "no flow has a wildcard"


def test_packets_match_a_filter() -> None:
    rng = np.random.default_rng(3)
    boxes = filters.distinct(filters.firewall_filters, rng, 60)
    with engine.open("linear", filters.ruled(boxes)) as db:
        assert (db.search(filters.packets(rng, boxes, 500)) >= 0).all()


@pytest.mark.parametrize("make", [filters.root_filters, filters.listed_filters])
def test_filters_of_the_root_are_all_in_its_lists(make: filters.Maker) -> None:
    boxes = filters.distinct(make, np.random.default_rng(6), 117)
    with engine.open("pacars(list=1)", filters.ruled(boxes)) as db:
        nodes = db.work(filters.packets(np.random.default_rng(7), boxes, 100))[1]["nodes"]
    assert (nodes == 1).all()


def test_tuples_are_combinations_of_lengths() -> None:
    boxes = np.array([[[0, 255], [7, 7]], [[256, 511], [9, 9]], [[0, 255], [8, 9]]], np.uint32)
    assert filters.tuples_of(boxes) == 2


def test_every_part_is_measured_and_right() -> None:
    reported: list[str] = []
    *_, data = bench.measure({}, 1, TINY, None, reported.append)
    assert bench.failures(data) == []
    assert len(reported) == sum(len(data[part]) for part in bench.parts())
    assert set(data["measured"]) == set(bench.parts())
    assert {row["plan"] for row in data["random"]} == set(timing.PLANS)
    assert {row["factor"] for row in data["compression"] if row["algorithm"] == "pacars"} == {2, 4, 8}
    assert all(row["insert_us"] > 0 and row["remove_us"] > 0 for row in data["dynamic"])
    assert {(row["occupancy"], row["lists"]) for row in data["root"]} == {
        (occupancy, name) for occupancy in (59, 117, 206, 408) for name in ("skip lists", "buckets", "arrays")
    }
    assert all(row["filters"] in (1, 40) for row in data["one"])
    data["random"][0]["wrong"] = 3
    assert "3 wrong answers" in bench.failures(data)[0]


def test_of_several_sets_the_mean_counts_and_every_wrong_answer() -> None:
    rows: list[timing.Row] = [
        {"search_us": [1.0, 3.0], "bytes": 10, "wrong": 1},
        {"search_us": [5.0, 7.0], "bytes": 30, "wrong": 2},
    ]
    row = timing.over_sets({"plan": "tss"}, rows)
    assert row["plan"] == "tss" and row["sets"] == 2 and row["bytes"] == 20 and row["wrong"] == 3
    assert row["search_us"] == 4 and row["search_us_deviation"] == 1
    assert row["search_us_ci"] == pytest.approx(6.314 * 2)  # of the means 2 and 6: t * sqrt(8) / sqrt(2)


def test_a_wrong_answer_is_counted() -> None:
    boxes = filters.distinct(filters.random_filters, np.random.default_rng(4), 60)
    headers = filters.packets(np.random.default_rng(5), boxes, 300)
    with engine.open("tss", filters.ruled(boxes)) as db:
        assert timing.wrong(db, boxes, headers, 200) == 0
        db.remove(0)
        assert timing.wrong(db, boxes, headers, 200) > 0


def test_a_part_is_measured_by_itself_and_the_others_are_kept() -> None:
    before: timing.Row = {"firewall": ["kept"]}
    (data,) = bench.measure(before, 1, TINY, ["paths"], lambda line: None)
    assert data["firewall"] == ["kept"] and data["paths"] and set(data["measured"]) == {"paths"}


@pytest.mark.parametrize("stride", [1, 2, 4, 8])
def test_a_descent_meets_the_nodes_of_the_trie(stride: int) -> None:
    rng = np.random.default_rng(8)
    boxes = filters.distinct(filters.random_filters, rng, 60)
    anything = boxes.copy()
    anything[:, 0] = 0, 0xFFFFFFFF
    headers = filters.packets(rng, anything, 300)
    with engine.open(f"tss_tries(stride={stride})", filters.ruled(anything)) as db:
        # Of the sources the trie has but the root.
        met = db.work(headers)[1]["nodes"].mean() - 1
    nodes, skipped = listed.descent(anything[:, 1].astype(np.int64), headers[:, 1].astype(np.int64), stride)
    assert nodes == pytest.approx(met)
    assert 0 <= skipped < nodes


def test_path_compression_leaves_out_nodes_with_one_child_and_no_filter() -> None:
    sides = np.array([[0xFF000000, 0xFF0000FF]], np.int64)  # a /24 alone: a root, two nodes, and its own
    assert listed.descent(sides, np.array([0xFF000001], np.int64), 8) == (4, 2)
    assert listed.descent(sides, np.array([0xFF010001], np.int64), 8) == (2, 1)


def test_time_that_follows_hashes_is_told_from_time_that_does_not() -> None:
    hashes, times = [1.0, 2.0, 3.0, 4.0], [0.1, 0.15, 0.2, 0.25]
    assert timing.correlation(hashes, times) == pytest.approx(1)
    assert timing.slope(hashes, times) == pytest.approx(0.05)
    assert abs(timing.correlation(hashes, [1, 2, 2, 1])) < 1e-9
    assert timing.correlation(hashes, [1, 1, 1, 1]) == 0


def test_lines_are_those_of_the_sources() -> None:
    counted = bench.lines_of_code()
    assert set(counted) == set(bench.SOURCES) and all(50 < count < 2000 for count in counted.values())
    folder = Path(engine.__file__).parents[1] / "core" / "c" / "classify"
    listed_files = {file for files in bench.SOURCES.values() for file in files}
    for pattern in ("pacars*.[ch]", "grid_of_tries*.[ch]", "tuple*.[ch]", "tss*.[ch]", "trie*.[ch]"):
        assert {path.name for path in folder.glob(pattern)} <= listed_files, "no file is left out"


def test_a_whole_run_says_how_long_it_takes() -> None:
    assert 0 < bench.seconds_expected(timing.SHORT) < 90 < bench.seconds_expected(timing.FULL) < 3600


def test_what_the_docs_show_is_right_and_says_how_it_was_measured() -> None:
    data = json.loads(DATA.read_text())
    assert data["machine"]["cpu"] and bench.failures(data) == []
    assert set(data["measured"]) == set(bench.parts())
    for part, measured in data["measured"].items():
        effort = measured["effort"]
        assert tuple(effort["sizes"]) == timing.FULL.sizes and effort["flows"] == timing.FULL.flows, part
        assert min(effort["searches"], effort["dynamic"]) >= 50_000 and min(effort["few"], effort["sets"]) > 1
    assert {row["filters"] for row in data["random"]} == set(timing.FULL.sizes)
