"""The bytes of each rule in the legacy kernel: its meaning there, independent of any tool.

iptables-save reads the same bytes, and prints some different ones equally.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from dataclasses import dataclass

from hitables.errors import LiveError
from hitables.ir.fields import Family

_INFO, _ENTRIES = 64, 65  # IPT_SO_GET_INFO, IPT_SO_GET_ENTRIES; the same for ip6tables
_NAME = 32
_GETINFO = struct.Struct("=32sI5I5III")


@dataclass(frozen=True, slots=True)
class StoredRule:
    """One rule in the kernel.

    header   struct ipt_ip or ip6t_ip6: addresses, interfaces, protocol
    matches  (name, revision, data) of each match; target: the same of the target
    """

    header: bytes
    matches: tuple[tuple[str, int, bytes], ...]
    target: tuple[str, int, bytes]


@dataclass(frozen=True, slots=True)
class _Layout:
    level: int
    domain: int
    header: int  # bytes of the header
    entry: int  # bytes of the whole struct in front of the matches


_LAYOUTS = {
    Family.IPV4: _Layout(socket.SOL_IP, socket.AF_INET, 84, 112),
    Family.IPV6: _Layout(socket.IPPROTO_IPV6, socket.AF_INET6, 136, 168),
}


def read_entries(table: str, family: Family) -> list[StoredRule]:
    """The rules of *table* in the caller's namespace, in the order of the kernel.

    Policies, the heads of user chains and the end of the table are entries, too.
    """
    layout = _LAYOUTS[family]
    with socket.socket(layout.domain, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw_socket:
        name = table.encode().ljust(_NAME, b"\0")
        info = _ask(raw_socket, layout.level, _INFO, name + bytes(_GETINFO.size - _NAME))
        size = _GETINFO.unpack(info)[-1]
        at = _NAME + 8  # the size, and padding
        data = _ask(raw_socket, layout.level, _ENTRIES, name + struct.pack("=II", size, 0) + bytes(size))[at:]
    entries = []
    while data:
        to_target, to_next = struct.unpack_from("=HH", data, layout.header + 4)
        parts = []
        at = layout.entry
        while at < to_target:
            length, part = _part(data, at)
            parts.append(part)
            at += length
        entries.append(StoredRule(data[: layout.header], tuple(parts), _part(data, to_target)[1]))
        data = data[to_next:]
    return entries


def _part(data: bytes, at: int) -> tuple[int, tuple[str, int, bytes]]:
    length, name, revision = struct.unpack_from("=H29sB", data, at)
    return length, (name.split(b"\0")[0].decode(), revision, data[at + 32 : at + length])


def _ask(raw_socket: socket.socket, level: int, option: int, data: bytes) -> bytes:
    """getsockopt with a buffer of any size, which Python's own does not accept."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(data, len(data))
    length = ctypes.c_uint32(len(data))
    if libc.getsockopt(raw_socket.fileno(), level, option, buffer, ctypes.byref(length)):
        error = ctypes.get_errno()
        raise LiveError(f"cannot read the rules of the kernel: {os.strerror(error)}")
    return buffer.raw[: length.value]
