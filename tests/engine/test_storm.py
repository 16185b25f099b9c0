"""Storm: threads that share the work answer as linear search does, lose nothing unseen, and always end."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from hitables import engine
from hitables.engine import Layout, Partition, Rules, Storm, StormRun
from hitables.engine.storm import optimal_caches, optimal_caches_of_all
from hitables.errors import DatabaseError, OutOfMemory

LAYOUT = Layout((8, 8, 4))
BY_CACHE, BY_CLASSIFIER, LOST_INPUT, LOST_RING = range(4)


def some_rules(count: int = 80, seed: int = 1) -> Rules:
    rng = np.random.default_rng(seed)
    listed = []
    for _ in range(count):
        free = [int(rng.choice([0, width // 2, width])) for width in LAYOUT.widths]
        low = [
            int(rng.integers(0, 1 << width)) >> f << f for width, f in zip(LAYOUT.widths, free, strict=True)
        ]
        listed.append([(start, start | (1 << f) - 1) for start, f in zip(low, free, strict=True)])
    return Rules.of_ranges(listed, LAYOUT)


def some_packets(count: int = 30_000, seed: int = 2) -> np.ndarray:
    """A few packets again and again, others of which change, and any."""
    rng = np.random.default_rng(seed)
    tops = np.array([1 << width for width in LAYOUT.widths])
    packets = rng.integers(0, tops, (count, 3))
    popular = rng.integers(0, tops, (200, 3))
    chosen = rng.random(count) < 0.8
    which = np.arange(count) * 190 // count + rng.geometric(0.3, count).clip(1, 10) - 1
    packets[chosen] = popular[which[chosen]]
    return np.ascontiguousarray(packets.astype(np.uint32))


RULES, PACKETS = some_rules(), some_packets()
CLASSES = (np.arange(len(RULES.boxes)) % 2).astype(np.uint32)


def right(packets: np.ndarray, classes: np.ndarray | None = None) -> np.ndarray:
    with engine.open("linear", RULES) as linear:
        found = linear.search(packets)
    return found if classes is None else np.where(found < 0, -1, classes[found].astype(np.int32))


ANSWERS, ANSWERS_BY_CLASS = right(PACKETS), right(PACKETS, CLASSES)


def check(run: StormRun, answers: np.ndarray) -> None:
    """Every packet has one end, the counts are those of the packets, and the answers are right."""
    assert run.offered == len(answers) == run.hits + run.classified + run.lost
    counts = np.bincount(run.by, minlength=4)
    assert counts.tolist() == [run.hits, run.classified, run.lost_input, run.lost_ring]
    answered = run.by <= BY_CLASSIFIER
    assert (run.answers[answered] == answers[answered]).all()


@pytest.mark.parametrize("full", ["wait", "lose"])
@pytest.mark.parametrize(
    "partition", ["1-1-1", "2-4-1", "4-2-1", "3-3-1", "3-2-1", "1-0-1", "3-0-0", "2-2-0", "2-2-2", "dynamic"]
)
def test_a_pipeline_answers_as_linear_search_and_counts_each_packet_once(partition: str, full: str) -> None:
    with Storm("hypercuts", RULES, partition=partition, full=full, rings=40, window=64) as storm:
        for _ in range(2):
            run = storm.run(PACKETS)
            check(run, ANSWERS)
            if full == "wait":
                assert run.lost == 0


@pytest.mark.parametrize(
    "options",
    [
        {"copies": 1},
        {"copies": 3},
        {"form": "rows"},
        {"form": "list", "copies": 1},
        {"queue": 50},
        {"ring_locks": True},
        {"pin": True},
        {"batch": 1, "rings": 2},
        {"cache": 1, "window": 1},
        {"cache": 64, "window": 64, "order": "age", "first": "expand", "cuts": "published", "tries": 3},
    ],
    ids=str,
)
def test_every_form_of_the_pipeline_gives_the_same_answers(options: dict[str, int | str | bool]) -> None:
    """Two classes, so that evolving rules grow, and a cache that is renewed after every sample."""
    with Storm("tss", RULES, CLASSES, partition="2-1-1", **options) as storm:  # type: ignore[arg-type]
        check(storm.run(PACKETS), ANSWERS_BY_CLASS)


def test_cache_threads_may_have_rules_of_their_own() -> None:
    with Storm("tss", RULES, CLASSES, partition="2-0-0", own=True, every=4, window=128) as storm:
        run = storm.run(PACKETS)
        check(run, ANSWERS_BY_CLASS)
        assert run.samples == math.ceil(len(PACKETS) / 2 / 4) * 2
        assert run.hits > run.classified, "packets repeat"
        assert sum(run.searched) == len(PACKETS)


def test_a_pipeline_without_packets_ends() -> None:
    with Storm("tss", RULES, partition="2-2-1") as storm:
        assert storm.run(PACKETS[:0]).offered == 0
        check(storm.run(PACKETS[:1]), ANSWERS[:1])


@pytest.mark.parametrize("plan", ["linear", "sfl(rfc)", "storm(tss)", "flows(best)", "checked(hypersplit)"])
def test_any_plan_may_be_the_classifier(plan: str) -> None:
    with Storm(plan, RULES, partition="1-2-1") as storm:
        check(storm.run(PACKETS), ANSWERS)


def test_packets_that_arrive_too_fast_are_lost_where_there_is_no_room() -> None:
    with Storm("linear", RULES, partition="2-1-1", full="lose", inputs=8, rings=2) as storm:
        run = storm.run(PACKETS, rate=1e9)
        check(run, ANSWERS)
        assert run.lost_input > 0
    with Storm("linear", RULES, partition="2-1-1", full="lose", inputs=1 << 20, rings=2) as storm:
        run = storm.run(PACKETS, rate=1e9)
        check(run, ANSWERS)
        assert run.lost_input == 0
        assert run.lost_ring > 0
    with Storm("linear", RULES, partition="2-1-1", full="wait", inputs=8, rings=2) as storm:
        assert storm.run(PACKETS, rate=1e9).lost == 0


def test_a_rate_is_kept() -> None:
    """A thousand packets at 50,000 a second come during 20 ms."""
    with Storm("tss", RULES, partition="1-1-1", inputs=1 << 20) as storm:
        run = storm.run(PACKETS[:1000], rate=50_000)
        check(run, ANSWERS[:1000])
        assert run.seconds >= 999 / 50_000


def one_packet(count: int) -> np.ndarray:
    return np.ascontiguousarray(np.repeat(PACKETS[:1], count, axis=0))


def slow_rules(count: int) -> Rules:
    """Points that few packets are in, and a rule for the others behind them: linear search reads all."""
    points = np.random.default_rng(5).integers(0, [256, 256, 16], (count, 3))
    everything = [(0, 255), (0, 255), (0, 15)]
    return Rules.of_ranges([*([(int(v), int(v)) for v in row] for row in points), everything], LAYOUT)


def runs_until(storm: Storm, packets: np.ndarray, done: Callable[[StormRun], bool]) -> StormRun:
    """The updater may get no core during a short run, so there are several, until it has done its work."""
    for _ in range(100):
        run = storm.run(packets)
        if done(run):
            break
    return run


def test_free_rings_bring_more_cache_threads_and_full_ones_more_classifiers() -> None:
    """One packet again and again always hits; then all miss a cache of one rule, and linear search is slow."""
    anything = np.random.default_rng(4).integers(0, [256, 256, 16], (20_000, 3)).astype(np.uint32)
    rules = slow_rules(3000)
    packets = np.concatenate([one_packet(300_000), anything])
    with Storm("linear", rules, partition="dynamic", cache=1, window=1) as storm:
        run = runs_until(storm, packets, lambda run: bool(run.to_caches and run.to_classifiers))
    assert run.to_caches >= 1
    assert run.to_classifiers >= 1
    with engine.open("tss", rules) as db:
        check(run, db.search(packets))


def test_the_direction_of_the_text_leaves_the_classifiers_where_nothing_misses() -> None:
    packets = one_packet(50_000)  # as many as fill a twentieth of the rings at most
    for literal, switches in ((False, 1), (True, 0)):
        with Storm("tss", RULES, partition="dynamic", literal=literal, rings=1_000_000) as storm:
            run = runs_until(storm, packets, lambda run: run.published > 0)
        check(run, np.full(len(packets), ANSWERS[0]))
        assert run.published > 0
        assert (run.to_caches, run.to_classifiers) == (switches, 0)


@pytest.mark.parametrize("partition", ["2-2-1", "dynamic"])
@pytest.mark.parametrize("thread", ["cache thread", "classifier", "updater"])
@pytest.mark.parametrize("turn", [0, 5])
def test_a_thread_that_fails_ends_the_pipeline_with_its_name(thread: str, turn: int, partition: str) -> None:
    with Storm("linear", RULES, partition=partition, rings=4) as storm:
        with pytest.raises(OutOfMemory, match=f"^{thread} 0: .*the pipeline has ended"):
            storm.run(np.tile(PACKETS, (20, 1)), fault=(thread, 0, turn))
        check(storm.run(PACKETS), ANSWERS)


def test_more_threads_than_cores_are_allowed_and_said() -> None:
    with Storm("tss", RULES, partition="16-8-1") as storm:
        run = storm.run(PACKETS)
        check(run, ANSWERS)
        assert run.threads == 25
        assert run.shares_cores == (run.cores < 25)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition": "0-0-0"}, "the partition 0-0-0 has no threads"),
        ({"partition": "0-2-1"}, "has no cache thread"),
        ({"partition": "65-1-1"}, "at most 64 threads of a kind"),
        ({"partition": "4-2"}, "no partition; write it as 4-2-1"),
        ({"partition": ""}, "no partition; write it as 4-2-1"),
        ({"partition": "dynamic 1-4-1"}, "none can be idle"),
        ({"partition": "dynamic 4-4-0"}, "assigned by the updater, and there is none"),
        ({"rings": 0}, "rings must lie in 1"),
        ({"rings": 3, "partition": "4-2-1"}, "has 4 rings"),
        ({"inputs": 0}, "inputs must lie in 1"),
        ({"cache": 20, "window": 19}, "never fills a cache of 20 rules: widen it"),
        ({"cache": 0}, "cache must lie in 1..256"),
        ({"batch": 33}, "batch must lie in 1..32"),
        ({"copies": 4}, "copies must lie in 1..3"),
        ({"full": "drop"}, "it is one of wait, lose"),
        ({"form": "tree"}, "it is one of columns, rows, list"),
        ({"low": 0.8, "high": 0.2}, "must rise from 0 to 1"),
        ({"own": True, "partition": "2-0-1"}, "need no updater"),
        ({"queue": 5, "partition": "1-1-2"}, "one reader"),
        ({"plan": "hypersplat"}, "no algorithm is called"),
        ({"plan": "rfc(entries=1000)"}, "too many, or too interwoven, for rfc"),
        ({"limit": -1}, "limit must lie in 0"),
        ({"classes": np.zeros(2, np.uint32)}, "classes must be uint32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pipeline_that_is_not_possible_is_refused_before_it_starts(
    options: dict[str, object], message: str
) -> None:
    plan = options.pop("plan", "tss")
    with pytest.raises(DatabaseError, match=message):
        Storm(plan, RULES, **options)  # type: ignore[arg-type]


def test_packets_that_are_not_possible_are_refused() -> None:
    storm = Storm("tss", RULES)
    for headers, rate, message in (
        (PACKETS[:, :2], 0.0, r"must be uint32 \[headers\]\[3\]"),
        (PACKETS + np.uint32(256), 0.0, "wider than its field"),
        (PACKETS, -1.0, "a number of packets a second, 0 or more, not -1.0"),
        (PACKETS, "5", "0 or more, not '5'"),
        (PACKETS.tolist(), 0.0, "headers must be an array of numpy, not list"),
        (PACKETS, math.nan, "0 or more, not nan"),
    ):
        with pytest.raises(DatabaseError, match=message):
            storm.run(headers, rate)
    storm.close()
    with pytest.raises(DatabaseError, match="closed"):
        storm.run(PACKETS)


def test_a_limit_of_memory_is_that_of_the_threads_too() -> None:
    with Storm("linear", RULES, partition="1-1-4") as storm:
        taken = storm.run(PACKETS).bytes
    with (
        Storm("linear", RULES, partition="1-1-4", limit=taken // 2) as storm,
        pytest.raises(OutOfMemory, match="the set-up: not enough memory"),
    ):
        storm.run(PACKETS)


@pytest.mark.parametrize(
    ("threads", "cache_ns", "classifier_ns", "hit_ratio", "caches"),
    [
        (7, 200, 2000, 0.95, 4.06),  # the paper: between 3 and 4
        (15, 200, 2000, 0.95, 8.69),  # around 8
        (4, 100, 100, 0.5, 2.0),
        (3, 50, 500, 1.0, 3.0),
        (3, 50, 500, 0.0, 0.0),
    ],
)
def test_formula_1_assigns_threads(
    threads: int, cache_ns: float, classifier_ns: float, hit_ratio: float, caches: float
) -> None:
    assert optimal_caches(threads, cache_ns, classifier_ns, hit_ratio) == pytest.approx(caches, abs=0.01)
    assert optimal_caches_of_all(threads, cache_ns, classifier_ns, hit_ratio) >= caches - 0.01


def test_the_optimum_of_all_packets_makes_the_model_largest() -> None:
    """1 / T = d1 / t1 + d2 (1 - r) / t2 has its least value there, by trying all splits."""
    best = optimal_caches_of_all(7, 200, 2000, 0.95)
    tried = np.linspace(0.01, 6.99, 6981)
    times = 200 / tried + 2000 * 0.05 / (7 - tried)
    assert tried[times.argmin()] == pytest.approx(best, abs=0.001)
    with pytest.raises(DatabaseError, match="one thread at least"):
        optimal_caches(0, 1, 1, 0.5)


def test_partitions_are_read_as_they_are_written() -> None:
    assert Partition.read("4-2-1") == Partition(4, 2, 1)
    assert Partition.read("dynamic") == Partition(4, 4, 1, 2)
    assert Partition.read("dynamic 8-8-1") == Partition(8, 8, 1, 4)
    assert (str(Partition(4, 2, 1)), Partition(4, 4, 1, 2).threads) == ("4-2-1", 7)
    with pytest.raises(DatabaseError, match="leaves no thread of a kind"):
        Partition(4, 4, 1, 4)


def test_a_cache_in_front_of_a_classifier_answers_for_most_packets() -> None:
    with engine.open("storm(linear, every=4)", RULES) as db:
        assert (db.search(PACKETS) == ANSWERS).all()
        stats = db.cache_statistics()
        assert stats.packets == len(PACKETS)
        assert stats.hit_ratio > 0.3
        assert stats.evolving.samples == len(PACKETS) // 4
        assert 0 < stats.published <= stats.evolving.samples // 64
        assert stats.evolving.samples == (
            stats.evolving.contained + stats.evolving.expanded + stats.evolving.created
        )
    with engine.open("linear", RULES) as db, pytest.raises(DatabaseError, match="linear has no rule cache"):
        db.cache_statistics()


@pytest.mark.parametrize("inner", ["linear", "sfl(rfc)", "tss"])
def test_a_cached_answer_ends_with_the_rule_that_gave_it(inner: str) -> None:
    packets = one_packet(5000)
    point = [(int(value), int(value)) for value in PACKETS[0]]
    empty = Rules.of_ranges([], LAYOUT)
    with engine.open(f"storm({inner}, every=1, publish=1)", empty) as db:
        for number in range(200):
            for _ in range(2):
                assert (db.search(packets[:50]) == (-1 if number == 0 else 500 - number + 1)).all()
            db.insert(point if number % 2 else [(0, 255), (0, 255), (0, 15)], 500 - number)
        for number in reversed(range(1, 200)):
            db.remove(500 - number)
            for _ in range(2):
                assert (db.search(packets[:50]) == 500 - number + 1).all()
        stats = db.cache_statistics()
        assert stats.hits > stats.packets / 3
        assert stats.evolving.dropped >= 199


def test_rules_that_were_removed_keep_boxes_apart_until_the_tree_is_new() -> None:
    """Rule 0 hides rule 1 in every leaf; without rule 0, rule 1 decides packets that rule 2's box must not hold."""
    layout = Layout((8,))
    rules = Rules.of_ranges([[(10, 20)], [(12, 18)], [(0, 255)]], layout)
    every = layout.headers([[value] for value in range(256)])
    with engine.open("storm(linear, every=1, publish=1)", rules) as db:
        for _ in range(3):
            db.search(every)
        db.remove(0)
        expected = np.where((every[:, 0] >= 12) & (every[:, 0] <= 18), 1, 2)
        for _ in range(5):
            assert (db.search(every) == expected).all()
            assert (db.search(every[::-1].copy()) == expected[::-1]).all()


def test_a_word_wider_than_its_field_is_left_to_the_classifier() -> None:
    packets = np.array([[5, 5, 3], [5, 5, 19], [300, 5, 3]] * 40, np.uint32)
    with (
        engine.open("linear", RULES) as linear,
        engine.open("storm(linear, every=1, publish=1)", RULES) as db,
    ):
        for _ in range(3):
            assert (db.search(packets) == linear.search(packets)).all()
