"""Packets of a network interface, as headers of filters.

The kernel copies each packet that the interface receives or sends to a packet socket.  The packets themselves
go their way, whatever the filters say: classification is in user space only.
"""

from __future__ import annotations

import socket
import struct

import numpy as np

from ..engine import Filters, Layout
from ..errors import LiveError
from .phase import of_flags

# Packets that are classified together, at most; bytes of each that are read; bytes that wait in the socket.
BATCH, SNAP, BUFFER = 64, 256, 1 << 22

_ETH_P_ALL, _ETH_P = 0x0003, {4: 0x0800, 6: 0x86DD}
_OUTGOING, _LOOPBACK = 4, 772  # a type of packet, and one of interface
_SOL_PACKET, _PACKET_STATISTICS, _SO_TIMESTAMPNS = 263, 6, 35
_LATER_FRAGMENT_4, _LATER_FRAGMENT_6 = 0x1FFF, 0xFFF8
_WITH_PORTS = (6, 17, 33, 132, 136)
_FRAGMENT, _AUTHENTICATION = 44, 51
_EXTENSIONS = (0, 43, _FRAGMENT, _AUTHENTICATION, 60, 135)

Header = tuple[int, int, int, int, int, int]


class InterfaceCapture:
    """A packet socket on *interface*, for packets of one family.

    malformed  packets that end before a field does, which are not classified
    down       how often the interface went down
    """

    def __init__(self, interface: str, family: int, layout: Layout) -> None:
        self.family, self.layout = family, layout
        self.malformed = self.down = self._missed = 0
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, 0)
        except PermissionError:
            raise LiveError(f"{interface}: packets of an interface are read by root (CAP_NET_RAW)") from None
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            self._socket.bind((interface, _ETH_P_ALL))
        except OSError as error:
            self._socket.close()
            raise LiveError(f"{interface}: {error.strerror}") from None

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def classify(self, filters: Filters) -> None:
        """Decide on up to BATCH packets that have arrived."""
        headers, times = [], []
        for _ in range(BATCH):
            try:
                data, control, _, address = self._socket.recvmsg(SNAP, 64)
            except BlockingIOError:
                break
            except OSError:  # the interface is down; packets come again when it is up
                self.down += 1
                break
            is_second = (address[2], address[3]) == (_OUTGOING, _LOOPBACK)  # lo has each packet twice
            if address[1] != _ETH_P[self.family] or is_second:
                continue
            header = header_of(data, self.family)
            if header is None:
                self.malformed += 1
                continue
            headers.append(header)
            times.append(_time(control))
        if headers:
            filters.classify(self.layout.headers(headers), np.array(times, np.int64))

    def counts(self) -> dict[str, int]:
        """What was not classified: *missed* by the socket, whose buffer was full."""
        counts = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)  # since the last time
        _, missed = struct.unpack("=II", counts)
        self._missed += missed
        return {"missed": self._missed, "malformed": self.malformed, "down": self.down}


def _time(control: list[tuple[int, int, bytes]]) -> int:
    """The kernel's time stamp, ns since 1970."""
    for level, kind, data in control:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, nanoseconds = struct.unpack("@ll", data[:16])
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    raise AssertionError("the kernel stamps every packet")


def header_of(data: bytes, family: int) -> Header | None:
    """The fields of an IP packet; ports that it does not have are 0.  None: it ends before a field does."""
    try:
        return _header4(data) if family == 4 else _header6(data)
    except (struct.error, IndexError):
        return None


def _header4(data: bytes) -> Header:
    version_size, fragment, proto, src, dst = struct.unpack_from("!B5xH1xB2xII", data)
    if version_size >> 4 != 4 or version_size & 15 < 5:
        raise IndexError
    ports = (0, 0, 0) if fragment & _LATER_FRAGMENT_4 else _ports(data, 4 * (version_size & 15), proto)
    return src, dst, ports[0], ports[1], proto, ports[2]


def _header6(data: bytes) -> Header:
    proto, at = data[6], 40
    if data[0] >> 4 != 6 or len(data) < at:
        raise IndexError
    is_later = False
    while proto in _EXTENSIONS:
        if is_later:  # its protocol is behind a header that it lacks
            raise IndexError
        following, size = data[at], data[at + 1]
        if proto == _FRAGMENT:
            is_later = bool(struct.unpack_from("!H", data, at + 2)[0] & _LATER_FRAGMENT_6)
            at += 8
        else:
            at += 4 * (size + 2) if proto == _AUTHENTICATION else 8 * (size + 1)
        proto = following
    ports = (0, 0, 0) if is_later else _ports(data, at, proto)
    src, dst = int.from_bytes(data[8:24], "big"), int.from_bytes(data[24:40], "big")
    return src, dst, ports[0], ports[1], proto, ports[2]


def _ports(data: bytes, at: int, proto: int) -> tuple[int, int, int]:
    """Ports and phase of the header that begins at *at*."""
    if proto not in _WITH_PORTS:
        return 0, 0, 0
    sport, dport = struct.unpack_from("!HH", data, at)
    return sport, dport, int(of_flags(data[at + 13])) if proto == 6 else 0
