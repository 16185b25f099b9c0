"""The contents of the legacy tables: the bytes that getsockopt returns to iptables-legacy.

Each table is read in one call.  Only existing tables are read, because reading another would create it.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import LiveError
from ..ir.fields import Family
from .contents import ChainContents, ChainId, Contents, used
from .retries import retries

_GET_INFO, _GET_ENTRIES = 64, 65  # IPT_SO_…, and IP6T_SO_…
_HOOKS = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")  # NF_INET_…, in order
_INFO = struct.Struct("=32s13I")  # name, valid hooks, first rule and policy by hook, rules, size
_ENTRIES = struct.Struct("@32sI0Q")  # name, size; the entries follow
_NAME_SIZE = 16  # of an interface: IFNAMSIZ
_NOT_IN, _NOT_OUT = 1, 2  # IPT_INV_VIA_IN, IPT_INV_VIA_OUT
_NAME = 2, 31  # of a match or a target, behind its size
_REVISION = 31
_EXTENSION = _VERDICT = 32  # bytes of the header of a match or a target
_POLICIES = {-1: "DROP", -2: "ACCEPT"}  # -NF_DROP - 1, -NF_ACCEPT - 1
_IPV6_PROTOCOL, _ASKS_FOR_PROTOCOL = 128, 1  # the protocol and, behind one byte, the flags with this bit
_ACCEPT, _RETURN = struct.pack("=i", -2), struct.pack("=i", -5)  # -NF_ACCEPT - 1, -NF_REPEAT - 1


@dataclass(frozen=True, slots=True)
class _Layout:
    """The layout of a rule, in bytes.

    level       of the socket option
    packet      the size of the tests of addresses, interfaces and protocol, which are first
    target      the offset of the pair (offset of the target, size of the rule)
    counts      the offset of the counters, of 16 bytes
    rule        the offset of the first match
    interfaces  the offset of the names of the two interfaces; their masks follow
    inverse     the offset of the byte that says which tests are inverted
    tables      the file that lists the tables
    """

    family: Family
    level: int
    packet: int
    target: int
    counts: int
    rule: int
    interfaces: int
    inverse: int
    tables: Path


_LAYOUTS = {
    Family.IPV4: _Layout(
        Family.IPV4, socket.IPPROTO_IP, 84, 88, 96, 112, 16, 83, Path("/proc/net/ip_tables_names")
    ),
    Family.IPV6: _Layout(
        Family.IPV6, socket.IPPROTO_IPV6, 136, 140, 152, 168, 64, 132, Path("/proc/net/ip6_tables_names")
    ),
}


def table_names(family: Family) -> list[str]:
    """The existing legacy tables.  Unlike a call of iptables-legacy, this creates none."""
    try:
        return _LAYOUTS[family].tables.read_text().split()
    except FileNotFoundError:
        return []  # the kernel has none, or its module is not loaded
    except OSError as error:
        hint = "; run it as root" if isinstance(error, PermissionError) else ""
        raise LiveError(f"{_LAYOUTS[family].tables}: {error.strerror}{hint}") from error


def read_contents(family: Family) -> Contents:
    """The contents of the namespace of the caller; each table is read in one call."""
    chains: dict[ChainId, ChainContents] = {}
    names = table_names(family)
    for table in names:
        chains.update(_chains(table, family))
    return Contents(names, chains)


def images(family: Family) -> dict[str, bytes]:
    """The bytes of each existing table without counters: equal if no rule or policy has changed.

    They are read and compared in a fraction of the time of `read_contents`.
    """
    layout = _LAYOUTS[family]
    return {table: _image(*_entries(table, family, layout), layout) for table in table_names(family)}


def entries_of(image: bytes) -> int:
    """The number of entries in one of `images`: rules, policies, and two for each user chain."""
    return int(_INFO.unpack_from(image)[-2])


def _image(info: bytes, entries: bytes, layout: _Layout) -> bytes:
    image = bytearray(entries)
    at, end, size_at, counts = 0, len(image), layout.target + 2, layout.counts
    none = bytes(16)
    while at < end:
        image[at + counts : at + counts + 16] = none
        at += image[at + size_at] | image[at + size_at + 1] << 8
    return info + image


def tables_present(family: Family) -> list[tuple[str, bool]]:
    """The existing tables, and whether each may affect a packet: it has rules, or a policy other than
    ACCEPT.
    """
    contents = read_contents(family)
    busy = {
        table
        for (table, _), chain in contents.chains.items()
        if chain.rules or not chain.head.startswith((_head(True, _ACCEPT), _head(False, _RETURN)))
    }
    return [(table, table in busy) for table in contents.tables]


def policy_counters(table: str, family: Family) -> Iterator[tuple[str, str, int, int]]:
    """Chain, policy, packets and bytes of each built-in chain; nothing if the kernel lacks the table."""
    if table not in table_names(family):
        return
    layout = _LAYOUTS[family]
    info, entries = _entries(table, family, layout)
    _, hooks, *offsets, _, _ = _INFO.unpack_from(info)
    for hook, (chain, at) in enumerate(zip(_HOOKS, offsets[5:], strict=True)):
        if hooks >> hook & 1:
            (target,) = struct.unpack_from("=H", entries, at + layout.target)
            (verdict,) = struct.unpack_from("=i", entries, at + target + _VERDICT)
            packets, counted = struct.unpack_from("=QQ", entries, at + layout.counts)
            yield chain, _POLICIES[verdict], packets, counted


def _chains(table: str, family: Family) -> dict[ChainId, ChainContents]:
    layout = _LAYOUTS[family]
    info, data = _entries(table, family, layout)
    _, hooks, *offsets, _, _ = _INFO.unpack(info)
    starts = {offsets[hook]: _HOOKS[hook] for hook in range(5) if hooks >> hook & 1}
    # The first pass cuts the table into chains; the second resolves jumps.
    cuts: list[tuple[str, bool, list[tuple[int, bytes]]]] = []
    at = 0
    while at < len(data):
        target, size = struct.unpack_from("=HH", data, at + layout.target)
        entry = data[at : at + size]
        if at in starts:
            cuts.append((starts[at], True, []))
        elif _is_named(entry[target:], b"ERROR"):
            name_bytes = entry[target + _VERDICT :].partition(b"\0")[0]
            cuts.append((name_bytes.decode("utf-8", "surrogateescape"), False, []))
            at += size
            continue
        cuts[-1][2].append((at, entry))
        at += size
    cuts.pop()  # the end of the table is an ERROR, too
    called = {entries[0][0]: name for name, _, entries in cuts if entries}
    contents: dict[ChainId, ChainContents] = {}
    for name, base, entries in cuts:
        *rules, last = (_canonical(layout, called, *each) for each in entries)
        # The last rule of each chain is its policy, or the return to its caller.
        contents[table, name] = ChainContents(_head(base, last[-8:-4]) + last[:-8], tuple(rules))
    return contents


def asks_for_protocol_all(rule: bytes, family: Family) -> bool:
    """Whether *rule*, as in `ChainContents`, has the test `-p all` of ip6tables, which is one of its own."""
    if family is Family.IPV4 or len(rule) < _LAYOUTS[family].packet:
        return False
    protocol, flags = struct.unpack_from("=HxB", rule, _IPV6_PROTOCOL)
    return not protocol and bool(flags & _ASKS_FOR_PROTOCOL)


def _head(base: bool, verdict: bytes) -> bytes:
    return (b"base" if base else b"user") + verdict


def _is_named(target: bytes, name: bytes) -> bool:
    return target[slice(*_NAME)].partition(b"\0")[0] == name


def _canonical(layout: _Layout, called: dict[int, str], at: int, entry: bytes) -> bytes:
    """The bytes of a rule without counters, and with names of chains in place of their offsets."""
    (offset,) = struct.unpack_from("=H", entry, layout.target)
    matches, at_match = b"", layout.rule
    while at_match < offset:
        (size,) = struct.unpack_from("=H", entry, at_match)
        matches += _used(entry[at_match : at_match + size], layout.family)
        at_match += size
    target = _used(entry[offset:], layout.family)
    if _is_named(target, b""):
        (verdict,) = struct.unpack_from("=i", target, _VERDICT)
        if verdict == at + len(entry):
            target = b"next"  # no target: the rule only counts
        elif verdict >= 0:
            target = b"chain " + called.get(verdict, f"at {verdict}").encode("utf-8", "surrogateescape")
    return _tests(entry[: layout.packet], layout) + matches + target


def _tests(tests: bytes, layout: _Layout) -> bytes:
    """The tests of addresses, interfaces and protocol, without one of any interface (`-i +`)."""
    for bit, at in ((_NOT_IN, layout.interfaces), (_NOT_OUT, layout.interfaces + _NAME_SIZE)):
        mask = tests[at + 2 * _NAME_SIZE :][:_NAME_SIZE]
        if not any(mask) and not tests[layout.inverse] & bit:
            tests = tests[:at] + bytes(_NAME_SIZE) + tests[at + _NAME_SIZE :]
    return tests


def _used(extension: bytes, family: Family) -> bytes:
    """A match or a target, with zeros where the kernel does not use its data."""
    name = extension[slice(*_NAME)].partition(b"\0")[0]
    return extension[:_EXTENSION] + used(name, extension[_REVISION], extension[_EXTENSION:], family)


def _entries(table: str, family: Family, layout: _Layout) -> tuple[bytes, bytes]:
    """The info and the entries of *table*, as the kernel returns them."""
    kind = socket.AF_INET if family is Family.IPV4 else socket.AF_INET6
    name = table.encode()
    try:
        with socket.socket(kind, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw_socket:
            for _ in retries():
                info = option(raw_socket, layout.level, _GET_INFO, _INFO.pack(name, *(0,) * 13), 0)
                size = _INFO.unpack(info)[-1]
                request = _ENTRIES.pack(name, size)
                try:
                    entries = option(raw_socket, layout.level, _GET_ENTRIES, request, size)
                except BlockingIOError:
                    continue  # a table of another size has replaced it in between
                return info, entries[len(request) :]
    except OSError as error:
        raise LiveError(f"legacy table {table}: {error.strerror}") from error
    raise LiveError(f"legacy table {table} is changed faster than it can be read")


def option(raw_socket: socket.socket, level: int, name: int, request: bytes, more: int) -> bytes:
    """The answer of getsockopt to *request*, with room for *more* bytes; Python's own cannot send a
    request.
    """
    buffer = ctypes.create_string_buffer(len(request) + more)
    ctypes.memmove(buffer, request, len(request))
    size = ctypes.c_uint32(len(buffer))
    libc: Any = ctypes.CDLL(None, use_errno=True)
    if libc.getsockopt(raw_socket.fileno(), level, name, buffer, ctypes.byref(size)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return buffer.raw
