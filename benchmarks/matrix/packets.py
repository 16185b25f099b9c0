"""The packets that are sent: of many kinds, each with a source address of its own.

What arrives enters by eth0; what leaves is sent by a raw socket and goes out by eth1.  The source
says which packet it is, so rules can give some of them a mark or a label first (SETUP).
"""

from __future__ import annotations

import enum
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hitables.ir.fields import DCCP, ICMP, ICMPV6, SCTP, TCP, UDP, UDPLITE, Family
from hitables.kernel.conntrack import Flow, Tuple
from hitables.kernel.craft import checksum, crc32c
from hitables.kernel.testbed import source_of, target_of

UDP_SOCKET, TCP_SOCKET, MARKED_SOCKET = 5353, 8080, 5354
MULTICAST_MAC, BROADCAST_MAC = 0x01005E000001, 0xFFFFFFFFFFFF
_HOP, _ROUTING, _FRAGMENT, _DESTINATION, _MOBILITY, _NONE = 0, 43, 44, 60, 135, 59
_ESP, _AH, _IPCOMP, _GRE = 50, 51, 108, 47
_FIN, _SYN, _RST, _PSH, _ACK, _ECE, _CWR = 1, 2, 4, 8, 16, 64, 128
_MSS, _SACK, _STAMP = bytes.fromhex("020405b4"), bytes.fromhex("0402"), bytes.fromhex("080a0000000100000000")
_ALL_OPTIONS = _MSS + _SACK + _STAMP + bytes.fromhex("01030307")
_SPORT, _DPORT = 1000, 53


@dataclass(frozen=True, slots=True)
class Sent:
    """One packet.

    leaves  it is sent from here, by a socket of *owner*; otherwise it arrives by eth0, for the
            hardware address *to* (None: ours)
    flow    the connection that it belongs to
    setup   rules that meet it first, behind `-s SOURCE`
    """

    name: str
    data: bytes
    leaves: bool = False
    to: int | None = None
    owner: int = 0
    flow: Flow | None = None
    source: int = 0
    setup: tuple[str, ...] = ()


class Way(enum.Enum):
    """How packets meet the rules."""

    THROUGH = "through"  # they arrive, most for another host
    HERE = "here"  # they arrive, all for us
    OUT = "out"  # they leave, sent from here


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a packet is, apart from its addresses."""

    name: str
    protocol: int
    body: bytes = b""
    ports: tuple[int, int] = (_SPORT, _DPORT)
    flags: int = 0
    options: bytes = b""
    tos: int = 0
    ttl: int = 64
    local: bool = False
    to: int | None = None
    owner: int = 0
    established: bool = False
    broken: bool = False
    fragment: int | None = None  # the word with offset and flags
    header_options: bytes = b""  # IPv4
    extension: tuple[int, bytes] | None = None  # IPv6: its number, its bytes behind the first
    group: bool = False  # to a multicast address
    setup: tuple[str, ...] = ()


def packets(family: Family, way: Way) -> list[Sent]:
    """The packets of *family* that go that *way*."""
    kinds = list(_kinds(family))
    if way is Way.HERE:
        kinds = [replace(kind, local=True) for kind in kinds if not (kind.group or kind.local)] + [
            kind for kind in kinds if kind.local
        ]
    elif way is Way.OUT:
        kinds = [kind for kind in kinds if not (kind.to or kind.local)]
    first = 1 + 100 * list(Way).index(way)
    return [_made(family, kind, number, way) for number, kind in enumerate(kinds, first)]


def _kinds(family: Family) -> Iterator[_Kind]:
    v4 = family is Family.IPV4
    echo = (ICMP, 8) if v4 else (ICMPV6, 128)
    yield _Kind("udp", UDP, b"x" * 12)
    yield _Kind("udp to us", UDP, b"x" * 12, local=True)
    yield _Kind("udp to a socket", UDP, b"x", (_SPORT, UDP_SOCKET), local=True)
    yield _Kind("udp to a socket with a mark", UDP, b"x", (_SPORT, MARKED_SOCKET), local=True)
    yield _Kind("udp, tos 0x10", UDP, b"x" * 20, tos=0x10)
    for bits in (1, 2, 3):
        yield _Kind(f"udp, ecn {bits}", UDP, b"x", tos=bits)
    yield _Kind("udp, dscp 46", UDP, b"x", tos=0xB8)
    yield _Kind("udp, ttl 128", UDP, b"x", ttl=128)
    yield _Kind("udp, ttl 10", UDP, b"x", ttl=10)
    yield _Kind("udp in a multicast frame", UDP, b"x", to=MULTICAST_MAC)
    yield _Kind("udp to us in a multicast frame", UDP, b"x", to=MULTICAST_MAC, local=True)
    yield _Kind("udp in a broadcast frame", UDP, b"x", to=BROADCAST_MAC)
    yield _Kind("udp to a group", UDP, b"x", group=True, to=MULTICAST_MAC)
    yield _Kind("tftp", UDP, b"\0\1file\0octet\0", (_SPORT, 69))
    yield _Kind("udp with a needle", UDP, b"x" * 30 + b"needle" + b"y" * 30)
    yield _Kind("udp with a mark", UDP, b"x", setup=("-j MARK --set-xmark 0x23/0xffffffff",))
    yield _Kind("udp with mark 16", UDP, b"x", setup=("-j MARK --set-xmark 0x10/0xffffffff",))
    yield _Kind("udp with a connection mark", UDP, b"x", setup=("-j CONNMARK --set-xmark 0x21/0xffffffff",))
    yield _Kind(
        "udp with two marks",
        UDP,
        b"x",
        established=True,
        setup=("-j MARK --set-xmark 0x23/0xffffffff", "-j CONNMARK --set-xmark 0x10/0xffffffff"),
    )
    yield _Kind("udp with a label", UDP, b"x", setup=("-m connlabel --label 1 --set",))
    yield _Kind("udp of a connection", UDP, b"x" * 12, established=True)
    yield _Kind("udp, wrong checksum", UDP, b"x" * 12, broken=True)
    yield _Kind("udp of another user", UDP, b"x", owner=1000)
    yield _Kind("tcp syn", TCP, flags=_SYN)
    yield _Kind("tcp syn to a socket", TCP, ports=(_SPORT, TCP_SOCKET), flags=_SYN, local=True)
    yield _Kind("tcp syn, mss", TCP, flags=_SYN, options=_MSS)
    yield _Kind("tcp syn, all options", TCP, flags=_SYN, options=_ALL_OPTIONS)
    yield _Kind("tcp syn to us, all options", TCP, flags=_SYN, options=_ALL_OPTIONS, local=True)
    yield _Kind("tcp syn, ecn", TCP, flags=_SYN | _ECE | _CWR, options=_MSS)
    yield _Kind("tcp ack", TCP, b"needle" * 3, flags=_ACK)
    yield _Kind("tcp of a connection", TCP, b"z" * 8, flags=_ACK | _PSH, established=True)
    yield _Kind("tcp of a connection, ecn", TCP, b"z", flags=_ACK | _ECE, tos=2, established=True)
    yield _Kind("tcp rst", TCP, flags=_RST)
    yield _Kind("tcp fin", TCP, flags=_FIN | _ACK, options=bytes.fromhex("0101") + _STAMP)
    yield _Kind("echo", echo[0], struct.pack(">BBHHH", echo[1], 0, 0, 7, 1) + b"x" * 12)
    yield _Kind("echo to us", echo[0], struct.pack(">BBHHH", echo[1], 0, 0, 7, 1), local=True)
    yield _Kind("sctp init", SCTP, struct.pack(">BBH", 1, 0, 20) + b"\1" * 16)
    yield _Kind("dccp request", DCCP, b"")
    yield _Kind("udplite", UDPLITE, b"x" * 4)
    yield _Kind("esp", _ESP, struct.pack(">II", 256, 1) + b"e" * 16)
    yield _Kind("ipcomp", _IPCOMP, struct.pack(">BBH", UDP, 0, 256) + b"c" * 8)
    yield _Kind("gre", _GRE, bytes(4) + b"g" * 8)
    if v4:
        yield _Kind("ah", _AH, struct.pack(">BBHII", UDP, 4, 0, 256, 1) + bytes(12) + b"x" * 8)
        yield _Kind("udp, record route", UDP, b"x", header_options=bytes.fromhex("0707040000000000"))
        yield _Kind("udp, router alert", UDP, b"x", header_options=bytes.fromhex("94040000"))
        yield _Kind("tcp syn, ip options", TCP, flags=_SYN, options=_MSS, header_options=b"\1\1\1\0")
    else:
        yield _Kind("udp, ah", UDP, b"x" * 8, extension=(_AH, struct.pack(">BHII", 4, 0, 256, 1) + bytes(12)))
        yield _Kind("udp, hop-by-hop", UDP, b"x" * 8, extension=(_HOP, bytes.fromhex("00010400000000")))
        yield _Kind("udp, destination", UDP, b"x", extension=(_DESTINATION, bytes.fromhex("00010400000000")))
        yield _Kind("udp, routing 2", UDP, b"x", extension=(_ROUTING, bytes((2, 2, 0)) + bytes(20)))
        yield _Kind(
            "udp, segment routing", UDP, b"x", extension=(_ROUTING, bytes((2, 4, 0, 0, 0, 0, 0)) + bytes(16))
        )
        yield _Kind("mobility", _MOBILITY, struct.pack(">BBBBHH", _NONE, 0, 5, 0, 0, 0))
    yield _Kind("udp, first fragment", UDP, b"x" * 16, fragment=0x2000)
    yield _Kind("udp, later fragment", UDP, b"x" * 16, fragment=0x00B9)
    yield _Kind("tcp syn, first fragment", TCP, b"x" * 12, flags=_SYN, options=_MSS, fragment=0x2000)


def _made(family: Family, kind: _Kind, number: int, way: Way) -> Sent:
    source = source_of(family, number)
    target = target_of(family, 0, True) if kind.local else target_of(family, 1, False)
    if kind.group:
        target = 0xE0000105 if family is Family.IPV4 else 0xFF05 << 112 | 0x105
    width = 4 if family is Family.IPV4 else 16
    addresses = source.to_bytes(width, "big") + target.to_bytes(width, "big")
    body = _layer4(kind, addresses)
    data = (_ip4 if family is Family.IPV4 else _ip6)(kind, number, addresses, body)
    flow = None
    if kind.established:
        flow = Flow(Tuple(source, target, kind.protocol, *kind.ports), replied=True)
    return Sent(kind.name, data, way is Way.OUT, kind.to, kind.owner, flow, source, kind.setup)


def _layer4(kind: _Kind, addresses: bytes) -> bytes:
    ports = struct.pack(">HH", *kind.ports)
    if kind.protocol == TCP:
        size = 20 + len(kind.options)
        head = ports + struct.pack(">IIBBHHH", 1, bool(kind.flags & _ACK), size << 2, kind.flags, 65535, 0, 0)
        body, at, protocol = bytearray(head + kind.options + kind.body), 16, TCP
    elif kind.protocol in (UDP, UDPLITE):
        body = bytearray(ports + struct.pack(">HH", 8 + len(kind.body), 0) + kind.body)
        at, protocol = 6, kind.protocol
    elif kind.protocol in (ICMP, ICMPV6):
        body, at, protocol = bytearray(kind.body), 2, kind.protocol
    elif kind.protocol == SCTP:
        body = bytearray(ports + struct.pack(">II", 0, 0) + kind.body)
        body[8:12] = struct.pack("<I", crc32c(bytes(body)))
        return bytes(body)
    elif kind.protocol == DCCP:
        # Data offset 5 words, type REQUEST with long sequence numbers, the service code.
        head = ports + struct.pack(">BBHBBHII", 5, 0, 0, 1, 0, 0, 1, 42)
        body, at, protocol = bytearray(head), 6, DCCP
    else:
        return kind.body
    pseudo = b"" if kind.protocol == ICMP else addresses + struct.pack(">II", len(body), protocol)
    body[at : at + 2] = checksum(pseudo + bytes(body))
    if kind.broken:
        body[at + 1] ^= 1
    return bytes(body)


def _ip4(kind: _Kind, number: int, addresses: bytes, body: bytes) -> bytes:
    options = kind.header_options
    size = 20 + len(options)
    head = struct.pack(
        ">BBHHHBBH",
        0x40 | size // 4,
        kind.tos,
        size + len(body),
        number,
        kind.fragment or 0,
        kind.ttl,
        kind.protocol,
        0,
    )
    header = bytearray(head + addresses + options)
    header[10:12] = checksum(bytes(header))
    return bytes(header) + body


def _ip6(kind: _Kind, number: int, addresses: bytes, body: bytes) -> bytes:
    following, extra = kind.protocol, b""
    if kind.fragment is not None:
        more, offset = bool(kind.fragment & 0x2000), kind.fragment & 0x1FFF
        extra, following = struct.pack(">BBHI", kind.protocol, 0, offset << 3 | more, number), _FRAGMENT
    elif kind.extension is not None:
        following, rest = kind.extension
        extra = bytes((kind.protocol,)) + rest
    head = struct.pack(">IHBB", 6 << 28 | kind.tos << 20, len(extra) + len(body), following, kind.ttl)
    return head + addresses + extra + body


def listen(family: Family) -> list[socket.socket]:
    """Sockets that packets to us belong to."""
    v4 = family is Family.IPV4
    kind = socket.AF_INET if v4 else socket.AF_INET6
    own = socket.inet_ntop(kind, target_of(family, 0, True).to_bytes(4 if v4 else 16, "big"))
    out = []
    for port, type_, mark in (
        (UDP_SOCKET, socket.SOCK_DGRAM, 0),
        (MARKED_SOCKET, socket.SOCK_DGRAM, 0x77),
        (TCP_SOCKET, socket.SOCK_STREAM, 0x78),
    ):
        listener = socket.socket(kind, type_)
        if v4:
            listener.setsockopt(socket.SOL_IP, 19, 1)  # IP_TRANSPARENT
        else:
            listener.setsockopt(socket.IPPROTO_IPV6, 75, 1)  # IPV6_TRANSPARENT
        listener.setsockopt(socket.SOL_SOCKET, 36, mark)  # SO_MARK
        listener.bind((own, port))
        if type_ is socket.SOCK_STREAM:
            listener.listen(8)
        out.append(listener)
    return out
