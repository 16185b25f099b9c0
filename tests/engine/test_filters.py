"""Filters with actions: a packet's action is that of linear search, and every event is delivered or counted."""

from __future__ import annotations

import itertools
import math
import select
import subprocess
import sys
import threading
import time
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples

from hitables import engine
from hitables.engine import FIVE_TUPLE, Action, Event, Filter, Filters, Layout, Monitor
from hitables.errors import DatabaseError, OutOfMemory

# Every algorithm that takes the fields of a universe, alone; wrappers around linear search.
PLANS = [f"{name}(linear)" if algorithm.wraps else name for name, algorithm in engine.ALGORITHMS.items()]
UNIVERSES = {2: Layout((4, 4)), 5: Layout((2, 2, 2, 2, 1))}
NOW = 1_700_000_000_000_000_000


def layout_of(plan: str) -> Layout:
    spec = engine.AlgorithmSpec.read(plan)
    least, most = spec.algorithm.dims
    return next(layout for size, layout in UNIVERSES.items() if least <= size <= most)


@cache
def every_packet(layout: Layout) -> np.ndarray:
    return layout.headers(list(itertools.product(*(range(1 << width) for width in layout.widths))))


def deciding(filters: dict[int, Filter], packets: np.ndarray) -> tuple[list[int], list[int]]:
    """The action and the priority of each packet, by reading the filters from the best on."""
    actions, priorities = [], []
    for packet in packets.tolist():
        for priority in sorted(filters):
            inside = (
                low <= value <= high
                for (low, high), value in zip(filters[priority].ranges, packet, strict=True)
            )
            if all(inside):
                actions.append(int(filters[priority].action))
                priorities.append(priority)
                break
        else:
            actions.append(int(Action.DENY))
            priorities.append(-1)
    return actions, priorities


@st.composite
def filters_of(draw: st.DrawFn, layout: Layout, priority: int) -> Filter:
    ranges = []
    for width in layout.widths:
        one, two = (draw(st.integers(0, (1 << width) - 1)) for _ in range(2))
        ranges.append(draw(st.sampled_from([(min(one, two), max(one, two)), (0, (1 << width) - 1)])))
    return Filter(priority, tuple(ranges), draw(st.sampled_from(Action)))


@pytest.mark.parametrize("plan", PLANS)
@given(data=st.data())
@settings(max_examples=examples(8))
def test_actions_events_and_counts_are_those_of_linear_search_after_any_updates(
    plan: str, data: st.DataObject
) -> None:
    layout = layout_of(plan)
    packets = every_packet(layout)
    times = NOW + np.arange(len(packets), dtype=np.int64)
    listed = {n: data.draw(filters_of(layout, n)) for n in data.draw(st.sets(st.integers(0, 20), max_size=8))}
    seen: dict[int, int] = dict.fromkeys(listed, 0)
    caused: list[tuple[int, int, int, tuple[int, ...]]] = []
    passed = unmatched = rounds = 0
    with Filters(plan, listed.values(), layout=layout, room=1 << 14) as filters, filters.monitor() as monitor:
        for _ in range(data.draw(st.integers(1, 6))):
            actions, priorities = deciding(listed, packets)
            verdicts = filters.classify(packets, times)
            assert verdicts.actions.tolist() == actions
            assert verdicts.priorities.tolist() == priorities
            assert verdicts.passed.tolist() == [Action(action).passes for action in actions]
            rounds += 1
            passed += sum(Action(action).passes for action in actions)
            unmatched += priorities.count(-1)
            for at, (action, priority) in enumerate(zip(actions, priorities, strict=True)):
                if priority >= 0:
                    seen[priority] += 1
                if Action(action).queues:
                    caused.append((NOW + at, priority, action, tuple(packets[at].tolist())))
            priority = data.draw(st.integers(0, 20))
            if priority not in listed:
                listed[priority] = data.draw(filters_of(layout, priority))
                filters.insert(listed[priority])
                seen[priority] = 0
            elif data.draw(st.booleans()):
                action = data.draw(st.sampled_from(Action))
                filters.change(priority, action)
                listed[priority] = Filter(priority, listed[priority].ranges, action)
            else:
                assert filters.remove(priority) == listed.pop(priority)
        assert list(filters) == [listed[priority] for priority in sorted(listed)]
        assert len(filters) == len(listed)
        assert {priority: filters.packets(priority) for priority in listed} == {
            priority: seen[priority] for priority in listed
        }
        statistics = filters.statistics()
        assert (statistics.packets, statistics.allowed, statistics.unmatched, statistics.events) == (
            rounds * len(packets), passed, unmatched, len(caused)
        )  # fmt: skip
        assert statistics.packets == statistics.allowed + statistics.denied + statistics.unmatched
        events = drained(monitor)
    assert [(each.time, each.priority, each.action, each.header) for each in events] == caused
    assert [each.number for each in events] == list(range(len(caused)))


def drained(monitor: Monitor) -> list[Event]:
    """The events that are pending."""
    events: list[Event] = []
    while more := monitor.read(0, most=100):
        events += more
    return events


LAYOUT = Layout((16,))
ALL = ((0, 0xFFFF),)


def numbered(first: int, count: int) -> np.ndarray:
    return np.arange(first, first + count, dtype=np.uint32).reshape(-1, 1)


def is_readable(monitor: Monitor) -> bool:
    return bool(select.select([monitor], [], [], 0)[0])


@given(
    room=st.integers(1, 7),
    steps=st.lists(
        st.tuples(st.sampled_from(["cause", "open", "read", "end"]), st.integers(0, 9)), max_size=40
    ),
)
def test_each_monitor_gets_the_newest_events_in_order_and_counts_those_it_lost(
    room: int, steps: list[tuple[str, int]]
) -> None:
    """Beside a model: for each monitor the events that it may still read."""
    caused, monitors = 0, []
    with Filters("linear", [Filter(0, ALL, Action.ADD_EVENT)], layout=LAYOUT, room=room) as filters:
        for step, number in steps:
            if step == "cause":
                filters.classify(numbered(caused, number))
                for _, left, counts in monitors:
                    left += range(caused, caused + number)
                    counts[1] += max(0, len(left) - room)
                    del left[: max(0, len(left) - room)]
                caused += number
            elif step == "open":
                monitors.append((filters.monitor(), [], [0, 0]))
            elif monitors:
                monitor, left, counts = monitors[number % len(monitors)]
                if step == "end":
                    monitor.close()
                    monitors.pop(number % len(monitors))
                else:
                    events = monitor.read(0, most=1 + number % 4)
                    wanted, left[:] = left[: 1 + number % 4], left[1 + number % 4 :]
                    counts[0] += len(wanted)
                    assert [each.number for each in events] == wanted
                    assert [each.header for each in events] == [(value,) for value in wanted]
            for monitor, left, (delivered, lost) in monitors:
                statistics = monitor.statistics()
                assert (statistics.delivered, statistics.lost) == (delivered, lost)
                assert statistics.pending == len(left)
                assert is_readable(monitor) == bool(left)
        assert filters.statistics().events == caused


@pytest.mark.parametrize("room", [16, 1 << 15])
def test_of_many_threads_every_event_is_delivered_or_counted_in_the_order_of_its_thread(room: int) -> None:
    threads, each = 4, 4000
    with Filters("tss", [Filter(0, ALL, Action.ALLOW_EVENT)], layout=LAYOUT, room=room) as filters:
        monitors = [filters.monitor() for _ in range(2)]
        got: list[list[Event]] = [[] for _ in monitors]
        causing = [
            threading.Thread(
                target=lambda first=n * each: [
                    filters.classify(numbered(first + at, 40)) for at in range(0, each, 40)
                ]
            )
            for n in range(threads)
        ]

        def read(monitor: Monitor, into: list[Event]) -> None:
            with pytest.raises(DatabaseError, match="the filters are closed"):
                while True:
                    into += monitor.read()

        reading = [threading.Thread(target=read, args=pair) for pair in zip(monitors, got, strict=True)]
        for thread in (*reading, *causing):
            thread.start()
        for thread in causing:
            thread.join()
        assert filters.statistics().events == threads * each
    for thread in reading:
        thread.join()
    for monitor, events in zip(monitors, got, strict=True):
        statistics = monitor.statistics()
        assert (statistics.delivered, statistics.pending) == (len(events), 0)
        assert statistics.delivered + statistics.lost == threads * each
        assert statistics.lost == 0 or room < threads * each
        numbers = [event.number for event in events]
        assert all(one < two for one, two in itertools.pairwise(numbers))
        for n in range(threads):
            tags = [event.header[0] for event in events if event.header[0] // each == n]
            assert all(one < two for one, two in itertools.pairwise(tags))


@pytest.mark.parametrize("plan", ["tss", "pacars", "sfl(rfc, delta=3)", "hypersplit", "flows(linear)"])
def test_a_filter_that_was_removed_causes_no_later_event_while_packets_are_classified(plan: str) -> None:
    layout = Layout((8, 8))
    packets = np.ascontiguousarray(every_packet(Layout((4, 4))))
    everything = ((0, 255), (0, 255))
    stop, wrong = threading.Event(), []
    with Filters(plan, [Filter(9, everything, Action.ALLOW)], layout=layout, room=64) as filters:
        monitor = filters.monitor()

        def classify() -> None:
            while not stop.is_set():
                verdicts = filters.classify(packets)
                pairs = set(zip(verdicts.actions.tolist(), verdicts.priorities.tolist(), strict=True))
                # Between an insertion and a removal, a change: no packet has an action of another filter.
                wrong.extend(pairs - {(Action.ALLOW, 9), (Action.ADD_EVENT, 1), (Action.DENY, 1)})

        threads = [threading.Thread(target=classify) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(15):
                filters.insert(Filter(1, everything, Action.ADD_EVENT))
                while not monitor.read(5):
                    raise AssertionError("the filter is in force, and causes no event")
                filters.change(1, Action.DENY)
                silent_from = filters.statistics().events
                filters.remove(1)
                filters.insert(Filter(1, everything, Action.DENY))
                filters.remove(1)
                assert filters.statistics().events == silent_from
                assert all(event.number < silent_from for event in drained(monitor))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert not wrong


def test_a_monitor_answers_events_with_filters_until_no_packet_causes_one() -> None:
    """The paper's daemon: what is let in at the first packet is let through from then on."""
    layout = Layout((8, 4))
    with Filters("tss", [Filter(1000, ((0, 255), (0, 15)), Action.ADD_EVENT)], layout=layout) as filters:
        monitor = filters.monitor()

        def serve() -> None:
            known = set()
            while len(known) < 16:
                for event in monitor.read():
                    _, flow = event.header
                    if flow not in known:
                        known.add(flow)
                        filters.insert(Filter(flow, ((0, 255), (flow, flow)), Action.ALLOW))

        daemon = threading.Thread(target=serve)
        daemon.start()
        packets = layout.headers([[n, n % 16] for n in range(256)])
        while daemon.is_alive():
            filters.classify(packets)
        assert filters.classify(packets).passed.all()
        assert [filters.packets(flow) for flow in range(16)] >= [16] * 16


# -- waiting, and the end ----


def test_a_read_waits_for_an_event_and_not_longer_than_it_was_told() -> None:
    with Filters("linear", [Filter(0, ALL, Action.ADD_EVENT)], layout=LAYOUT) as filters:
        monitor = filters.monitor()
        assert monitor.read(0) == []
        start = time.monotonic()
        assert monitor.read(0.05) == []
        assert time.monotonic() - start >= 0.05
        got: list[Event] = []
        waiting = threading.Thread(target=lambda: got.extend(monitor.read(60)))
        waiting.start()
        filters.classify(numbered(7, 1))
        waiting.join()
        assert [event.header for event in got] == [(7,)]
        assert abs(got[0].time - time.time_ns()) < 60e9


@pytest.mark.parametrize("which", ["the monitor is closed", "the filters are closed"])
def test_the_end_wakes_every_thread_that_waits(which: str) -> None:
    filters = Filters("linear", layout=LAYOUT)
    monitor = filters.monitor()
    ends: list[str] = []

    def read() -> None:
        try:
            monitor.read()
        except DatabaseError as error:
            ends.append(str(error))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    (monitor if "monitor" in which else filters).close()
    for thread in threads:
        thread.join()
    assert ends == [which] * 3


def test_events_that_were_pending_when_the_filters_closed_are_still_read() -> None:
    filters = Filters("linear", [Filter(0, ALL, Action.ADD_EVENT)], layout=LAYOUT)
    monitor = filters.monitor()
    filters.classify(numbered(3, 2))
    filters.close()
    del filters
    assert [event.header for event in monitor.read(0, most=1)] == [(3,)]
    assert [event.header for event in monitor.read()] == [(4,)]
    with pytest.raises(DatabaseError, match="the filters are closed"):
        monitor.read(0)


def test_filters_and_their_monitor_are_freed_in_order_though_they_are_part_of_one_cycle() -> None:
    program = """
import gc
from hitables.engine import FIVE_TUPLE, Action, Filter, Filters
every = tuple((0, 2**width - 1) for width in FIVE_TUPLE.widths)
for _ in range(50):
    cycle = [Filters("linear", [Filter(1, every, Action.ADD_EVENT)])]
    cycle += [cycle[0].monitor(), cycle]
    del cycle
    gc.collect()
"""
    subprocess.run([sys.executable, "-c", program], check=True)  # memory freed twice ends the process


def test_a_monitor_has_no_events_from_before_it_was_opened() -> None:
    with Filters("linear", [Filter(0, ALL, Action.ADD_EVENT)], layout=LAYOUT, room=4) as filters:
        filters.classify(numbered(0, 9))
        monitor = filters.monitor()
        assert monitor.read(0) == []
        filters.classify(numbered(9, 1))
        assert [event.number for event in monitor.read(0)] == [9]


# -- values, and refusals ----


def test_headers_of_ipv6_come_back_as_whole_fields() -> None:
    layout = Layout((128, 128, 16, 16, 8))
    top = (1 << 128) - 1
    ranges = ((0x2001 << 112, (0x2002 << 112) - 1), (0, top), (0, 65535), (22, 22), (6, 6))
    row = [(0x2001 << 112) + (5 << 40) + 7, top - 1, 40000, 22, 6]
    with Filters("tss", [Filter(0, ranges, Action.ADD_EVENT)], layout=layout) as filters:
        monitor = filters.monitor()
        filters.classify(layout.headers([row]), np.array([NOW], np.int64))
        assert monitor.read(0) == [Event(0, NOW, 0, Action.ADD_EVENT, tuple(row))]


def test_a_filter_of_several_boxes_is_one_filter_with_one_action() -> None:
    layout = Layout((40,))
    with Filters("tss", [Filter(3, ((5, (1 << 33) + 9),), Action.ALLOW)], layout=layout) as filters:
        rows = [[4], [5], [1 << 32], [(1 << 33) + 9], [(1 << 33) + 10]]
        assert filters.classify(layout.headers(rows)).passed.tolist() == [False, True, True, True, False]
        assert (len(filters), filters.packets(3)) == (1, 3)


def test_what_does_not_fit_changes_nothing() -> None:
    filters = [Filter(n, ((n, n),), Action.ALLOW) for n in range(50)]
    with pytest.raises(OutOfMemory, match="do not fit"):
        Filters("tss", filters, layout=LAYOUT, room=1000, limit=4000)
    with Filters("tss", filters, layout=LAYOUT, room=8) as held:
        limit = held.bytes + 3000
    with Filters("tss", filters, layout=LAYOUT, room=8, limit=limit) as held:
        with pytest.raises(OutOfMemory, match="do not fit"):
            for n in range(50, 2000):
                held.insert(Filter(n, ((n, n),), Action.ALLOW))
        assert n == len(held) == len(list(held))
        packets = numbered(0, 2000)
        assert held.classify(packets).passed.tolist() == [value < n for value in range(2000)]
        assert held.bytes <= limit


@pytest.mark.parametrize("timeout", [math.inf, 30 * 24 * 3600.0])
def test_a_monitor_may_wait_longer_than_the_system_does_at_once(timeout: float) -> None:
    with Filters("tss", [Filter(4, ALL, Action.ADD_EVENT)], layout=LAYOUT) as filters:
        monitor = filters.monitor()
        packet = threading.Timer(0.1, lambda: filters.classify(numbered(0, 1)))
        packet.start()
        assert [event.priority for event in monitor.read(timeout, most=2**40)] == [4]
        packet.join()


def test_mistakes_are_refused_with_a_reason_and_change_nothing() -> None:
    one = Filter(4, ALL, Action.ADD_EVENT)
    for make, message in (
        (lambda: Filters("hypersplat"), "no algorithm is called hypersplat"),
        (lambda: Filters("tss", room=0), r"room must lie in 1..16777216, not 0"),
        (lambda: Filters("tss", limit=-1), "limit must lie in 0.*, not -1"),
        (lambda: Filters("tss", [one, one], layout=LAYOUT), "priority 4 is given twice"),
        (lambda: Filters("tss", [one]), "a rule of 1 ranges"),
        (lambda: Filters("tables", layout=LAYOUT), "takes 5 dimensions"),
    ):
        with pytest.raises(DatabaseError, match=message):
            make()
    with Filters("tss", [one], layout=LAYOUT) as filters:
        monitor = filters.monitor()
        for call, message in (
            (lambda: filters.insert(one), "a filter of priority 4 is there already"),
            (lambda: filters.insert(Filter(-1, ALL, Action.DENY)), "priority must lie in"),
            (lambda: filters.insert(Filter(5, ((9, 3),), Action.DENY)), "the range 9..3 is empty"),
            (lambda: filters.remove(5), "no filter of priority 5 is there"),
            (lambda: filters.change(5, Action.DENY), "no filter of priority 5 is there"),
            (lambda: filters.packets(5), "no filter of priority 5 is there"),
            (
                lambda: filters.classify(np.zeros((2, 5), np.uint32)),
                r"headers must be uint32 \[headers\]\[1\]",
            ),
            (lambda: filters.classify(np.zeros((2, 1), np.int64)), "headers must be uint32"),
            (lambda: filters.classify(numbered(0, 4)[::2]), "row by row"),
            (lambda: filters.classify(numbered(0, 4), np.zeros(3, np.int64)), r"times must be int64 \[4\]"),
            (lambda: monitor.read(most=0), "most must lie in 1.*, not 0"),
            (lambda: monitor.read(timeout=math.nan), "timeout must be a number of seconds"),
        ):
            with pytest.raises(DatabaseError, match=message):
                call()
        assert list(filters) == [one]
        assert filters.statistics().packets == 0
    for call in (
        lambda: filters.insert(one),
        lambda: filters.classify(numbered(0, 1)),
        lambda: list(filters),
    ):
        with pytest.raises(DatabaseError, match="the filters are closed"):
            call()


def test_the_fields_of_a_filter_are_the_five_of_a_trace_by_default() -> None:
    ranges = ((0, 2**32 - 1), (0, 2**32 - 1), (0, 65535), (22, 22), (6, 6))
    with Filters("best", [Filter(0, ranges, Action.ALLOW)]) as filters:
        assert filters.layout == FIVE_TUPLE
        packets = FIVE_TUPLE.headers([[1, 2, 3, 22, 6], [1, 2, 3, 22, 17]])
        assert filters.classify(packets).passed.tolist() == [True, False]
