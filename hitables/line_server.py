"""Commands line by line from the clients of a Unix socket, and a service that answers them.

Answers keep the order of each client's commands.  A client that does not read its answers is not read
either, nor are the commands performed that it has sent; no other client waits for it.  Who may connect is the
mode of the socket's file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from .errors import FileError

# Clients at a time (others wait until one leaves); bytes of answers after which a client has no more commands
# performed, until it has read them or the others have had their turn; bytes of a line.
MAX_CLIENTS, MAX_UNREAD, MAX_LINE = 200, 1 << 20, 1 << 20

Reply = Callable[[str], None]


class Service(Protocol):
    """What answers commands.  It shares its clients' thread."""

    def fileno(self) -> int:
        """A descriptor that is readable when `attend` has work to do."""
        ...

    def attend(self) -> None:
        """Do what is to do beside commands."""
        ...

    def take(self, lines: Iterable[str], reply: Reply, client: Connection) -> None:
        """Execute *lines*, which end when the client has to read first.

        *reply* is called with the answers, in their order, now or later.
        """
        ...

    def finish(self) -> None:
        """Answer all commands that were taken."""
        ...

    def forget(self, client: object) -> None:
        """The client has left."""
        ...


def split(data: bytes) -> tuple[list[bytes], bytes, bool]:
    """The complete lines of *data* up to `quit`, the incomplete one, and whether there is a `quit`."""
    *lines, rest = data.split(b"\n")
    quit_at = next((at for at, line in enumerate(lines) if line.strip() == b"quit"), None)
    return lines[:quit_at], rest, quit_at is not None


def text_of(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def over_socket(
    service: Service,
    path: Path,
    on_listening: Callable[[], None],
    mode: int = 0o600,
    group: int | None = None,
) -> None:
    """Answer the clients of a Unix socket at *path* until KeyboardInterrupt.

    mode   of its file: who may write to it may connect
    group  the number of its group; None: that of this process
    """
    listener = _listener(path, mode, group)
    ours = _identity(path)
    try:
        on_listening()
        _Server(service, listener).run()
    finally:
        if _identity(path) == ours:  # not the socket of another server, which found ours dead
            path.unlink(missing_ok=True)
        listener.close()


def _identity(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        status = path.lstat()
        return status.st_dev, status.st_ino
    return None


def _listener(path: Path, mode: int, group: int | None) -> socket.socket:
    """A socket at *path*, in place of one on which nothing listens."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _alone_in(path.parent):
            _remove_dead(path)
            mask = os.umask(0o177)  # until it has its group, it is ours alone
            try:
                listener.bind(str(path))
            finally:
                os.umask(mask)
            if group is not None:
                os.chown(path, -1, group)
            os.chmod(path, mode)
            listener.listen()
        return listener
    except OSError as error:
        listener.close()
        reason = (
            "there is a file of this name, and it is no socket"
            if error.errno == errno.EADDRINUSE
            else error.strerror or str(error)
        )
        raise FileError(f"{path}: {reason}") from None
    except BaseException:
        listener.close()
        raise


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """No other server removes or binds a socket in *folder* meanwhile."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_dead(path: Path) -> None:
    """Remove the socket of a server that has died; FileError if one listens."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:  # its backlog is full
            pass
    raise FileError(f"{path}: another program listens on this socket; stop it, or take another --socket")


class _Server:
    """Waits for events of the service, the listener, and the clients."""

    def __init__(self, service: Service, listener: socket.socket) -> None:
        self.service, self.listener = service, listener
        listener.setblocking(False)
        self.clients: set[Connection] = set()
        self.selector = selectors.DefaultSelector()
        self.is_accepting = False
        self.accept_more(True)
        self.selector.register(service, selectors.EVENT_READ)

    def run(self) -> None:
        with self.selector:
            try:
                while True:
                    self.step()
            finally:
                for client in self.clients:
                    client.connection.close()

    def step(self) -> None:
        for key, events in self.selector.select():
            if key.fileobj is self.service:
                self.service.attend()
            elif key.fileobj is self.listener:
                self.accept()
            else:
                if events & selectors.EVENT_READ:
                    key.data.receive()
                key.data.perform(self.service)
        for client in [*self.clients]:
            client.write()
            if client.events:
                self.selector.modify(client.connection, client.events, client)
            else:
                self.remove(client)

    def accept_more(self, more: bool) -> None:
        if more and not self.is_accepting:
            self.selector.register(self.listener, selectors.EVENT_READ)
        elif self.is_accepting and not more:
            self.selector.unregister(self.listener)
        self.is_accepting = more

    def accept(self) -> None:
        try:
            client = Connection(self.listener.accept()[0])
        except BlockingIOError:  # it has gone
            return
        except OSError:  # too many files are open: when a client leaves there is room for another
            self.accept_more(not self.clients)
            return
        self.clients.add(client)
        self.selector.register(client.connection, client.events, client)
        self.accept_more(len(self.clients) < MAX_CLIENTS)

    def remove(self, client: Connection) -> None:
        self.selector.unregister(client.connection)
        client.connection.close()
        self.clients.remove(client)
        self.service.forget(client)
        self.accept_more(True)


class Connection:
    """A client: its commands that are not performed yet, and the answers that it has not read yet.

    rest       the incomplete line
    is_ending  no more is read from it; it leaves when its commands are performed
    on_room    called once when the client has read enough of its answers to take more
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.lines: deque[bytes] = deque()
        self.rest = b""
        self.unread = bytearray()
        self.answered = 0  # bytes, in this turn
        self.is_ending = self.is_leaving = False
        self.on_room: Callable[[], None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether it has to read before it gets more."""
        return len(self.unread) >= MAX_UNREAD

    @property
    def events(self) -> int:
        """The events to wait for; 0 if the connection is to be closed."""
        reads = not self.is_ending and not self.is_full and not self.lines
        writes = self.unread or self.lines
        return (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if writes else 0)

    def receive(self) -> None:
        """Read commands."""
        try:
            data = self.connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        lines, self.rest, is_over = split(self.rest + data)
        self.lines.extend(lines)
        self.is_ending = is_over or not data

    def perform(self, service: Service) -> None:
        """Pass commands to the service, as many as one turn allows."""
        self.answered = 0
        service.take(self._turn(), self.reply, self)
        if self.lines:
            return
        if len(self.rest) > MAX_LINE:
            service.finish()
            self.reply("error the line is too long\n")
            self.is_ending = True
        if self.is_ending:
            service.finish()
            self.is_leaving = True

    def _turn(self) -> Iterator[str]:
        while self.lines and not self.is_full and self.answered < MAX_UNREAD:
            yield text_of(self.lines.popleft())

    def reply(self, answer: str) -> None:
        data = answer.encode("utf-8", "surrogateescape")
        self.answered += len(data)
        self.unread += data
        self.write()

    def write(self) -> None:
        """Write as many bytes of the answers as the connection accepts."""
        try:
            while self.unread:
                del self.unread[: self.connection.send(self.unread)]
        except BlockingIOError:
            pass
        except OSError:  # the client is gone; its commands are performed all the same
            self.unread.clear()
            self.is_ending = True
        if self.on_room is not None and not self.is_full and not self.is_ending:
            resume, self.on_room = self.on_room, None
            resume()
