"""What a search reads is counted, by a second entry that answers as the first."""

from __future__ import annotations

import numpy as np
import pytest

from hitables import engine
from hitables.engine import FIVE_TUPLE, Layout, Rules
from hitables.errors import DatabaseError

SINGLE = [name for name, algorithm in engine.ALGORITHMS.items() if not algorithm.wraps]
WRAPPERS = ["sfl", "checked", "classic", "flows", "storm"]
PLANS = [
    *SINGLE, *(f"{wrapper}({name})" for wrapper in WRAPPERS for name in SINGLE),
    "bit_vector(aggregated=0)", "tss(vector=0)", "tss(step=1)", "sfl(flows(tss))", "flows(sfl(rfc))",
    *(f"sides(split={split}, narrow=12)" for split in range(1, 7)), "sides(simd=0)", "tables(products=2, simd=0)",
    "pacars(list=1)", "pacars(list=2)", "pacars(cascade=0, list=2)", "tss_tries(table=1)",
]  # fmt: skip
COUNTS = ["nodes", "lists", "hashes", "tuples", "rules", "flows", "keys"]

# The counts that an algorithm has, for each header; others are 0.
OWN = {
    "linear": {"lists", "rules"},
    "tss": {"tuples", "hashes", "lists", "rules"},
    "tss_tries": {"nodes", "tuples", "hashes", "lists", "rules"},
    "rfc": {"nodes"},
    "bit_vector": {"nodes", "lists"},
    "grid_of_tries": {"nodes", "lists"},
    "hypersplit": {"nodes", "lists", "rules"},
    "hicuts": {"nodes", "lists", "rules"},
    "hypercuts": {"nodes", "lists", "rules"},
    "pacars": {"nodes", "lists", "rules", "keys"},
    "tables": {"nodes", "lists"},
    "sides": {"nodes", "lists", "rules"},
    "wildcards": {"nodes", "lists"},
}
WRITTEN_DOWN = ("tables", "wildcards")  # bear few rules that are as interwoven as those below


def random_rules(count: int, layout: Layout = FIVE_TUPLE) -> Rules:
    rng = np.random.default_rng(1)
    listed = []
    for _ in range(count):
        ranges = []
        for width in layout.widths:
            free = int(rng.choice([0, width // 4, width // 2, width]))
            low = int(rng.integers(0, 1 << min(width, 30))) >> free << free
            ranges.append((low, low | (1 << free) - 1))
        listed.append(ranges)
    return Rules.of_ranges(listed, layout)


def packets_of(rules: Rules, count: int) -> np.ndarray:
    """In the rules' boxes, and beside them."""
    rng = np.random.default_rng(2)
    boxes = rules.boxes[rng.integers(0, len(rules.boxes), count)]
    low, high = boxes[:, :, 0].astype(np.int64), boxes[:, :, 1].astype(np.int64)
    packets = low + (rng.random(low.shape) * (high - low + 1)).astype(np.int64)
    tops = np.array([(1 << bits) - 1 for bits in rules.layout.bits])
    packets[::5] = rng.integers(0, tops + 1, packets[::5].shape)
    return np.ascontiguousarray(packets.astype(np.uint32))


@pytest.mark.parametrize("plan", PLANS)
def test_a_search_that_counts_answers_as_one_that_does_not(plan: str) -> None:
    few = any(
        name in plan for name in (*WRITTEN_DOWN, "best")
    )  # which builds many classifiers at each update
    rules = random_rules(25 if few else 80)
    first = len(rules) - 10
    packets = packets_of(rules, 200)
    updates = np.zeros(9, bool), np.zeros((9, 5, 2), np.uint32), np.arange(first, first + 9, dtype=np.uint32)
    with engine.open(plan, rules) as db:
        for _ in range(2):
            answers, work = db.work(packets)
            assert list(work) == COUNTS
            assert (answers == db.search(packets)).all()
            counted = {name for name in COUNTS if work[name].any()}
            assert counted, "something is counted"
            if plan in OWN:
                assert counted == OWN[plan]
            db.update(*updates)
            updates = ~updates[0], rules.boxes[first : first + 9].copy(), updates[2]


@pytest.mark.parametrize("plan", [*SINGLE, "flows(tss, buckets=7)"])
def test_searches_one_by_one_answer_as_a_batch(plan: str) -> None:
    rules = random_rules(25 if any(name in plan for name in WRITTEN_DOWN) else 150)
    packets = packets_of(rules, 700)
    with engine.open(plan, rules) as db, engine.open("linear", rules) as linear:
        assert (db.search_one_by_one(packets) == linear.search(packets)).all()
        with pytest.raises(DatabaseError, match="out must be"):
            db.search_one_by_one(packets, np.zeros(3, np.int32))


@pytest.mark.parametrize("plan", ["linear", "tss", "hicuts", "pacars", "flows(linear, buckets=7)"])
def test_the_work_of_a_batch_is_that_of_its_headers(plan: str) -> None:
    rules = random_rules(150)
    packets = packets_of(rules, 300)
    with engine.open(plan, rules) as db, engine.open(plan, rules) as other:
        _, together = db.work(packets)
        apart = [other.work(packets[at : at + 1])[1] for at in range(300)]
        for name in COUNTS:
            assert together[name].tolist() == [int(one[name][0]) for one in apart]


@pytest.mark.parametrize(
    "plan", ["pacars", "pacars(stride=1, form=1)", "tss_tries", "tss_tries(stride=3, form=2)"]
)
def test_a_walk_meets_the_nodes_that_a_search_reads(plan: str) -> None:
    rules = random_rules(150)
    packets = packets_of(rules, 700)
    with engine.open(plan, rules) as db:
        nodes = db.work(packets)[1]["nodes"]
        assert nodes.max() > nodes.min() > 0
        assert (db.walk(packets) == nodes).all()
        assert (db.walk(packets, one_by_one=True) == nodes).all()


def test_a_classifier_without_tries_has_no_walk() -> None:
    with engine.open("linear", random_rules(5)) as db, pytest.raises(DatabaseError, match="no tries"):
        db.walk(np.zeros((3, 5), np.uint32))


def test_linear_search_reads_up_to_its_rule() -> None:
    rules = random_rules(150)
    packets = packets_of(rules, 1000)
    with engine.open("linear", rules) as db:
        answers, work = db.work(packets)
    assert (work["rules"] == np.where(answers < 0, 150, answers + 1)).all()
    assert (work["lists"] == 1).all()


def test_a_buffer_adds_its_rules_to_those_of_the_other() -> None:
    rules = random_rules(100)
    packets = packets_of(rules, 500)
    with engine.open("sfl(linear)", rules) as db:
        before = db.work(packets)[1]["rules"]
        db.insert([(0, 0), (0, 0), (0, 0), (0, 0), (1, 1)], 200)
        db.insert([(0, 0), (0, 0), (0, 0), (0, 0), (2, 2)], 201)
        after = db.work(packets)[1]["rules"]
    assert (after == before + 2).all()


def test_a_hit_in_a_flow_table_reads_flows_and_nothing_else() -> None:
    rules = random_rules(100)
    packets = np.repeat(packets_of(rules, 50), 2, axis=0)
    with engine.open("flows(linear)", rules) as db, engine.open("linear", rules) as linear:
        work = db.work(np.unique(packets, axis=0))[1]
        assert (work["flows"] == 0).sum() >= 45, "empty buckets"
        assert (work["rules"] == linear.work(np.unique(packets, axis=0))[1]["rules"]).all()
        work = db.work(packets)[1]
        assert (work["flows"] >= 1).all() and (work["hashes"] == 1).all()
        assert not work["rules"].any() and not work["lists"].any()
        assert db.flow_statistics().hits >= 100


def test_a_chain_of_hypersplit_reads_one_node_per_level() -> None:
    """Two rules that part a field in halves: the root, and a leaf that needs no comparison."""
    rules = Rules.of_ranges([[(0, 127)], [(128, 255)]], Layout((8,)))
    with engine.open("hypersplit(leaf=1)", rules) as db:
        _, work = db.work(np.array([[3], [200]], np.uint32))
    assert work["nodes"].tolist() == [2, 2]
    assert work["lists"].tolist() == [1, 1]
    assert work["rules"].tolist() == [0, 0]
