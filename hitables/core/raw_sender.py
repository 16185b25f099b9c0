"""Packets sent in a tight loop, with the CPU time that it takes (include/raw_sender.h)."""

from __future__ import annotations

from ._engine import lib
from .arrays import pointer


def send_time(socket: int, packets: bytes, count: int, rounds: int) -> int:
    """Nanoseconds of CPU to send *count* IPv4 packets of one size *rounds* times through a raw socket.

    OSError if the kernel refuses one.
    """
    return _nanoseconds(
        lib.sender_time(socket, pointer("uint8_t", packets), len(packets) // count, count, rounds)
    )


def forward_time(tunnel: int, packets: bytes, count: int, rounds: int) -> int:
    """As `send_time`, for packets of any family that enter through a tunnel and are routed."""
    return _nanoseconds(
        lib.sender_forward_time(tunnel, pointer("uint8_t", packets), len(packets) // count, count, rounds)
    )


def _nanoseconds(result: int) -> int:
    if result < 0:
        raise OSError(-result, "the packets cannot be sent")
    return int(result)
