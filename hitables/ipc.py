"""Values sent between a process and its fork over a socket: a length, then the pickled value.

Invariant: a forked process has no open file of its parent except the three standard ones.  Threads of the
parent may be starting tools; a pipe of theirs that stays open in the fork would make them wait.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("=Q")


def close_all_but(connection: socket.socket) -> None:
    """Close the inherited files except *connection*: the first step of a forked process."""
    kept = connection.fileno()
    os.closerange(3, kept)
    os.closerange(kept + 1, 1 << 16)


def send(connection: socket.socket, value: object) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """The next value; EOFError if the other end is closed."""
    return pickle.loads(_exactly(connection, *_LENGTH.unpack(_exactly(connection, _LENGTH.size))))


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
