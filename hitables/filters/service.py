"""The commands of `hitables filters serve`, which its clients send line by line (docs/filters.md).

    insert PRIORITY ACTION [FIELD VALUE]…    delete PRIORITY    change PRIORITY ACTION
    list    classify FIELD VALUE…    monitor    status    quit

An answer is lines of data, then `ok` with what is to be known; or `error column N: REASON`, and then nothing
was changed.  A client that has sent `monitor` gets a line `event …` for each event, between answers.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Sequence

from ..engine import Filters, Monitor
from ..errors import HitablesError, ParseError
from ..line_server import Connection, Reply
from .capture import InterfaceCapture
from .text import LinePlace, Syntax, Word, near, words_of

# Events that a client gets before others have their turn.
EVENTS = 256
# Characters of answers that are written at once, unless one answer has more.
TOGETHER = 1 << 16


class _Listener:
    """A client that gets events."""

    def __init__(self, monitor: Monitor, client: Connection) -> None:
        self.monitor, self.client = monitor, client
        self.lost = 0  # events that the client knows to be lost


class FilterService:
    """Filters, answered for to the clients of a socket; with a capture, they decide on its packets."""

    def __init__(self, filters: Filters, syntax: Syntax, capture: InterfaceCapture | None = None) -> None:
        self.filters, self.syntax, self.capture = filters, syntax, capture
        self.events = select.epoll()
        self.listeners: dict[object, _Listener] = {}  # by client
        self.by_descriptor: dict[int, _Listener] = {}
        if capture is not None:
            self.events.register(capture.fileno(), select.EPOLLIN)
        self.commands: dict[str, Callable[[Sequence[Word], LinePlace, Connection], str]] = {
            "insert": self._insert, "delete": self._delete, "change": self._change, "list": self._list,
            "classify": self._classify, "monitor": self._monitor, "status": self._status,
        }  # fmt: skip

    def close(self) -> None:
        for listener in self.listeners.values():
            listener.monitor.close()
        self.events.close()

    # What the server of the socket calls.

    def fileno(self) -> int:
        return self.events.fileno()

    def attend(self) -> None:
        """Decide on packets that have arrived, and send events."""
        ready = {descriptor for descriptor, _ in self.events.poll(0)}
        if self.capture is not None and self.capture.fileno() in ready:
            self.capture.classify(self.filters)
            ready = {descriptor for descriptor, _ in self.events.poll(0)}  # also of these packets' events
        for descriptor in ready:
            if descriptor in self.by_descriptor:
                self._send(self.by_descriptor[descriptor])

    def take(self, lines: Iterable[str], reply: Reply, client: Connection) -> None:
        answers = ""
        for line in lines:
            answers += self.answer(line, client)
            if len(answers) >= TOGETHER:
                reply(answers)
                answers = ""
        if answers:
            reply(answers)

    def finish(self) -> None:
        """Every command is answered at once."""

    def forget(self, client: object) -> None:
        listener = self.listeners.pop(client, None)
        if listener is not None:
            descriptor = listener.monitor.fileno()
            if self.by_descriptor.pop(descriptor, None) is not None:
                self.events.unregister(descriptor)
            listener.monitor.close()

    # Commands.

    def answer(self, line: str, client: Connection) -> str:
        """The answer to a line; "" for one without words."""
        words, place = words_of(line), LinePlace(line)
        if not words:
            return ""
        try:
            command = self.commands.get(words[0].text)
            if command is None:
                names = (*self.commands, "quit")  # which the connection performs
                place.fail(f"no command is called {words[0].text}", words[0], near(words[0].text, names))
            return command(words[1:], place, client)
        except ParseError as error:
            reason = f"{error.reason}; {error.hint}" if error.hint else error.reason
            return f"error column {error.column}: {_one_line(reason)}\n"
        except HitablesError as error:
            what = words[min(1, len(words) - 1)]  # the priority, of commands that have one
            return f"error column {what.column}: {_one_line(str(error))}\n"

    def _insert(self, words: Sequence[Word], place: LinePlace, client: Connection) -> str:
        self.filters.insert(self.syntax.filter(words, place))
        return "ok\n"

    def _delete(self, words: Sequence[Word], place: LinePlace, client: Connection) -> str:
        priority = self.syntax.priority(words, place)
        _end(words[1:], place)
        self.filters.remove(priority)
        return "ok\n"

    def _change(self, words: Sequence[Word], place: LinePlace, client: Connection) -> str:
        priority, action = self.syntax.priority(words, place), self.syntax.action(words[1:], place)
        _end(words[2:], place)
        self.filters.change(priority, action)
        return "ok\n"

    def _list(self, words: Sequence[Word], place: LinePlace, client: Connection) -> str:
        _end(words, place)
        lines = [
            f"filter {self.filters.packets(each.priority)} {self.syntax.show_filter(each)}\n"
            for each in self.filters
        ]
        return f"{''.join(lines)}ok {len(lines)}\n"

    def _classify(self, words: Sequence[Word], place: LinePlace, client: Connection) -> str:
        header = self.syntax.header(words, place)
        verdicts = self.filters.classify(self.filters.layout.headers([header]))
        priority = int(verdicts.priorities[0])
        passed = "pass" if verdicts.passed[0] else "drop"
        return f"ok {passed} {'none' if priority < 0 else priority}\n"

    def _monitor(self, words: Sequence[Word], place: LinePlace, client: Connection) -> str:
        _end(words, place)
        if client in self.listeners:
            return "error column 1: this client has a monitor already\n"
        listener = _Listener(self.filters.monitor(), client)
        self.listeners[client] = listener
        self._resume(listener)
        return "ok\n"

    def _status(self, words: Sequence[Word], place: LinePlace, client: Connection) -> str:
        _end(words, place)
        counts = self.filters.statistics()
        facts: dict[str, object] = {
            "family": self.syntax.family, "algorithm": str(self.filters.spec).replace(" ", ""),
            "filters": len(self.filters), "bytes": self.filters.bytes, "room": self.filters.room,
            "packets": counts.packets, "allowed": counts.allowed, "denied": counts.denied,
            "unmatched": counts.unmatched, "events": counts.events, "monitors": len(self.listeners),
        }  # fmt: skip
        if client in self.listeners:
            own = self.listeners[client].monitor.statistics()
            facts |= {"delivered": own.delivered, "lost": own.lost, "pending": own.pending}
        if self.capture is not None:
            facts |= self.capture.counts()
        return f"ok {' '.join(f'{name} {value}' for name, value in facts.items())}\n"

    # Events.

    def _resume(self, listener: _Listener) -> None:
        """Wait for events of a client that reads them."""
        if listener.client in self.listeners:
            descriptor = listener.monitor.fileno()
            self.by_descriptor[descriptor] = listener
            self.events.register(descriptor, select.EPOLLIN)

    def _send(self, listener: _Listener) -> None:
        """Events to a client, unless it has to read first: those that wait too long are lost, and counted."""
        client, monitor = listener.client, listener.monitor
        if client.is_full:
            self.events.unregister(monitor.fileno())
            del self.by_descriptor[monitor.fileno()]
            client.on_room = lambda: self._resume(listener)
            return
        events = monitor.read(0, EVENTS)
        lost = monitor.statistics().lost - listener.lost
        listener.lost += lost
        lines = [f"event {self.syntax.show_event(event)}\n" for event in events]
        client.reply((f"lost {lost}\n" if lost else "") + "".join(lines))


def _end(words: Sequence[Word], place: LinePlace) -> None:
    if words:
        place.fail(f"{words[0].text!r} does not belong here", words[0])


def _one_line(text: str) -> str:
    return " ".join(text.split())
