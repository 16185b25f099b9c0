"""The time of a packet in the kernel under each of several rule sets.

Each rule set is loaded into a scratch namespace of its own, and all are measured in turn, many times, so
that a disturbance of the machine affects all of them.  A packet's whole path runs in the sender's thread,
whose CPU time is measured, so other load has little influence.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import socket
import statistics
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ..errors import LiveError
from ..ir.fields import Family
from ..ir.packet import Backend
from .load_save import load
from .namespace import Namespace, run, set_sysctl

DEVICE = "sink0"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x1, 0x1000
EMPTY = "*filter\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"

# Approximate seconds of one measurement of one rule set.
SLICE = 0.15

# The tunnels of this helper process, by name: a device exists while its file is open.
_tunnels: dict[str, int] = {}


def _open_tunnel(name: str) -> None:
    try:
        tunnel = os.open("/dev/net/tun", os.O_RDWR)
    except OSError as error:
        raise LiveError(f"/dev/net/tun: {error.strerror}; packets need a tunnel to go to") from error
    fcntl.ioctl(tunnel, TUNSETIFF, struct.pack("16sH14x", name.encode(), IFF_TUN | IFF_NO_PI))
    _tunnels[name] = tunnel


def prepare() -> None:
    """Run inside: a tunnel that is never read; once its queue is full it discards every packet."""
    _open_tunnel(DEVICE)
    for command in (
        f"ip link set {DEVICE} txqueuelen 1 up",
        "ip link set lo up",
        f"ip route add default dev {DEVICE}",
    ):
        run(command.split())


@dataclass(frozen=True, slots=True)
class Router:
    """A namespace that routes packets of *family* from one tunnel to another."""

    family: Family
    incoming: str
    outgoing: str


def prepare_router(router: Router) -> None:
    """Run inside: a packet written to the first tunnel is routed to the second, which discards it."""
    for name in ("all", "default"):
        if router.family is Family.IPV4:
            set_sysctl(f"ipv4.conf.{name}.rp_filter", "0")
            set_sysctl(f"ipv4.conf.{name}.forwarding", "1")
        else:
            set_sysctl(f"ipv6.conf.{name}.forwarding", "1")
            # Without an address, and with a long report interval, it sends almost no packets of its own.
            set_sysctl(f"ipv6.conf.{name}.addr_gen_mode", "1")
            set_sysctl(f"ipv6.conf.{name}.mldv2_unsolicited_report_interval", "600000")
    for name in (router.incoming, router.outgoing):
        _open_tunnel(name)
        run(["ip", "link", "set", name, "multicast", "off", "txqueuelen", "1", "up"])
    run(["ip", f"-{int(router.family)}", "route", "add", "default", "dev", router.outgoing])


def came_through(router: Router) -> int:
    """Run inside: how many packets have reached the second tunnel."""
    (link,) = json.loads(run(["ip", "-j", "-s", "link", "show", router.outgoing]))
    sent = link["stats64"]["tx"]
    return int(sent["packets"]) + int(sent["dropped"])


def measure_router(router: Router, packets: bytes, count: int, rounds: int, cpu: int | None) -> float:
    """Run inside: nanoseconds per packet that is routed or dropped."""
    from ..core.raw_sender import forward_time

    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    with _errors():
        return forward_time(_tunnels[router.incoming], packets, count, rounds) / (count * rounds)


@contextmanager
def _errors() -> Iterator[None]:
    """A packet that cannot be sent is a LiveError."""
    try:
        yield
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0)
        raise LiveError(f"the packets cannot be sent: {os.strerror(error.errno or 0)} ({name})") from error


def measure(packets: bytes, count: int, rounds: int, cpu: int | None) -> float:
    """Run inside: nanoseconds per packet."""
    from ..core.raw_sender import send_time

    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sender, _errors():
        return send_time(sender.fileno(), packets, count, rounds) / (count * rounds)


class Stopwatch:
    """Rule sets in namespaces of their own, to be measured in turn, for the length of a `with` block.

    Packets are sent through OUTPUT (IPv4 alone) or, with a *router*, through FORWARD.
    """

    def __init__(self, backend: Backend, piece: float | None = None, router: Router | None = None) -> None:
        self._backend, self._router = backend, router
        self._piece = SLICE if piece is None else piece
        self._family = router.family if router else Family.IPV4
        self._stack = ExitStack()
        self._spaces: dict[str, Namespace] = {}
        self._packets: dict[str, tuple[bytes, int]] = {}
        self._rounds: dict[str, int] = {}
        # The last processor: a machine does its other work mostly on the first.
        self._cpu = max(os.sched_getaffinity(0))

    def __enter__(self) -> Stopwatch:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def namespace(self, name: str, packets: bytes, count: int) -> Namespace:
        """A namespace to load a rule set into, measured by *count* packets of one size."""
        space = self._stack.enter_context(Namespace())
        if self._router:
            space.call(prepare_router, self._router)
        else:
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
        """Remove *name* from the measurement, if it was added."""
        self._spaces.pop(name, None)

    def run(self, runs: int, within: float = math.inf) -> dict[str, list[float]]:
        """Nanoseconds per packet of each rule set, *runs* times, in turn.

        Fewer times, but at least three, if that would take more than *within* seconds.
        """
        for name in self._spaces:
            _, count = self._packets[name]
            once = self._measure(name, 1)
            self._rounds[name] = max(1, int(self._piece * 1e9 / (once * count)))
        times: dict[str, list[float]] = {name: [] for name in self._spaces}
        began = time.monotonic()
        for turn in range(runs):
            if turn >= 3 and (time.monotonic() - began) * (turn + 1) / turn > within:
                break
            for name in self._spaces:
                times[name].append(self._measure(name, self._rounds[name]))
        return times

    def passing(self, name: str) -> int:
        """With a router: how many of the packets of one round pass."""
        assert self._router is not None
        space, counts = self._spaces[name], []
        for _ in range(5):
            before = space.call(came_through, self._router)
            self._measure(name, 1)
            counts.append(space.call(came_through, self._router) - before)
        # Packets of the kernel's own are counted now and then, or delay one of ours.
        return int(statistics.median(counts))

    def _measure(self, name: str, rounds: int) -> float:
        space, (packets, count) = self._spaces[name], self._packets[name]
        if self._router:
            return space.call(measure_router, self._router, packets, count, rounds, self._cpu)
        return space.call(measure, packets, count, rounds, self._cpu)


def compare(
    texts: Mapping[str, str], packets: bytes, count: int, backend: Backend, runs: int
) -> dict[str, list[float]]:
    """Nanoseconds per packet of each rule set under the same packets, *runs* times, in turn."""
    with Stopwatch(backend) as watch:
        for name, text in texts.items():
            watch.add(name, text, packets, count)
        return watch.run(runs)
