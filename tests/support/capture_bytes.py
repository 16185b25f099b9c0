"""Captures built byte by byte: frames of packets, and files of every format that hold them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

TCP, UDP, ICMP = 6, 17, 1
SRC, DST = 0x0A000001, 0xC0000202
SRC6, DST6 = bytes.fromhex("20010db8" + "00" * 11 + "01"), bytes.fromhex("fe80" + "00" * 13 + "02")
# Seconds of the first packet: ERF and DAG files are known by plausible times.
START = 1_000_000_000


class Record(NamedTuple):
    """A frame as it was captured; *length*: on the wire."""

    time: int
    frame: bytes
    length: int


def l4(sport: int = 1025, dport: int = 53, size: int = 24) -> bytes:
    return struct.pack(">HH", sport, dport) + bytes(size - 4)


def ipv4(
    body: bytes, protocol: int = UDP, *, src: int = SRC, dst: int = DST, fragment: int = 0, options: bytes = b"",
    size: int | None = None,
) -> bytes:  # fmt: skip
    """*size*: the total length that the header claims."""
    head = 20 + len(options)
    whole = head + len(body) if size is None else size
    fields = (0x40 | head // 4, 0, whole, 7, fragment, 64, protocol, 0, src, dst)
    return struct.pack(">BBHHHBBHII", *fields) + options + body


def ipv6(body: bytes, next_header: int = UDP, *, size: int | None = None) -> bytes:
    payload = len(body) if size is None else size
    return struct.pack(">IHBB", 0x60000000, payload, next_header, 64) + SRC6 + DST6 + body


def extension(next_header: int, size: int = 8) -> bytes:
    """A header of hop-by-hop options, routing or destination options."""
    return bytes([next_header, size // 8 - 1]) + bytes(size - 2)


def fragment6(next_header: int, offset: int, more: int) -> bytes:
    return struct.pack(">BBHI", next_header, 0, offset << 3 | more, 9)


def ethernet(packet: bytes, ethertype: int | None = None, tags: Sequence[int] = ()) -> bytes:
    """*tags*: the ethertypes of VLAN tags."""
    kind = ethertype if ethertype is not None else 0x86DD if packet[:1] >= b"\x60" else 0x0800
    return (
        b"\2" * 12 + b"".join(struct.pack(">HH", tag, 5) for tag in tags) + struct.pack(">H", kind) + packet
    )


def records(frames: Sequence[bytes], step: int = 1_500_000_000) -> list[Record]:
    return [Record(START * 10**9 + at * step, frame, len(frame)) for at, frame in enumerate(frames)]


def pcap(
    items: Sequence[Record], *, order: str = "<", nano: bool = False, link: int = 1, patched: bool = False
) -> bytes:
    magic = 0xA1B2CD34 if patched else 0xA1B23C4D if nano else 0xA1B2C3D4
    out = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, link)
    for item in items:
        seconds, ns = divmod(item.time, 10**9)
        head = (seconds, ns if nano else ns // 1000, len(item.frame), item.length)
        out += struct.pack(order + "IIII", *head) + (bytes(8) if patched else b"") + item.frame
    return out


def block(order: str, kind: int, body: bytes) -> bytes:
    """A pcapng block."""
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + size + body + size


def section(order: str) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(
    order: str, link: int = 1, resolution: int | None = None, offset: int = 0, snap: int = 0
) -> bytes:
    options = b""
    if offset:
        options += struct.pack(order + "HHq", 14, 8, offset)
    if resolution is not None:
        options += struct.pack(order + "HHBxxx", 9, 1, resolution)
    if options:
        options += bytes(4)
    return block(order, 1, struct.pack(order + "HHI", link, 0, snap) + options)


def enhanced(order: str, ticks: int, item: Record, number: int = 0) -> bytes:
    head = (number, ticks >> 32, ticks & 0xFFFFFFFF, len(item.frame), item.length)
    return block(order, 6, struct.pack(order + "IIIII", *head) + item.frame)


def pcapng(
    items: Sequence[Record],
    *,
    order: str = "<",
    resolution: int | None = None,
    offset: int = 0,
    link: int = 1,
) -> bytes:
    """*resolution*: if_tsresol; None: microseconds, as without the option."""
    code = 6 if resolution is None else resolution
    per_second = 1 << (code & 127) if code & 128 else 10**code
    out = section(order) + interface(order, link, resolution, offset)
    out += block(order, 4, b"\0" * 8)  # name resolution, which is skipped
    for item in items:
        ticks = (item.time - offset * 10**9) * per_second // 10**9
        out += enhanced(order, ticks, item)
    return out


def stamp(ns: int) -> bytes:
    """A time of ERF: units of 2^-32 s, rounded up so that it reads back as the same ns."""
    return struct.pack("<Q", -(-(ns << 32) // 10**9))


def erf(items: Sequence[Record], *, kind: int = 2, extensions: int = 0) -> bytes:
    out = b""
    for item in items:
        more = b"".join(bytes([(at + 1 < extensions) << 7]) + bytes(7) for at in range(extensions))
        body = more + (b"\0\0" if kind == 2 else b"") + item.frame
        body += bytes(-len(body) % 8)
        head = (kind | (bool(extensions) << 7), 4, 16 + len(body), 0, item.length)
        out += stamp(item.time) + struct.pack(">BBHHH", *head) + body
    return out


def dag(items: Sequence[Record], kind: str = "ethernet") -> bytes:
    """Legacy DAG records: 64 bytes each, with as much of a frame as there is room for."""
    out = b""
    for item in items:
        head = stamp(item.time)
        if kind == "ethernet":
            head += struct.pack("<H", item.length)
        elif kind == "atm":
            head += bytes(8)
        else:
            head += struct.pack(">II", len(item.frame), item.length)
        out += (head + item.frame + bytes(64))[:64]
    return out


# Files of Ethernet frames, by a name for each way to write them; all keep times of whole microseconds.
FILES: dict[str, Callable[[Sequence[Record]], bytes]] = {
    "pcap": pcap,
    "pcap-big-endian": lambda items: pcap(items, order=">"),
    "pcap-ns": lambda items: pcap(items, nano=True),
    "pcap-ns-big-endian": lambda items: pcap(items, order=">", nano=True),
    "pcap-patched": lambda items: pcap(items, patched=True),
    "pcapng": pcapng,
    "pcapng-big-endian": lambda items: pcapng(items, order=">"),
    "pcapng-ns": lambda items: pcapng(items, resolution=9),
    "pcapng-ns-big-endian-offset": lambda items: pcapng(items, order=">", resolution=9, offset=7),
    "pcapng-ps": lambda items: pcapng(items, resolution=12, offset=START - 9),
    "erf": erf,
    "erf-extended": lambda items: erf(items, extensions=2),
    "dag": dag,
}
