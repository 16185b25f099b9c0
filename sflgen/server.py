"""A session connected to its clients: one that writes to a file, or many on a Unix socket
(hitables/line_server.py).
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from hitables import line_server
from hitables.line_server import Reply, split, text_of

from .session import Session


def over_lines(session: Session, file: TextIO, write: Reply) -> None:
    """Answer the lines of *file* until it ends or a line is `quit`.

    A last line without its end is not performed, since it may be a part of one.
    """
    rest = b""
    for data in _chunks(session, file):
        lines, rest, is_over = split(rest + data)
        session.take(map(text_of, lines), write)
        if is_over:
            break
    else:
        if rest:
            session.take([], write)
            session.finish()
            write("error the last line has no end, so it is not performed\n")
    session.finish()
    session.settle()


def _chunks(session: Session, file: TextIO) -> Iterator[bytes]:
    """The bytes of *file* as they arrive; meanwhile the session makes progress."""
    try:
        handle = file.fileno()
    except OSError:  # not a file of the system: all of it is there
        yield file.read().encode("utf-8", "surrogateescape")
        return
    with selectors.PollSelector() as selector:
        selector.register(handle, selectors.EVENT_READ)
        selector.register(session, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            session.attend()
            if handle in ready:
                data = os.read(handle, 1 << 16)
                if not data:
                    return
                yield data


def over_socket(session: Session, path: Path, on_listening: Callable[[], None]) -> None:
    """Answer the clients of a Unix socket at *path*, to which only our user can connect, until
    KeyboardInterrupt.
    """
    line_server.over_socket(session, path, on_listening)
