"""How long the kernel takes for a packet under each of several rule sets.

Each rule set is loaded into a scratch namespace of its own, and all are measured in turn, many
times: what disturbs the machine then disturbs all of them.  A packet's whole way runs in the
sender's own thread, whose CPU time is read, so other load counts little.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import ExitStack

from ..errors import LiveError
from ..ir.fields import Family
from ..ir.packet import Backend
from .namespace import Namespace, run
from .tables import load

DEVICE = "sink0"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x1, 0x1000
EMPTY = "*filter\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"

# Seconds that one measurement of one rule set lasts, about.
SLICE = 0.15

_sinks: list[int] = []


def prepare() -> None:
    """Run inside: a tunnel that nobody reads; once its queue is full it forgets every packet."""
    try:
        sink = os.open("/dev/net/tun", os.O_RDWR)
    except OSError as error:
        raise LiveError(f"/dev/net/tun: {error.strerror}; packets need a tunnel to go to") from error
    fcntl.ioctl(sink, TUNSETIFF, struct.pack("16sH14x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    _sinks.append(sink)  # the device lives as long as the helper
    for command in (
        f"ip link set {DEVICE} txqueuelen 1 up",
        "ip link set lo up",
        f"ip route add default dev {DEVICE}",
    ):
        run(command.split())


def measure(packets: bytes, count: int, rounds: int, cpu: int | None) -> float:
    """Run inside: nanoseconds per packet."""
    from ..engine._engine import ffi, lib

    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sender:
        size = len(packets) // count
        spent = lib.sender_time(sender.fileno(), ffi.from_buffer("uint8_t *", packets), size, count, rounds)
    if spent < 0:
        raise LiveError(f"the packets cannot be sent: {os.strerror(-spent)} ({errno.errorcode.get(-spent)})")
    return float(spent) / (count * rounds)


class Stopwatch:
    """Rule sets in namespaces of their own, to be measured in turn, for the length of a `with` block."""

    def __init__(self, backend: Backend, family: Family = Family.IPV4, piece: float = SLICE) -> None:
        self._backend, self._family, self._piece = backend, family, piece
        self._stack = ExitStack()
        self._spaces: dict[str, Namespace] = {}
        self._packets: dict[str, tuple[bytes, int]] = {}
        self._rounds: dict[str, int] = {}
        # The last processor: the first is where a machine does what it does besides.
        self._cpu = max(os.sched_getaffinity(0))

    def __enter__(self) -> Stopwatch:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def namespace(self, name: str, packets: bytes, count: int) -> Namespace:
        """A namespace to load something into, for *count* packets of one size."""
        space = self._stack.enter_context(Namespace())
        space.call(prepare)
        self._spaces[name], self._packets[name] = space, (packets, count)
        return space

    def add(self, name: str, text: str, packets: bytes, count: int) -> None:
        """Load *text*, to be measured by *count* packets of one size."""
        try:
            load(text, self._family, self._backend, self.namespace(name, packets, count))
        except LiveError:
            self.forget(name)
            raise

    def forget(self, name: str) -> None:
        """Do not measure *name*, if it was added."""
        self._spaces.pop(name, None)

    def run(self, runs: int, within: float = math.inf) -> dict[str, list[float]]:
        """Nanoseconds per packet of each rule set, *runs* times, in turn.

        Fewer times, but three at least, when that would take more than *within* seconds.
        """
        for name, space in self._spaces.items():
            packets, count = self._packets[name]
            once = space.call(measure, packets, count, 1, self._cpu)
            self._rounds[name] = max(1, int(self._piece * 1e9 / (once * count)))
        found: dict[str, list[float]] = {name: [] for name in self._spaces}
        began = time.monotonic()
        for turn in range(runs):
            if turn >= 3 and (time.monotonic() - began) * (turn + 1) / turn > within:
                break
            for name, space in self._spaces.items():
                packets, count = self._packets[name]
                found[name].append(space.call(measure, packets, count, self._rounds[name], self._cpu))
        return found


def compare(
    texts: Mapping[str, str], packets: bytes, count: int, backend: Backend, runs: int
) -> dict[str, list[float]]:
    """Nanoseconds per packet of each rule set under the same packets, *runs* times, in turn."""
    with Stopwatch(backend) as watch:
        for name, text in texts.items():
            watch.add(name, text, packets, count)
        return watch.run(runs)
