"""When the kernel shows the new rules of each table, seen from outside the tools that load them.

nft     the events that nf_tables sends after each commit name the chains that got rules
legacy  the kernel is asked again and again (PAUSE) for the size of one chain in each table

So the two rule sets that a benchmark loads in turn must differ in chain OUTPUT of each table, and in legacy
in the number of its rules.
"""

from __future__ import annotations

import errno
import socket
import struct
import threading
import time

from hitables.errors import HitablesError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.netlink import NETLINK_NETFILTER, NFTABLES, attributes

TABLES, CHAIN = ("nat", "filter"), "OUTPUT"
PAUSE = 0.0002  # seconds

_ADD_MEMBERSHIP, _GROUP_OF_RULES = 1, 7  # NETLINK_ADD_MEMBERSHIP, NFNLGRP_NFTABLES
_SOL_NETLINK, _SO_RCVBUFFORCE = 270, 33
_NEWRULE, _TABLE, _CHAIN = 6, 1, 2
_FAMILIES = {socket.AF_INET: Family.IPV4, socket.AF_INET6: Family.IPV6}
_MESSAGE = struct.Struct("=IHHIIB")
_GET_INFO = 64
_INFO = struct.Struct("=32s13I")  # name, valid hooks, first rule and policy by hook, rules, size
_HOOK = 3  # NF_INET_LOCAL_OUT
_LEVELS = {
    Family.IPV4: (socket.AF_INET, socket.IPPROTO_IP),
    Family.IPV6: (socket.AF_INET6, socket.IPPROTO_IPV6),
}

Place = tuple[Family, str]  # a family and a table


class Watch:
    """From entering to leaving: when each table of *families* has changed; in the caller's namespace."""

    def __init__(self, backend: Backend, families: tuple[Family, ...]) -> None:
        self.times: dict[Place, float] = {}
        self._places = [(family, table) for family in families for table in TABLES]
        self._watch = self._events if backend is Backend.NFT else self._sizes
        self._stop, self._ready = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._error: OSError | None = None

    def __enter__(self) -> Watch:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def milliseconds(self, *families: Family) -> float:
        """Between the first and the last change, of all tables or of those of *families*."""
        if self._error is not None:
            raise HitablesError(f"the kernel could not be watched: {self._error}")
        wanted = [place for place in self._places if not families or place[0] in families]
        missing = [table for family, table in wanted if (family, table) not in self.times]
        if missing:
            raise HitablesError(f"these tables did not change: {missing}")
        times = [self.times[place] for place in wanted]
        return (max(times) - min(times)) * 1000

    def _run(self) -> None:
        try:
            self._watch()
        except OSError as error:
            self._error = error
        finally:
            self._ready.set()

    def _events(self) -> None:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as events:
            events.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
            events.bind((0, 0))
            events.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, _GROUP_OF_RULES)
            events.settimeout(0.2)
            self._ready.set()
            while True:
                try:
                    data = events.recv(1 << 20)
                except TimeoutError:
                    if self._stop.is_set():
                        return
                    continue
                except OSError as error:
                    if error.errno != errno.ENOBUFS:
                        raise
                    continue  # events were lost, of thousands of new chains
                self._note(data, time.monotonic())

    def _note(self, data: bytes, now: float) -> None:
        at = 0
        while at + 20 <= len(data):
            size, kind, _, _, _, family = _MESSAGE.unpack_from(data, at)
            if kind == NFTABLES << 8 | _NEWRULE:
                attrs = attributes(data[at + 20 : at + size])
                table, chain = (attrs[each].rstrip(b"\0").decode() for each in (_TABLE, _CHAIN))
                if table in TABLES and chain == CHAIN:
                    self.times.setdefault((_FAMILIES[family], table), now)
            at += max(20, size + 3 & ~3)

    def _sizes(self) -> None:
        before: dict[Place, int] = {}
        sockets = {
            family: socket.socket(_LEVELS[family][0], socket.SOCK_RAW, socket.IPPROTO_RAW)
            for family in dict.fromkeys(family for family, _ in self._places)
        }
        try:
            for place in self._places:
                before[place] = _size(sockets[place[0]], *place)
            self._ready.set()
            is_last = False
            while not is_last:
                is_last = self._stop.is_set()
                # The table that is loaded last is asked first: if its change is seen, so are those before it.
                unseen = [place for place in reversed(self._places) if place not in self.times]
                changed = [place for place in unseen if _size(sockets[place[0]], *place) != before[place]]
                now = time.monotonic()
                self.times.update((place, now) for place in reversed(changed))
                time.sleep(PAUSE)
        finally:
            for each in sockets.values():
                each.close()


def _size(raw: socket.socket, family: Family, table: str) -> int:
    """The bytes of the rules of the watched chain; -1 if the table does not exist."""
    from ctypes import CDLL, c_uint32, create_string_buffer, get_errno, pointer

    info = create_string_buffer(table.encode(), _INFO.size)
    size = c_uint32(_INFO.size)
    libc = CDLL(None, use_errno=True)
    if libc.getsockopt(raw.fileno(), _LEVELS[family][1], _GET_INFO, info, pointer(size)):
        if get_errno() == errno.ENOENT:
            return -1
        raise OSError(get_errno(), f"getsockopt of table {table}")
    _, _, *offsets, _, _ = _INFO.unpack(info.raw)
    return int(offsets[5 + _HOOK] - offsets[_HOOK])
