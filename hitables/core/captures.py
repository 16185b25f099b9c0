"""Captures in the C engine: headers from a stream of bytes, and packets as records (include/capture.h).

Bytes go in, and arrays come out; `parse/packet_stream.py` reads files and explains what is wrong with them.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._engine import ffi, lib
from .arrays import Array, pointer

# Bytes of a pcap record that `pcap_records` writes, at most.
RECORD_ROOM: int = lib.CAPTURE_RECORD_ROOM


class Format(enum.IntEnum):
    """A format of captures; AUTO: found out from the first bytes."""

    AUTO = lib.CAPTURE_AUTO
    PCAP = lib.CAPTURE_PCAP
    PCAPNG = lib.CAPTURE_PCAPNG
    ERF = lib.CAPTURE_ERF
    DAG_ATM = lib.CAPTURE_DAG_ATM
    DAG_ETHERNET = lib.CAPTURE_DAG_ETHERNET
    DAG_POS = lib.CAPTURE_DAG_POS


class Words(enum.IntEnum):
    """Which packets are read, and what of them: PLACES says where they are in the bytes that were given.

    BOTH has IPv4 addresses as ::ffff:a.b.c.d.
    """

    PLACES = lib.CAPTURE_PLACES
    IPV4 = lib.CAPTURE_IPV4
    IPV6 = lib.CAPTURE_IPV6
    BOTH = lib.CAPTURE_BOTH

    @property
    def words(self) -> int:
        """Words of a header, or of a place."""
        return {Words.PLACES: 4, Words.IPV4: 5}.get(self, 11)


class CaptureStatus(enum.IntEnum):
    """What reading met; the comments in include/capture.h say what `Counts.fault` is then."""

    OK = lib.CAPTURE_OK
    NO_MEMORY = lib.CAPTURE_NO_MEMORY
    UNKNOWN = lib.CAPTURE_UNKNOWN
    BAD_VERSION = lib.CAPTURE_BAD_VERSION
    BAD_LINK = lib.CAPTURE_BAD_LINK
    BAD_LENGTH = lib.CAPTURE_BAD_LENGTH
    BAD_TRAILER = lib.CAPTURE_BAD_TRAILER
    BAD_ORDER = lib.CAPTURE_BAD_ORDER
    BAD_INTERFACE = lib.CAPTURE_BAD_INTERFACE
    BAD_CLOCK = lib.CAPTURE_BAD_CLOCK


class Counts(NamedTuple):
    """The fields of struct capture_counts."""

    records: int
    packets: int
    not_ip: int
    other_family: int
    ports_cut: int
    malformed: int
    other_link: int
    later_fragments: int
    untimed: int
    shortened: int
    offset: int
    needed: int
    fault: int
    link: int
    format: int


class CaptureReader:
    """A capture that is read piece by piece.

    headers, times, lengths  [room][words], [room], [room]: of the packets that the last `read` returned
    """

    def __init__(self, form: Format, words: Words, room: int) -> None:
        handle = lib.capture_new(form, words)
        if not handle:
            raise MemoryError("no memory is left for reading a capture")
        self._capture = ffi.gc(handle, lib.capture_free)
        self.headers = np.empty((room, words.words), np.uint32)
        self.times = np.empty(room, np.int64)
        self.lengths = np.empty(room, np.uint32)
        self._used = ffi.new("size_t *")
        self._count = ffi.new("uint32_t *")

    def read(self, data: Any, size: int) -> tuple[CaptureStatus, int, int]:
        """Read the records in the first *size* bytes of *data*: the status, bytes consumed, packets."""
        status = lib.capture_read(
            self._capture, pointer("uint8_t", data), size, self._used,
            pointer("uint32_t", self.headers), pointer("int64_t", self.times),
            pointer("uint32_t", self.lengths), len(self.times), self._count,
        )  # fmt: skip
        if status == CaptureStatus.NO_MEMORY:
            raise MemoryError("no memory is left for reading a capture")
        return CaptureStatus(status), int(self._used[0]), int(self._count[0])

    @property
    def counts(self) -> Counts:
        """What was read and skipped so far."""
        counts = lib.capture_counts(self._capture)
        return Counts(*(int(getattr(counts, name)) for name in Counts._fields))


def pcap_head() -> bytes:
    """The head of a pcap file for `pcap_records`."""
    out = ffi.new("uint8_t[]", lib.CAPTURE_FILE_HEADER)
    return bytes(ffi.buffer(out, lib.capture_write_head(out)))


def pcap_records(
    headers: npt.NDArray[np.uint32], times: npt.NDArray[np.int64], lengths: npt.NDArray[np.uint32], out: Array
) -> int:
    """Write packets [n][5], [n], [n] as records to *out*, bytes [n * RECORD_ROOM]; the bytes written."""
    assert headers.shape[1:] == (5,) and len(headers) == len(times) == len(lengths)
    assert len(out) >= RECORD_ROOM * len(headers)
    return int(
        lib.capture_write(
            pointer("uint32_t", headers), pointer("int64_t", times), pointer("uint32_t", lengths), len(times),
            pointer("uint8_t", out),
        )
    )  # fmt: skip
