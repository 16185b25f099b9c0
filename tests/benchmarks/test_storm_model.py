"""The discrete-event model of Storm's threads: its laws, its closed forms, and a real run."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples

from benchmarks.storm_model import (
    CLASSIFIED,
    HIT,
    LOST_INPUT,
    LOST_RING,
    Costs,
    Plan,
    lossless,
    saturated,
    share,
    simulate,
)  # fmt: skip
from hitables.engine import FIVE_TUPLE, Rules, Storm

ENTRIES = 20
COSTS = Costs(cache_batch=30, cache_packet=7, entry=1, push=5, class_batch=40, class_packet=50, sample=150)


def places(count: int, ratio: float, seed: int = 1) -> npt.NDArray[np.uint32]:
    rng = np.random.default_rng(seed)
    entry = np.minimum(rng.geometric(0.5, count) - 1, ENTRIES - 1)
    return np.where(rng.random(count) < ratio, entry, ENTRIES).astype(np.uint32)


plans = st.builds(
    Plan,
    caches=st.integers(1, 4),
    classifiers=st.integers(0, 4),
    cached=st.booleans(),
    batch=st.sampled_from([1, 7, 32]),
    rings=st.sampled_from([4, 50, 1000]),
    inputs=st.sampled_from([1, 40, 4096]),
) | st.just(Plan(4, 4, idle=2, rings=50))
rates = st.sampled_from([0.0, 1e6, 2e7, 1e9])


@settings(max_examples=examples(60))
@given(plans, rates, st.booleans(), st.floats(0, 1), st.integers(0, 2000))
def test_each_packet_has_one_end(plan: Plan, rate: float, block: bool, ratio: float, count: int) -> None:
    place = places(count, ratio)
    run = simulate(plan, COSTS, place, ENTRIES, rate=rate, block=block)
    assert len(run.by) == count
    ends = [int((run.by == end).sum()) for end in (HIT, CLASSIFIED, LOST_INPUT, LOST_RING)]
    assert sum(ends) == count and run.lost == ends[2] + ends[3]
    # What is a hit follows from the cache alone, if the packet was taken at all.
    missed = (place >= ENTRIES) if plan.cached else np.ones(count, bool)
    taken = run.by != LOST_INPUT
    assert ((run.by == HIT) == (taken & ~missed)).all()
    if block or not rate:
        assert ends[2] == 0
    if block or not plan.classifiers:
        assert ends[3] == 0


@settings(max_examples=examples(40))
@given(plans, st.sampled_from([2e6, 2e7]), st.sampled_from([2.0, 8.0]))
def test_slower_steps_at_a_slower_rate_do_the_same(plan: Plan, rate: float, factor: float) -> None:
    place = places(1500, 0.8)
    run = simulate(plan, COSTS, place, ENTRIES, rate=rate)
    slow = simulate(plan, COSTS.times(factor), place, ENTRIES, rate=rate / factor)
    assert run.by.tolist() == slow.by.tolist() and slow.ns == pytest.approx(factor * run.ns)


def test_a_classifier_alone_takes_the_sum_of_its_batches() -> None:
    run = saturated(Plan(1, 0, cached=False), COSTS, places(3200, 0.5), ENTRIES)
    assert run.ns == pytest.approx(100 * (40 + 32 * 50))
    assert run.packets_per_s == pytest.approx(1e9 / COSTS.class_ns(32))
    work = np.linspace(0.5, 1.5, 3200)
    run = saturated(Plan(1, 0, cached=False), COSTS, places(3200, 0.5), ENTRIES, work)
    assert run.ns == pytest.approx(100 * 40 + 50 * work.sum())


def test_a_cache_thread_alone_takes_the_sum_of_its_packets() -> None:
    place = places(3200, 1.0)
    run = saturated(Plan(1, 0), COSTS, place, ENTRIES)
    assert run.ns == pytest.approx(100 * 30 + 3200 * 7 + float((place + 1).sum()))
    sampling = saturated(Plan(1, 0, every=16), COSTS, place, ENTRIES)
    assert sampling.ns == pytest.approx(run.ns + 200 * 150)


def test_one_thread_loses_what_it_cannot_serve_and_the_input_cannot_hold() -> None:
    # A packet takes 100 ns, two arrive meanwhile: half of them are lost, but for those that wait at the end.
    plan = Plan(1, 0, cached=False, batch=1, inputs=10)
    run = simulate(plan, Costs(class_packet=100), places(20_000, 0), ENTRIES, rate=2e7)
    assert abs(run.lost - 10_000) <= 11
    assert simulate(plan, Costs(class_packet=100), places(20_000, 0), ENTRIES, rate=1e7).lost == 0
    rate, _ = lossless(plan, Costs(class_packet=100), places(20_000, 0), ENTRIES, most=4e7)
    assert rate == pytest.approx(1e7, rel=0.03)


@pytest.mark.parametrize(("caches", "classifiers"), [(1, 1), (4, 2), (2, 4), (3, 3)])
@pytest.mark.parametrize("ratio", [0.5, 0.95])
def test_a_saturated_pipeline_is_as_fast_as_its_slower_kind(
    caches: int, classifiers: int, ratio: float
) -> None:
    costs = Costs(cache_packet=200, class_packet=2000)
    place = places(60_000, ratio)
    misses = float((place >= ENTRIES).mean())
    bound = min(caches / 200, classifiers / (2000 * misses)) * 1e9
    run = saturated(Plan(caches, classifiers, batch=8), costs, place, ENTRIES)
    assert 0.93 * bound <= run.packets_per_s <= 1.001 * bound


@pytest.mark.parametrize("plan", [Plan(1, 0), Plan(1, 1), Plan(4, 2), Plan(2, 4), Plan(4, 0, cached=False)])
def test_faster_steps_and_lower_rates_are_never_worse(plan: Plan) -> None:
    place = places(20_000, 0.9)
    speeds = [saturated(plan, COSTS.times(factor), place, ENTRIES).packets_per_s for factor in (0.5, 1, 2, 4)]
    assert speeds == sorted(speeds, reverse=True)
    lost = [simulate(plan, COSTS, place, ENTRIES, rate=rate).lost for rate in (1e6, 3e7, 1e8, 3e8, 1e9)]
    assert lost[0] == 0 and lost == sorted(lost)


def test_more_threads_are_faster_until_the_other_kind_is_the_slower_one() -> None:
    place = places(40_000, 0.95)
    speeds = [saturated(Plan(n, n), COSTS, place, ENTRIES).packets_per_s for n in (1, 2, 4, 8)]
    assert all(later == pytest.approx(2 * one, rel=0.05) for one, later in pairwise(speeds))


def test_one_copy_of_the_cache_serves_one_thread_at_a_time() -> None:
    place = places(40_000, 1.0)
    one, four = (saturated(Plan(n, n, one_copy=True), COSTS, place, ENTRIES) for n in (1, 4))
    assert four.packets_per_s == pytest.approx(one.packets_per_s, rel=0.02)
    assert saturated(Plan(4, 4), COSTS, place, ENTRIES).packets_per_s > 3.8 * four.packets_per_s


def test_dynamic_assignment_follows_the_misses_both_ways() -> None:
    costs = Costs(cache_packet=200, class_packet=2000, sample=500)
    plan = Plan(4, 4, idle=2)
    # Few misses, many, few: from 2-4 to 4-2, back, and to 4-2 again.
    place = np.concatenate([places(20_000, ratio) for ratio in (1.0, 0.0, 1.0)])
    run = saturated(plan, costs, place, ENTRIES)
    assert run.switches == 3
    steady = places(40_000, 0.98)
    dynamic = saturated(plan, costs, steady, ENTRIES).packets_per_s
    assert dynamic == pytest.approx(saturated(Plan(4, 2), costs, steady, ENTRIES).packets_per_s, rel=0.05)


def test_a_plan_without_packets_ends_at_once() -> None:
    for plan in (Plan(1, 0), Plan(4, 4, idle=2), replace(Plan(2, 2), one_copy=True)):
        assert saturated(plan, COSTS, places(0, 1), ENTRIES).ns == 0


def test_a_run_of_two_real_threads_has_the_ends_of_the_model() -> None:
    """A cache thread without a cache, and a classifier: what is lost, waits or is classified agrees."""
    rules = Rules.of_ranges([[(0, 2**32 - 1), (0, 2**32 - 1), (0, 65535), (0, 65535), (6, 6)]], FIVE_TUPLE)
    headers = np.zeros((5000, 5), np.uint32)
    plan = Plan(1, 1, cached=False)
    with Storm("linear", rules, partition="1-1-0", full="wait") as storm:
        real = storm.run(headers)
    model = saturated(plan, COSTS, places(5000, 0), ENTRIES)
    assert (real.hits, real.classified, real.lost) == (0, 5000, 0)
    assert ((model.by == CLASSIFIED).sum(), model.lost) == (5000, 0)
    # All packets are there at once, and rings of one packet keep almost nothing: both lose at the ring alone.
    with Storm("linear", rules, partition="1-1-0", full="lose", rings=1, batch=32) as storm:
        real = storm.run(headers)
    assert real.offered == real.classified + real.lost_ring and real.lost_input == 0
    model = simulate(replace(plan, rings=1), COSTS, places(5000, 0), ENTRIES)
    assert (model.by == LOST_RING).sum() == model.lost > 0


def test_a_thread_of_the_engine_has_the_packets_that_its_stream_of_the_model_has() -> None:
    """A thread with rules of its own takes every 200th of its packets: 2 of 256 and 1 of 128, not 1 of 192 each."""
    rules = Rules.of_ranges([[(0, 2**32 - 1), (0, 2**32 - 1), (0, 65535), (0, 65535), (0, 255)]], FIVE_TUPLE)
    counts = [len(share(384, 2, stream)) for stream in range(2)]
    assert counts == [256, 128]
    with Storm("linear", rules, partition="2-0-0", own=True, every=200) as storm:
        run = storm.run(np.zeros((384, 5), np.uint32))
    assert run.samples == sum(-(-count // 200) for count in counts)
