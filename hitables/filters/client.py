"""A client of `hitables filters serve`: filters in and out, and events as they come."""

from __future__ import annotations

import select
import shlex
import socket
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ..engine import Action, Event, Filter
from ..errors import DatabaseError, FileError, InvalidOption
from .text import LinePlace, Syntax, words_of

# Commands that are sent before their answers are read: they fit into the buffer of a socket, so that neither
# side waits for the other.
TOGETHER = 500


class Client:
    """A connection to the server at *path*, for one thread.

    Events that arrive between answers are kept until `read`; *lost* counts those that the server could not
    keep for this client.  Errors: FileError when the server is not there, or has gone; DatabaseError with
    the server's reason when it refuses a command; InvalidOption for a command with a line end in it, which
    would be several.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.lost = 0
        self._rest = b""
        self._events: deque[Event] = deque()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise FileError(
                f"{path}: {error.strerror or error}; "
                f"hitables filters serve --socket {shlex.quote(str(path))} listens there"
            ) from None
        self._lines: deque[str] = deque()
        self.syntax = Syntax(int(self.status()["family"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    # Commands.

    def command(self, line: str) -> list[str]:
        """The lines of the answer to one command; the last one without its `ok`."""
        return self.commands([line])[0]

    def commands(self, lines: Sequence[str]) -> list[list[str]]:
        """The answers to commands that are sent together; DatabaseError for the first that is refused, when
        all have been performed.
        """
        answers, refused = [], None
        for begin in range(0, len(lines), TOGETHER):
            some = lines[begin : begin + TOGETHER]
            self._send(some)
            for line in some:
                answer, refusal = self._answer()
                answers.append(answer)
                if refusal is not None:
                    refused = refused or DatabaseError(f"{line}: {refusal}")
        if refused is not None:
            raise refused
        return answers

    def ask(self, line: str) -> tuple[list[str], str | None]:
        """The lines of the answer to one command, with its `ok`, and the reason if it was refused; no lines
        for a line without a command.
        """
        if not words_of(line):
            return [], None
        self._send([line])
        answer, refusal = self._answer()
        if refusal is None:
            answer[-1] = f"ok {answer[-1]}".rstrip()
        return answer, refusal

    def _send(self, lines: Sequence[str]) -> None:
        for line in lines:
            if "\n" in line:
                raise InvalidOption(f"{line!r} is more than one line; a command is one line")
        try:
            self._socket.sendall("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise self._gone(error) from None

    def _answer(self) -> tuple[list[str], str | None]:
        """The lines of one answer, and the reason if it is a refusal."""
        answer: list[str] = []
        while True:
            kind, _, rest = (line := self._answer_line()).partition(" ")
            if kind == "error":
                return answer, rest
            answer.append(rest if kind == "ok" else line)
            if kind == "ok":
                return answer, None

    def insert(self, *filters: Filter) -> None:
        """Insert filters, which are in force when this returns."""
        self.commands([f"insert {self.syntax.show_filter(each)}" for each in filters])

    def delete(self, *priorities: int) -> None:
        """Remove filters, which cause no more events when this returns."""
        self.commands([f"delete {priority}" for priority in priorities])

    def change(self, priority: int, action: Action) -> None:
        """Give a filter another action."""
        self.command(f"change {priority} {action.name.lower()}")

    def filters(self) -> dict[Filter, int]:
        """The filters, best first, and the packets of each."""
        found = {}
        for line in self.command("list")[:-1]:
            words = words_of(line)
            found[self.syntax.filter(words[2:], LinePlace(line))] = int(words[1].text)
        return found

    def classify(self, header: Sequence[int]) -> tuple[bool, int | None]:
        """Whether the packet passes, and the priority of its filter."""
        passed, priority = self.command(f"classify {self.syntax.show_header(header)}")[-1].split()
        return passed == "pass", None if priority == "none" else int(priority)

    def status(self) -> dict[str, str]:
        """The counts of the server, by name."""
        words = self.command("status")[-1].split()
        return dict(zip(words[::2], words[1::2], strict=True))

    # Events.

    def monitor(self) -> None:
        """Ask for events: all that are caused from now on."""
        self.command("monitor")

    def fileno(self) -> int:
        """The socket.  It is readable when something arrives; `read(0)` first returns what has arrived."""
        return self._socket.fileno()

    def read(self, timeout: float | None = None) -> list[Event]:
        """Events that have arrived, at least one; none when *timeout* seconds (None: any) pass without."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._events:
            left = None if end is None else max(0.0, end - time.monotonic())
            ready, _, _ = select.select([self._socket], [], [], left)
            if not ready:
                return []
            self._receive()
        events = list(self._events)
        self._events.clear()
        return events

    def _answer_line(self) -> str:
        while not self._lines:
            self._receive()
        return self._lines.popleft()

    def _receive(self) -> None:
        """Read what there is: events to one side, answers to the other."""
        try:
            data = self._socket.recv(1 << 16)
        except OSError as error:
            raise self._gone(error) from None
        if not data:
            raise self._gone(None)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for raw in lines:
            line = raw.decode("utf-8", "surrogateescape")
            kind, _, rest = line.partition(" ")
            if kind == "event":
                self._events.append(self.syntax.event(words_of(rest), LinePlace(rest)))
            elif kind == "lost":
                self.lost += int(rest)
            else:
                self._lines.append(line)

    def _gone(self, error: OSError | None) -> FileError:
        reason = f" ({error.strerror})" if error is not None else ""
        return FileError(f"{self.path}: the server has gone{reason}")
