"""The benchmark of Storm: its rules, its traffic, its rates and tables."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import storm
from hitables.engine import Storm


def test_rule_sets_have_the_sizes_of_the_paper() -> None:
    for name in ("R1", "R3"):
        rules = storm.rule_set(name)
        assert rules is not None
        assert len(rules.boxes) == next(count for each, _, count in storm.SETS if each == name)


def test_classes_are_drawn_and_the_last_rule_denies() -> None:
    rules = storm.rule_set("R3")
    assert rules is not None
    assert storm.classes_of(rules, "own") is None
    for kind, least, most in (("50", 0.4, 0.6), ("90", 0.85, 0.95)):
        classes = storm.classes_of(rules, kind)
        assert classes is not None
        assert least < classes.mean() < most
        assert classes[-1] == 0
    eight = storm.classes_of(rules, "8")
    assert eight is not None and set(eight.tolist()) == set(range(8))


def test_the_more_popular_a_few_rules_are_the_more_packets_hit() -> None:
    presets = ("uniform", "edge", "edge, s 2.2")
    rows = list(storm.hits(("R3",), 6000, presets))
    steady = {row["preset"]: row["steady"] for row in rows if row["classes"] == "own"}
    assert steady["uniform"] < steady["edge"] < steady["edge, s 2.2"]
    assert all(sum(row["entries"]) == pytest.approx(1) for row in rows)
    shares = {row["preset"]: row["window_shares"][2] for row in storm.locality(("R3",), 6000, presets)}
    assert shares["uniform"] < shares["edge"] < shares["edge, s 2.2"]


def test_the_rate_without_loss_lies_below_the_rate_at_which_packets_are_lost() -> None:
    rules = storm.rule_set("R3")
    assert rules is not None
    headers = np.ascontiguousarray(storm.packets_of("R3", "edge", 20_000))
    with Storm("linear", rules, partition="1-0-0", full="lose", inputs=1) as pipeline:
        assert 0 <= storm.lossless(pipeline, headers, 1e9) < 1e9


def test_the_tables_of_the_page_have_a_cell_for_each_figure() -> None:
    hits = [
        {"set": "R3", "preset": preset, "classes": kind, "every": storm.EVERY, "steady": share}
        for preset in storm.PRESETS
        for kind, share in (("90", 0.5), ("own", 0.25))
    ]
    assert storm.hit_table(hits).count("50.0% (25.0%)") == len(storm.PRESETS)
    worth = [{"set": "R3", "preset": "edge", "inner": "tss", "alone_per_s": 2e7, "storm_per_s": 1e7}]
    table = storm.worth_table(worth)
    assert "| tss | 20 / 10 |" in table
    assert "| rfc | – |" in table
