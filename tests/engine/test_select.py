"""The structures behind `best`, whichever way they are split and whatever the vectors, and what best picks."""

from __future__ import annotations

import numpy as np
import pytest

from hitables import engine
from hitables.engine import Layout, Rules
from hitables.engine.layout import FIVE_TUPLE
from hitables.errors import DatabaseError


def drawn(seed: int, rules: int, layout: Layout = FIVE_TUPLE) -> np.ndarray:
    """Boxes that nest, cross and repeat: many addresses of few networks, wide and narrow sides, many ports."""
    rng = np.random.default_rng(seed)
    boxes = np.empty((rules, layout.dims, 2), np.uint32)
    for d, bits in enumerate(layout.bits):
        top = (1 << bits) - 1
        network = rng.integers(0, top + 1, 3, np.uint64)
        free = rng.choice([0, 0, bits // 4, bits // 2, bits - bits // 4, bits], rules).astype(np.uint64)
        near = rng.choice(network, rules) ^ rng.integers(0, 1 << bits // 2, rules, np.uint64)
        low = near >> free << free
        high = low | ((np.uint64(1) << free) - np.uint64(1))
        odd = rng.random(rules) < 0.1  # ranges that are no prefixes
        high[odd] = np.minimum(high[odd] + rng.integers(0, 99, odd.sum(), np.uint64), top)
        boxes[:, d, 0], boxes[:, d, 1] = low, high
    return boxes


def near(seed: int, boxes: np.ndarray, count: int) -> np.ndarray:
    """Headers at the edges of rules, just outside of them, and inside, sides from different rules mixed."""
    rng = np.random.default_rng(seed)
    first, other = rng.integers(0, len(boxes), (2, count))
    pick = np.where(rng.random((count, boxes.shape[1])) < 0.85, first[:, None], other[:, None])
    sides = boxes[pick, np.arange(boxes.shape[1])].astype(np.int64)
    low, high = sides[..., 0], sides[..., 1]
    inside = low + (rng.random(low.shape) * (high - low + 1)).astype(np.int64)
    kind = rng.integers(0, 8, low.shape)
    value = np.choose(np.minimum(kind, 4), [low, high, low - 1, high + 1, inside])
    tops = boxes[..., 1].max(axis=0).astype(np.int64)
    return np.ascontiguousarray(np.clip(value, 0, tops).astype(np.uint32))


def listed(boxes: np.ndarray, layout: Layout = FIVE_TUPLE, priority: np.ndarray | None = None) -> Rules:
    numbers = np.arange(len(boxes), dtype=np.uint32) if priority is None else priority
    return Rules(layout, boxes, numbers)


def agree(plan: str, rules: Rules, headers: np.ndarray) -> engine.Database:
    db = engine.open(plan, rules)
    with engine.open("linear", rules) as linear:
        wanted = linear.search(headers)
    assert (db.search(headers) == wanted).all(), plan
    for few in (1, 31, 33):  # batches that are not full
        assert (db.search(headers[:few]) == wanted[:few]).all()
    return db


@pytest.mark.parametrize("simd", [0, 256, 512])
@pytest.mark.parametrize("split", range(7))
def test_every_split_with_all_vectors_answers_as_linear_does(split: int, simd: int) -> None:
    boxes = drawn(split, 300)
    for narrow in (0, 13, 32):
        agree(
            f"sides(split={split}, narrow={narrow}, simd={simd})", listed(boxes), near(7, boxes, 2000)
        ).close()


@pytest.mark.parametrize("simd", [0, 512])
@pytest.mark.parametrize("products", [1, 2])
def test_tables_answer_as_linear_does(products: int, simd: int) -> None:
    for seed in range(4):
        boxes = drawn(seed, 120)
        boxes[:, 2:] = boxes[np.random.default_rng(seed).integers(0, 9, 120), 2:]  # nine services
        if seed == 3:
            boxes[:, 2] = [0, 65535]  # no rule tests the source port
        plan = f"tables(products={products}, narrow=13, simd={simd})"
        agree(plan, listed(boxes), near(7, boxes, 3000)).close()


@pytest.mark.parametrize("products", [1, 2])
@pytest.mark.parametrize("ports", [30, 60, 150])
def test_tables_of_few_and_of_many_ranges_of_ports(ports: int, products: int) -> None:
    boxes = drawn(3, ports)
    boxes[:, 2:] = [[0, 65535], [0, 65535], [0, 255]]
    boxes[:, 3] = np.random.default_rng(4).integers(0, 65536, (ports, 1))
    boxes[-1, 3] = 65535
    boxes[:9, 3, 0] = 0
    if ports == 30:
        boxes[:, 4] = boxes[:, 3] >> 8
        boxes[::7, 2, 0] = 1024
    agree(f"tables(products={products}, narrow=13)", listed(boxes), near(5, boxes, 3000)).close()


@pytest.mark.parametrize("products", [1, 2])
def test_tables_of_many_classes_of_addresses(products: int) -> None:
    boxes = np.zeros((700, 5, 2), np.uint32)  # 700 classes by 700: cells of 16 bits
    boxes[:, :2] = np.random.default_rng(6).integers(0, 2**32, (700, 2, 1), np.uint64)
    boxes[:, 2:, 1] = [65535, 65535, 255]
    boxes[::2, 3] = 80
    boxes[-1] = boxes[-2] = [[0, 2**32 - 1], [0, 2**32 - 1], [0, 65535], [443, 443], [6, 6]]
    boxes[-1, 1, 0] = 2**31
    agree(f"tables(products={products}, narrow=24)", listed(boxes), near(7, boxes, 4000)).close()


def test_tables_of_other_widths_and_within_their_bytes() -> None:
    layout = Layout((30, 21, 9, 32, 5))
    boxes = drawn(8, 60, layout)
    boxes[:, 3] = [0, 2**32 - 1]  # a dimension that is too wide for a table must be free
    rules = listed(boxes, layout)
    with agree("tables", rules, near(9, boxes, 2000)) as db:
        size = db.bytes
    with pytest.raises(DatabaseError, match="too many"):
        engine.open(f"tables(bytes={size // 2})", rules)


def test_headers_wider_than_their_fields_do_not_leave_the_tables() -> None:
    boxes = drawn(2, 80)
    boxes[:, 2:] = boxes[np.random.default_rng(1).integers(0, 9, 80), 2:]
    headers = np.random.default_rng(2).integers(0, 2**32, (1000, 5), np.uint64).astype(np.uint32)
    for simd in (0, 512):
        with engine.open(f"tables(simd={simd})", listed(boxes)) as db:
            assert set(db.search(headers).tolist()) <= set(range(-1, 80))


def hosts(seed: int, rules: int, layout: Layout = FIVE_TUPLE, services: int = 9) -> np.ndarray:
    """Boxes like those of `drawn`, of few services; of most, one address or both are open."""
    rng = np.random.default_rng(seed)
    boxes = drawn(seed, rules, layout)
    boxes[:, 2:] = boxes[rng.integers(0, services, rules), 2:]
    for d in range(2):
        boxes[rng.random(rules) < 0.5, d] = [0, (1 << layout.bits[d]) - 1]
    return boxes


@pytest.mark.parametrize("simd", [0, 256, 512])
@pytest.mark.parametrize("split", [3, 4, 5, 6])
def test_lists_of_few_kinds_are_written_down(split: int, simd: int) -> None:
    for seed in range(3):
        boxes = hosts(seed, 300)
        headers = near(7, boxes, 3000)
        with agree(f"sides(split={split}, narrow=12, simd={simd})", listed(boxes), headers) as db:
            found, work = db.work(headers)
            assert (found == db.search(headers)).all()
            assert (work["lists"] == (2 if split > 4 else 1)).all()  # buckets; the product has none to search


@pytest.mark.parametrize("services", [9, 60000])
def test_rules_that_leave_both_addresses_open_are_found_among_narrow_ones(services: int) -> None:
    boxes = hosts(9, 1300)
    boxes[::2, 3] = np.random.default_rng(1).integers(0, services, 650)[
        :, None
    ]  # 60000: some are read in full
    boxes[::3, :2] = [0, 2**32 - 1]
    boxes = boxes[::-1].copy()
    for split in (0, 5, 6):
        agree(f"sides(split={split}, narrow=12)", listed(boxes), near(8, boxes, 4000)).close()


@pytest.mark.parametrize("simd", [0, 512])
@pytest.mark.parametrize("services", [3, 40])
def test_wildcards_answer_as_linear_does(services: int, simd: int) -> None:
    for seed in range(6):
        boxes = hosts(seed, 250, services=services)
        if seed == 4:
            boxes[:, 2] = [0, 65535]  # no rule tests the source port
        if seed == 5:
            boxes = boxes[(boxes[:, :2, 0] > 0).any(axis=1)]  # each rule limits an address
        agree(f"wildcards(simd={simd})", listed(boxes), near(7, boxes, 3000)).close()


@pytest.mark.parametrize("only", range(4))
def test_wildcards_of_rules_of_one_kind_alone(only: int) -> None:
    boxes = hosts(1, 400)
    is_open = (boxes[:, :2, 0] == 0) & (boxes[:, :2, 1] == 2**32 - 1)
    boxes = boxes[is_open[:, 0] + 2 * is_open[:, 1] == only]
    assert len(boxes) > 20
    agree("wildcards", listed(boxes), near(2, boxes, 3000)).close()


@pytest.mark.parametrize("simd", [0, 512])
@pytest.mark.parametrize("step", [1, 3, 300, 70000])
def test_wildcards_of_many_hosts_near_each_other_and_apart(step: int, simd: int) -> None:
    """More bounds than a block holds, at every depth of a map, up to addresses that all differ in the last bit."""
    boxes = hosts(3, 900)
    near_each_other = 0x0A000000 + np.arange(300) * step
    boxes[:300, 0] = near_each_other[:, None]
    boxes[300:600, 1] = near_each_other[:, None] + 7
    boxes[-20:, :2, 1] = 2**32 - 1  # up to the last address
    boxes = boxes[np.random.default_rng(4).permutation(900)]
    agree(f"wildcards(simd={simd})", listed(boxes), near(5, boxes, 4000)).close()


@pytest.mark.parametrize("ports", [30, 60, 150])
def test_wildcards_of_few_and_of_many_ranges_of_ports(ports: int) -> None:
    boxes = hosts(6, 400)
    boxes[:, 2:] = [[0, 65535], [0, 65535], [0, 255]]
    boxes[:, 3] = np.random.default_rng(4).integers(0, 65536, ports)[np.arange(400) % ports][:, None]
    agree("wildcards", listed(boxes), near(7, boxes, 3000)).close()


@pytest.mark.parametrize("simd", [0, 512])
def test_wildcards_of_other_widths_other_priorities_and_within_their_bytes(simd: int) -> None:
    layout = Layout((30, 3, 9, 7, 5))
    boxes = hosts(8, 150, layout)
    priority = np.sort(np.random.default_rng(0).choice(2**31 - 1, 150, replace=False)).astype(np.uint32)
    rules = listed(boxes, layout, priority)
    with agree(f"wildcards(simd={simd})", rules, near(9, boxes, 2000)) as db:
        size = db.bytes
    for divisor in (2, 10, 100):
        with pytest.raises(DatabaseError, match="too many"):
            engine.open(f"wildcards(bytes={size // divisor})", rules)


@pytest.mark.parametrize("simd", [0, 512])
def test_headers_wider_than_their_fields_do_not_leave_the_wildcards(simd: int) -> None:
    layout = Layout((20, 11, 9, 7, 5))
    boxes = hosts(2, 200, layout)
    headers = np.random.default_rng(2).integers(0, 2**32, (1000, 5), np.uint64).astype(np.uint32)
    with engine.open(f"wildcards(simd={simd})", listed(boxes, layout)) as db:
        assert set(db.search(headers).tolist()) <= set(range(-1, 200))


def test_hundreds_of_rules_that_all_cross_are_refused_before_their_lists_grow() -> None:
    """Their lists take seconds and 100 MB, and `best` wrote them for each of five plans."""
    sides = np.random.default_rng(3).integers(0, 2**32, (450, 5, 2), np.uint64)
    boxes = np.sort(sides >> np.array([0, 0, 16, 16, 24], np.uint64)[:, None], axis=2).astype(np.uint32)
    for plan in ("sides", "tables", "wildcards"):
        with pytest.raises(DatabaseError, match=r"too interwoven.*another plan, such as best or tss"):
            engine.open(plan, listed(boxes))
    with agree("best", listed(boxes), near(5, boxes, 2000)) as db:
        assert db.peak_bytes < 64 << 20


def test_wildcards_refuse_products_and_lists_beyond_their_bounds() -> None:
    crossed = np.zeros((5000, 5, 2), np.uint32)
    crossed[:, :2] = np.random.default_rng(6).integers(0, 2**32, (5000, 2, 1), np.uint64)
    crossed[:, 2:, 1] = [65535, 65535, 255]
    for boxes in (crossed, services_of_few_hosts(300)):  # 25 million cells; 300 rules for each host
        with pytest.raises(DatabaseError, match="too many"):
            engine.open("wildcards", listed(boxes))


@pytest.mark.parametrize("simd", [0, 256, 512])
def test_more_services_than_a_row_has_bits_are_read_in_full(simd: int) -> None:
    boxes = drawn(1, 900)
    boxes[:, 2, 0] = np.random.default_rng(2).integers(0, 9, len(boxes))
    boxes[:, 2, 1] = np.random.default_rng(3).integers(9, 60000, len(boxes))
    for split in (1, 5):
        agree(f"sides(split={split}, narrow=12, simd={simd})", listed(boxes), near(4, boxes, 3000)).close()


@pytest.mark.parametrize("simd", [0, 256, 512])
def test_long_lists_and_buckets_and_dense_networks(simd: int) -> None:
    boxes = drawn(5, 500)
    boxes[:, :2] = [[0x0A000000, 0x0AFFFFFF], [0, 0xFFFFFFFF]]
    boxes[:, 3, 0] = boxes[:, 3, 1] = np.arange(500)  # all of one list, of which none covers another
    boxes[:200, 0, 0] = 0x0A0A0000 + np.arange(200) * 3  # more than a block of bounds holds
    boxes[:200, 0, 1] = boxes[:200, 0, 0] + 1
    for split in (1, 3, 4, 5):
        agree(f"sides(split={split}, narrow=8, simd={simd})", listed(boxes), near(6, boxes, 3000)).close()


@pytest.mark.parametrize("simd", [0, 512])
@pytest.mark.parametrize(
    "layout", [Layout((32,)), Layout((9, 30)), Layout((16, 17, 20)), Layout((128, 128, 16, 16, 8))]
)
def test_layouts_of_other_widths(layout: Layout, simd: int) -> None:
    boxes = drawn(8, 150, layout)
    for split in (0, 5):
        agree(f"sides(split={split}, simd={simd})", listed(boxes, layout), near(9, boxes, 2000)).close()


@pytest.mark.parametrize("plan", ["best", "best(simd=0)", "best(simd=256)", "best(updates=1000000)", "sides"])
def test_priorities_that_are_no_numbers_in_a_row(plan: str) -> None:
    boxes = drawn(10, 300)
    priority = np.sort(np.random.default_rng(0).choice(2**31 - 1, 300, replace=False)).astype(np.uint32)
    agree(plan, listed(boxes, priority=priority), near(11, boxes, 2000)).close()


def test_best_keeps_to_its_memory_and_is_the_same_every_time() -> None:
    boxes = drawn(12, 800)
    rules, headers = listed(boxes), near(13, boxes, 2000)
    sizes = []
    with agree("best", rules, headers) as free, agree("best", rules, headers) as again:
        assert free.bytes == again.bytes
        sizes.append(free.bytes)
    for memory in (sizes[0] - 1, 300_000):
        with agree(f"best(memory={memory})", rules, headers) as db:
            assert db.bytes <= memory + 1000
    with pytest.raises(DatabaseError, match="do not fit"):
        engine.open("best(memory=100)", rules)


def services_of_few_hosts(ports: int) -> np.ndarray:
    """[boxes] as many exact ports for each of 20 hosts."""
    boxes = np.zeros((20 * ports, 5, 2), np.uint32)
    boxes[:, :, 1] = [2**32 - 1, 2**32 - 1, 65535, 65535, 255]
    boxes[:, 0] = 0x0A000000 + np.arange(20 * ports)[:, None] % 20 * 977
    boxes[:, 3] = 1000 + np.arange(20 * ports)[:, None] // 20
    return boxes


@pytest.mark.parametrize(("ports", "picked"), [(40, "tables"), (400, "tss(step=8)")])
def test_best_gives_way_to_tuples_where_lists_get_long(ports: int, picked: str) -> None:
    rules = listed(services_of_few_hosts(ports))
    with agree("best", rules, near(3, rules.boxes, 2000)) as db, engine.open(picked, rules) as plain:
        assert 0 < db.bytes - plain.bytes < 1000


@pytest.mark.parametrize(("peers", "picked"), [("any", "wildcards"), ("one", "sides")])
def test_best_takes_wildcards_where_peers_are_any_and_keeps_sides_where_lists_are_short(
    peers: str, picked: str
) -> None:
    boxes = services_of_few_hosts(1000)
    boxes[:, 0] = (0x0A000000 + np.arange(len(boxes)) * 977)[:, None]  # a host for each rule
    boxes[:, 3] = 80
    if peers == "one":
        boxes[:, 1] = 0xC0A80000 + np.arange(len(boxes))[:, None]
    rules = listed(boxes)
    with agree("best", rules, near(3, boxes, 2000)) as db, engine.open(picked, rules) as plain:
        assert 0 < db.bytes - plain.bytes < 1000


def test_rules_too_interwoven_for_products_are_still_found() -> None:
    rng = np.random.default_rng(14)
    ends = np.sort(rng.integers(0, 2**32, (3000, 2, 2), np.uint64), axis=2).astype(np.uint32)
    boxes = np.concatenate(
        [ends, np.broadcast_to(np.array([[0, 65535], [0, 65535], [0, 255]], np.uint32), (3000, 3, 2))], axis=1
    )
    rules = listed(np.ascontiguousarray(boxes))
    agree("best", rules, near(15, boxes, 500)).close()


def test_best_updates_what_it_picked() -> None:
    boxes = drawn(16, 100)
    headers = near(17, boxes, 1000)
    for plan in ("best", "best(updates=1000000)"):
        with engine.open(plan, listed(boxes[::2])) as db, engine.open("linear", listed(boxes[::2])) as linear:
            for number in range(0, 30):
                sides = [(int(low), int(high)) for low, high in boxes[2 * number + 1]]
                for each in (db, linear):
                    each.insert(sides, 1000 + number)
                    if number % 3 == 0:
                        each.remove(number)
            assert (db.search(headers) == linear.search(headers)).all()
            assert len(db) == len(linear)
