"""Flow tables under streamed packets: what a stream counts, and how times of passes are joined."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import flow_day, flow_tables
from hitables.engine import FlowTable
from hitables.generate.traffic import to_pcap, traffic
from hitables.generate.traffic_presets import TCP


def blocks_of(count: int) -> flow_day.Source:
    headers = np.concatenate([block.headers for block in traffic("department", 9000, seed=3)])
    return flow_day.Source("blocks", 9000, 1, lambda: np.array_split(headers, count))


@pytest.mark.parametrize("kind", ["ip", "tcp"])
def test_blocks_count_what_all_packets_at_once_count(kind: str) -> None:
    rows = []
    for count in (1, 7):
        tables = flow_day.Tables((16, 64), flow_day.SCHEMES, counted=True)
        rows.append(flow_day.one_pass(blocks_of(count), kind, tables))
    assert rows[0] == rows[1]
    (headers,) = blocks_of(1).read()
    chosen = headers if kind == "ip" else headers[headers[:, 4] == TCP]
    for row in rows[0]:
        with FlowTable(row["scheme"], row["buckets"], hash="zobel") as table:
            stats = table.replay(np.ascontiguousarray(chosen))
        assert (row["packets"], row["comparisons"], row["moves"]) == (
            len(chosen), stats.comparisons, stats.moves,
        )  # fmt: skip


def test_bursts_of_blocks_are_bursts_of_all_packets() -> None:
    bursts = flow_day.Bursts()
    for headers in blocks_of(5).read():
        bursts.take(np.ascontiguousarray(headers))
    (headers,) = blocks_of(1).read()
    assert bursts.lengths() == flow_tables.burst_lengths(headers)


def test_times_of_passes_are_joined_by_mean_and_deviation() -> None:
    passes = [[{"scheme": "ring", "ns": ns}] for ns in (10.0, 14.0)]
    (row,) = flow_day.merged(passes)
    assert (row["scheme"], row["ns"], row["ns_deviation"], row["ns_runs"]) == (
        "ring",
        12.0,
        2.0,
        [10.0, 14.0],
    )


def capture(path: Path) -> None:
    path.write_bytes(b"".join(map(bytes, to_pcap(traffic("uplink", 4000)))))


def test_a_capture_takes_the_place_of_the_presets_and_the_duration_is_said_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = flow_day.Sizes((256, 1024), (256,), (256, 1024))
    monkeypatch.setattr(flow_day, "Sizes", lambda: small)
    path = tmp_path / "x.pcap"
    capture(path)
    rows = list(flow_day.day(False, str(path)))
    said = capsys.readouterr().out
    assert "4,000 packets" in said and "minutes of processor time" in said
    assert {row["preset"] for row in rows} == {str(path)}
    purged = [row for row in rows if row["part"] == "purged" and row["kind"] == "ip"]
    assert all(row["packets"] == 4000 for row in purged)
    assert {row["buckets"] for row in rows if row["part"] == "unpurged"} == {256, 1024}
    assert {row["buckets"] for row in purged if "ns" in row} == {256}


def test_a_capture_that_ends_in_mid_record_is_named_with_record_and_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.pcap"
    capture(path)
    path.write_bytes(path.read_bytes()[:-3])
    output = tmp_path / "out" / "flows.json"
    monkeypatch.setattr(sys, "argv", ["flow_tables", "--trace", str(path), "-o", str(output)])
    with pytest.raises(SystemExit, match=r"x.pcap: record 4000, byte \d+: the capture ends in mid-record"):
        flow_tables.main()
    assert not output.exists(), "nothing is half-written"
