"""The packet counters of one chain's rules, read from the kernel without a tool.

iptables-save would have to start once per packet, and print every rule; the kernel returns the same
counters in a fraction of a millisecond.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import struct

from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import BUILT_IN
from hitables.kernel import netlink
from hitables.kernel.netlink import NFTABLES, Netfilter, text

_GET_INFO, _GET_ENTRIES = 64, 65
_GETRULE = 7
# Offsets in struct ipt_entry and ip6t_entry: of target_offset (next_offset follows it), of the counters.
_ENTRY = {Family.IPV4: (88, 96), Family.IPV6: (140, 152)}
_LEVEL = {Family.IPV4: socket.IPPROTO_IP, Family.IPV6: socket.IPPROTO_IPV6}
_ENTRIES_AT = 40  # in struct ipt_get_entries
_SIZE_AT = 32 + 4 + 20 + 20 + 4  # in struct ipt_getinfo: behind name, hooks, entries, underflows, count
# The counter expression of iptables-nft: name, then nested data with bytes and packets.
_COUNTER = re.compile(rb"counter\0.{4}.{4}.{8}.{4}(.{8})", re.DOTALL)


class Counters:
    """The counters of *chain* of *table*, whose other built-in chains are empty.

    Opened in the namespace of the rules, once they are loaded; reading gives packets per rule.
    """

    def __init__(self, family: Family, backend: Backend, table: str, chain: str, rules: int) -> None:
        self.family, self.table, self.chain, self.rules = family, table, chain, rules
        self.legacy = backend is Backend.LEGACY
        if self.legacy:
            kind = socket.AF_INET if family is Family.IPV4 else socket.AF_INET6
            self._socket = socket.socket(kind, socket.SOCK_RAW, socket.IPPROTO_RAW)
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._where = self._places()
        else:
            self._netfilter = Netfilter()

    def close(self) -> None:
        if self.legacy:
            self._socket.close()
        else:
            self._netfilter.close()

    def read(self) -> list[int]:
        """Packets counted by each rule of the chain, in order."""
        if self.legacy:
            data = self._entries()
            return [struct.unpack_from("=Q", data, at)[0] for at in self._where]
        family = 2 if self.family is Family.IPV4 else 10
        ask = netlink.message(
            NFTABLES, _GETRULE, netlink.NLM_F_DUMP, family, text(1, self.table) + text(2, self.chain)
        )
        counters = _COUNTER.findall(self._netfilter.dump_whole(ask))
        if len(counters) != self.rules:
            raise LiveError(f"{self.table} {self.chain}: {len(counters)} counters of {self.rules} rules")
        return [int.from_bytes(count, "big") for count in counters]

    def _option(self, option: int, buffer: ctypes.Array[ctypes.c_char]) -> None:
        size = ctypes.c_uint(len(buffer))
        fd, level = self._socket.fileno(), _LEVEL[self.family]
        if self._libc.getsockopt(fd, level, option, buffer, ctypes.byref(size)):
            raise LiveError(f"counters of {self.table}: {os.strerror(ctypes.get_errno())}")

    def _entries(self) -> bytes:
        struct.pack_into("=32sI", self._buffer, 0, self.table.encode(), self._size)
        self._option(_GET_ENTRIES, self._buffer)
        return self._buffer.raw[_ENTRIES_AT:]

    def _places(self) -> list[int]:
        """The offsets of the counters of the chain's rules in the entries."""
        info = ctypes.create_string_buffer(self.table.encode(), 84)
        self._option(_GET_INFO, info)
        (self._size,) = struct.unpack_from("=I", info, _SIZE_AT)
        self._buffer = ctypes.create_string_buffer(_ENTRIES_AT + self._size)
        data, (offset_at, counter_at) = self._entries(), _ENTRY[self.family]
        starts, at = [], 0
        while at < self._size:
            starts.append(at)
            at += struct.unpack_from("=HH", data, at + offset_at)[1]
        # Each chain before it has one entry, its policy.
        first = BUILT_IN[self.table].index(self.chain)
        if len(starts) != self.rules + len(BUILT_IN[self.table]) + 1:
            raise LiveError(f"{self.table}: {len(starts)} entries for {self.rules} rules of {self.chain}")
        return [start + counter_at for start in starts[first : first + self.rules]]
