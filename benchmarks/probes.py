"""Which of two rule sets packets meet, asked again and again from inside the namespace.

Each rule set accepts UDP packets to a port of its own, on loopback, in either family.  A round sends one
numbered packet to each port; those that arrive say which rule set was in force.  A round is not atomic: where
the rule set changes within it, packets of both may arrive, or of neither.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from dataclasses import dataclass

from hitables.errors import HitablesError
from hitables.ir.fields import Family

PAUSE = 0.003  # seconds between two rounds
_NUMBER = struct.Struct("=I")
_HERE = {Family.IPV4: (socket.AF_INET, "127.0.0.1"), Family.IPV6: (socket.AF_INET6, "::1")}


@dataclass(frozen=True, slots=True)
class Seen:
    """From *begin* to *end*, in seconds of time.monotonic, all rounds found the rule set *which*.

    which   the port of the rule set; 0: neither as a whole
    rounds  how many
    """

    which: int
    begin: float
    end: float
    rounds: int


class Probes:
    """Rounds of packets to *ports*, from `start` to `stop`; runs in the namespace of the caller."""

    def __init__(self, ports: tuple[int, int]) -> None:
        self.ports = ports
        self._sockets: list[tuple[Family, int, socket.socket]] = []
        self._senders = {
            family: socket.socket(kind, socket.SOCK_DGRAM) for family, (kind, _) in _HERE.items()
        }
        for family, (kind, here) in _HERE.items():
            for port in ports:
                listener = socket.socket(kind, socket.SOCK_DGRAM)
                listener.bind((here, port))
                listener.setblocking(False)
                self._sockets.append((family, port, listener))
        self._sent: list[float] = []
        self._arrived: list[set[tuple[Family, int]]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed = ""

    def start(self) -> None:
        self._sent.clear()
        self._arrived.clear()
        self._stop.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> list[Seen]:
        """What the rounds since `start` have found."""
        assert self._thread is not None, "the probes were started"
        self._stop.set()
        self._thread.join()
        if self._failed:
            raise HitablesError(f"the probes ended: {self._failed}")
        seen: list[Seen] = []
        for sent, arrived in zip(self._sent, self._arrived, strict=True):
            which = next((port for port in self.ports if arrived == {(each, port) for each in Family}), 0)
            if seen and seen[-1].which == which:
                seen[-1] = Seen(which, seen[-1].begin, sent, seen[-1].rounds + 1)
            else:
                seen.append(Seen(which, sent, sent, 1))
        return seen

    def close(self) -> None:
        for _, _, each in self._sockets:
            each.close()
        for sender in self._senders.values():
            sender.close()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._round()
                time.sleep(PAUSE)
            time.sleep(0.05)
            self._receive()
        except OSError as error:
            self._failed = str(error)

    def _round(self) -> None:
        data = _NUMBER.pack(len(self._sent))
        self._sent.append(time.monotonic())
        self._arrived.append(set())
        for family, sender in self._senders.items():
            for port in self.ports:
                sender.sendto(data, (_HERE[family][1], port))
        self._receive()

    def _receive(self) -> None:
        for family, port, listener in self._sockets:
            while True:
                try:
                    data = listener.recv(8)
                except BlockingIOError:
                    break
                (number,) = _NUMBER.unpack(data)
                if number < len(self._arrived):  # not of the rounds before `start`
                    self._arrived[number].add((family, port))
