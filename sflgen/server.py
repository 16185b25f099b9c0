"""A session connected to its clients: one that writes to a file, or many on a Unix socket.

Answers keep the order of each client's commands.  A client that does not read its answers is not read
either, and no other client waits for it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from hitables.errors import HitablesError

from .session import Reply, Session

# Of a socket: clients at a time (others wait until one leaves); bytes of answers that a client may leave
# unread before it is not read; bytes of a line.
MAX_CLIENTS, MAX_UNREAD, MAX_LINE = 200, 1 << 20, 1 << 20


def over_lines(session: Session, file: TextIO, write: Reply) -> None:
    """Answer the lines of *file* until it ends or a line is `quit`."""
    rest = b""
    for data in _chunks(session, file):
        lines, rest, is_over = _split(rest + data)
        session.take(map(_text, lines), write)
        if is_over:
            break
    else:
        session.take([_text(rest)] if rest else [], write)
    session.finish()
    session.settle()


def _split(data: bytes) -> tuple[list[bytes], bytes, bool]:
    """The complete lines of *data* up to `quit`, the incomplete one, and whether there is a `quit`."""
    *lines, rest = data.split(b"\n")
    quit_at = next((at for at, line in enumerate(lines) if line.strip() == b"quit"), None)
    return lines[:quit_at], rest, quit_at is not None


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


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
    """Answer the clients of a Unix socket at *path* until KeyboardInterrupt."""
    listener = _listener(path)
    on_listening()
    try:
        _Server(session, listener).run()
    finally:
        path.unlink(missing_ok=True)
        listener.close()


def _listener(path: Path) -> socket.socket:
    """A socket at *path* that only our user can connect to."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_socket():
            path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o077)
    try:
        listener.bind(str(path))
    except OSError as error:
        raise HitablesError(f"{path}: {error.strerror}") from None
    finally:
        os.umask(mask)
    listener.listen()
    return listener


class _Server:
    """Waits for events of the session, the listener, and the clients."""

    def __init__(self, session: Session, listener: socket.socket) -> None:
        self.session, self.listener = session, listener
        self.clients: set[_Client] = set()
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ)
        self.selector.register(session, selectors.EVENT_READ)

    def run(self) -> None:
        while True:
            for key, events in self.selector.select():
                if key.fileobj is self.session:
                    self.session.attend()
                elif key.fileobj is self.listener:
                    self.accept()
                elif events & selectors.EVENT_READ:
                    key.data.serve(self.session)
            for client in [*self.clients]:
                client.write()
                if client.events:
                    self.selector.modify(client.connection, client.events, client)
                else:
                    self.remove(client)

    def accept(self) -> None:
        client = _Client(self.listener.accept()[0])
        self.clients.add(client)
        self.selector.register(client.connection, client.events, client)
        if len(self.clients) == MAX_CLIENTS:
            self.selector.unregister(self.listener)

    def remove(self, client: _Client) -> None:
        self.selector.unregister(client.connection)
        client.connection.close()
        self.clients.remove(client)
        self.session.batches.pop(client, None)
        if len(self.clients) == MAX_CLIENTS - 1:
            self.selector.register(self.listener, selectors.EVENT_READ)


class _Client:
    """One connection: its incomplete line, and the answers that it has not read yet."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.rest = b""
        self.unread = bytearray()
        self.is_leaving = False

    @property
    def events(self) -> int:
        """The events to wait for; 0 if the connection is to be closed."""
        reads = not self.is_leaving and len(self.unread) < MAX_UNREAD
        return (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if self.unread else 0)

    def serve(self, session: Session) -> None:
        """Read commands, and pass them to the session."""
        try:
            data = self.connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        lines, self.rest, is_over = _split(self.rest + data)
        session.take(map(_text, lines), self.reply, self)
        self.is_leaving = is_over or not data
        if len(self.rest) > MAX_LINE:
            session.finish()
            self.reply("error the line is too long\n")
            self.is_leaving = True
        if self.is_leaving:
            session.finish()

    def reply(self, answer: str) -> None:
        self.unread += answer.encode("utf-8", "surrogateescape")
        self.write()

    def write(self) -> None:
        """Write as many bytes of the answers as the connection accepts."""
        try:
            while self.unread:
                del self.unread[: self.connection.send(self.unread)]
        except BlockingIOError:
            pass
        except OSError:  # the client is gone; its updates are performed all the same
            self.unread.clear()
            self.is_leaving = True
