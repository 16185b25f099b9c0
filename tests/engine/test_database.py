"""The contract of every classifier, and of every wrapper around one: they answer as linear search does."""

from __future__ import annotations

import contextlib
import copy
import functools
import gzip
import itertools
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import deep, examples

from hitables import engine
from hitables.engine import Layout, Rules
from hitables.engine.layout import Range
from hitables.errors import DatabaseError, OutOfMemory
from hitables.parse import classbench, trace

SINGLE = [name for name, algorithm in engine.ALGORITHMS.items() if not algorithm.wraps]
WRAPPED = [
    f"{name}({inner})" for name, algorithm in engine.ALGORITHMS.items() if algorithm.wraps for inner in SINGLE
]
SCALAR = ["tss(vector=0)", "sfl(linear, vector=0)"]  # the path without vectors
# Chains of many flows, and each way to keep them.
CHAINED = [
    f"flows(tss, scheme={scheme}, buckets=3, hash={scheme})".replace("scheme=3, ", "").replace(", hash=4", "")
    for scheme in range(5)
]
# Caches that change with every packet, of more rules and fewer, from long windows and short ones.
CACHED = [
    "storm(tss, cache=3, window=5, every=1, publish=1)",
    "storm(sfl(rfc), window=200, every=1, publish=3)",
]
# SFL as published: a build in the background, for which updates wait.
PUBLISHED = [
    "sfl(rfc, delta=2, background=2)",
    "sfl(tss, delta=0, background=2, vector=0)",
    "checked(classic(hypersplit))",
]
# The lists of the layer-4 paper, and its one hash table.
LISTED = ["pacars(list=1)", "pacars(cascade=0, list=1)", "pacars(list=2)", "pacars(cascade=0, list=2)"]
LISTED += ["tss_tries(table=1)"]
PLANS = SINGLE + WRAPPED + SCALAR + CHAINED + CACHED + PUBLISHED + LISTED

# Universes of up to 512 packets: all of them are tried.
UNIVERSES = {
    1: [Layout((6,))],
    2: [Layout((4, 4)), Layout((3, 5))],
    3: [Layout((3, 3, 2))],
    5: [Layout((2, 2, 2, 2, 1))],
}


def universes(plan: str) -> list[Layout]:
    least, most = dims(plan)
    return [layout for size, layouts in UNIVERSES.items() if least <= size <= most for layout in layouts]


def dims(plan: str) -> tuple[int, int]:
    """The dimensions that every part of the plan takes."""
    read = engine.AlgorithmSpec.read(plan)
    least, most = read.algorithm.dims
    while read.inner:
        read = read.inner
        least, most = max(least, read.algorithm.dims[0]), min(most, read.algorithm.dims[1])
    return least, most


@cache
def every_packet(layout: Layout) -> np.ndarray:
    return layout.headers(list(itertools.product(*(range(1 << width) for width in layout.widths))))


def reading(rules: dict[int, list[Range]], packets: np.ndarray) -> np.ndarray:
    """The least priority whose sides hold each packet, by the definition."""
    result = np.full(len(packets), -1, np.int32)
    for priority in sorted(rules, reverse=True):
        matches = np.all(
            [
                (low <= packets[:, d]) & (packets[:, d] <= high)
                for d, (low, high) in enumerate(rules[priority])
            ],
            axis=0,
        )
        result[matches] = priority
    return result


@st.composite
def sides(draw: st.DrawFn, layout: Layout) -> list[Range]:
    """Ranges, prefixes, single values and wildcards."""
    chosen = []
    for width in layout.widths:
        top = (1 << width) - 1
        free = draw(st.integers(0, width))
        start = draw(st.integers(0, top))
        prefix = (start >> free << free, start >> free << free | (1 << free) - 1)
        chosen.append(
            draw(st.sampled_from([prefix, prefix, (min(start, free), max(start, free) & top), (0, top)]))
        )
    return [(low, max(low, high)) for low, high in chosen]


@st.composite
def rule_lists(draw: st.DrawFn, layout: Layout) -> dict[int, list[Range]]:
    listed = draw(st.lists(sides(layout), max_size=14))
    priorities = draw(st.permutations(range(2 * len(listed) + 1)))
    return dict(zip(priorities, listed, strict=False))


def opened(plan: str, rules: dict[int, list[Range]], layout: Layout) -> engine.Database:
    return engine.open(plan, Rules.of_ranges(list(rules.values()), layout, list(rules)))


@pytest.mark.parametrize("plan", PLANS)
@given(data=st.data())
@settings(max_examples=examples(16))
def test_search_agrees_with_reading_the_list(plan: str, data: st.DataObject) -> None:
    layout = data.draw(st.sampled_from(universes(plan)))
    rules = data.draw(rule_lists(layout))
    packets = every_packet(layout)
    with opened(plan, rules, layout) as db:
        assert (db.search(packets) == reading(rules, packets)).all()
        assert len(db) == len(rules)


@pytest.mark.parametrize("plan", PLANS)
@given(data=st.data())
@settings(max_examples=examples(10))
def test_updates_leave_what_a_fresh_build_would_find(plan: str, data: st.DataObject) -> None:
    layout = data.draw(st.sampled_from(universes(plan)))
    rules = data.draw(rule_lists(layout))
    packets = every_packet(layout)
    with opened(plan, rules, layout) as db:
        for _ in range(data.draw(st.integers(1, 12))):
            priority = data.draw(st.integers(0, 30))
            if priority in rules:
                if data.draw(st.booleans()):
                    with pytest.raises(DatabaseError, match="there already"):
                        db.insert(rules[priority], priority)
                del rules[priority]
                db.remove(priority)
            elif data.draw(st.integers(0, 4)):
                rules[priority] = data.draw(sides(layout))
                db.insert(rules[priority], priority)
            else:
                with pytest.raises(DatabaseError, match="no rule of priority"):
                    db.remove(priority)
            assert (db.search(packets) == reading(rules, packets)).all()
        db.settle()
        assert (db.search(packets) == reading(rules, packets)).all()


@cache
def draws(seed: int, layout: Layout, count: int) -> list[tuple[int, list[Range]]]:
    """Random rules: nested prefixes mostly, as rule sets have them.  The same for every plan."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(count):
        chosen: list[Range] = []
        for width in layout.widths:
            free = int(rng.choice([0, 0, width // 2, width]))
            start = int(rng.integers(0, 1 << min(width, 30))) & ~((1 << free) - 1)
            chosen.append((start, start | (1 << free) - 1))
        result.append((int(rng.integers(0, 400)), chosen))
    return result


def builds_anew(plan: engine.AlgorithmSpec) -> bool:
    """At every update: so does what cannot be updated, classic(A), and checked(A), flows(A) and storm(A) around it."""
    if plan.algorithm.name == "classic" or str(plan) == "sfl(tss, delta=0, background=2, vector=0)":
        return True
    if plan.algorithm.name in ("checked", "flows", "storm") and plan.inner:
        return builds_anew(plan.inner)
    return not plan.algorithm.updates


Part = tuple[list[tuple[int, list[Range]]], np.ndarray]


@cache
def many_updates(
    layout: Layout, few: bool, step: int
) -> tuple[dict[int, list[Range]], np.ndarray, list[Part]]:
    """Rules, every *step*th packet, and parts of many updates, each with the answers after it.

    An update takes the rule of its priority out, or puts one in where there is none.  The same for every plan;
    *few* rules and updates for one that builds anew at each.
    """
    count = 600 if few else 1500
    count = count if deep() else count // 2
    first = dict(draws(1, layout, 20 if few else 200))
    packets = np.ascontiguousarray(every_packet(layout)[::step])
    updates = [(priority // 10 if few else priority, chosen) for priority, chosen in draws(2, layout, count)]
    rules, parts = dict(first), []
    for begin, end in itertools.pairwise([0, *range(1, count, 500), count]):
        for priority, chosen in updates[begin:end]:
            if rules.pop(priority, None) is None:
                rules[priority] = chosen
        parts.append((updates[begin:end], reading(rules, packets)))
    return first, packets, parts


@pytest.mark.parametrize("plan", PLANS)
def test_after_many_inserts_and_removals_the_answers_are_right(plan: str) -> None:
    least, most = dims(plan)
    layout = Layout((4, 4, 2, 2, 2)) if least <= 5 <= most else Layout((5, 5))
    rebuilds = builds_anew(engine.AlgorithmSpec.read(plan))
    first, packets, parts = many_updates(layout, rebuilds, 7 if least <= 5 <= most else 1)
    rules = dict(first)
    with opened(plan, rules, layout) as db:
        for number, (updates, answers) in enumerate(parts):
            for priority, chosen in updates:
                if priority in rules:
                    db.remove(priority)
                    del rules[priority]
                else:
                    db.insert(chosen, priority)
                    rules[priority] = chosen
            assert (db.search(packets) == answers).all(), number
        emptied = opened(plan, {}, layout).bytes
        for priority in rules:
            db.remove(priority)
        db.settle()
        assert (db.search(packets) == -1).all()
        if not rebuilds:
            assert db.bytes <= emptied + 200_000, "removals give memory back"


SETS = ["wustl/acl1_1K", "wustl/fw1_1K", "wustl/ipc1_1K", "classbench/acl3_1k"]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("plan", [plan for plan in PLANS if dims(plan)[0] <= 5 <= dims(plan)[1]])
def test_whole_traces_of_public_sets_find_the_right_rules(plan: str, name: str, shared: Path) -> None:
    few = bool(engine.AlgorithmSpec.read(plan).inner)  # the algorithm inside searches the whole set, too
    rules, packets, answers = traced(shared / "rulesets", name, few)
    with engine.open(plan, rules) as db:
        assert (db.search(packets) == answers).all()


@cache
def traced(folder: Path, name: str, few: bool) -> tuple[Rules, np.ndarray, np.ndarray]:
    """A public set, or *few* of its rules, the packets of its trace, and what linear search finds for each."""
    listed = classbench.parse(gzip.decompress((folder / f"{name}.gz").read_bytes()).decode())
    rules = Rules.of_filter(listed.rules[::4] if few else listed.rules)
    packets = trace.parse(gzip.decompress((folder / f"{name}_trace.gz").read_bytes()).decode()).headers
    with engine.open("linear", rules) as linear:
        answers = linear.search(packets)
    for each in (packets, answers):
        each.flags.writeable = False
    return rules, packets, answers


@pytest.mark.parametrize("plan", PLANS)
def test_many_threads_may_search_while_rules_change(plan: str) -> None:
    least, most = dims(plan)
    layout = Layout((6, 6, 3, 3, 2)) if least <= 5 <= most else Layout((6, 6))
    rules = dict(draws(3, layout, 60))
    packets = layout.headers(
        [[int(v) for v in row] for row in np.random.default_rng(4).integers(0, 4, (500, layout.dims))]
    )
    stop, wrong = threading.Event(), []
    with opened(plan, rules, layout) as db:
        before = reading(rules, packets)

        def search() -> None:
            while not stop.is_set():
                result = db.search(packets)
                if not ((result == before) | (result == 1000)).all():
                    wrong.append(result)

        threads = [threading.Thread(target=search) for _ in range(3)]
        for thread in threads:
            thread.start()
        # What goes in and out is worse than all else, so at any moment one of two answers is right.
        everything = [(0, (1 << width) - 1) for width in layout.widths]
        for _ in range(10):
            db.insert(everything, 1000)
            db.remove(1000)
        stop.set()
        for thread in threads:
            thread.join()
        missing = before == -1
        assert not [result for result in wrong if not (result[~missing] == before[~missing]).all()]
        assert (db.search(packets) == before).all()


@pytest.mark.parametrize("plan", PLANS)
def test_a_limit_of_memory_is_kept_and_what_does_not_fit_changes_nothing(plan: str) -> None:
    least, most = dims(plan)
    layout = Layout((4, 4, 3, 3, 2)) if least <= 5 <= most else Layout((6, 6))
    rules = dict(draws(5, layout, 30))
    packets = np.ascontiguousarray(every_packet(layout)[::11])
    with pytest.raises(OutOfMemory, match="do not fit"):
        engine.open(plan, Rules.of_ranges(list(rules.values()), layout, list(rules)), limit=64)
    with opened(plan, rules, layout) as db:
        limit = db.peak_bytes + 2000
    with engine.open(plan, Rules.of_ranges(list(rules.values()), layout, list(rules)), limit=limit) as db:
        for _, chosen in draws(6, layout, 400):
            free = next(priority for priority in range(1000) if priority not in rules)
            try:
                db.insert(chosen, free)
            except OutOfMemory:
                break
            rules[free] = chosen
            assert db.bytes <= limit
        assert (db.search(packets) == reading(rules, packets)).all()


@pytest.mark.parametrize("plan", PLANS)
def test_ipv6_addresses_are_fields_of_four_words(plan: str) -> None:
    layout = Layout((128, 128, 16, 16, 8))
    if not dims(plan)[0] <= layout.dims <= dims(plan)[1]:
        pytest.skip(f"{plan} takes {dims(plan)[1]} dimensions at most")
    low, top = 0x20010DB8 << 96, (1 << 128) - 1
    rules: dict[int, list[Range]] = {
        3: [(low, low | (1 << 96) - 1), (0, top), (0, 65535), (53, 53), (17, 17)],
        5: [(low + 7, low + (9 << 70)), (0, top), (0, 65535), (0, 65535), (0, 255)],
        9: [(0, top), (low, low), (1024, 65535), (0, 1023), (6, 6)],
    }
    rows = [
        [low + 9, 1, 5, 53, 17], [low + 9, 1, 5, 54, 17], [low + 6, 1, 5, 54, 17], [low + (9 << 70) + 1, low, 1024, 22, 6],
        [low + (9 << 70), low, 1024, 22, 6], [0, low, 1024, 22, 6], [0, low + 1, 1024, 22, 6],
    ]  # fmt: skip
    with opened(plan, rules, layout) as db:
        assert db.search(layout.headers(rows)).tolist() == [3, 5, -1, 9, 5, 9, -1]
        db.remove(5)
        assert db.search(layout.headers(rows)).tolist() == [3, -1, -1, 9, 9, 9, -1]


@given(width=st.integers(1, 128), data=st.data())
def test_the_boxes_of_a_wide_range_tile_it(width: int, data: st.DataObject) -> None:
    low = data.draw(st.integers(0, (1 << width) - 1))
    high = data.draw(st.integers(low, (1 << width) - 1))
    layout = Layout((width,))
    boxes = layout.boxes([(low, high)])
    sizes = [np.prod([int(side[1]) - int(side[0]) + 1 for side in box], dtype=object) for box in boxes]
    assert sum(sizes) == high - low + 1
    for value in {low, high, (low + high) // 2}:
        header = layout.headers([[value]])[0]
        assert sum(bool(((box[:, 0] <= header) & (header <= box[:, 1])).all()) for box in boxes) == 1
    assert len(boxes) <= max(1, 2 * layout.dims - 1)


LAYOUT = Layout((8, 8))
RULES = Rules.of_ranges([[(0, 9), (0, 255)], [(5, 20), (1, 1)]], LAYOUT)


def test_updates_in_a_row_stop_at_the_first_that_is_refused() -> None:
    boxes = np.array([[[0, 9], [3, 3]]] * 3, np.uint32)
    with engine.open("linear", RULES) as db:
        db.update(np.array([True, False, True]), boxes, np.array([7, 1, 8], np.uint32))
        assert len(db) == 3
        with pytest.raises(DatabaseError, match="update 1: a rule of priority 7 is there already"):
            db.update(np.array([True, True, True]), boxes, np.array([9, 7, 10], np.uint32))
        assert len(db) == 4
        boxes[0, 0] = 9, 1
        with pytest.raises(DatabaseError, match="update 0: a range is empty"):
            db.update(np.array([True, True, True]), boxes, np.array([20, 21, 22], np.uint32))
        assert len(db) == 4


def test_a_plan_reads_back_what_it_prints() -> None:
    for plan in PLANS:
        spec = engine.AlgorithmSpec.read(plan)
        assert str(spec) == plan
        assert pickle.loads(pickle.dumps(spec)) == copy.deepcopy(spec) == spec


@pytest.mark.parametrize("plan", ["sfl(rfc)", "sfl(hypersplit)"])
def test_memory_never_exceeds_its_limit_while_a_structure_is_built_beside(plan: str) -> None:
    """Another thread asks all the time: a piece that is refused is not counted for a moment either."""
    layout = Layout((4, 4, 3, 3, 2))
    rules = dict(draws(5, layout, 30))
    with opened(plan, rules, layout) as db:
        limit = db.peak_bytes + 2000
    most, done = 0, threading.Event()
    with engine.open(plan, Rules.of_ranges(list(rules.values()), layout, list(rules)), limit=limit) as db:

        def watch() -> None:
            nonlocal most
            while not done.is_set():
                most = max(most, db.bytes)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            for _ in range(12):
                added = []
                for _, chosen in draws(6, layout, 400):
                    free = next(
                        priority
                        for priority in range(2000)
                        if priority not in rules and priority not in added
                    )
                    try:
                        db.insert(chosen, free)
                    except OutOfMemory:
                        break
                    added.append(free)
                for priority in added:
                    db.remove(priority)
        finally:
            done.set()
            watcher.join()
    assert 0 < most <= limit


@pytest.mark.parametrize("inner", ["linear", "tss", "bit_vector", "sfl(rfc)"])
def test_checked_refuses_a_header_that_no_packet_has(inner: str) -> None:
    rules = Rules.of_ranges([[(0, 2**32 - 1)] * 2 + [(0, 65535)] * 2 + [(6, 6)]], engine.FIVE_TUPLE)
    headers = np.array([[1, 2, 65535, 4, 6], [1, 2, 70000, 4, 6]], np.uint32)
    with engine.open(f"checked({inner})", rules) as db:
        assert db.search(headers[:1]).tolist() == [0]
        with pytest.raises(DatabaseError, match="a value of a header is wider than its field"):
            db.search(headers)


# Fields narrower than the words of a header: tables, tries and trees of all sizes.
NARROW = [(8,), (3, 17), (24, 9), (1, 5, 20), (1, 1, 1, 1, 1), (3, 17, 16, 16, 8), (32, 32, 16, 16, 8)]


@pytest.mark.parametrize("plan", PLANS)
def test_a_value_wider_than_its_field_is_read_without_leaving_the_structure(plan: str) -> None:
    """Its answer may be any; a read beyond a table would end the process."""
    least, most = dims(plan)
    for layout in (Layout(widths) for widths in NARROW if least <= len(widths) <= most):
        headers = np.full((40, layout.dims), 2**32 - 1, np.uint32)
        headers[::2] >>= np.arange(20, dtype=np.uint32)[:, None]
        with opened(plan, dict(draws(7, layout, 40)), layout) as db, contextlib.suppress(DatabaseError):
            for search in (db.search, db.search_one_by_one, db.search_positions, db.work):
                search(headers)


def in_fork(*acts: Callable[[], object]) -> list[str]:
    """What each of *acts* does in a fork: "done", or "refused"; fails for other errors, and if it hangs."""
    child = os.fork()
    if not child:
        signal.alarm(20)
        status = 0xFF
        try:
            status = sum(refused(act) << number for number, act in enumerate(acts))
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in range(1 << len(acts))
    return ["refused" if status >> number & 1 else "done" for number in range(len(acts))]


def refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except DatabaseError as error:
        if "was forked" not in str(error):
            raise
        return True
    return False


# What a fork inherits is kept by each algorithm and by each wrapper, whatever this is around.
FORKED = [plan for plan in PLANS if plan not in WRAPPED or "(tss)" in plan]


@pytest.mark.parametrize("plan", FORKED)
def test_a_fork_searches_and_updates_or_refuses_to_wait_for_a_thread_that_it_does_not_have(plan: str) -> None:
    layout = universes(plan)[0]
    rules = dict(draws(5, layout, 20))
    with opened(plan, rules, layout) as db:
        answers = db.search(every_packet(layout))
        changed = "refused" if "sfl" in plan or "classic" in plan else "done"

        def search() -> None:
            assert (db.search(every_packet(layout)) == answers).all()

        assert in_fork(search) == ["done"]
        db.insert([(0, 0)] * len(layout.widths), 500)
        insert = functools.partial(db.insert, [(0, 0)] * len(layout.widths), 501)
        assert in_fork(db.settle, insert, db.close) == [changed, changed, "done"]


# Those that keep rules of one key in a chain.
CHAINS = ["tss", "tss(step=1)", "tss_tries", "tss_tries(table=1)", "pacars", "pacars(list=1)", "best"]


@pytest.mark.parametrize("plan", CHAINS)
def test_many_equal_rules_are_built_in_the_time_of_many_rules(plan: str) -> None:
    """A chain that each of them reads from its start takes 5 s of 60,000; 0.05 s is usual."""
    box = [[10, 10], [0, 2**32 - 1], [0, 65535], [80, 80], [6, 6]]
    other = [[11, 11], *box[1:]]
    boxes = np.array([box, other] * 30_000, np.uint32)
    rules = Rules(engine.FIVE_TUPLE, boxes, np.arange(len(boxes), dtype=np.uint32))
    start = time.process_time()
    with engine.open(plan, rules) as db:
        assert time.process_time() - start < 1
        assert db.search(boxes[:3, :, 0].copy()).tolist() == [0, 1, 0]


@pytest.mark.parametrize("plan", CHAINS[:-1])
def test_equal_rules_come_and_go_in_any_order(plan: str) -> None:
    random = np.random.default_rng(7)
    kinds = [[(k % 4, k % 4), (0, 15), (0, 15), (k % 3, 15), (0, 1)] for k in range(12)]
    layout = Layout((4, 4, 4, 4, 1))
    headers = random.integers(0, 16, (64, 5), np.uint32) & np.array([3, 15, 15, 15, 1], np.uint32)
    order = random.permutation(600)
    rules = Rules.of_ranges([kinds[i % 12] for i in order[:300]], layout, order[:300].tolist())
    with engine.open(plan, rules) as db, engine.open("linear", rules) as linear:
        for step in range(900):
            priority = int(order[(step + 300) % 600] if step % 2 else order[step // 2])
            for each in (db, linear):
                if step % 2:
                    with contextlib.suppress(DatabaseError):  # it is there already
                        each.insert(kinds[priority % 12], priority)
                else:
                    with contextlib.suppress(DatabaseError):  # it is not there
                        each.remove(priority)
            if step % 9 == 0:
                assert np.array_equal(db.search(headers), linear.search(headers))
        assert len(db) == len(linear)
