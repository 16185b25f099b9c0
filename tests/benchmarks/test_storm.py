"""The benchmark of Storm: its rules, its traffic, its rates and tables."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import storm, storm_sets
from hitables.engine import Storm


def test_rule_sets_have_the_sizes_of_the_paper() -> None:
    for name in ("R1", "R3"):
        rules = storm_sets.rule_set(name)
        assert rules is not None
        assert len(rules.boxes) == next(count for each, _, count in storm_sets.SETS if each == name)


def test_classes_are_drawn_and_the_last_rule_denies() -> None:
    rules = storm_sets.rule_set("R3")
    assert rules is not None
    assert storm_sets.classes_of(rules, "own") is None
    for kind, least, most in (("50", 0.4, 0.6), ("90", 0.85, 0.95)):
        classes = storm_sets.classes_of(rules, kind)
        assert classes is not None
        assert least < classes.mean() < most
        assert classes[-1] == 0
    eight = storm_sets.classes_of(rules, "8")
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
    rules = storm_sets.rule_set("R3")
    assert rules is not None
    headers = np.ascontiguousarray(storm_sets.packets_of("R3", "edge", 20_000))
    with Storm("linear", rules, partition="1-0-0", full="lose", inputs=1) as pipeline:
        assert 0 <= storm.lossless(pipeline, headers, 1e9) < 1e9


def test_a_cache_of_original_rules_holds_only_rules_whose_packets_have_their_class() -> None:
    rules = storm_sets.rule_set("R3")
    assert rules is not None
    classes = np.zeros(len(rules.boxes), np.uint32)
    assert storm.allowed(rules, classes, len(classes) - 1), "one class: no earlier rule is in the way"
    own = np.arange(len(rules.boxes), dtype=np.uint32)
    assert storm.allowed(rules, own, 0)
    # The last rule meets all others, so their packets are not its own.
    assert (rules.boxes[-1, :, 1] - rules.boxes[-1, :, 0] > 0).any()
    refused = [number for number in range(len(own)) if not storm.allowed(rules, own, number)]
    assert refused
    first = refused[0]
    box = rules.boxes[first]
    met = [
        number
        for number in range(first)
        if all(low <= box[d, 1] and box[d, 0] <= high for d, (low, high) in enumerate(rules.boxes[number]))
    ]
    assert met


def test_rules_that_do_not_evolve_hit_where_they_are_popular() -> None:
    rows = list(storm.unevolved(("R3",), 40_000, ("uniform", "edge, s 2.2")))
    steady = {(row["preset"], row["classes"]): row["steady"] for row in rows}
    assert steady["uniform", "90"] < 0.2 < 0.8 < steady["edge, s 2.2", "90"] <= 1
    assert steady["edge, s 2.2", "own"] <= steady["edge, s 2.2", "90"]


def test_the_hit_ratio_of_each_millisecond_rises() -> None:
    (local, *_) = storm.ramp(("R3",), 3 * storm.MILLISECOND)
    assert len(local["by_ms"]) == 3 and 0 < local["by_ms"][0] <= local["by_ms"][-1] <= 1


def test_the_tables_of_the_page_have_a_cell_for_each_figure() -> None:
    hits = [
        {"set": "R3", "preset": preset, "classes": kind, "every": storm.EVERY, "steady": share}
        for preset in storm_sets.PRESETS
        for kind, share in (("90", 0.5), ("own", 0.25))
    ]
    assert storm.hit_table(hits).count("50.0% (25.0%)") == len(storm_sets.PRESETS)
    worth = [{"set": "R3", "preset": "edge", "inner": "tss", "alone_per_s": 2e7, "storm_per_s": 1e7}]
    table = storm.worth_table(worth)
    assert "| tss | 20 / 10 |" in table
    assert "| rfc | – |" in table
