"""Packets of a capture or a trace as blocks of arrays, read from a stream: never the whole file in memory.

A capture is a pcap, pcapng or ERF file, or one of legacy DAG records (core/c/traffic/capture.c); a trace is
text (parse/trace.py).  Both may be packed by gzip.  The formats are told apart by their first bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.captures import CaptureReader, CaptureStatus, Counts, Format, Words
from ..core.trace_lines import COLUMNS, LineReader
from ..errors import InvalidOption, ParseError, Unsupported
from ..files import ByteStream, open_stream, trouble
from ..ir.fields import Family
from .trace import bounds, check_line

# Packets of a block.
BLOCK = 1 << 16
# Bytes that are read at a time; the first ones show the format.
CHUNK = 1 << 20

FORMATS = {
    "auto": Format.AUTO, "pcap": Format.PCAP, "pcapng": Format.PCAPNG, "erf": Format.ERF,
    "dag-atm": Format.DAG_ATM, "dag-ethernet": Format.DAG_ETHERNET, "dag-pos": Format.DAG_POS,
}  # fmt: skip

_FAULTS = {
    CaptureStatus.BAD_VERSION: "version {fault} of the format is not read",
    CaptureStatus.BAD_LINK: "frames of link type {fault} are not read",
    CaptureStatus.BAD_LENGTH: "the record claims {fault} bytes, which is impossible",
    CaptureStatus.BAD_TRAILER: "the block's length is {fault} at its end, and another at its begin",
    CaptureStatus.BAD_ORDER: "the byte-order magic of the section is {fault:#x}, not 0x1a2b3c4d",
    CaptureStatus.BAD_INTERFACE: "the packet is of interface {fault}, which no block describes",
    CaptureStatus.BAD_CLOCK: "the interface's resolution of time stamps, {fault:#x}, exceeds 64 bits",
}
# How users read what a capture counts.
REASONS = {
    "not_ip": "not IP",
    "other_family": "of the other family",
    "ports_cut": "cut off before their ports",
    "fields_cut": "cut off before a field that rules read",
    "malformed": "malformed",
    "other_link": "of another link type",
    "later_fragments": "later fragments, without ports",
    "untimed": "without a time of their own",
    "shortened": "shortened by the capture",
}

# Bytes of text in any encoding; every capture has others, control characters, among its first ones.
_TEXT = bytes(range(32, 127)) + bytes(range(128, 256)) + b"\t\r\n"
_HINTS = {CaptureStatus.BAD_LINK: "capture on an Ethernet or IP interface"}


@dataclass(frozen=True, slots=True, eq=False)
class PacketBlock:
    """Packets in the order of the file; the arrays are overwritten when the next block is read.

    headers  [packets][words]: source and destination (1 word each, or 4), source port, destination port,
             protocol; ports that a packet does not have are 0
    times    [packets] ns since 1970; None: a trace has no times
    lengths  [packets] bytes of the frame; None: a trace has no lengths
    """

    headers: NDArray[np.uint32]
    times: NDArray[np.int64] | None = None
    lengths: NDArray[np.uint32] | None = None


class _Buffer:
    """The bytes of a stream that are not consumed yet."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._bytes = memoryview(bytearray(CHUNK))
        self._start = self._end = 0
        self.ended = False

    @property
    def rest(self) -> memoryview:
        return self._bytes[self._start : self._end]

    def consume(self, size: int) -> None:
        self._start += size

    def fill(self, needed: int = 0) -> None:
        """Read until *needed* bytes are at hand, and as many as there is room for."""
        rest = self.rest.tobytes()
        if max(needed, len(rest) + 1) > len(self._bytes):
            self._bytes = memoryview(bytearray(max(needed, 2 * len(self._bytes))))
        self._bytes[: len(rest)] = rest
        self._start, self._end = 0, len(rest)
        while not self.ended and self._end < len(self._bytes):
            # One read of the file at a time: the bytes before damage of a gzip file are not lost.  readinto1
            # of Python 3.14 loses them: it may read twice.
            piece = self._stream.read1(len(self._bytes) - self._end)
            self.ended = not piece
            self._bytes[self._end : self._end + len(piece)] = piece
            self._end += len(piece)


class _Capture:
    """A capture that is read to its end, once.

    incomplete  a capture that ends in mid-record is read up to there; otherwise it is an error
    Reading raises ParseError, with the number of the record and its first byte, after the packets before it.
    """

    def __init__(
        self, stream: ByteStream, source: str, words: Words, form: Format, *, incomplete: bool, block: int
    ) -> None:
        self.source = source
        self._stream, self._incomplete = stream, incomplete
        self._reader = CaptureReader(form, words, block)
        # Bytes of a record that the end of the file cut off.
        self.cut_off = 0
        # Whether the file ended before its records, or its gzip data, did.
        self.ends_early = False

    @property
    def counts(self) -> Counts:
        """What was read and skipped so far."""
        return self._reader.counts

    @property
    def form(self) -> str:
        return next(name for name, form in FORMATS.items() if form == self.counts.format)

    def _read(self) -> Iterator[tuple[int, memoryview]]:
        """For each block, how many packets the reader holds, and the bytes that it read them from."""
        reader, buffer = self._reader, _Buffer(self._stream)
        try:
            self._fill(buffer, 0)
            while True:
                rest = buffer.rest
                status, used, count = reader.read(rest, len(rest))
                buffer.consume(used)
                if count:
                    yield count, rest
                if status is not CaptureStatus.OK:
                    raise self._fault(status, rest)
                if count == len(reader.times):
                    continue
                if buffer.ended:
                    break
                self._fill(buffer, reader.counts.needed)
            self._end(len(buffer.rest))
        finally:
            self._stream.close()

    def _fill(self, buffer: _Buffer, needed: int) -> None:
        try:
            buffer.fill(needed)
        except OSError as error:
            raise trouble(self.source, error) from None
        except (EOFError, zlib.error) as error:
            if not (self._incomplete and isinstance(error, EOFError)):
                raise self._error(f"the gzip file is damaged: {error}", self._hint()) from None
            buffer.ended = self.ends_early = True

    def _hint(self) -> str:
        return "" if self._incomplete else "--incomplete reads what is whole"

    def _end(self, rest: int) -> None:
        counts = self.counts
        self.cut_off, self.ends_early = rest, self.ends_early or bool(rest)
        if rest and not self._incomplete:
            needed = f" of {counts.needed}" if counts.needed else ""
            raise self._error(f"the capture ends in mid-record: {rest}{needed} bytes are there", self._hint())
        if counts.other_link and counts.other_link == counts.records:
            link = counts.link
            kind = f"ERF type {link - 65536}" if link >= 65536 else f"link type {link}"
            raise ParseError(
                f"frames of {kind} are not read", source=self.source, hint=_HINTS[CaptureStatus.BAD_LINK]
            )

    def _fault(self, status: CaptureStatus, rest: memoryview) -> ParseError:
        if status is CaptureStatus.UNKNOWN and not rest:
            return ParseError("the file is empty: there is neither a capture nor a trace", source=self.source)
        if status is CaptureStatus.UNKNOWN:
            hint = "it may be pcap, pcapng, ERF or legacy DAG records, packed by gzip or not"
            return ParseError("not a readable capture", source=self.source, hint=hint)
        reason = _FAULTS[status].format(fault=self.counts.fault)
        return self._error(reason, _HINTS.get(status, ""))

    def _error(self, reason: str, hint: str = "") -> ParseError:
        counts = self.counts
        place = f"record {counts.records + 1}, byte {counts.offset}"
        return ParseError(f"{place}: {reason}", source=self.source, hint=hint)


class CaptureStream(_Capture):
    """The packets of a capture; *family* None: of both, with IPv4 addresses as ::ffff:a.b.c.d."""

    def __init__(
        self,
        stream: ByteStream,
        source: str,
        family: Family | None,
        form: Format = Format.AUTO,
        *,
        incomplete: bool = False,
        block: int = BLOCK,
    ) -> None:
        words = {None: Words.BOTH, Family.IPV4: Words.IPV4, Family.IPV6: Words.IPV6}[family]
        self.words = words.words
        super().__init__(stream, source, words, form, incomplete=incomplete, block=block)

    def __iter__(self) -> Iterator[PacketBlock]:
        reader = self._reader
        for count, _ in self._read():
            yield PacketBlock(reader.headers[:count], reader.times[:count], reader.lengths[:count])


@dataclass(frozen=True, slots=True)
class FoundPacket:
    """The IP packet of a frame, unread.

    version  4 or 6, as the link layer says
    data     the bytes that the capture has from the IP header on, with any that pad the frame
    size     how many they are in the whole frame
    """

    version: int
    data: bytes
    size: int


class FoundPackets(_Capture):
    """The IP packets of a capture, of both families."""

    def __init__(
        self,
        stream: ByteStream,
        source: str,
        form: Format = Format.AUTO,
        *,
        incomplete: bool = False,
        block: int = BLOCK,
    ) -> None:
        super().__init__(stream, source, Words.PLACES, form, incomplete=incomplete, block=block)

    def __iter__(self) -> Iterator[FoundPacket]:
        for count, data in self._read():
            for version, start, captured, size in self._reader.headers[:count].tolist():
                yield FoundPacket(version, bytes(data[start : start + captured]), size)


class TraceStream:
    """The packets of a trace of any number of columns; iterating raises ParseError with the line."""

    words = 5
    form = "trace"

    def __init__(self, stream: ByteStream, source: str, *, block: int = BLOCK) -> None:
        self.source, self.packets = source, 0
        self._stream, self._block = stream, block

    def __iter__(self) -> Iterator[PacketBlock]:
        buffer, above = _Buffer(self._stream), 0
        reader: LineReader | None = None
        try:
            self._fill(buffer)
            while True:
                data = buffer.rest
                if buffer.ended and data and data[-1] != 10:
                    data = memoryview(data.tobytes() + b"\n")
                if reader is None:
                    reader = self._reader(data)
                good, rows, lines, used = reader.read(data, len(data))
                buffer.consume(min(used, len(buffer.rest)))
                above += lines
                self.packets += rows
                if rows:
                    yield PacketBlock(np.ascontiguousarray(reader.rows[:rows, :5]))
                if not good:
                    self._explain(data[used:], above + 1, reader.columns)
                if rows == self._block:
                    continue
                if buffer.ended:
                    break
                self._fill(buffer)
        finally:
            self._stream.close()

    def _reader(self, data: memoryview) -> LineReader:
        """A reader with the bounds of as many columns as the first line has that is not blank."""
        head = data[: 1 << 16].tobytes().lstrip(b" \t\r\n").split(b"\n", 1)[0]
        columns = min(max(len(head.split()), 5), COLUMNS)
        least, tops = bounds(columns)
        spare = COLUMNS - columns
        return LineReader(least + (1,) * spare, tops + (0,) * spare, 5, self._block)

    def _fill(self, buffer: _Buffer) -> None:
        try:
            buffer.fill()
        except OSError as error:
            raise trouble(self.source, error) from None
        except (EOFError, zlib.error) as error:
            raise ParseError(f"the gzip file is damaged: {error}", source=self.source) from None

    def _explain(self, data: memoryview, line: int, columns: int) -> None:
        text = data.tobytes().split(b"\n", 1)[0].decode("utf-8", "surrogateescape")
        check_line(text, line, columns, self.source)
        raise AssertionError("no fault found in the trace")


def open_packets(
    path: str, *, family: Family | None = None, form: str = "auto", incomplete: bool = False
) -> CaptureStream | TraceStream:
    """The packets of *path* ("-": standard input): a trace if it begins with text, else a capture.

    *form*: one of FORMATS, or "trace".  FileError if the file cannot be read.
    """
    if form not in (*FORMATS, "trace"):
        raise InvalidOption(f"unknown format {form!r}; there are {', '.join((*FORMATS, 'trace'))}")
    stream, name, is_text = _open(path)
    if form == "trace" or (form == "auto" and is_text):
        if family is Family.IPV6:
            stream.close()
            raise Unsupported(f"{name}: traces are IPv4; there is no IPv6 packet in it")
        return TraceStream(stream, name)
    return CaptureStream(stream, name, family, FORMATS[form], incomplete=incomplete)


def open_capture(path: str) -> FoundPackets:
    """The IP packets of the capture *path* ("-": standard input), up to the last record that is whole."""
    stream, name, is_text = _open(path)
    if is_text:
        stream.close()
        raise ParseError("not a readable capture: it is text", source=name, hint="--trace reads a trace")
    return FoundPackets(stream, name, incomplete=True)


def _open(path: str) -> tuple[ByteStream, str, bool]:
    """The bytes of *path*, its name, and whether it begins with text."""
    name = "standard input" if path == "-" else path
    stream = open_stream(path)
    try:
        head: Any = stream.peek(64)[:64]
    except OSError as error:
        raise trouble(name, error) from None
    except (EOFError, zlib.error) as error:
        raise ParseError(f"the gzip file is damaged: {error}", source=name) from None
    return stream, name, bool(head) and not head.strip(_TEXT)
