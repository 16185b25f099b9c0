"""The locality of traffic against naive Python: distances, runs, windows, samples; and its reports."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from support.capture_bytes import UDP, ethernet, ipv4, ipv6, l4, pcap, records
from support.scale import examples

from hitables import locality
from hitables.cli.main import main
from hitables.core.locality import RECENT, RECENT_BINS, TABLES, TOPS, WINDOW, Locality, Totals
from hitables.errors import HitablesError, InvalidOption, MissingLibrary
from hitables.generate.traffic import to_pcap, to_trace, traffic
from hitables.generate.traffic_presets import PRESETS
from hitables.parse.packet_stream import FORMATS, TraceStream, open_packets
from hitables.report.traffic import to_svg, to_text

SCHEMA = json.loads((Path(__file__).parents[2] / "hitables/schema/traffic.json").read_text())
MASK = (1 << 64) - 1


def hash_of(words: tuple[int, ...]) -> int:
    """The hash of core/c/traffic/locality.c, which places keys in buckets and in samples."""
    value = len(words)
    for word in words:
        value = (value ^ word) * 0x9E3779B97F4A7C15 & MASK
        value ^= value >> 32
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return (value ^ value >> 31) or 1


def naive_distances(keys: list[Any]) -> tuple[Counter[int], int]:
    """Packets by the bin of their stack distance, and how many are the first of their key."""
    stack: list[Any] = []
    bins: Counter[int] = Counter()
    for key in keys:
        if key in stack:
            bins[stack.index(key).bit_length()] += 1
            stack.remove(key)
        stack.insert(0, key)
    return bins, len(stack)


def naive_runs(keys: list[tuple[int, ...]], bits: int) -> int:
    last: dict[int, tuple[int, ...]] = {}
    runs = 0
    for key in keys:
        bucket = hash_of(key) & (1 << bits) - 1
        runs += last.get(bucket) != key
        last[bucket] = key
    return runs


def totals_of(keys: list[tuple[int, ...]], limit: int = 1 << 20, pieces: int = 1) -> tuple[Locality, Totals]:
    array = np.array(keys, np.uint32).reshape(len(keys), -1)
    found = Locality(array.shape[1], limit)
    for piece in np.array_split(array, pieces):
        found.add(np.ascontiguousarray(piece))
    return found, found.totals()


def nonzero(distance: tuple[float, ...]) -> dict[int, float]:
    return {number: count for number, count in enumerate(distance) if count}


@given(
    st.integers(1, 3).flatmap(
        lambda words: st.lists(st.tuples(*[st.integers(0, 5)] * words), min_size=1, max_size=200)
    ),
    st.integers(1, 4),
)
@settings(max_examples=examples(40))
def test_distances_runs_and_counts_are_those_of_naive_python(
    keys: list[tuple[int, ...]], pieces: int
) -> None:
    found, totals = totals_of(keys, pieces=pieces)
    bins, first = naive_distances(keys)
    assert (nonzero(totals.distance), totals.first) == (bins, first)
    assert totals.runs == tuple(naive_runs(keys, bits) for bits in TABLES)
    assert (totals.packets, totals.keys, totals.level) == (len(keys), len(set(keys)), 0)
    packets, begin, end = found.keys()
    order = list(dict.fromkeys(keys))
    assert packets.tolist() == [Counter(keys)[key] for key in order]
    assert begin.tolist() == [keys.index(key) for key in order]
    assert end.tolist() == [len(keys) - 1 - keys[::-1].index(key) for key in order]


def skewed_keys(count: int, keys: int, seed: int = 1) -> list[tuple[int, ...]]:
    rng = random.Random(seed)
    return [(min(int(rng.paretovariate(0.5)), keys),) for _ in range(count)]


def test_distances_stay_exact_when_places_run_out() -> None:
    """The places of the stack are renumbered every 16,384 uses; distances within and across blocks of it."""
    keys = skewed_keys(50_000, 600)
    _, totals = totals_of(keys, pieces=7)
    bins, first = naive_distances(keys)
    assert (nonzero(totals.distance), totals.first) == (bins, first)


def test_distances_stay_exact_when_the_stack_grows() -> None:
    count = 40_000
    once = [(key,) for key in range(count)]
    _, totals = totals_of([*once, *once, *reversed(once)])
    assert totals.first == totals.keys == count
    bins = Counter([(count - 1).bit_length()] * count + [at.bit_length() for at in range(count)])
    assert nonzero(totals.distance) == bins


def test_windows_count_their_most_popular_keys() -> None:
    keys = skewed_keys(3 * WINDOW + 500, 300, 4)
    _, totals = totals_of(keys, pieces=5)
    windows = [Counter(keys[at : at + WINDOW]) for at in range(0, 3 * WINDOW, WINDOW)]
    tops = tuple(sum(count for each in windows for _, count in each.most_common(top)) for top in TOPS)
    assert (totals.windows, totals.window_top) == (3, tops)
    assert totals.window_keys == sum(map(len, windows))


@given(st.integers(2, 300), st.integers(0, 10**6))
@settings(max_examples=examples(10))
def test_beyond_the_limit_a_key_is_followed_from_its_first_packet_or_not_at_all(
    limit: int, seed: int
) -> None:
    keys = skewed_keys(1500, 1200, seed)
    found, totals = totals_of(keys, limit, pieces=3)
    followed = [key for key in keys if not totals.level or not hash_of(key) >> (64 - totals.level)]
    assert totals.keys == len(set(followed)) <= limit
    packets, begin, end = found.keys()
    assert sorted(packets.tolist()) == sorted(Counter(followed).values())
    chosen = set(followed)
    first = {key: at for at, key in reversed([*enumerate(keys)]) if key in chosen}
    last = {key: at for at, key in enumerate(keys) if key in chosen}
    assert sorted(begin.tolist()) == sorted(first.values())
    assert sorted(end.tolist()) == sorted(last.values())
    assert totals.runs == tuple(naive_runs(keys, bits) for bits in TABLES)
    bins, _ = naive_distances(keys)
    assert nonzero(totals.distance) == bins  # all of them are short enough to be exact


def test_a_sample_estimates_flows_and_long_distances_and_counts_short_ones() -> None:
    rng = np.random.default_rng(5)
    often = rng.integers(0, 20_000, 300_000)
    seldom = rng.integers(20_000, 320_000, 300_000)
    keys = rng.permutation(np.concatenate([often, seldom])).astype(np.uint32).reshape(-1, 1)
    exact, sample = Locality(1, 1 << 20), Locality(1, 20_000)
    for each in (exact, sample):
        for piece in np.array_split(keys, 9):
            each.add(piece)
    full, part = exact.totals(), sample.totals()
    assert part.level >= 3 and part.keys <= 20_000
    assert part.keys << part.level == pytest.approx(full.keys, rel=0.05)
    assert part.distance[:RECENT_BINS] == full.distance[:RECENT_BINS]
    assert part.first * (1 << part.level) == pytest.approx(full.first, rel=0.05)
    assert sum(full.distance[RECENT_BINS:]) > 50_000
    for bin_ in range(RECENT_BINS, len(full.distance)):
        estimate = part.distance[bin_] * (1 << part.level)
        assert estimate == pytest.approx(full.distance[bin_], rel=0.1, abs=1000)


def test_short_distances_are_exact_when_recent_keys_are_dropped() -> None:
    count = RECENT + 5000
    once = list(range(count))
    keys = np.array([*once, *once, *reversed(once)], np.uint32).reshape(-1, 1)
    sample = Locality(1, 500)
    sample.add(keys)
    expected = Counter(at.bit_length() for at in range(RECENT))
    assert dict(enumerate(sample.totals().distance[:RECENT_BINS])) == expected


def test_popular_keys_are_known_beyond_the_limit() -> None:
    """With more keys than are counted, counts are dropped, and each one left lacks no more than is stated."""
    rng = np.random.default_rng(3)
    popular = np.repeat(np.arange(50, dtype=np.uint32), np.arange(2000, 4500, 50))
    keys = np.concatenate([popular, np.arange(1000, 301_000, dtype=np.uint32)])
    rng.shuffle(keys)
    sample = Locality(1, 1000)
    sample.add(keys.reshape(-1, 1))
    totals = sample.totals()
    assert totals.level and 0 < totals.popular_missed <= 2 * len(keys) / (1 << 16) + 1
    falling = np.sort(sample.popular())[::-1][:50].astype(int)
    true = np.sort(np.bincount(keys)[:50])[::-1]
    assert (falling <= true).all() and (true - falling <= totals.popular_missed).all()


# ---- reports ----


def report_of(rows: list[tuple[int, ...]], **options: Any) -> locality.TrafficReport:
    text = "".join(" ".join(map(str, row)) + "\n" for row in rows)
    stream = TraceStream(io.BufferedReader(io.BytesIO(text.encode())), "t", block=7)  # type: ignore[arg-type]
    return locality.measure(stream, **options)


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 5), min_size=1, max_size=80))
@settings(max_examples=examples(20))
def test_a_report_agrees_with_naive_python(rows: list[tuple[int, ...]]) -> None:
    report = report_of(rows, classify=lambda headers: headers[:, 0].astype(np.int32) - 1)
    for of, keys in ((report.flows, rows), (report.rules, [row[0] for row in rows])):
        assert of is not None and of.shares_error == (0, 0, 0, 0)
        counts = Counter(keys)
        assert (of.keys, of.sample, of.most) == (len(counts), 1, max(counts.values()))
        assert of.mean == pytest.approx(len(rows) / len(counts))
        falling = sorted(counts.values())
        assert of.quantiles == tuple(
            falling[max(0, -(-len(falling) * round(1000 * at) // 1000) - 1)] for at in locality.QUANTILES
        )
        assert of.shares == pytest.approx([sum(falling[-top:]) / len(rows) for top in TOPS])
        bins, first = naive_distances(keys)
        assert of.first == pytest.approx(first / len(rows))
        for power, share in enumerate(of.distances):
            below = sum(count for number, count in bins.items() if number <= power)
            assert share == pytest.approx(below / len(rows))
        assert sum(each.keys for each in of.sizes) == len(counts)
        assert sum(each.packets for each in of.sizes) == len(rows)
        for size in of.sizes:
            assert size.keys == sum(size.least <= count <= size.most for count in counts.values())
    assert report.unmatched == sum(row[0] == 0 for row in rows)
    spans = [(rows.index(row), len(rows) - 1 - rows[::-1].index(row)) for row in set(rows)]
    assert len(report.active) == min(len(rows), locality.INTERVALS)
    begins = [each.begin for each in report.active]
    for number, interval in enumerate(report.active):
        end = begins[number + 1] if number + 1 < len(begins) else len(rows)
        assert interval.flows == sum(first < end and last >= interval.begin for first, last in spans)
    jsonschema.validate({"format": "hitables-traffic", "version": 1, **locality.as_data(report)}, SCHEMA)
    assert max(map(len, to_text(report).splitlines())) <= 80


def test_active_flows_are_counted_by_the_times_of_a_capture(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    frames = [ethernet(ipv4(l4(port, 53, 40))) for port in (1, 2, 2, 1, 3, 3)]
    path.write_bytes(pcap(records(frames, step=10**9)))
    report = locality.measure(open_packets(str(path)))
    assert (report.form, report.seconds, report.bytes) == ("pcap", 5.0, 6 * len(frames[0]))
    assert [each.flows for each in report.active] == [1, 1, 2, 2, 2, 1, 1, 1, 0, 1, 1, 1]
    assert (report.active[0].begin, report.active[-1].end) == (0, 5)


def test_families_are_counted_together_or_apart(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(
        pcap(records([ethernet(ipv4(l4())), ethernet(ipv6(l4())), b"\2" * 12 + b"\x08\x06" + bytes(30)]))
    )

    def run(*words: str) -> Any:
        done = CliRunner().invoke(main, ["traffic", "--format", "json", *words, str(path)])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    assert (run()["packets"], run()["skipped"]["not_ip"]) == (2, 1)
    for family in ("4", "6"):
        one = run("--family", family)
        assert (one["packets"], one["skipped"]["other_family"]) == (1, 1)


@pytest.mark.parametrize("name", ["uplink", "department"])
def test_reports_of_generated_traffic_fit_the_page_and_the_schema(name: str, tmp_path: Path) -> None:
    pcap_file, trace = tmp_path / "x.pcap", tmp_path / "x"
    pcap_file.write_bytes(b"".join(map(bytes, to_pcap(traffic(name, 60_000)))))
    trace.write_bytes(b"".join(map(bytes, to_trace(traffic(name, 60_000)))))
    by_file = [locality.measure(open_packets(str(path))) for path in (pcap_file, trace)]
    assert by_file[0].flows.keys == by_file[1].flows.keys
    assert by_file[0].flows.distances == by_file[1].flows.distances
    flows = {row for block in traffic(name, 60_000) for row in map(tuple, block.headers.tolist())}
    assert by_file[0].flows.keys == len(flows)
    sampled = locality.measure(open_packets(str(trace)), limit=100)
    assert sampled.flows.sample > 1 and sampled.flows.shares == by_file[0].flows.shares
    for report in (*by_file, sampled):
        data = {"format": "hitables-traffic", "version": 1, **locality.as_data(report)}
        jsonschema.validate(json.loads(json.dumps(data)), SCHEMA)
        lines = to_text(report).splitlines()
        assert max(map(len, lines[1:])) <= 80
        assert report.flows.distances[:17] == pytest.approx(by_file[0].flows.distances[:17])
        assert report.flows.first == pytest.approx(by_file[0].flows.first, abs=0.01)
    assert "about" in to_text(sampled) and "a sample" in to_text(sampled)


def test_a_picture_is_drawn_from_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    report = report_of(
        [(1, 2, 3, 4, 5), (2, 2, 3, 4, 5)] * 20, classify=lambda headers: np.zeros(len(headers), np.int32)
    )
    assert to_svg(report).startswith("<?xml")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(MissingLibrary, match="matplotlib"):
        to_svg(report)


RULES = (
    "@1.0.0.0/8 0.0.0.0/0 0 : 65535 53 : 53 0x11/0xFF\n@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x11/0xFF\n"
)
TABLE = """*filter
:INPUT ACCEPT
:FORWARD ACCEPT
-A FORWARD -s 1.0.0.0/8 -p udp --dport 53 -j ACCEPT
-A FORWARD -p udp -j DROP
COMMIT
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    udp, tcp = f"16777217 9 9 53 {UDP}\n", "16777217 9 9 53 6\n"
    other = f"33554432 9 9 53 {UDP}\n"
    for name, text in (("trace", udp * 5 + tcp * 2 + other), ("filters", RULES), ("rules", TABLE)):
        Path(name).write_text(text)


@pytest.mark.parametrize("rules", ["filters", "rules"])
@pytest.mark.usefixtures("files")
def test_the_command_counts_the_rules_of_filters_and_of_iptables(rules: str) -> None:
    done = CliRunner().invoke(main, ["traffic", "--rules", rules, "--format", "json", "trace"])
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert (data["unmatched"], data["rules"]["count"], data["rules"]["packets_each"]["most"]) == (2, 3, 5)
    text = CliRunner().invoke(main, ["traffic", "--rules", rules, "trace"]).stdout
    assert "The packets match 2 rules; 2 match none" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing"], "missing: No such file"),
        (["trace", "--family", "6"], "traces are IPv4"),
        (["trace", "--input", "erf"], "trace: record 1, byte 0"),
        (["trace", "--through", "INPUT"], "--through names a chain of --rules"),
        (["trace", "--rules", "filters", "--through", "INPUT"], "a filter set has none"),
        (["trace", "--rules", "rules", "--through", "NONE"], "no built-in chain NONE"),
        (["trace", "--rules", "rules", "--family", "6"], "leave out --family 6"),
        (["trace", "--picture", "trace"], "would overwrite FILE"),
        (["filters"], "filters:1:1: 9 columns"),
        (["empty.pcap"], "there is no packet to count: 1 not IP"),
        (["cut.pcap", "--picture", "p.svg"], "record 1, byte 24: the capture ends in mid-record: 20 of"),
    ],
)
@pytest.mark.usefixtures("files")
def test_what_cannot_be_measured_is_refused(words: list[str], message: str) -> None:
    arp = pcap(records([b"\2" * 12 + b"\x08\x06" + bytes(30)]))
    Path("empty.pcap").write_bytes(arp)
    Path("cut.pcap").write_bytes(arp[:44])
    done = CliRunner().invoke(main, ["traffic", *words])
    assert done.exit_code == 2 and message in done.stderr and not done.stdout
    assert not Path("p.svg").exists()


@pytest.mark.usefixtures("files")
def test_a_limit_of_flows_must_be_possible() -> None:
    with pytest.raises(InvalidOption, match="a limit of 1 flows"):
        locality.measure(open_packets("trace"), limit=1)
    with pytest.raises(HitablesError, match="no packet"):
        report_of([])


def test_the_commands_list_the_formats_and_presets_of_the_library() -> None:
    def choices(command: str, option: str) -> list[str]:
        parameter = next(each for each in main.commands[command].params if each.name == option)
        return list(parameter.type.choices)  # type: ignore[attr-defined]

    assert choices("traffic", "read_as") == [*FORMATS, "trace"]
    assert choices("generate", "preset") == [*PRESETS]
