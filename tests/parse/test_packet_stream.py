"""Captures and traces as streams: every format gives the same packets, none is made up, damage is named."""

from __future__ import annotations

import gzip
import importlib
import io
import random
import struct
from pathlib import Path
from typing import Any

import dpkt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.capture_bytes import (
    DST,
    FILES,
    SRC,
    UDP,
    block,
    enhanced,
    erf,
    ethernet,
    extension,
    interface,
    ipv4,
    ipv6,
    l4,
    pcap,
    pcapng,
    records,
    section,
)
from support.packet_rows import (
    FRAMES,
    HEADERS,
    SKIPPED,
    before_error,
    counts,
    headers,
    read,
    rows,
    stream,
)
from support.scale import examples

from hitables.core.captures import CaptureReader, Format, Words, pcap_head, pcap_records
from hitables.core.trace_lines import LineReader
from hitables.errors import FileError, InvalidOption, ParseError, Unsupported
from hitables.ir.fields import Family
from hitables.parse import packet_stream
from hitables.parse import trace as traces
from hitables.parse.packet_stream import CaptureStream, TraceStream, open_packets


def form_of(name: str) -> Format:
    """The format of a file of FILES."""
    return {
        "pcap": Format.PCAP, "pcapng": Format.PCAPNG, "erf": Format.ERF, "dag": Format.DAG_ETHERNET,
    }[name.split("-")[0]]  # fmt: skip


# ---- formats ----


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_packets_times_and_lengths(
    name: str, packed: bool, tmp_path: Path
) -> None:
    items = records(FRAMES)
    data = FILES[name](items)
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(data) if packed else data)
    packets = open_packets(str(path), family=Family.IPV4)
    expected = [(*header, item.time, item.length) for header, item in zip(HEADERS, items, strict=True)]
    assert rows(packets) == expected
    assert packets.form == {"dag": "dag-ethernet"}.get(name, name.split("-")[0])


@pytest.mark.parametrize("module", ["pcap", "pcapng"])
def test_files_that_dpkt_writes_are_read(module: str) -> None:
    out = io.BytesIO()
    writer = importlib.import_module(f"dpkt.{module}").Writer(out, linktype=1)
    for number, frame in enumerate(FRAMES):
        writer.writepkt(frame, ts=number + 0.25)
    lengths = map(len, FRAMES)
    expected = [
        (*header, number * 10**9 + 250_000_000, length)
        for number, (header, length) in enumerate(zip(HEADERS, lengths, strict=True))
    ]
    assert read(out.getvalue()) == expected


@pytest.mark.parametrize("name", FILES)
def test_blocks_and_pieces_of_any_size_give_the_same_packets(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = FILES[name](records(FRAMES * 5))
    form = form_of(name)
    whole = read(data, form=form)
    assert len(whole) == 20
    for chunk in (1, 7, 100):
        monkeypatch.setattr(packet_stream, "CHUNK", chunk)
        for size in (1, 3):
            assert read(data, form=form, block=size) == whole


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_anywhere_gives_the_packets_before_and_names_the_record(name: str) -> None:
    """At each byte: no packet is made up, and an end in mid-record is an error unless it is allowed."""
    data = FILES[name](records(FRAMES))
    whole = headers(data)
    assert len(whole) == 4
    known = form_of(name)
    ends = set()
    for size in range(1, len(data)):
        packets = stream(data[:size], form=known)
        found, message = before_error(packets)
        assert found == whole[: len(found)]
        if message:
            assert f"x: record {len(found) + 1}, byte {packets.counts.offset}: " in message
            assert "ends in mid-record" in message and "--incomplete" in message
            lenient = stream(data[:size], form=known, incomplete=True)
            assert [row[:-2] for row in rows(lenient)] == found
            assert lenient.cut_off == size - lenient.counts.offset > 0
        else:
            ends.add(len(found))
    assert ends >= {1, 2, 3}


@given(data=st.data())
@settings(max_examples=examples(150))
def test_no_damage_crashes_the_reader_or_makes_counts_disagree(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FILES)))
    frames = [*FRAMES, ethernet(ipv6(extension(UDP) + l4(), 0)), b"\2" * 12 + b"\x08\x06" + bytes(28)]
    whole = bytearray(FILES[name](records(frames)))
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.sampled_from([0, 1, 127, 128, 255]) | st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    form = data.draw(st.sampled_from([Format.AUTO, *Format]))
    family = data.draw(st.sampled_from([None, Family.IPV4, Family.IPV6]))
    packets = stream(cut, family, form)
    found, _ = before_error(packets)
    got = packets.counts
    assert got.packets == len(found)
    assert got.records == got.packets + sum(getattr(got, each) for each in SKIPPED)
    assert got.offset <= len(cut)
    # Of the bytes alone, so that the address sanitizer sees a read behind them.
    words = {None: Words.BOTH, Family.IPV4: Words.IPV4, Family.IPV6: Words.IPV6}[family]
    reader = CaptureReader(form, words, len(cut) + 1)
    assert reader.read(bytearray(cut), len(cut))[2] == len(found)
    places = CaptureReader(form, Words.PLACES, len(cut) + 1)
    count = places.read(bytearray(cut), len(cut))[2]
    for version, start, captured, _ in places.headers[:count].tolist():
        assert version in (4, 6) and start + captured <= len(cut)
    assert count >= len(found)
    tops = [0xFFFFFFFF] * (packets.words - 3) + [65535, 65535, 255]
    assert all(value <= top for row in found for value, top in zip(row, tops, strict=True))


@given(st.binary(max_size=300), st.sampled_from(list(Format)))
@settings(max_examples=examples(100))
def test_arbitrary_bytes_are_refused_or_read_as_records(noise: bytes, form: Format) -> None:
    packets = stream(noise, None, form)
    found, message = before_error(packets)
    assert packets.counts.packets == len(found)
    if form is Format.AUTO and found == [] and not noise:
        assert "the file is empty" in message


def test_sections_of_a_pcapng_file_may_differ_in_order_link_and_clock() -> None:
    items = records([FRAMES[0]])
    raw = items[0]._replace(frame=FRAMES[0][14:])
    data = pcapng(items) + section(">") + interface(">", 101, 9) + interface(">", 1, 0x80 | 20)
    data += enhanced(">", items[0].time, raw, 0)
    data += enhanced(">", (items[0].time << 20) // 10**9, items[0], 1)
    assert read(data) == [(*HEADERS[0], items[0].time, len(FRAMES[0]))] * 3


def test_simple_and_old_packet_blocks_of_pcapng_are_read() -> None:
    (item,) = records([FRAMES[0]])
    ticks = item.time // 1000
    old = struct.pack("<HHIIII", 0, 0, ticks >> 32, ticks & 0xFFFFFFFF, len(item.frame), 99) + item.frame
    simple = struct.pack("<I", len(item.frame)) + item.frame
    data = section("<") + interface("<") + block("<", 2, old) + block("<", 3, simple)
    packets = stream(data)
    assert rows(packets) == [(*HEADERS[0], item.time, 99), (*HEADERS[0], item.time, len(item.frame))]
    assert packets.counts.untimed == 1
    snapped = section("<") + interface("<", snap=30) + block("<", 3, simple)
    assert counts(snapped) == {"ports_cut": 1}


def test_frames_of_another_link_type_are_counted_and_an_alien_file_is_refused() -> None:
    (item,) = records([FRAMES[0]])
    mixed = (
        section("<")
        + interface("<", 105)
        + interface("<")
        + enhanced("<", 1, item)
        + enhanced("<", 1, item, 1)
    )
    assert len(read(mixed)) == 1 and counts(mixed) == {"other_link": 1}
    for data, kind in (
        (pcap([item], link=105), "link type 105"),
        (pcapng([item], link=105), "link type 105"),
        (erf([item], kind=3), "ERF type 3"),
    ):
        with pytest.raises(ParseError, match=f"frames of {kind} are not read"):
            read(data)


DAMAGED: list[tuple[str, bytes, str]] = [
    ("version", pcap([]).replace(b"\2\0\4", b"\3\0\4"), "record 1, byte 0: version 3"),
    ("length", pcap(records(FRAMES))[:32] + b"\xff" * 12, "record 1, byte 24: the record claims 4294967295"),
    ("erf length", erf(records(FRAMES[:1]))[:10] + b"\0\7" + bytes(90), "byte 0: the record claims 7 bytes"),
    (
        "block length",
        section("<") + b"\6\0\0\0" + struct.pack("<I", 13) + bytes(40),
        "byte 28: the record claims 13",
    ),
    ("trailer", (section("<") + interface("<"))[:-1] + b"\1", "byte 28: the block's length is"),
    ("order", b"\n\r\r\n" + bytes(30), "byte 0: the byte-order magic of the section is 0x0"),
    ("interface", section("<") + enhanced("<", 1, records(FRAMES)[0], 3), "of interface 3, which no block"),
    ("clock", section("<") + interface("<", 1, 20), "resolution of time stamps, 0x14"),
    (
        "captured",
        section("<") + interface("<") + block("<", 6, struct.pack("<5I", 0, 0, 0, 99, 99)),
        "claims 99",
    ),
]


@pytest.mark.parametrize(
    ("data", "message"), [each[1:] for each in DAMAGED], ids=[each[0] for each in DAMAGED]
)
def test_damage_is_named_with_record_and_byte(data: bytes, message: str) -> None:
    form = Format.ERF if "claims 7" in message else Format.AUTO
    with pytest.raises(ParseError, match=message.replace("(", r"\(")):
        read(data, form=form)


def test_the_packets_before_damage_are_given() -> None:
    good = pcap(records(FRAMES))
    found, message = before_error(stream(good + b"\xff" * 16))
    assert found == HEADERS
    assert f"record 5, byte {len(good)}: " in message


def test_a_file_of_no_format_is_refused(tmp_path: Path) -> None:
    for data in (b"\0" * 100, b"\xff\xd8\xff\xe0" * 40):
        with pytest.raises(ParseError, match="x: not a readable capture; it may be pcap, pcapng, ERF"):
            read(data)
    path = tmp_path / "x"
    path.write_bytes(b"*filter\nCOMMIT\n" * 9)
    with pytest.raises(ParseError, match=r"x:1:1: 1 columns"):
        rows(open_packets(str(path)))
    with pytest.raises(InvalidOption, match="unknown format 'snoop'"):
        open_packets(str(path), form="snoop")
    with pytest.raises(FileError, match=str(tmp_path / "none")):
        open_packets(str(tmp_path / "none"))
    with pytest.raises(FileError, match="Is a directory"):
        open_packets(str(tmp_path))


def test_gzip_that_ends_early_is_an_end_in_mid_record(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    noise = random.Random(1)
    frames = [ethernet(ipv4(l4(noise.randrange(65536), 7, 40) + noise.randbytes(400))) for _ in range(50)]
    packed = gzip.compress(pcap(records(frames)))
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(ParseError, match=r"record \d+, byte \d+: the gzip file is damaged: .*--incomplete"):
        rows(open_packets(str(path), family=Family.IPV4))
    lenient = rows(open_packets(str(path), family=Family.IPV4, incomplete=True))
    assert 5 < len(lenient) < 50
    path.write_bytes(packed[:-8] + b"\1" * 8)
    with pytest.raises((ParseError, FileError), match=r"x\.gz"):
        rows(open_packets(str(path), family=Family.IPV4, incomplete=True))


# ---- memory, traces, writing ----


class Endless(io.RawIOBase):
    """A file of *count* copies of some bytes, which remembers the largest piece that was asked for."""

    def __init__(self, head: bytes, piece: bytes, count: int) -> None:
        self.piece, self.left, self.largest, self.rest = piece * 1000, count // 1000, 0, head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.largest = max(self.largest, len(buffer))
        if not self.rest and self.left:
            self.left -= 1
            self.rest = self.piece
        size = min(len(buffer), len(self.rest))
        buffer[:size] = self.rest[:size]
        self.rest = self.rest[size:]
        return size


def test_a_long_file_is_read_with_a_small_buffer() -> None:
    record = pcap(records(FRAMES[:1]))[24:]
    file = Endless(pcap([]), record, 400_000)
    packets = CaptureStream(io.BufferedReader(file), "x", Family.IPV4)  # type: ignore[arg-type]
    assert sum(len(each.headers) for each in packets) == 400_000
    assert packets.counts.offset > 20 << 20 and file.largest <= packet_stream.CHUNK


def test_a_record_longer_than_the_buffer_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packet_stream, "CHUNK", 64)
    long = ethernet(ipv4(l4(9, 9, 5000)))
    assert headers(pcap(records([FRAMES[0], long, FRAMES[0]]))) == [
        HEADERS[0],
        (SRC, DST, 9, 9, UDP),
        HEADERS[0],
    ]


NUMBERS = st.sampled_from(
    ["0", "1", "6", "255", "256", "65535", "65536", "4294967295", "4294967296", "x", "1x"]
)
GOOD_LINES = st.integers(5, 7).flatmap(lambda count: st.just(["1", "2", "3", "4", "5", "6", "7"][:count]))
TRACE_LINES = GOOD_LINES | st.lists(NUMBERS, max_size=8) | st.lists(NUMBERS, min_size=5, max_size=5)
TRACE_TEXTS = st.lists(TRACE_LINES.map(" ".join), max_size=6).map("\n".join)


@given(TRACE_TEXTS)
@settings(max_examples=examples(100))
def test_any_text_is_read_as_the_parser_of_traces_reads_it_or_refused_alike(text: str) -> None:
    found, message = before_error(trace(text))
    try:
        expected = traces.parse(text, "t").headers.tolist()
    except ParseError as error:
        assert (message == str(error)) or (not text.strip() and not found)
    else:
        assert (list(map(list, found)), message) == (expected, "")
    reader = LineReader(*((0,) * 7, (2**32 - 1,) * 7), 5, len(text) + 1)
    reader.read(bytearray(text.encode()), len(text))  # for the address sanitizer


def trace(text: str, **options: Any) -> TraceStream:
    return TraceStream(io.BufferedReader(io.BytesIO(text.encode())), "t", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n  \n"])
@pytest.mark.parametrize("last", ["", "\t7", " 0x0000/0x0200 3".replace("0x0000/0x0200", "513")])
def test_a_trace_gives_its_headers_in_blocks_of_any_size(
    last: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [(1, 4294967295, 65535, 0, 255), (2, 3, 4, 5, 6), (0, 0, 0, 0, 0)] * 4
    text = "\n \n" + "\n".join("\t".join(map(str, line)) + last for line in lines) + end
    for chunk in (64, packet_stream.CHUNK):
        monkeypatch.setattr(packet_stream, "CHUNK", chunk)
        for size in (1, 5, 100):
            packets = trace(text, block=size)
            assert [row[:5] for row in rows(packets)] == lines and packets.packets == 12


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2 3 4", "t:2:1: 4 columns; the lines above have 5"),
        ("1 2 3 4 5 6", "t:2:1: 6 columns; the lines above have 5"),
        ("1 2 65536 4 5", "t:2:5: '65536' is no source port"),
        ("1 2 3 4 256", "t:2:9: '256' is no protocol; a number from 0 to 255"),
        ("1 4294967296 3 4 5", "t:2:3: '4294967296' is no destination"),
        ("1 2 3 4 99999999999999999999", "is no protocol"),
        ("1 -2 3 4 5", "t:2:3: '-2' is no destination"),
        ("1 2 3 4 5x", "t:2:9: '5x' is no protocol"),
        ("caf\xe9 2 3 4 5", "t:2:1: 'caf\xe9' is no source"),
        ("1 2 3 4 +5", "t:2:9: '+5' is no protocol"),
        ("1 2 3 4 00000000005", "t:2:9: '00000000005' is no protocol"),
        ("1 2 3\f4 5", "t:2:1: 4 columns"),
        ("1 2 3 4\xa05", "t:2:1: 4 columns"),
        ("1 2 3 4 5\r1 2 3 4 5", "t:2:1: 10 columns"),
    ],
)
def test_a_bad_line_of_a_trace_is_named_behind_the_packets_before(line: str, message: str) -> None:
    found, error = before_error(trace(f"1 2 3 4 5\n{line}\n1 2 3 4 5\n"))
    assert found == [(1, 2, 3, 4, 5)] and message in error
    with pytest.raises(ParseError) as caught:  # of the whole text at once, too
        traces.parse(f"1 2 3 4 5\n{line}\n1 2 3 4 5\n", "t")
    assert str(caught.value) == error


@pytest.mark.parametrize(
    "data",
    ["\xfc 2 3 4 5\n".encode(), b"\xfc 2 3 4 5\n", "1 2 3 4 \u0663\n".encode(), b"\xef\xbb\xbf1 2 3 4 5\n"],
)
def test_text_of_any_alphabet_is_a_trace_with_a_mistake(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(data)
    with pytest.raises(ParseError, match=r"t:1:\d: '.*' is no (source|protocol)"):
        rows(open_packets(str(path)))


def test_an_empty_file_is_neither_a_capture_nor_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"")
    with pytest.raises(ParseError, match="t: the file is empty: there is neither a capture nor a trace"):
        rows(open_packets(str(path)))


def test_rules_of_a_trace_count_from_1_in_six_columns_and_from_0_in_seven() -> None:
    found, error = before_error(trace("1 2 3 4 5 1\n1 2 3 4 5 0\n"))
    assert len(found) == 1 and "t:2:11: '0' is no rule number; a number from 1" in error
    found, error = before_error(trace("1 2 3 4 5 0 0\n1 2 3 4 5 -1 0\n"))
    assert len(found) == 1 and "t:2:11: '-1' is no flags; a number from 0" in error


def test_a_trace_is_known_by_its_text_and_is_ipv4(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text("1 2 3 4 5\n")
    assert isinstance(open_packets(str(path)), TraceStream)
    with pytest.raises(Unsupported, match="traces are IPv4"):
        open_packets(str(path), family=Family.IPV6)
    path.write_bytes(gzip.compress(b"1 2 3 4 5\n")[:-2])
    with pytest.raises(ParseError, match="the gzip file is damaged"):
        rows(open_packets(str(path)))


def draw_packets(count: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(count)
    rows = rng.integers(0, [2**32, 2**32, 65536, 65536, 256], (count, 5), np.int64).astype(np.uint32)
    rows[:, 4] = rng.choice([1, 6, 17, 33, 47, 132, 136], count)
    rows[~np.isin(rows[:, 4], [6, 17, 33, 132, 136]), 2:4] = 0
    times = np.sort(rng.integers(0, 2**32 * 10**9, count))
    return rows, times, rng.integers(60, 1515, count).astype(np.uint32)


def test_written_packets_read_back_here_and_by_dpkt() -> None:
    headers_in, times, lengths = draw_packets(500)
    out = np.empty(500 * 70, np.uint8)
    data = pcap_head() + out[: pcap_records(headers_in, times, lengths, out)].tobytes()
    expected = [
        (*header, time, length)
        for header, time, length in zip(headers_in.tolist(), times.tolist(), lengths.tolist(), strict=True)
    ]
    assert read(data) == expected
    frames = [frame for _, frame in dpkt.pcap.Reader(io.BytesIO(data))]
    assert [frame[26:34] for frame in frames] == [row.astype(">u4").tobytes() for row in headers_in[:, :2]]
    frame = data[24 + 16 : 24 + 16 + 34]
    total = sum(struct.unpack(">10H", frame[14:34]))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF  # the checksum of IP
