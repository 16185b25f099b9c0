"""flows(A): stored answers are those of the rules as they are, whatever is purged, updated or exhausted."""

from __future__ import annotations

import numpy as np
import pytest

from hitables import engine
from hitables.engine import Layout, Rules
from hitables.errors import DatabaseError

LAYOUT = Layout((6, 6, 3, 3, 2))


def everything(layout: Layout) -> list[tuple[int, int]]:
    return [(0, (1 << width) - 1) for width in layout.widths]


@pytest.mark.parametrize("inner", ["linear", "tss", "rfc", "best", "sfl(rfc)", "flows(linear, scheme=2)"])
@pytest.mark.parametrize("scheme", range(5))
def test_a_flow_of_older_rules_never_answers(scheme: int, inner: str) -> None:
    rng = np.random.default_rng(6)
    packets = np.ascontiguousarray(rng.integers(0, 4, (300, 5)).astype(np.uint32))
    with engine.open(f"flows({inner}, scheme={scheme}, buckets=20)", Rules.of_ranges([], LAYOUT)) as db:
        assert (db.search(packets) == -1).all()
        for number in range(20):
            db.insert(everything(LAYOUT), 50 - number)
            assert (db.search(packets) == 50 - number).all()
        for number in reversed(range(1, 20)):
            db.remove(50 - number)
            assert (db.search(packets) == 51 - number).all()


def test_versions_that_start_again_bring_no_flow_back() -> None:
    """A flow that was stored as many updates ago as there are versions is not of these rules."""
    rounds, layout = 1 << 20, Layout((4,))
    packet, other = np.array([[3]], np.uint32), np.array([[9]], np.uint32)
    with engine.open("flows(linear)", Rules.of_ranges([], layout)) as db:
        assert db.search(packet).tolist() == [-1]
        for left in (rounds - 1, rounds, rounds + 1):
            boxes = np.tile(np.array([[[3, 3]]], np.uint32), (left, 1, 1))
            inserts = np.arange(left) % 2 == len(db)
            db.update(inserts, boxes, np.zeros(left, np.uint32))
            assert db.search(packet).tolist() == [0 if len(db) else -1]
            assert db.search(other).tolist() == [-1]


def test_a_batch_of_one_new_flow_is_classified_once() -> None:
    packets = np.zeros((400, 5), np.uint32)
    with engine.open("flows(linear, buckets=4)", Rules.of_ranges([everything(LAYOUT)], LAYOUT)) as db:
        assert (db.search(packets) == 0).all()
        stats = db.flow_statistics()
        assert (stats.packets, stats.inserts, stats.hits) == (400, 1, 399)
        db.insert([(0, 0)] * 5, 5)
        assert (db.search(packets) == 0).all()
        stats = db.flow_statistics()
        assert (stats.renewed, stats.inserts, stats.hits) == (1, 1, 798)


@pytest.mark.parametrize("scheme", range(5))
def test_new_flows_that_are_purged_in_their_own_batch_are_answered(scheme: int) -> None:
    layout = Layout((16,))
    packets = np.random.default_rng(7).integers(0, 300, (2000, 1)).astype(np.uint32)
    rules = Rules.of_ranges([[(value, value)] for value in range(300)], layout)
    plan = f"flows(linear, scheme={scheme}, buckets=1, purge_at=4, purge=3)"
    with engine.open(plan, rules) as db:
        assert (db.search(packets) == packets[:, 0]).all()
        stats = db.flow_statistics()
        assert stats.purged > 1000 and stats.packets == stats.hits + stats.inserts


def test_a_plan_without_flows_has_no_statistics_of_them() -> None:
    with engine.open("linear", []) as db, pytest.raises(DatabaseError, match="linear has no flow table"):
        db.flow_statistics()


def test_an_update_takes_the_memory_of_flows_where_there_is_no_other() -> None:
    layout = Layout((32,))
    packets = np.random.default_rng(8).integers(0, 1 << 32, (60_000, 1), dtype=np.uint64).astype(np.uint32)
    limit = 2_000_000
    with engine.open("flows(linear)", Rules.of_ranges([], layout), limit=limit) as db:
        db.search(packets)
        assert db.flow_statistics().unkept > 0, "flows use all the memory"
        for priority in range(20_000):
            db.insert([(priority, priority)], priority)
        assert len(db) == 20_000 and db.bytes <= limit
        assert (db.search(packets[:100]) == -1).all()
