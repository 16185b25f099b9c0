"""Generated traffic: the same for the same seed, however it is cut, with the traits that its preset states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scale import examples

from hitables import engine
from hitables.cli.main import main
from hitables.errors import InvalidOption
from hitables.generate import rules as drawn_rules
from hitables.generate import seed as seeds
from hitables.generate.traffic import TrafficBlock, _model, mean_packets, to_pcap, to_trace, traffic
from hitables.generate.traffic_presets import PRESETS, TCP, UDP, FlowClass, Preset
from hitables.ir.fields import Family
from hitables.parse import classbench
from hitables.parse import trace as traces
from hitables.parse.packet_stream import open_packets

SEED = Path(__file__).parents[2] / "rulesets/seeds/fw.seed"
FILTERS = drawn_rules.rules(seeds.parse(SEED.read_text(), SEED.name), 200)
RULES = engine.Rules.of_filter(FILTERS)
OF_HOSTS = [name for name, preset in PRESETS.items() if preset.of_rules is None]
OF_RULES = [name for name, preset in PRESETS.items() if preset.of_rules]


def blocks(preset: str | Preset, packets: int, **options: Any) -> Iterator[TrafficBlock]:
    chosen = PRESETS[preset] if isinstance(preset, str) else preset
    return traffic(preset, packets, rules=RULES if chosen.of_rules else None, **options)


def whole(preset: str | Preset, packets: int, **options: Any) -> TrafficBlock:
    (block,) = blocks(preset, packets, block=packets, **options)
    return block


def fields(block: TrafficBlock) -> list[Any]:
    each = (block.headers, block.times, block.lengths, block.flows, block.rules)
    return [array.tolist() for array in each if array is not None]


# ---- laws ----


@given(name=st.sampled_from(sorted(PRESETS)), seed=st.integers(0, 2**64 - 1), block=st.integers(1, 700))
@settings(max_examples=examples(30))
def test_blocks_of_any_size_give_the_packets_of_one_block(name: str, seed: int, block: int) -> None:
    parts = [fields(each) for each in blocks(name, 600, seed=seed, block=block)]
    joined = [[value for part in column for value in part] for column in zip(*parts, strict=True)]
    assert joined == fields(whole(name, 600, seed=seed))


@pytest.mark.parametrize("name", PRESETS)
def test_the_same_seed_gives_the_same_bytes_and_another_gives_others(name: str) -> None:
    for write in (to_pcap, to_trace):
        first, again, other = (
            b"".join(map(bytes, write(blocks(name, 3000, seed=seed)))) for seed in (5, 5, 6)
        )
        assert first == again != other


@pytest.mark.parametrize("name", PRESETS)
def test_times_rise_and_a_flow_has_one_header(name: str) -> None:
    block = whole(name, 20_000, seed=3)
    assert block.times[0] >= 0 and (np.diff(block.times) >= 0).all()
    assert ((block.lengths >= 60) & (block.lengths <= 1514)).all()
    order = np.argsort(block.flows, kind="stable")
    flows, headers = block.flows[order], block.headers[order]
    same = flows[1:] == flows[:-1]
    assert (headers[1:][same] == headers[:-1][same]).all()
    _, first = np.unique(flows, return_index=True)
    # Two flows may share a header by chance, as ports are drawn anew, but hardly ever.
    assert len(np.unique(headers[first], axis=0)) > (0.99 if name in OF_HOSTS else 0.5) * len(first)


@pytest.mark.parametrize("name", PRESETS)
def test_written_traffic_reads_back(name: str, tmp_path: Path) -> None:
    expected = whole(name, 5000, seed=1)
    pcap, trace = tmp_path / "x.pcap", tmp_path / "x.trace"
    pcap.write_bytes(b"".join(map(bytes, to_pcap(blocks(name, 5000, seed=1, block=1000)))))
    trace.write_bytes(b"".join(map(bytes, to_trace(blocks(name, 5000, seed=1, block=1000)))))
    (read,) = open_packets(str(pcap), family=Family.IPV4)
    with_ports = np.isin(expected.headers[:, 4], [TCP, UDP, 33, 132, 136])
    assert (read.headers[with_ports] == expected.headers[with_ports]).all()
    assert (read.headers[:, [0, 1, 4]] == expected.headers[:, [0, 1, 4]]).all()
    assert read.times is not None and (read.times == expected.times).all()
    assert read.lengths is not None and (read.lengths == expected.lengths).all()
    parsed = traces.parse(trace.read_text())
    assert (parsed.headers == expected.headers).all()
    assert (parsed.origin is None) == (expected.rules is None)
    if parsed.origin is not None and expected.rules is not None:
        assert (parsed.origin == expected.rules).all()


# ---- traffic of hosts ----


@pytest.mark.parametrize("name", OF_HOSTS)
def test_classes_have_their_shares_and_packets_their_rate(name: str) -> None:
    """Over several seeds, as few flows of a class have many of its packets."""
    preset, packets, seeds = PRESETS[name], 500_000, 5
    of_port = {each.ports[0]: each for each in preset.classes if not each.scan}
    counts = dict.fromkeys((each.name for each in preset.classes), 0)
    last = 0
    for block in (whole(name, packets, seed=seed) for seed in range(seeds)):
        last += int(block.times[-1])
        left = len(block.times)
        for port, each in of_port.items():
            ports = [port, port + 1] if each.ports[1] == 2 else [port]
            named = np.isin(block.headers[:, 2:4], ports).any(axis=1) & (block.headers[:, 4] == each.protocol)
            counts[each.name] += int(named.sum())
            left -= int(named.sum())
        counts["scan"] += left
    packets *= seeds
    assert packets / last * 1e9 == pytest.approx(preset.rate, rel=0.1)
    for each in preset.classes:
        tolerance = 0.35 if each.name == "ssh" and name == "uplink" else 0.15
        assert counts[each.name] / packets == pytest.approx(each.share, rel=tolerance), each.name


def test_the_presets_state_the_traits_of_the_published_traces() -> None:
    def share(preset: Preset, *names: str, protocol: int | None = None) -> float:
        return sum(each.share for each in preset.classes if each.name in names or each.protocol == protocol)

    uplink, department = PRESETS["uplink"], PRESETS["department"]
    assert not uplink.both and department.both
    assert share(uplink, protocol=TCP) > 0.95
    assert share(uplink, "ssh") / share(uplink, protocol=TCP) == pytest.approx(0.0025, rel=0.02)
    assert share(department, protocol=TCP) == pytest.approx(0.5)
    assert share(department, "ssh") / share(department, protocol=TCP) == pytest.approx(0.16, rel=0.02)
    assert share(department, "scan") >= 0.2
    for preset, packets in ((uplink, 43_226_495), (department, 153_399_408)):
        assert sum(each.share for each in preset.classes) == pytest.approx(1)
        assert preset.rate * 86_400 == pytest.approx(packets)
    # 2 million TCP flows, each of which is two directed ones here.
    tcp = [each for each in department.classes if each.protocol == TCP]
    flows = sum(153_399_408 * each.share / mean_packets(each) for each in tcp)
    assert flows == pytest.approx(2e6, rel=0.25)


def reversed_headers(headers: Any) -> Any:
    return headers[:, [1, 0, 3, 2, 4]]


def test_one_direction_has_no_answers_and_both_have_them() -> None:
    for both in (False, True):
        headers = {tuple(row) for row in whole("department", 100_000, both=both).headers.tolist()}
        answers = sum((to, by, dport, sport, proto) in headers for by, to, sport, dport, proto in headers)
        assert (answers > 0.2 * len(headers)) == both and (answers == 0) != both


def test_a_scan_is_one_packet_and_ssh_a_slow_flow() -> None:
    block = whole("department", 300_000, seed=4)
    scans = block.headers[:, 4] == UDP
    scans &= ~np.isin(block.headers[:, 2:4], [53, 2049]).any(axis=1)
    assert (np.unique(block.flows[scans], return_counts=True)[1] == 1).all()
    assert len(np.unique(block.headers[scans][:, 0])) <= 64 < len(np.unique(block.headers[scans][:, 3]))
    ssh = (block.headers[:, 4] == TCP) & (block.headers[:, 2:4] == 22).any(axis=1)
    bulk = (block.headers[:, 4] == TCP) & np.isin(block.headers[:, 2:4], [20, 21]).any(axis=1)

    def seconds_between(chosen: Any) -> float:
        """The median over flows of the mean time between two packets."""
        order = np.lexsort((block.times[chosen], block.flows[chosen]))
        times, flows = block.times[chosen][order], block.flows[chosen][order]
        gaps = np.diff(times)[flows[1:] == flows[:-1]]
        return float(gaps.mean()) / 1e9

    assert seconds_between(ssh) > 0.5 > 0.1 > seconds_between(bulk)


def one_class(**changes: Any) -> Preset:
    flow = FlowClass("own", 1.0, shape=1.5, least=4, most=500, burst=8, gap=1e5, pause=1e8)
    return Preset("own", "", 10_000, (replace(flow, **changes),))


@pytest.mark.parametrize(
    ("shape", "least", "most"), [(1.5, 4, 500), (1.0, 1, 50), (0.8, 10, 1000), (1.2, 7, 7)]
)
def test_lengths_of_flows_follow_the_pareto_law(shape: float, least: int, most: int) -> None:
    preset = one_class(shape=shape, least=least, most=most, gap=10.0, pause=100.0)
    block = whole(preset, 400_000, seed=1)
    _, (flow,) = _model(preset, 1, False)
    started = block.flows >= flow["active"]  # those that were not in progress at the begin
    _, lengths = np.unique(block.flows[started], return_counts=True)
    lengths = lengths[:-50]  # some of the last ones go on
    assert lengths.max() <= most and lengths.min() == least
    assert lengths.mean() == pytest.approx(mean_packets(preset.classes[0]), rel=0.1)
    if most > least:
        tail = (least / most) ** shape
        for at in (2 * least, 5 * least):
            expected = ((least / at) ** shape - tail) / (1 - tail)
            assert (lengths >= at).mean() == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("burst", [1, 3, 20])
def test_bursts_have_their_mean_length(burst: int) -> None:
    block = whole(one_class(burst=burst, gap=10.0, pause=1e7, least=200, most=200), 100_000, seed=1)
    order = np.lexsort((block.times, block.flows))
    same = block.flows[order][1:] == block.flows[order][:-1]
    gaps = np.diff(block.times[order])[same]
    assert (gaps < 1e4).mean() == pytest.approx(1 - 1 / burst, abs=0.02)


def test_traffic_starts_in_its_steady_state() -> None:
    """The first tenth of the packets takes as long as the others, and as many flows are in progress."""
    times = whole("department", 400_000, seed=8).times
    assert times[40_000] - times[0] == pytest.approx((times[-1] - times[0]) / 10, rel=0.15)


# ---- traffic of rules ----


@pytest.mark.parametrize("shift", [None, 500])
@pytest.mark.parametrize("name", OF_RULES)
def test_a_header_lies_in_the_box_of_its_rule(name: str, shift: int | None) -> None:
    """Also when rules are exchanged, which ends the flows of these rules."""
    preset = PRESETS[name]
    if shift and preset.of_rules:
        preset = replace(preset, of_rules=replace(preset.of_rules, shift=shift, shifted=20))
    block = whole(preset, 20_000, seed=9)
    assert block.rules is not None
    boxes = RULES.boxes[block.rules]
    assert ((block.headers >= boxes[:, :, 0]) & (block.headers <= boxes[:, :, 1])).all()


@pytest.mark.parametrize("name", OF_RULES)
def test_popular_rules_follow_zipf_and_flows_are_as_many_as_stated(name: str) -> None:
    preset = PRESETS[name]
    assert preset.of_rules
    block = whole(name, 300_000, seed=1)
    assert block.rules is not None
    assert block.times[-1] / 1e9 == pytest.approx(300_000 / preset.rate, rel=0.25)
    _, first = np.unique(block.flows, return_index=True)
    falling = np.sort(np.bincount(block.rules[first], minlength=len(RULES)))[::-1] / len(first)
    law = np.arange(1, len(RULES) + 1) ** -preset.of_rules.skew
    law /= law.sum()
    assert falling[0] == pytest.approx(law[0], rel=0.2) and falling[:20].sum() == pytest.approx(
        law[:20].sum(), rel=0.15
    )
    if name == "uniform":
        assert len(first) == 300_000


def test_drifting_traffic_changes_its_popular_rules() -> None:
    of_rules = PRESETS["drifting"].of_rules
    assert of_rules

    def popular(preset: Preset, part: slice) -> set[int]:
        rules = whole(preset, 60_000, seed=2).rules
        assert rules is not None
        return set(np.argsort(np.bincount(rules[part], minlength=len(RULES)))[-10:].tolist())

    kept = {}
    for shift in (0, 20_000):
        preset = replace(PRESETS["drifting"], of_rules=replace(of_rules, flows=500, shift=shift, popular=20))
        kept[shift] = len(popular(preset, slice(0, 20_000)) & popular(preset, slice(40_000, 60_000)))
    assert kept[20_000] <= 5 < 7 <= kept[0]


def test_memory_follows_the_flows_in_progress() -> None:
    from hitables.core.flow_traffic import FlowTraffic

    model, classes = _model(PRESETS["uplink"], 1, False)
    source = FlowTraffic(model, classes)
    arrays = np.empty((65536, 5), np.uint32), np.empty(65536, np.int64), np.empty(65536, np.uint32)
    flows = np.empty(65536, np.uint64)
    for _ in range(15):
        source.fill(*arrays, flows)
    assert source.active < 3000 < 50_000 < flows.max()


# ---- refusals, and the command ----


@pytest.mark.parametrize(
    ("preset", "options", "message"),
    [
        ("uplnk", {}, "unknown preset 'uplnk'; there are uplink, department"),
        ("uplink", {"packets": 0}, "ask for at least one"),
        ("uplink", {"block": 0}, "ask for at least one"),
        ("uplink", {"seed": -1}, "the seed -1"),
        ("uplink", {"rules": RULES}, "uplink are not bound to rules"),
        ("edge", {}, "edge are bound to rules: give a filter set"),
        ("edge", {"rules": RULES, "both": True}, "have one direction"),
        ("edge", {"rules": engine.Rules.of_filter([])}, "there are none"),
    ],
)
def test_impossible_traffic_is_refused(preset: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        traffic(preset, **{"packets": 5, **options})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": 0.0}, "share of each class are above 0"),
        ({"share": 1.5}, "a share does not lie in 0..1"),
        ({"protocol": 256}, "the protocol does not"),
        ({"ports": (65535, 2)}, "its ports do not"),
        ({"least": 0.5}, "impossible lengths"),
        ({"most": 2.0}, "impossible lengths"),
        ({"burst": 0.5}, "impossible times"),
        ({"pause": -1.0}, "impossible times"),
        ({"reply": 1}, "cannot be a reply"),
        ({"pause": 1e18}, "at a time are too many"),
    ],
)
def test_an_impossible_class_of_flows_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        traffic(one_class(**changes), 10)


def run(*words: object) -> Any:
    return CliRunner().invoke(main, ["generate", *map(str, words)])


def test_the_command_writes_what_the_library_gives(tmp_path: Path) -> None:
    filters, pcap, trace = (tmp_path / name for name in ("f", "x.pcap", "x"))
    filters.write_text(classbench.to_filter_text(FILTERS))
    done = run("--traffic", "edge", "--filters", filters, "--packets", 3000, "--random-seed", 7, "-o", pcap)
    assert done.exit_code == 0, done.output
    assert pcap.read_bytes() == b"".join(map(bytes, to_pcap(blocks("edge", 3000, seed=7))))
    assert run("--traffic", "uplink", "--packets", 99, "--directions", "both", "-o", trace).exit_code == 0
    expected = b"".join(map(bytes, to_trace(blocks("uplink", 99, both=True))))
    assert trace.read_bytes() == expected
    assert run("--traffic", "uplink", "--packets", 99, "--directions", "both").stdout_bytes == expected
    assert run("--traffic", "uplink", "--as", "pcap", "--packets", 5, "-o", trace).exit_code == 0
    assert trace.read_bytes()[:4] == b"\xa1\xb2\x3c\x4d"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--traffic", "edge"], "give a filter set"),
        (["--traffic", "uplink", "--packets", "0"], "ask for at least one"),
        (["--traffic", "uplink", SEED], "leave out SEED"),
        (["--traffic", "uplink", "-n", "5"], "leave out --rules"),
        (["--traffic", "uplink", "--trace", "t"], "leave out --trace"),
        (["--traffic", "uplink", "--pareto", "1", "1"], "leave out --pareto"),
        ([SEED, "-n", "5", "--filters", "f"], "are for --traffic"),
        ([SEED, "-n", "5", "--as", "pcap"], "are for --traffic"),
        ([SEED, "-n", "5", "--packets", "5"], "--packets is for the packets of --trace or --traffic"),
        ([SEED, "-n", "5", "--pareto", "1", "1"], "--pareto is for the packets of --trace or --traffic"),
        ([SEED], "as many as --rules has"),
        ([], "give both, or --traffic"),
    ],
)
def test_options_that_do_not_fit_together_are_refused_and_nothing_is_written(
    words: list[str], message: str, tmp_path: Path
) -> None:
    done = run(*words, "-o", tmp_path / "out")
    assert done.exit_code == 2 and message in done.stderr and not list(tmp_path.iterdir())
