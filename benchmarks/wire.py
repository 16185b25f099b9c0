"""Packets sent as fast as possible from one network namespace to another over veth, counted at the receiver.

The kernel handles a packet that is written to one end of a veth pair within the same system call: sending,
receiving and the receiver's rules run on the sender's processor, one packet after the other, and none is
lost.  So that processor is saturated, and packets per second are what it can send, receive and filter.
Counted is what enters the receiver's IP (`InReceives` of /proc/net/snmp), whatever its rules decide;
`InDelivers` are the packets that INPUT has let through.

Through INPUT, packets go to an address of the receiver, where no program listens, and its ICMP errors are
switched off.  Through FORWARD, it routes them to a tunnel that discards them.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hitables.core.raw_sender import forward_time
from hitables.errors import LiveError
from hitables.ir.fields import Family
from hitables.kernel.namespace import Namespace, run, set_sysctl
from hitables.kernel.stopwatch import Router, prepare_router

from .kernel import DESTINATION

SENT, RECEIVED = "hit-tx", "hit-rx"  # the two ends
HEAD = bytes.fromhex("0200000000020200000000010800")  # Ethernet: to the receiver, from the sender
IP_HEAD = 20
# Packets written between two looks at the clock; at 100 µs a packet, 13 ms.
AT_ONCE = 128
TICK = 0.1

_SOL_PACKET, _PACKET_QDISC_BYPASS = 263, 20
# The socket of a sender, kept between the calls of its namespace.
_sockets: list[socket.socket] = []


def frames(packets: bytes, count: int) -> bytes:
    """*count* IPv4 packets of one size, without options, as Ethernet frames with right header sums."""
    size = len(packets) // count
    each = (packets[at : at + size] for at in range(0, len(packets), size))
    return b"".join(HEAD + _summed(packet) for packet in each)


def _summed(packet: bytes) -> bytes:
    head = packet[:10] + b"\0\0" + packet[12:IP_HEAD]
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return head[:10] + struct.pack("!H", ~total & 0xFFFF) + head[12:] + packet[IP_HEAD:]


@dataclass(frozen=True, slots=True)
class Sent:
    """What one measurement counted.

    seconds    that it lasted
    sent       packets written
    received   packets that entered the receiver's IP
    delivered  packets that passed INPUT to the receiver itself
    cpu        seconds of processor that the sender's thread had
    ticks      packets received by the end of each tenth of a second, since the tenth before
    """

    seconds: float
    sent: int
    received: int
    delivered: int
    cpu: float
    ticks: tuple[int, ...]

    @property
    def per_second(self) -> float:
        return self.received / self.seconds

    @property
    def ns(self) -> float:
        """Nanoseconds per received packet: the paper's T."""
        return 1e9 * self.seconds / self.received

    @property
    def cpu_ns(self) -> float:
        """Nanoseconds of processor per received packet."""
        return 1e9 * self.cpu / self.received


def total(parts: Sequence[Sent]) -> Sent:
    """Measurements of one rule set as one."""
    seconds, cpu = sum(each.seconds for each in parts), sum(each.cpu for each in parts)
    sent, received, delivered = (
        sum(getattr(each, what) for each in parts) for what in ("sent", "received", "delivered")
    )
    return Sent(seconds, sent, received, delivered, cpu, tuple(tick for each in parts for tick in each.ticks))


class Wire:
    """Two namespaces with a veth pair between them, for the length of a `with` block.

    *chain*: INPUT or FORWARD, which packets traverse in `receiver`, where rules are to be loaded.
    """

    def __init__(self, chain: str) -> None:
        assert chain in ("INPUT", "FORWARD"), chain
        self.chain = chain
        self.sender, self.receiver = Namespace(), Namespace()
        self._receiver_pid = 0

    def __enter__(self) -> Wire:
        self.sender.__enter__()
        try:
            self.receiver.__enter__()
            self._receiver_pid = self.receiver.call(os.getpid)
            self.receiver.call(_prepare_receiver, self.chain, self.sender.call(os.getpid))
            self.sender.call(_prepare_sender)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()

    def begin(self, data: bytes, count: int, seconds: float, cpu: int) -> None:
        """Send *count* frames of one size, again and again, from processor *cpu*; `finish` has the result."""
        self.sender.begin(_send, data, count, seconds, cpu, self._receiver_pid)

    def finish(self) -> Sent:
        result: Sent = self.sender.finish()
        return result

    def send(self, data: bytes, count: int, seconds: float, cpu: int) -> Sent:
        self.begin(data, count, seconds, cpu)
        return self.finish()


def _prepare_receiver(chain: str, sender_pid: int) -> None:
    """Run inside: the receiver's end, without ARP; the other goes to the sender."""
    if chain == "FORWARD":
        prepare_router(Router(Family.IPV4, "hit-none", "hit-out"))
    ends = ["ip", "link", "add", RECEIVED, "address", HEAD[:6].hex(":"), "type", "veth", "peer", "name", SENT]
    run([*ends, "address", HEAD[6:12].hex(":"), "netns", str(sender_pid)])
    for name in ("all", "default", RECEIVED):
        set_sysctl(f"ipv4.conf.{name}.rp_filter", "0")
    for name in ("icmp_msgs_per_sec", "icmp_msgs_burst"):
        set_sysctl(f"ipv4.{name}", "0")
    for command in (
        f"link set {RECEIVED} arp off multicast off up",
        "link set lo up",
        *([f"addr add {DESTINATION}/32 dev {RECEIVED}", f"route add default dev {RECEIVED}"]
          if chain == "INPUT" else []),
    ):  # fmt: skip
        run(["ip", *command.split()])


def _prepare_sender() -> None:
    """Run inside: the sender's end, and a socket that writes to it past all queues."""
    run(["ip", "link", "set", SENT, "arp", "off", "multicast", "off", "up"])
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sender.bind((SENT, 0))
    sender.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
    _sockets.append(sender)


def counts(pid: int) -> tuple[int, int]:
    """InReceives and InDelivers of IPv4 in the namespace of process *pid*."""
    names, values = [
        line.split() for line in Path(f"/proc/{pid}/net/snmp").read_text().splitlines() if line[:3] == "Ip:"
    ]
    row = dict(zip(names, values, strict=True))
    return int(row["InReceives"]), int(row["InDelivers"])


def _send(data: bytes, count: int, seconds: float, cpu: int, receiver_pid: int) -> Sent:
    """Run inside: see `Wire.begin`."""
    os.sched_setaffinity(0, {cpu})
    fd, size = _sockets[0].fileno(), len(data) // count
    pieces = [data[at : at + AT_ONCE * size] for at in range(0, len(data), AT_ONCE * size)]
    sizes = [len(piece) // size for piece in pieces]
    first = last = counts(receiver_pid)
    ticks: list[int] = []
    sent = at = cpu_ns = 0
    began = now = time.perf_counter()
    while now - began < seconds:
        cpu_ns += forward_time(fd, pieces[at], sizes[at], 1)
        sent += sizes[at]
        at = (at + 1) % len(pieces)
        now = time.perf_counter()
        if now - began >= TICK * (len(ticks) + 1):
            received = counts(receiver_pid)[0]
            ticks.append(received - last[0])
            last = received, 0
    received, delivered = counts(receiver_pid)
    lasted = time.perf_counter() - began
    if received == first[0]:
        raise LiveError(f"none of {sent:,} packets came through the veth pair")
    return Sent(lasted, sent, received - first[0], delivered - first[1], cpu_ns / 1e9, tuple(ticks))


def processors() -> tuple[int, tuple[int, ...]]:
    """The processor for packets, and those for all else: the same one if there is no other.

    The last is for packets: a machine does its other work mostly on the first.
    """
    usable = sorted(os.sched_getaffinity(0))
    return usable[-1], tuple(usable[:-1]) or tuple(usable)


def shown_processors() -> str:
    """A line about `processors` for the data."""
    packets, others = processors()
    apart = f"processor {packets} sends, receives and filters; all else runs on"
    return f"{apart} {', '.join(map(str, others))}" + (" too" if packets in others else "")


def pinned(cpus: Sequence[int]) -> None:
    """Run inside: this process and those that it starts run on *cpus*."""
    os.sched_setaffinity(0, set(cpus))
