"""What a stream of packets gives, as rows that a test can compare."""

from __future__ import annotations

import io
from typing import Any

from support.capture_bytes import (
    DST,
    ICMP,
    SRC,
    TCP,
    UDP,
    ethernet,
    ipv4,
    l4,
)

from hitables.core.captures import Format
from hitables.errors import HitablesError
from hitables.ir.fields import Family
from hitables.parse.packet_stream import CaptureStream, TraceStream

Row = tuple[int, ...]
SKIPPED = ("not_ip", "other_family", "ports_cut", "malformed", "other_link")


def stream(
    data: bytes, family: Family | None = Family.IPV4, form: Format = Format.AUTO, **options: Any
) -> CaptureStream:
    return CaptureStream(io.BufferedReader(io.BytesIO(data)), "x", family, form, **options)  # type: ignore[arg-type]


def rows(packets: CaptureStream | TraceStream) -> list[Row]:
    """Header, time and length of each packet, up to the first error."""
    found: list[Row] = []
    for each in packets:
        times = [0] * len(each.headers) if each.times is None else each.times.tolist()
        lengths = [0] * len(each.headers) if each.lengths is None else each.lengths.tolist()
        found += [
            (*header, time, length)
            for header, time, length in zip(each.headers.tolist(), times, lengths, strict=True)
        ]
    return found


def before_error(packets: CaptureStream | TraceStream) -> tuple[list[Row], str]:
    """The packets before the first error, and its message."""
    found: list[Row] = []
    try:
        for each in packets:
            found += [tuple(header) for header in each.headers.tolist()]
    except HitablesError as error:
        return found, str(error)
    return found, ""


def read(data: bytes, family: Family | None = Family.IPV4, **options: Any) -> list[Row]:
    return rows(stream(data, family, **options))


def headers(data: bytes, family: Family | None = Family.IPV4, **options: Any) -> list[Row]:
    return [row[:-2] for row in read(data, family, **options)]


def counts(data: bytes, family: Family | None = Family.IPV4) -> dict[str, int]:
    packets = stream(data, family)
    rows(packets)
    return {name: count for name, count in packets.counts._asdict().items() if name in SKIPPED and count}


FRAMES = [
    ethernet(ipv4(l4(1, 2), TCP)),
    ethernet(ipv4(l4(3, 4), UDP, src=5), tags=[0x88A8, 0x8100]),
    ethernet(ipv4(b"\x08\0" + bytes(6), ICMP)),
    ethernet(ipv4(l4(5, 6), UDP, options=b"\1" * 8)),
]
HEADERS = [(SRC, DST, 1, 2, TCP), (5, DST, 3, 4, UDP), (SRC, DST, 0, 0, ICMP), (SRC, DST, 5, 6, UDP)]
