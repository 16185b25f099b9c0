"""What the legacy kernel holds of each rule, as bytes: what a rule means there, in no tool's words.

iptables-save reads the same bytes, and prints some of them alike that differ.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from dataclasses import dataclass

from ..errors import LiveError
from ..ir.fields import Family

_INFO, _ENTRIES = 64, 65  # IPT_SO_GET_INFO, IPT_SO_GET_ENTRIES; the same for ip6tables
_NAME = 32
_GETINFO = struct.Struct("=32sI5I5III")


@dataclass(frozen=True, slots=True)
class Entry:
    """One rule as the kernel holds it.

    header   struct ipt_ip or ip6t_ip6: addresses, interfaces, protocol
    matches  (name, revision, data) of each match; target: the same of the target
    """

    header: bytes
    matches: tuple[tuple[str, int, bytes], ...]
    target: tuple[str, int, bytes]


@dataclass(frozen=True, slots=True)
class _Shape:
    level: int
    domain: int
    header: int  # bytes of the header
    entry: int  # bytes of the whole struct in front of the matches


_SHAPES = {
    Family.IPV4: _Shape(socket.SOL_IP, socket.AF_INET, 84, 112),
    Family.IPV6: _Shape(socket.IPPROTO_IPV6, socket.AF_INET6, 136, 168),
}


def read_entries(table: str, family: Family) -> list[Entry]:
    """The rules of *table* in the caller's namespace, in the order of the kernel.

    The ends of chains are entries, too: a policy, the head of a user chain, the end of the table.
    """
    shape = _SHAPES[family]
    with socket.socket(shape.domain, socket.SOCK_RAW, socket.IPPROTO_RAW) as asked:
        name = table.encode().ljust(_NAME, b"\0")
        info = _ask(asked, shape.level, _INFO, name + bytes(_GETINFO.size - _NAME))
        size = _GETINFO.unpack(info)[-1]
        at = _NAME + 8  # the size, and what aligns the entries
        held = _ask(asked, shape.level, _ENTRIES, name + struct.pack("=II", size, 0) + bytes(size))[at:]
    found = []
    while held:
        to_target, to_next = struct.unpack_from("=HH", held, shape.header + 4)
        parts = []
        at = shape.entry
        while at < to_target:
            length, part = _part(held, at)
            parts.append(part)
            at += length
        found.append(Entry(held[: shape.header], tuple(parts), _part(held, to_target)[1]))
        held = held[to_next:]
    return found


def _part(held: bytes, at: int) -> tuple[int, tuple[str, int, bytes]]:
    length, name, revision = struct.unpack_from("=H29sB", held, at)
    return length, (name.split(b"\0")[0].decode(), revision, held[at + 32 : at + length])


def _ask(asked: socket.socket, level: int, option: int, data: bytes) -> bytes:
    """getsockopt with a buffer of any size, which Python's own does not take."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(data, len(data))
    length = ctypes.c_uint32(len(data))
    if libc.getsockopt(asked.fileno(), level, option, buffer, ctypes.byref(length)):
        error = ctypes.get_errno()
        raise LiveError(f"cannot read the rules of the kernel: {os.strerror(error)}")
    return buffer.raw[: length.value]
