"""The evaluation of the layer-4 paper: its filters are what they are said to be, and wrong answers are told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import layer4 as bench
from hitables import engine

TINY = bench.Effort(sizes=(40, 80), packets=200, runs=1, flows=30, checked=200, rounds=2)
DATA = Path(__file__).parents[2] / "docs/evaluation/layer4.json"


@pytest.mark.parametrize("kind", bench.KINDS)
def test_filters_are_distinct_pairs_of_prefixes(kind: str) -> None:
    boxes = bench.distinct(bench.KINDS[kind], np.random.default_rng(1), 500)
    assert boxes.shape == (500, 2, 2) and len(np.unique(boxes.reshape(-1, 4), axis=0)) == 500
    size = boxes[:, :, 1].astype(np.int64) - boxes[:, :, 0] + 1
    assert (size & (size - 1) == 0).all() and (boxes[:, :, 0] % size == 0).all()


def test_lengths_are_spread_as_the_paper_says() -> None:
    rng = np.random.default_rng(2)
    drawn = bench.random_filters(rng, 8000)
    root = (drawn[:, :, 1].astype(np.int64) - drawn[:, :, 0] == 0xFFFFFFFF).any(axis=1).sum()
    assert 400 < root < 560  # the paper: 408 of 8000; 1 - (32/33)^2 of them is 478
    routed = bench.routed_filters(rng, 4000)
    assert 0.4 < (routed[:, :, 1] - routed[:, :, 0] == 255).mean() < 0.6
    flows = bench.FLOWS["edge"](rng, 4000)
    assert not (flows[:, :, 1].astype(np.int64) - flows[:, :, 0] >= 1 << 16).any(), "no flow has a wildcard"


def test_packets_match_a_filter() -> None:
    rng = np.random.default_rng(3)
    boxes = bench.distinct(bench.firewall_filters, rng, 60)
    with engine.open("linear", bench.ruled(boxes)) as db:
        assert (db.search(bench.packets(rng, boxes, 500)) >= 0).all()


def test_every_part_is_measured_and_right() -> None:
    reported: list[str] = []
    data = bench.measure(1, TINY, reported.append)
    assert bench.failures(data) == []
    assert len(reported) == sum(len(data[part]) for part in bench.PARTS)
    assert {row["plan"] for row in data["random"]} == set(bench.PLANS)
    assert {row["factor"] for row in data["compression"] if row["algorithm"] == "pacars"} == {2, 4, 8}
    assert all(row["insert_us"] > 0 and row["remove_us"] > 0 for row in data["dynamic"])
    data["random"][0]["wrong"] = 3
    assert "3 wrong answers" in bench.failures(data)[0]


def test_of_two_rounds_the_lesser_time_counts_and_every_wrong_answer() -> None:
    first = {"plan": "tss", "search_us": 3.0, "build_us": 5.0, "wrong": 1}
    second = {"plan": "tss", "search_us": 4.0, "build_us": 2.0, "wrong": 2}
    assert bench.better(first, second) == {"plan": "tss", "search_us": 3.0, "build_us": 2.0, "wrong": 3}


def test_a_wrong_answer_is_counted() -> None:
    boxes = bench.distinct(bench.random_filters, np.random.default_rng(4), 60)
    headers = bench.packets(np.random.default_rng(5), boxes, 300)
    with engine.open("tss", bench.ruled(boxes)) as db:
        assert bench.wrong(db, boxes, headers, TINY) == 0
        db.remove(0)
        assert bench.wrong(db, boxes, headers, TINY) > 0


def test_lines_are_those_of_the_sources() -> None:
    counted = bench.lines_of_code()
    assert set(counted) == set(bench.SOURCES) and all(50 < count < 2000 for count in counted.values())


def test_what_the_docs_show_was_measured_in_full_and_right() -> None:
    data = json.loads(DATA.read_text())
    assert data["packets"] == bench.FULL.packets and data["machine"]["cpu"]
    assert bench.failures(data) == []
    assert {row["filters"] for row in data["random"]} == set(bench.FULL.sizes)
