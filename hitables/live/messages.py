"""Values between a process and one forked from it, over a socket: a length, then the value pickled."""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("=Q")


def send(connection: socket.socket, value: object) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """The next value; EOFError when the other end is closed."""
    return pickle.loads(_exactly(connection, *_LENGTH.unpack(_exactly(connection, _LENGTH.size))))


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
