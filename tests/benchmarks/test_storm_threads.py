"""Rates of Storm's threads: what feeds the model, and what its rows say."""

from __future__ import annotations

import os

import numpy as np
import pytest

from benchmarks import storm_costs, storm_threads
from benchmarks.storm_model import Costs, Plan
from benchmarks.storm_sets import classes_of, packets_of, rule_set

PACKETS = 20_000
COSTS = Costs(cache_packet=200, class_packet=2000, sample=1000)


def traffic_of(packets: int = PACKETS) -> storm_threads.Traffic:
    return storm_threads.Traffic("R3", storm_threads.TRAFFIC, packets)


def test_costs_are_measured_for_each_step() -> None:
    rules = rule_set("R1")
    assert rules is not None
    headers = packets_of("R1", storm_threads.TRAFFIC, PACKETS)
    costs = storm_costs.measured("linear", rules, classes_of(rules, "90"), headers, 1)
    # Short runs tell what a batch of packets costs in all, not how much of it each packet adds.
    assert costs.class_batch + costs.class_packet > 0
    assert costs.cache_batch + costs.cache_packet + costs.entry > 0
    assert costs.push > 0 and costs.sample > 0


def test_the_work_of_packets_is_a_share_of_their_mean() -> None:
    rules = rule_set("R3")
    assert rules is not None
    work = storm_costs.work_of("hypercuts", rules, packets_of("R3", "backbone", 4000), 1)
    assert work.mean() == pytest.approx(1) and (work > 0).all()
    assert len(np.unique(work)) <= storm_costs.GROUPS


def test_a_slower_updater_takes_fewer_samples() -> None:
    traffic = traffic_of()
    assert traffic.every(1e7, COSTS) == 10 or traffic.every(1e7, COSTS) == 11
    assert traffic.every(1e9, COSTS) > traffic.every(1e8, COSTS) > traffic.every(1.0, COSTS) == 1


def test_a_cache_of_one_thread_is_the_cache_of_all_packets() -> None:
    of = ("R3", storm_threads.TRAFFIC, PACKETS, "90")
    one = storm_threads.own_places(*of, 1, 16)
    assert one.tolist() == storm_threads.places(*of, 16).tolist()
    assert len(storm_threads.own_places(*of, 3, 16)) == PACKETS


def test_rates_of_the_model_have_the_order_of_the_papers_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storm_threads, "STEADY", 15_000)
    traffic = traffic_of(150_000)
    plans = storm_threads.PLANS
    rates = {name: storm_threads.rates(traffic, plan, COSTS) for name, plan in plans.items()}
    speed = {name: row["lossless_per_s"] for name, row in rates.items()}
    assert speed["4-2-1"] > speed["3-3-1"] > speed["2-4-1"] > speed["HyperCuts-8"] > speed["HyperCuts-1"]
    assert speed["dynamic"] == pytest.approx(speed["4-2-1"], rel=0.2)
    assert all(row["lossless_per_s"] <= 1.001 * row["saturated_per_s"] for row in rates.values())
    assert rates["HyperCuts-7"]["every"] is None and rates["4-2-1"]["every"] >= 1
    warm = storm_threads.warm_up(traffic, plans["4-2-1"], COSTS, rates["4-2-1"])
    assert warm["warm_up_ms"] >= 0 and warm["to_90_ms"] > 0


def test_a_real_run_stands_beside_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storm_threads, "ALONE", {"HyperCuts-1": storm_threads.ALONE["HyperCuts-1"]})
    monkeypatch.setattr(storm_threads, "TOGETHER", {})
    (row,) = storm_threads.agreement(("R3",), PACKETS, 1)
    assert row["real_per_s"] > 0 and row["model_per_s"] > 0
    assert row["real_hit_ratio"] == row["model_hit_ratio"] == 0 and not row["shares_cores"]
    assert "HyperCuts-1" in storm_threads.agreement_table([row])


def test_plans_of_more_threads_than_cores_have_no_real_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storm_threads, "ALONE", {})
    few = {name: storm_threads.TOGETHER[name] for name in ("1-1-1", "HyperCuts-14")}
    monkeypatch.setattr(storm_threads, "TOGETHER", few)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(3)))
    (row,) = storm_threads.agreement(("R3",), PACKETS, 1)
    assert (row["plan"], row["threads"]) == ("1-1-1", 3)
    line = storm_threads.cores_table({"agreement": [row], "threads": []}).splitlines()[2]
    assert line == f"| 1-1-1 | {row['real_per_s'] / 1e6:.0f} / {row['model_per_s'] / 1e6:.0f} | – | – |"


def test_formula_1_is_beside_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storm_threads, "named_costs", lambda name, packets, runs: {"paper": COSTS})
    seven, fifteen = storm_threads.formula(("R3",), PACKETS, 1)
    assert (len(seven["per_s"]), len(fifteen["per_s"])) == (6, 14)
    for row in (seven, fifteen):
        assert row["per_s"][row["best"] - 1] == max(row["per_s"])
        assert 1 < row["formula_1"] < row["threads"] and 1 < row["balanced"] < row["threads"]


def test_the_table_of_the_page_has_a_cell_for_each_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storm_threads, "named_costs", lambda name, packets, runs: {"paper": COSTS})
    monkeypatch.setattr(storm_threads, "PLANS", {"4-2-1": Plan(4, 2)})
    monkeypatch.setattr(storm_threads, "SCALING", {2: Plan(1, 1)})
    rows = list(storm_threads.partitions(("R3",), PACKETS, 1))
    assert [row["plan"] for row in rows] == ["costs", "4-2-1", "1-1-1"]
    assert all(row["source"] == "model" for row in rows)
    assert "| 4-2-1, paper costs |" in storm_threads.rate_table(rows)


def test_a_cache_pays_where_a_look_up_is_cheaper_than_what_hits_save() -> None:
    row = {
        "inner": "tss", "set": "R3", "preset": "edge", "d1_ns": 12, "d2_ns": 170.0, "d1_batch_ns": 4.0,
        "d2_batch_ns": 16.0, "hit_ratio": 0.96, "pays_above": 0.25,
    }  # fmt: skip
    assert "| tss, R3, edge | 12.0 | 170.0 | 4.0 | 16.0 | 25% | 96% |" in storm_threads.delay_table([row])
    assert "| never |" in storm_threads.delay_table([row | {"pays_above": 1.2}])
