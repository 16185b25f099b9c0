"""Flow state tables: the four schemes and the ring against lists and dicts, keys, hashes, and refusals."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.flow_model import Chains
from support.scale import examples

from hitables import engine
from hitables.engine import FIVE_TUPLE, FlowTable, Rules
from hitables.engine.flows import LAYOUTS, flow_hash
from hitables.errors import DatabaseError, OutOfMemory

SCHEMES = ("normal", "move_front", "circular", "insert_move_front", "ring")
PAPER = SCHEMES[:4]
HASHES = ("zobel", "crc32c", "multiply_shift", "siphash", "folded")


def header(number: int, key_bytes: int = 13) -> list[int]:
    """The packet of flow *number*: flows differ in any of their fields."""
    top = 128 if key_bytes == 37 else 32
    return [number * 7 % (1 << top), number // 3 % (1 << top), number % 5, number // 5 % 65536, number % 3]


def headers(numbers: list[int], key_bytes: int = 13) -> np.ndarray:
    return LAYOUTS[key_bytes].headers([header(number, key_bytes) for number in numbers])


def flows_named(text: str) -> list[int]:
    """A1 B1 A2 as the numbers of its flows."""
    return [ord(packet[0]) - ord("A") for packet in text.split()]


INTERLEAVED = "A1 B1 A2 A3 A4 B2 B3 B4 C1 C2 A5 B5 C3 C4 C5"


@pytest.mark.parametrize(
    ("scheme", "places", "missed"),
    [
        # The places at which hits are found, packet by packet, and the keys that misses compare: 0, 1 and 2.
        ("normal", [2, 2, 2, 1, 1, 1, 1, 3, 2, 1, 1, 1], 3),
        ("move_front", [1, 1, 1, 2, 1, 1, 3, 3, 3, 3, 1, 1], 3),
        ("circular", [2, 1, 1, 2, 1, 1, 1, 3, 3, 3, 1, 1], 3),
        ("insert_move_front", [2, 1, 1, 2, 1, 1, 1, 3, 3, 3, 1, 1], 3),
    ],
)
def test_the_sequence_of_section_2_takes_these_comparisons(
    scheme: str, places: list[int], missed: int
) -> None:
    numbers = flows_named(INTERLEAVED)
    with FlowTable(scheme, 1, hash="zobel") as table:
        found = []
        for number in numbers:
            before = table.statistics()
            after = table.replay(headers([number]))
            if after.hits > before.hits:
                found.append(after.hit_comparisons - before.hit_comparisons)
        assert found == places
        assert (after.hits, after.inserts, after.miss_comparisons) == (12, 3, missed)
        assert after.hit_comparisons == sum(places)
        assert after.comparisons == sum(places) + missed
        assert after.beyond_first == sum(places) - 12
        assert list(after.places[:3]) == [places.count(place) for place in (1, 2, 3)]


@pytest.mark.parametrize(
    ("scheme", "comparisons"),
    [
        ("normal", 4 * 100),  # each packet of the fast flow reads past the three slow ones
        ("move_front", 100),  # the slow flows were inserted behind it
        ("circular", 4 + 99),
        ("insert_move_front", 4 + 99),
    ],
)
def test_a_fast_flow_behind_three_slow_ones_is_the_worst_case_of_normal(
    scheme: str, comparisons: int
) -> None:
    with FlowTable(scheme, 1) as table:
        before = table.replay(headers([0, 1, 2, 3]))
        after = table.replay(headers([0] * 100))
    assert after.hit_comparisons - before.hit_comparisons == comparisons


def test_the_flow_before_the_bucket_of_a_circular_list_needs_the_whole_ring() -> None:
    """Figure 3: fast 1, slow 2, slow 3, slow 4, and the bucket at slow 2."""
    with FlowTable("circular", 1) as table:
        keys = [table.key(row) for row in headers([4, 3, 2, 1])]
        table.replay(headers([4, 3, 2, 1]))
        assert table.chain(0) == keys[::-1]
        table.replay(headers([2]))
        assert table.chain(0) == [keys[2], keys[1], keys[0], keys[3]]
        before = table.statistics().comparisons
        assert table.replay(headers([1])).comparisons - before == 4
        assert table.chain(0) == keys[::-1]


@st.composite
def packets(draw: st.DrawFn) -> list[int]:
    """Flows in bursts, so that hits stand at all places."""
    most = draw(st.sampled_from([3, 9, 12, 40]))
    bursts = draw(st.lists(st.tuples(st.integers(0, most), st.integers(1, 3)), max_size=70))
    return [flow for flow, length in bursts for _ in range(length)]


@pytest.mark.parametrize("key_bytes", [13, 37])
@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data())
@settings(max_examples=examples(25))
def test_a_table_keeps_the_order_of_a_list_and_the_values_of_a_dict(
    scheme: str, key_bytes: int, data: st.DataObject
) -> None:
    numbers = data.draw(packets())
    purge_at = data.draw(st.sampled_from([2, 5, 10, 10, 30]))
    purge = data.draw(st.integers(0, purge_at - 1))
    buckets = data.draw(st.sampled_from([1, 1, 2, 7]))
    hash_name = data.draw(st.sampled_from(HASHES))
    group, step = data.draw(st.sampled_from([(1, 1), (0, 1), (0, 7), (3, 200), (1, 200)]))
    rows = headers(numbers, key_bytes)
    values = np.arange(100, 100 + len(numbers), dtype=np.uint32)
    with FlowTable(scheme, buckets, purge_at, purge, hash_name, key_bytes, history=True) as table:
        model = Chains(scheme, buckets, purge_at, purge)
        for start in range(0, len(numbers), step):
            part = slice(start, start + step)
            out = np.empty(len(rows[part]), np.uint32)
            table.replay(rows[part], values=values[part].copy(), out=out, group=group)
            for row, value, answer in zip(rows[part], values[part], out, strict=True):
                key = table.key(row)
                assert model.search(key, table.bucket_of(key), int(value)) == answer
            for bucket in range(buckets):
                assert table.chain(bucket) == model.keys(bucket)
        stats = table.statistics()
        assert {name: getattr(stats, name) for name in model.counts} == model.counts
        assert stats.packets == len(numbers) == stats.hits + stats.inserts
        assert sum(stats.places) == stats.hits
        assert stats.longest == model.longest
        assert table.chains().flows == sum(len(chain) for chain in model.chain)
        uncounted = FlowTable(scheme, buckets, purge_at, purge, hash_name, key_bytes)
        plain = uncounted.replay(rows, counted=False)
        assert (plain.hits, plain.inserts, plain.purged) == (stats.hits, stats.inserts, stats.purged)
        assert plain.comparisons == 0


@pytest.mark.parametrize(
    ("scheme", "left"),
    [
        ("normal", [9, 8, 7, 6, 5]),
        ("insert_move_front", [9, 8, 7, 6, 5]),
        ("circular", [9, 8, 7, 6, 5]),
        ("move_front", [0, 1, 2, 3, 4]),  # new flows stand at the end, where they are purged at once
    ],
)
def test_the_tenth_flow_of_a_chain_purges_the_last_five(scheme: str, left: list[int]) -> None:
    with FlowTable(scheme, 1) as table:
        nine = table.replay(headers(list(range(9))))
        assert nine.purged == 0 and table.chains().longest == 9
        ten = table.replay(headers([9]))
        assert ten.purged == 5 and ten.longest == 10
        assert table.chain(0) == [table.key(row) for row in headers(left)]
        for _ in range(3):
            assert table.replay(headers(left)).purged == 5, "what is left is still found"


def test_a_circular_purge_takes_the_five_before_the_bucket_wherever_it_points() -> None:
    with FlowTable("circular", 1) as table:
        table.replay(headers(list(range(9))))
        table.replay(headers([3]))  # order of a search now: 3 2 1 0 8 7 6 5 4
        table.replay(headers([9]))
        assert table.chain(0) == [table.key(row) for row in headers([9, 3, 2, 1, 0])]


def test_a_flow_that_comes_back_after_a_purge_is_counted() -> None:
    with FlowTable("normal", 1, history=True) as table:
        assert table.replay(headers(list(range(10)))).returned == 0
        assert table.replay(headers([0, 1, 9, 0])).returned == 2
    with FlowTable("normal", 1) as table:
        assert table.replay(headers([0])).returned is None


@pytest.mark.parametrize("scheme", SCHEMES)
def test_blocks_and_groups_give_what_one_packet_at_a_time_gives(scheme: str) -> None:
    rng = np.random.default_rng(1)
    rows = headers(rng.zipf(1.2, 20_000).clip(0, 9000).tolist())
    results = []
    for group in (1, 0, 17):
        with FlowTable(scheme, 200, hash="crc32c") as table:
            blocks = (rows[at : at + 1999] for at in range(0, len(rows), 1999))
            stats = table.replay(blocks, group=group)
            results.append((stats, [table.chain(bucket) for bucket in range(0, 200, 7)]))
    assert results[0] == results[1] == results[2]
    assert results[0][0].purged > 100


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_table_beyond_the_caches_gives_what_one_packet_at_a_time_gives(scheme: str) -> None:
    """Large tables are fetched flow by flow."""
    rng = np.random.default_rng(2)
    rows = headers(rng.integers(0, 1 << 40, 60_000).tolist())
    rows = np.concatenate([rows, rows[rng.integers(0, 60_000, 60_000)], rows[::-1]])
    results = []
    for group in (1, 0):
        with FlowTable(scheme, 600_000 if scheme != "ring" else 30_000, purge_at=200, purge=9) as table:
            table.replay(rows[:1])
            small = FlowTable(scheme, 4000, purge_at=200, purge=0)
            results.append((table.replay(rows, group=group), small.replay(rows, group=group), small.chain(5)))
            assert max(table.bytes, small.bytes) > 4 << 20
    assert results[0] == results[1]


def test_a_key_is_the_13_bytes_of_a_packet() -> None:
    packet = np.array([0x01020304, 0x05060708, 0x090A, 0x0B0C, 0x0D], np.uint32)
    with FlowTable() as table:
        assert table.key(packet).hex() == "01020304090a050607080b0c0d"
    wide = LAYOUTS[37].headers([[0x20010DB8 << 96 | 1, 0xFE80 << 112 | 2, 443, 50000, 6]])[0]
    with FlowTable(key_bytes=37) as table:
        source, destination = "20010db8" + "0" * 23 + "1", "fe80" + "0" * 27 + "2"
        assert table.key(wide).hex() == source + "01bb" + destination + "c350" + "06"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("key_bytes", [13, 37])
def test_each_bit_of_a_header_makes_another_flow(scheme: str, key_bytes: int) -> None:
    layout = LAYOUTS[key_bytes]
    rows = np.zeros((1 + sum(layout.bits), layout.dims), np.uint32)
    number = 1
    for d, bits in enumerate(layout.bits):
        for bit in range(bits):
            rows[number, d] = 1 << bit
            number += 1
    with FlowTable(scheme, 1, 1000, 0 if scheme != "ring" else 1, key_bytes=key_bytes) as table:
        assert table.replay(rows).inserts == len(rows) == 8 * key_bytes + 1
        assert table.replay(rows[::-1].copy()).hits == len(rows)


@pytest.mark.parametrize("buckets", [100, 5000])
def test_a_flow_of_ipv4_takes_40_bytes_at_most(buckets: int) -> None:
    rng = np.random.default_rng(3)
    rows = headers(rng.integers(0, 1 << 40, 50 * buckets).tolist())
    with FlowTable("insert_move_front", buckets, purge=0) as table:
        empty = table.bytes
        stats = table.replay(rows)
        assert (table.bytes - empty) / stats.inserts <= 40
        assert empty <= 10 * buckets + 4096
        assert stats.hits + stats.inserts == len(rows)


# -- hashes


def zobel(key: bytes, seed: int) -> int:
    h = seed
    for byte in key:
        h ^= (h << 5) + (h >> 2) + byte & 0xFFFFFFFF
        h &= 0xFFFFFFFF
    return h & 0x7FFFFFFF


def factors(seed: int) -> list[int]:
    """splitmix64, made odd."""
    top, result = (1 << 64) - 1, []
    for _ in range(22):
        seed = seed + 0x9E3779B97F4A7C15 & top
        z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 & top
        z = (z ^ z >> 27) * 0x94D049BB133111EB & top
        result.append((z ^ z >> 31) | 1)
    return result


def multiply_shift(key: bytes, seed: int) -> int:
    addend, *words = factors(seed)
    parts = [int.from_bytes(key[at : at + 4], "little") for at in range(0, len(key), 4)]
    return (addend + sum(a * b for a, b in zip(words, parts, strict=False))) % (1 << 64) >> 32


def folded(key: bytes, seed: int) -> int:
    def fold(a: int, b: int) -> int:
        return a * b % (1 << 64) ^ a * b >> 64

    one, h = seed % (1 << 64) ^ 0xA0761D6478BD642F, seed >> 64 ^ 0xE7037ED1A0B428DB
    rest = key
    while len(rest) > 16:
        h = fold(int.from_bytes(rest[:8], "little") ^ one, int.from_bytes(rest[8:16], "little") ^ h)
        rest = rest[16:]
    last = int.from_bytes(rest[-8:], "little") if len(rest) >= 8 else 0
    h = fold(int.from_bytes(rest[:8], "little") ^ one, last ^ h)
    return fold(h ^ one, 0x8EBC6AF09C88C6E3 ^ len(key))


def test_hashes_have_the_values_that_their_authors_give() -> None:
    assert flow_hash("crc32c", b"123456789") == 0xE3069283
    assert flow_hash("crc32c", bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    key = int.from_bytes(bytes(range(16)), "little")
    assert flow_hash("siphash", bytes(range(15)), key) == 0xA129CA6149BE45E5  # its paper, appendix A
    assert flow_hash("siphash", bytes(range(8)), key) == 0x93F5F5799A932462
    assert factors(0)[0] == 0xE220A8397B1DCDAF  # splitmix64
    assert flow_hash("zobel", b"a", 0) == ord("a")
    assert flow_hash("zobel", b"ab", 0) == 97 ^ (97 << 5) + (97 >> 2) + 98


@given(key=st.binary(min_size=1, max_size=80), seed=st.integers(0, (1 << 128) - 1))
def test_hashes_agree_with_their_definitions(key: bytes, seed: int) -> None:
    assert flow_hash("zobel", key, seed % (1 << 32)) == zobel(key, seed % (1 << 32))
    assert flow_hash("multiply_shift", key, seed) == multiply_shift(key, seed % (1 << 64) ^ seed >> 64)
    assert flow_hash("folded", key, seed) == folded(key, seed)


@given(key=st.binary(min_size=13, max_size=13), buckets=st.integers(1, 100_000))
@settings(max_examples=examples(20))
def test_zobels_bucket_is_the_remainder_and_the_others_take_the_upper_bits(key: bytes, buckets: int) -> None:
    for name, bits in (("crc32c", 32), ("multiply_shift", 32), ("siphash", 64), ("folded", 64)):
        with FlowTable(buckets=buckets, hash=name) as table:
            assert table.bucket_of(key) == flow_hash(name, key) * buckets >> bits
    with FlowTable(buckets=buckets, hash="zobel") as table:
        assert table.bucket_of(key) == zobel(key, 220373) % buckets


@pytest.mark.parametrize("hash_name", HASHES)
def test_neighbouring_flows_are_spread_evenly(hash_name: str) -> None:
    """A network that scans a network: the chains are no longer than chance makes them."""
    rows = [[0x0A000000 + i % 256, 0xC0000200 + i // 256, 1024 + i % 7, 80, 6] for i in range(1 << 15)]
    with FlowTable("normal", 1 << 12, purge=0, hash=hash_name) as table:
        table.replay(FIVE_TUPLE.headers(rows))
        chains = table.chains()
        squares = sum(count * (length - 8) ** 2 for length, count in enumerate(chains.lengths))
        assert chains.flows == 1 << 15
        # 8 flows in a bucket: by chance the variance is 8, and within a tenth of it for so many buckets.
        assert squares / (1 << 12) < (20 if hash_name == "zobel" else 9)


# -- refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FlowTable(buckets=0), "buckets must lie in 1..4294967295, not 0"),
        (lambda: FlowTable(buckets=1 << 32), "buckets must lie in .*, not 4294967296"),
        (lambda: FlowTable("fast"), "scheme is 'fast'; it is one of normal, move_front"),
        (lambda: FlowTable(hash="md5"), "hash is 'md5'"),
        (lambda: FlowTable(key_bytes=12), "key_bytes is 12; it is one of 13, 37"),
        (lambda: FlowTable(purge_at=1), "purge_at must lie in 2"),
        (lambda: FlowTable(purge_at=5, purge=5), "purge must lie in 0..4"),
        (lambda: FlowTable(seed=-1), "seed must lie in"),
        (lambda: FlowTable(seed=1.5), "seed must be a whole number"),
        (lambda: FlowTable(buckets=5.5), "buckets must be a whole number"),
        (lambda: FlowTable(key_bytes=[13]), "key_bytes is .13.; it is one of"),
        (lambda: flow_hash("siphash", b"abc", -1), "seed must lie in"),
        (lambda: flow_hash("siphash", b"abc", 1 << 128), "seed must lie in"),
        (lambda: flow_hash("siphash", "abc"), "a key must be bytes, not str"),
        (lambda: FlowTable().bucket_of("a" * 13), "a key must be bytes, not str"),
        (lambda: FlowTable().key([1, 2, 3, 4, 5]), "the header must be an array of numpy"),
        (lambda: FlowTable().replay(np.zeros((3, 5), np.uint32), classifier="tss"), "the classifier must be a Database"),
        (lambda: FlowTable().replay(np.zeros((1, 5), np.uint32), values=[1]), "values must be an array of numpy"),
        (lambda: FlowTable(limit=-1), "limit must lie in 0.*, not -1"),
        (lambda: FlowTable().replay(np.zeros((3, 4), np.uint32)), r"\[headers\]\[5\]"),
        (lambda: FlowTable().replay(np.zeros((3, 5), np.int64)), "must be uint32"),
        (lambda: FlowTable().replay([[1, 2, 3, 4, 6]]), "must be an array of numpy, not list"),
        (lambda: FlowTable().replay(np.zeros((5, 3), np.uint32).T), "row by row"),
        (lambda: FlowTable().replay(np.zeros((3, 5), np.uint32), values=np.zeros(2, np.uint32)), "values must be"),
        (lambda: FlowTable().replay(np.zeros((3, 5), np.uint32), out=np.frombuffer(bytes(12), np.uint32)), "out is read-only"),
        (lambda: FlowTable().replay([np.zeros((3, 5), np.uint32)], out=np.zeros(3, np.uint32)), "as one array"),
        (lambda: FlowTable().replay(np.zeros((3, 5), np.uint32), group=-1), "group must lie in 0.*, not -1"),
        (lambda: FlowTable().chain(65536), "bucket must lie in 0..65535"),
        (lambda: FlowTable().key(np.array([0, 0, 65536, 0, 0], np.uint32)), "wider than its field"),
        (lambda: FlowTable().bucket_of(b"abc"), "a key of 3 bytes"),
        (lambda: engine.open("flows(linear, buckets=0)", []), "buckets must lie in 1"),
        (lambda: engine.open("flows(linear, scheme=5)", []), "scheme must lie in 0..4"),
        (lambda: engine.open("flows", []), "wraps one other"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_are_refused_with_a_reason(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DatabaseError, match=message):
        make()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_more_buckets_than_memory_are_refused(scheme: str) -> None:
    with pytest.raises(OutOfMemory, match="a flow table of 1000000 buckets"):
        FlowTable(scheme, 1_000_000, limit=1 << 20)
    with pytest.raises(OutOfMemory, match=r"flows\(linear, buckets=1000000\)"):
        engine.open("flows(linear, buckets=1000000)", [], limit=1 << 20)


def test_more_memory_than_the_machine_has_is_not_promised() -> None:
    with pytest.raises(OutOfMemory, match="buckets"):
        FlowTable("ring", (1 << 32) - 1, purge_at=65535)  # 9 petabytes


def test_a_flow_that_does_not_fit_stops_a_replay() -> None:
    rows = headers(list(range(20_000)))
    with FlowTable(buckets=100, purge=0, limit=100_000) as table:
        with pytest.raises(OutOfMemory, match="purge"):
            table.replay(rows)
        stats = table.statistics()
        assert stats.unkept > 0 and stats.packets == stats.hits + stats.inserts + stats.unkept
        assert table.bytes <= 100_000


def test_a_header_wider_than_its_fields_has_no_flow() -> None:
    rows = headers([1, 2, 1])
    rows[1, 2] = 65536 + 1
    rows = np.concatenate([rows, rows])
    with FlowTable() as table:
        stats = table.replay(rows, values=np.arange(6, dtype=np.uint32), out=(out := np.empty(6, np.uint32)))
        assert (stats.passed, stats.inserts, stats.hits) == (2, 1, 3)
        assert out.tolist() == [0, 1, 0, 0, 4, 0]


def test_a_closed_table_says_so() -> None:
    table = FlowTable()
    table.close()
    with pytest.raises(DatabaseError, match="closed"):
        table.statistics()


# -- with a classifier


def test_a_classifier_answers_for_missing_flows() -> None:
    rules = Rules.of_ranges([[(0, 99), (0, 1 << 31), (0, 65535), (0, 65535), (0, 2)]], FIVE_TUPLE)
    rng = np.random.default_rng(4)
    rows = headers(rng.integers(0, 200, 3000).tolist())
    with engine.open("linear", rules) as db, FlowTable(buckets=50) as table:
        out = np.empty(len(rows), np.uint32)
        table.replay(rows, classifier=db, out=out)
        assert (out.view(np.int32) == db.search(rows)).all()
        with FlowTable(buckets=50) as other:
            assert other.replay(rows) == table.statistics(), "classification changes no statistics"
    with pytest.raises(DatabaseError, match="fields of"):
        FlowTable(key_bytes=37).replay(np.zeros((1, 11), np.uint32), classifier=engine.open("linear", rules))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_threads_that_replay_into_one_table_lose_no_packet(scheme: str) -> None:
    rng = np.random.default_rng(5)
    with FlowTable(scheme, 200) as table:
        parts = [headers(rng.integers(0, 3000, 20_000).tolist()) for _ in range(4)]
        threads = [threading.Thread(target=table.replay, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stats, chains = table.statistics(), table.chains()
        assert stats.packets == 80_000 == stats.hits + stats.inserts
        assert chains.flows == stats.inserts - stats.purged
        for bucket in range(200):
            keys = table.chain(bucket)
            assert len(set(keys)) == len(keys) and all(table.bucket_of(key) == bucket for key in keys)
