"""A bridge in a scratch namespace, and frames that cross it, leave it by a route, or never meet it."""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel import Namespace
from hitables.kernel.namespace import run

BRIDGE, OUTSIDE, PLAIN = "br0", "out0", "eth0"
_BRIDGE_MAC, _PLAIN_MAC = "02:00:00:00:01:00", "02:00:00:00:01:01"
_TARGET = {Family.IPV4: "10.2.0.1", Family.IPV6: "fd02::1"}
SETTINGS = {
    "ipv4.ip_forward": "1", "ipv6.conf.all.forwarding": "1",
    "ipv4.conf.all.rp_filter": "0", "ipv4.conf.default.rp_filter": "0",
}  # fmt: skip


class Frame(NamedTuple):
    """A frame of one UDP packet: the device that it is sent by, and where it goes; *number* tells it apart.

    device  a port of the bridge, or PLAIN
    to      another port, whose host it is for; or OUTSIDE: it is routed there
    """

    device: str
    to: str
    number: int


def source(family: Family, number: int) -> str:
    return f"10.1.{number >> 8}.{number & 255}" if family is Family.IPV4 else f"fd01::{number:x}"


def furnish(namespace: Namespace, ports: Sequence[str]) -> None:
    """Make the bridge with its *ports*, behind each a host; a device without a bridge; and a way out."""
    namespace.call(_furnish, tuple(ports))


def _furnish(ports: tuple[str, ...]) -> None:
    run(["ip", "link", "add", BRIDGE, "address", _BRIDGE_MAC, "type", "bridge"])
    for at, port in enumerate(ports):
        _pair(port)
        run(["ip", "link", "set", port, "master", BRIDGE])
        run(["bridge", "fdb", "add", _host_mac(at), "dev", port, "master", "static"])
    _pair(PLAIN)
    run(["ip", "link", "set", PLAIN, "address", _PLAIN_MAC])
    _pair(OUTSIDE)
    run(["ip", "link", "set", BRIDGE, "up"])
    for name in ("iptables", "ip6tables"):
        with open(f"/proc/sys/net/bridge/bridge-nf-call-{name}", "w") as file:
            file.write("1")
    for address in (_TARGET[Family.IPV4], _TARGET[Family.IPV6]):
        run(["ip", "route", "add", address, "dev", OUTSIDE])
        run(["ip", "neigh", "add", address, "lladdr", _BRIDGE_MAC, "dev", OUTSIDE, "nud", "permanent"])


def _pair(device: str) -> None:
    """A device that is up, with a host at the other end of its wire."""
    run(["ip", "link", "add", device, "type", "veth", "peer", "name", _host(device)])
    for name in (device, _host(device)):
        run(["ip", "link", "set", name, "up"])


def _host(device: str) -> str:
    return f"h-{device}"


def _host_mac(at: int) -> str:
    return f"02:00:00:00:00:{at + 1:02x}"


def send(namespace: Namespace, family: Family, ports: Sequence[str], frames: Sequence[Frame]) -> None:
    """Send *frames*."""
    namespace.call(_send, int(family), tuple(ports), tuple(frames))


def _send(family: int, ports: tuple[str, ...], frames: tuple[Frame, ...]) -> None:
    macs = {port: _host_mac(at) for at, port in enumerate(ports)}
    for frame in frames:
        router = _PLAIN_MAC if frame.device == PLAIN else _BRIDGE_MAC
        mac = macs.get(frame.to, router)
        own = macs.get(frame.device, "02:00:00:00:02:00")
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind((_host(frame.device), 0))
            wire.send(_bytes(mac) + _bytes(own) + _packet(Family(family), frame.number))


def counts(namespace: Namespace, family: Family, backend: Backend, table: str, packets: int) -> list[int]:
    """What each rule of the table has counted, once the first, which counts all, has counted *packets*."""
    tool = "iptables" if family is Family.IPV4 else "ip6tables"
    command = [f"{tool}-{backend.value}-save", "-c", "-t", table]

    def read() -> list[int]:
        return [
            int(count) for count in re.findall(r"^\[(\d+):\d+\] -A", namespace.run(command), re.MULTILINE)
        ]

    while read()[0] < packets:
        time.sleep(0.005)
    return read()  # by now the last packet has met the other rules


def _bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def _packet(family: Family, number: int) -> bytes:
    """The type of a frame, and a UDP packet of 8 bytes, from source(number) to a host behind OUTSIDE."""
    udp = struct.pack("!4H", 4000, 53, 8, 0)
    if family is Family.IPV6:
        ends = source(family, number), _TARGET[family]
        addresses = b"".join(socket.inet_pton(socket.AF_INET6, end) for end in ends)
        udp = struct.pack("!4H", 4000, 53, 8, _sum(addresses + struct.pack("!IBBBB", 8, 0, 0, 0, 17) + udp))
        return struct.pack("!H", 0x86DD) + struct.pack("!IHBB", 6 << 28, 8, 17, 64) + addresses + udp
    header = struct.pack("!BBHHHBBH", 0x45, 0, 28, 0, 0, 64, 17, 0)
    addresses = socket.inet_aton(source(family, number)) + socket.inet_aton(_TARGET[family])
    checked = struct.pack("!BBHHHBBH", 0x45, 0, 28, 0, 0, 64, 17, _sum(header + addresses))
    return struct.pack("!H", 0x0800) + checked + addresses + udp


def _sum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
