"""A test bed: a namespace with interfaces of any name, routes, and the means to send packets.

Every interface is a tap (or, where the name implies it, as tun0, ppp0, lo ..., a tun, which has no hardware
addresses).  A packet written to its file arrives on that interface, within the call; a packet that leaves
the host is sent by a raw socket.

Packets travel with addresses of the test bed, so that routing takes them to the intended hook and
interface, and every packet is a flow of its own.  The Observer gives them the addresses that the rules are
to see, of which routing would discard many: multicast sources, 127.0.0.1 from outside.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import LiveError
from ..ir.fields import Family
from .conntrack import forget_flows
from .namespace import run, set_sysctl
from .netlink import Netfilter
from .observer import SILENCE, silence

# Interfaces of one test bed; each has a subnet of its own.
MAX_INTERFACES = 250
PATIENCE = 60.0  # seconds for work that the kernel does in the background
_LOOPBACK = "hit-loopback"  # the name of the real loopback here, so that "lo" is free
_NO_HARDWARE = re.compile(r"^(tun|ppp|wg|lo$|ipsec|gre|sit|tailscale|venet)")
_TUNSETIFF, _IFF_TUN, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 1, 2, 0x1000
_IP_NODEFRAG = 22
_OURS = bytes.fromhex("02686974626c")  # every tap's own hardware address
_ANYWHERE = bytes.fromhex("026f74686572")  # the sender's, if the packet has none of its own
_SETTINGS = {
    "ipv4.ip_forward": "1",
    "ipv4.conf.all.rp_filter": "0",
    "ipv4.conf.default.rp_filter": "0",
    "ipv4.conf.default.accept_local": "1",
    "ipv4.conf.default.route_localnet": "1",
    "ipv6.conf.all.forwarding": "1",
    "ipv6.conf.default.accept_dad": "0",
    "ipv6.conf.default.accept_ra": "0",
    "ipv6.conf.default.addr_gen_mode": "1",
    "netfilter.nf_conntrack_tcp_be_liberal": "1",
}
_BASE = {
    Family.IPV4: (198 << 24 | 18 << 16, 198 << 24 | 19 << 16),
    Family.IPV6: (0xFD18 << 112, 0xFD19 << 112),
}
_NO_NAMES = (".", "..", "all", "default", _LOOPBACK)


@dataclass(frozen=True, slots=True)
class Send:
    """One packet to send: *data* enters by *iif* or, if that is "", leaves this host.

    mac    the sender's hardware address; None: any
    owner  user and group of the socket from which it leaves
    strict whether the kernel must not pick up connections in their middle while it is sent
    to     the hardware address of the frame's receiver; None: ours
    """

    data: bytes
    iif: str
    oif: str
    mac: int | None = None
    owner: tuple[int, int] = (0, 0)
    strict: bool = False
    to: int | None = None


def valid_name(name: str) -> bool:
    """Whether the kernel accepts *name* for an interface: here, printable ASCII."""
    return bool(re.fullmatch(r"[!-$&-.0-9;-~]{1,15}", name)) and name not in _NO_NAMES


def has_hardware(name: str) -> bool:
    """Whether packets arrive on the interface of this name with a hardware address."""
    return not _NO_HARDWARE.match(name)


def source_of(family: Family, number: int) -> int:
    """The source address with which packet *number* travels."""
    return _BASE[family][0] | number


def target_of(family: Family, at: int, local: bool) -> int:
    """An address that is routed to interface *at*, or (*local*) is its own, as is the next address."""
    return _BASE[family][1] | at << (8 if family is Family.IPV4 else 64) | (1 if local else 200)


def local_address(family: Family, at: int) -> int:
    """The address of interface *at*."""
    return target_of(family, at, True)


class Testbed:
    """Interfaces *names*, in the namespace of the caller, until `close`."""

    def __init__(self, family: Family, names: Sequence[str]) -> None:
        if len(names) > MAX_INTERFACES:
            raise LiveError(f"{len(names)} interfaces; {MAX_INTERFACES} is the maximum")
        self.family, self.names = family, tuple(names)
        self.index = {name: at for at, name in enumerate(names)}
        self._ends: dict[str, int] = {}
        self._sockets: dict[tuple[int, int], socket.socket] = {}
        silence(family)
        with contextlib.closing(Netfilter()) as netfilter:
            forget_flows(netfilter, family)  # loads the module whose settings follow, where it is one
        for setting, value in _SETTINGS.items():
            set_sysctl(setting, value)
        set_sysctl("ipv6.conf.default.disable_ipv6", "0" if family is Family.IPV6 else "1")
        rename = f"link set lo down\nlink set lo name {_LOOPBACK}\nlink set {_LOOPBACK} up\n"
        run(["ip", "-batch", "-"], rename)
        for name in names:
            self._ends[name] = _tap(name)
        run(["ip", f"-{family.value}", "-batch", "-"], "".join(self._furnish()))
        if family is Family.IPV6:
            self._wait_until_local()
        self._own = tuple(_text(family, target_of(family, at, False)) for at in range(len(names)))

    def close(self) -> None:
        for end in self._ends.values():
            os.close(end)
        for sender in self._sockets.values():
            sender.close()
        run(["ip", "-batch", "-"], f"link set {_LOOPBACK} down\nlink set {_LOOPBACK} name lo\n")
        run(["nft", "delete", "table", "ip" if self.family is Family.IPV4 else "ip6", SILENCE])

    def send(self, sends: Iterable[Send]) -> None:
        """Send one after the other.  Each has passed the rules before the next is sent."""
        kind = b"\x08\x00" if self.family is Family.IPV4 else b"\x86\xdd"
        write, ends, index = os.write, self._ends, self.index
        hardware = {name: has_hardware(name) for name in self.names}
        bound = {name: name.encode() + b"\0" for name in self.names}
        for strict in (False, True):
            set_sysctl("netfilter.nf_conntrack_tcp_loose", "0" if strict else "1")
            for send in sends:
                if send.strict is not strict:
                    continue
                if not send.iif:
                    sender = self._sockets.get(send.owner) or self._sender(send.owner)
                    # The kernel routes a packet again that a rule marks, by the addresses that the rules see.
                    # From a source that is not its own it has no route to multicast and broadcast addresses
                    # of IPv4, unless the socket is bound to an interface.
                    sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, bound[send.oif])
                    # For a packet that the rules drop, the call fails as "not permitted".
                    with contextlib.suppress(PermissionError):
                        sender.sendto(send.data, (self._own[index[send.oif]], 0))
                elif hardware[send.iif]:
                    mac = _ANYWHERE if send.mac is None else send.mac.to_bytes(6, "big")
                    to = _OURS if send.to is None else send.to.to_bytes(6, "big")
                    write(ends[send.iif], b"".join((to, mac, kind, send.data)))
                else:
                    write(ends[send.iif], send.data)

    def _furnish(self) -> Iterable[str]:
        v4 = self.family is Family.IPV4
        for at, name in enumerate(self.names):
            address = _text(self.family, local_address(self.family, at))
            if has_hardware(name):
                yield f"link set dev {name} address {_OURS.hex(':')}\n"
            yield f"link set dev {name} up\n"
            twin = _text(self.family, local_address(self.family, at) + 1)
            for one in (address, twin):
                yield f"addr add {one}/{24 if v4 else 64} dev {name}{'' if v4 else ' nodad'}\n"
        # A packet that a rule rewrites or marks is routed again, and needs a route out of its own interface.
        for at, name in enumerate(self.names):
            yield f"route add default dev {name} metric {at + 1}\n"

    def _wait_until_local(self) -> None:
        """Return when the kernel delivers packets to our addresses; it gets there after the addresses."""
        own = (local_address(self.family, at) + twin for at in range(len(self.names)) for twin in (0, 1))
        wanted = {_text(self.family, address) for address in own}
        end = time.monotonic() + PATIENCE
        while missing := wanted.difference(run(["ip", "-6", "route", "show", "table", "local"]).split()):
            if time.monotonic() > end:
                raise LiveError(f"no route to our own {min(missing)} within {PATIENCE} s")
            time.sleep(0.001)

    def _sender(self, owner: tuple[int, int]) -> socket.socket:
        # The owner of a socket is the user who opens it; setfsuid changes the user and keeps our privileges.
        libc = ctypes.CDLL(None)
        libc.setfsgid(owner[1])
        libc.setfsuid(owner[0])
        try:
            sender = _raw_socket(self.family)
        finally:
            libc.setfsuid(0)
            libc.setfsgid(0)
        self._sockets[owner] = sender
        return sender


def _raw_socket(family: Family) -> socket.socket:
    kind = socket.AF_INET if family is Family.IPV4 else socket.AF_INET6
    sender = socket.socket(kind, socket.SOCK_RAW, socket.IPPROTO_RAW)
    if family is Family.IPV4:
        sender.setsockopt(socket.IPPROTO_IP, _IP_NODEFRAG, 1)
    return sender


def _tap(name: str) -> int:
    kind = _IFF_TAP if has_hardware(name) else _IFF_TUN
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        request = struct.pack("16sH22x", name.encode("utf-8", "surrogateescape"), kind | _IFF_NO_PI)
        fcntl.ioctl(end, _TUNSETIFF, request)
    except OSError as error:
        os.close(end)
        raise LiveError(f"interface {name!r}: {error.strerror}") from error
    return end


def _text(family: Family, address: int) -> str:
    v4 = family is Family.IPV4
    return socket.inet_ntop(
        socket.AF_INET if v4 else socket.AF_INET6, address.to_bytes(4 if v4 else 16, "big")
    )
