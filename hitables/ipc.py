"""Values between a process and one forked from it, over a socket: a length, then the value pickled.

Invariant: a forked process holds no file of its parent's but the standard three.  Threads of the parent
may have been starting tools: whoever holds the other end of a pipe of theirs keeps them waiting.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("=Q")


def close_all_but(connection: socket.socket) -> None:
    """What a forked process does first: close the files that it inherited, except *connection*."""
    kept = connection.fileno()
    os.closerange(3, kept)
    os.closerange(kept + 1, 1 << 16)


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
