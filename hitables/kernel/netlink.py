"""Netlink messages to netfilter: attributes, batches, dumps.

The nft command would have to parse and print tens of thousands of set elements for each experiment; this
module packs and unpacks them in the kernel's format.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator

from ..errors import LiveError

NETLINK_NETFILTER = 12
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 0x1, 0x4, 0x300
NLM_F_EXCL, NLM_F_CREATE, NLM_F_APPEND = 0x200, 0x400, 0x800
NLMSG_ERROR, NLMSG_DONE = 2, 3
NESTED = 0x8000
CTNETLINK, NFTABLES = 1, 10
_BATCH_BEGIN, _BATCH_END = 16, 17
_GETGEN = 16
_BATCH_GENERATION = 1
_SOL_NETLINK, _CAP_ACK = 270, 10
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")  # length, kind
_BUFFER = 64 << 20
_BUFFERS = ((32, socket.SO_SNDBUF), (33, socket.SO_RCVBUF))  # SO_SNDBUFFORCE, SO_RCVBUFFORCE
_DONE_SIZE = 20  # of the message that ends a dump: a header and a number
_AT_ONCE, _LAST = 500, 1


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    return struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)


def nested(kind: int, *parts: bytes) -> bytes:
    return attribute(kind | NESTED, b"".join(parts))


def number(kind: int, value: int) -> bytes:
    """An attribute of 32 bits, in network order, as in all of netfilter."""
    return struct.pack("=HH", 8, kind) + value.to_bytes(4, "big")


def text(kind: int, value: str) -> bytes:
    """An attribute that is a name; bytes that are not UTF-8 are surrogates in *value*."""
    return attribute(kind, value.encode("utf-8", "surrogateescape") + b"\0")


def attributes(data: bytes) -> dict[int, bytes]:
    """The attributes of *data*, by kind; of equal kinds the last."""
    return dict(attribute_list(data))


def attribute_list(data: bytes) -> Iterator[tuple[int, bytes]]:
    at, read = 0, _ATTRIBUTE.unpack_from
    while at + 4 <= len(data):
        length, kind = read(data, at)
        yield kind & 0x3FFF, data[at + 4 : at + length]
        at += length + 3 & ~3


def message(subsystem: int, kind: int, flags: int, family: int, body: bytes, resource: int = 0) -> bytes:
    payload = struct.pack("=BBH", family, 0, socket.htons(resource)) + body
    size = _HEADER.size + len(payload)
    return _HEADER.pack(size, subsystem << 8 | kind, flags | NLM_F_REQUEST, 0, 0) + payload + bytes(-size % 4)


class Netfilter:
    """A netlink socket to netfilter in the namespace of the caller.

    Every error of the socket, and every refusal of the kernel, is a LiveError whose cause is the OSError.
    """

    def __init__(self) -> None:
        self._room = memoryview(bytearray(1 << 20))
        with _system_errors():
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
            for forced, plain in _BUFFERS:
                try:
                    self._socket.setsockopt(socket.SOL_SOCKET, forced, _BUFFER)
                except PermissionError:
                    # Root of a user namespace, as in an unprivileged container, gets what net.core allows.
                    self._socket.setsockopt(socket.SOL_SOCKET, plain, _BUFFER)
            self._socket.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)  # answers without the request
            self._socket.bind((0, 0))

    def close(self) -> None:
        self._socket.close()

    def commit(self, messages: Iterable[bytes], expected: int | None = None) -> None:
        """Send nf_tables *messages* as one batch: all of it takes effect, or nothing.

        *expected*: the number of commits so far; the kernel refuses the batch if there are others.
        """
        guard = b"" if expected is None else number(_BATCH_GENERATION, expected)
        parts = [
            message(0, _BATCH_BEGIN, 0, 0, guard, NFTABLES),
            *messages,
            message(0, _BATCH_END, 0, 0, b"", NFTABLES),
        ]
        # Only the last of our messages requests an answer; a refused message is answered anyway.
        parts[-2] = _asking(parts[-2])
        self._send(b"".join(parts))
        for kind, body in self._messages():
            if kind == NLMSG_ERROR:
                _check(body, "nf_tables")
                return

    def each(self, messages: Iterable[bytes]) -> int:
        """Send independent messages; how many of them were refused."""
        rest = list(messages)
        refused = 0
        for at in range(0, len(rest), _AT_ONCE):
            group = rest[at : at + _AT_ONCE]
            group[-1] = _asking(group[-1])
            self._send(b"".join(group))
            # Refusals arrive at once, the answer to the last message at the end.
            for kind, body in self._messages():
                if kind == NLMSG_ERROR:
                    refused += struct.unpack_from("=i", body)[0] != 0
                    if struct.unpack_from("=I", body, 12)[0] == _LAST:
                        break
        return refused

    def ask(self, message_: bytes) -> bytes:
        """Send *message_*, which has one answer; its body, without its generic header."""
        self._send(message_)
        kind, body = next(self._messages())
        if kind == NLMSG_ERROR:
            _check(body, "netfilter")
        return body[4:]

    def generation(self) -> int:
        """The number of commits to nf_tables so far."""
        return int.from_bytes(attributes(self.ask(message(NFTABLES, _GETGEN, 0, 0, b"")))[1], "big")

    def dump(self, message_: bytes) -> Iterator[bytes]:
        """Send *message_*; the body of each answer, without its generic header."""
        self._send(message_)
        for kind, body in self._messages():
            if kind == NLMSG_DONE:
                return
            if kind == NLMSG_ERROR:
                _check(body, "netfilter")
                return
            yield body[4:]

    def dump_whole(self, message_: bytes) -> bytes:
        """Send *message_*; all answers concatenated, each with its headers.

        For thousands of small answers, in which the caller searches for a pattern.
        """
        self._send(message_)
        parts = []
        while True:
            with _system_errors():
                data = self._socket.recv(1 << 20)
            if _HEADER.unpack_from(data)[1] == NLMSG_ERROR:
                _check(data[_HEADER.size :], "netfilter")
            parts.append(data)
            size, kind, *_ = _HEADER.unpack_from(data, len(data) - _DONE_SIZE)
            if size == _DONE_SIZE and kind == NLMSG_DONE:
                return b"".join(parts)

    def _send(self, data: bytes) -> None:
        with _system_errors():
            self._socket.send(data)

    def _messages(self) -> Iterator[tuple[int, bytes]]:
        while True:
            with _system_errors():
                data = bytes(self._room[: self._socket.recv_into(self._room)])
            at = 0
            while at + _HEADER.size <= len(data):
                size, kind, *_ = _HEADER.unpack_from(data, at)
                yield kind, data[at + _HEADER.size : at + size]
                at += size + 3 & ~3


def _asking(message_: bytes) -> bytes:
    """The message with its own sequence number and a request for an answer."""
    asking = bytearray(message_)
    struct.pack_into("=H", asking, 6, struct.unpack_from("=H", asking, 6)[0] | NLM_F_ACK)
    struct.pack_into("=I", asking, 8, _LAST)
    return bytes(asking)


def _check(body: bytes, what: str) -> None:
    error = -struct.unpack_from("=i", body)[0]
    if error:
        strerror = os.strerror(error)
        raise LiveError(f"{what}: {strerror}{_as_root(error)}") from OSError(error, strerror)


@contextlib.contextmanager
def _system_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LiveError(f"netfilter: {error.strerror}{_as_root(error.errno)}") from error


def _as_root(error: int | None) -> str:
    """A hint for an error number of the kernel, or ""."""
    return "; run it as root" if error in (errno.EPERM, errno.EACCES) else ""
