"""Filters, headers and events as text: PRIORITY ACTION FIELD VALUE FIELD VALUE …

    10 allow src 192.0.2.0/24 proto tcp dport 80
    1000 add_event proto tcp tcp syn

A field that is not named is any; a range is LOW-HIGH.  `Syntax` reads and writes one family; what is wrong
is a ParseError with the column.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NoReturn

from ..engine import Action, Event, Filter, Layout
from ..engine.layout import Range
from ..errors import ParseError
from .phase import WIDTH, Phase

ACTIONS = {action.name.lower(): action for action in Action}
PROTOCOLS = {
    "icmp": 1, "tcp": 6, "udp": 17, "dccp": 33, "gre": 47, "esp": 50, "ah": 51, "icmpv6": 58, "sctp": 132,
    "udplite": 136,
}  # fmt: skip
_PROTOCOL_NAMES = {number: name for name, number in PROTOCOLS.items()}
_PHASES = {phase.name.lower(): int(phase) for phase in Phase}
_PHASE_NAMES = {number: name for name, number in _PHASES.items()}
MOST_PRIORITY = 2**31 - 2


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a line, and its column from 1."""

    text: str
    column: int


def words_of(line: str) -> list[Word]:
    """The words of a line up to a comment, which a word that begins with # begins."""
    words = [Word(match[0], match.start() + 1) for match in re.finditer(r"\S+", line)]
    comment = next((at for at, word in enumerate(words) if word.text.startswith("#")), len(words))
    return words[:comment]


@dataclass(frozen=True, slots=True)
class LinePlace:
    """The line that is read, for errors; *number* 0: none."""

    line: str
    source: str = "-"
    number: int = 0

    def fail(self, reason: str, word: Word | None = None, hint: str = "") -> NoReturn:
        """Raise the ParseError of *word*, or of the end of the line."""
        column = word.column if word else len(self.line.rstrip()) + 1
        raise ParseError(
            reason, source=self.source, line=self.number, column=column, text=self.line,
            length=len(word.text) if word else 1, hint=hint,
        )  # fmt: skip


def near(text: str, known: Iterable[str]) -> str:
    """What to do about a word that is not known."""
    close = difflib.get_close_matches(text, list(known), 1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its width in bits, and the reader and the writer of one value.

    read  raises ValueError with the reason
    """

    width: int
    read: Callable[[str], int]
    show: Callable[[int], str]

    def range(self, text: str) -> Range:
        top = (1 << self.width) - 1
        if text == "any":
            return 0, top
        low, dash, high = text.partition("-")
        if dash:
            chosen = self.read(low), self.read(high)
        elif "/" in text:
            chosen = _prefix(text, self.width)
        else:
            chosen = (self.read(text),) * 2
        if chosen[0] > chosen[1]:
            raise ValueError(f"the range {text} is reversed")
        return chosen

    def text(self, chosen: Range) -> str:
        low, high = chosen
        if low == high:
            return self.show(low)
        free = (low ^ high).bit_length()
        if self.width >= 32 and low & (1 << free) - 1 == 0 and high == low | (1 << free) - 1:
            return f"{self.show(low)}/{self.width - free}"
        return f"{self.show(low)}-{self.show(high)}"


class Syntax:
    """The fields of one family (4 or 6), and the lines that name them."""

    def __init__(self, family: int = 4) -> None:
        self.family = family
        width = 32 if family == 4 else 128
        address = Field(width, lambda text: _address(text, family), lambda value: _dotted(value, width))
        port = Field(16, lambda text: _number(text, 65535, "port"), str)
        self.fields = {
            "src": address,
            "dst": address,
            "sport": port,
            "dport": port,
            "proto": Field(8, _protocol, lambda value: _PROTOCOL_NAMES.get(value, str(value))),
            "tcp": Field(WIDTH, _phase, lambda value: _PHASE_NAMES.get(value, str(value))),
        }
        self.layout = Layout(tuple(field.width for field in self.fields.values()))
        self._any = tuple((0, (1 << field.width) - 1) for field in self.fields.values())

    # Reading.

    def filter(self, words: Sequence[Word], place: LinePlace) -> Filter:
        """PRIORITY ACTION FIELD VALUE …"""
        priority = self.priority(words[:1], place)
        action = self.action(words[1:2], place)
        return Filter(priority, self.ranges(words[2:], place), action)

    def priority(self, words: Sequence[Word], place: LinePlace) -> int:
        """One word."""
        if not words:
            place.fail("the priority is missing")
        try:
            return _number(words[0].text, MOST_PRIORITY, "priority")
        except ValueError as error:
            place.fail(str(error), words[0])

    def action(self, words: Sequence[Word], place: LinePlace) -> Action:
        """One word."""
        if not words:
            place.fail("the action is missing", hint=f"there are {', '.join(ACTIONS)}")
        if words[0].text not in ACTIONS:
            place.fail(f"no action is called {words[0].text}", words[0], near(words[0].text, ACTIONS))
        return ACTIONS[words[0].text]

    def ranges(self, words: Sequence[Word], place: LinePlace) -> tuple[Range, ...]:
        """FIELD VALUE …; fields that are not named are any."""
        chosen: dict[str, Range] = {}
        for name, value in zip(words[::2], [*words[1::2], None], strict=False):
            if name.text not in self.fields:
                place.fail(f"no field is called {name.text}", name, near(name.text, self.fields))
            if name.text in chosen:
                place.fail(f"{name.text} is given twice", name)
            if value is None:
                place.fail(f"the value of {name.text} is missing")
            try:
                chosen[name.text] = self.fields[name.text].range(value.text)
            except ValueError as error:
                place.fail(str(error), value)
        return tuple(chosen.get(name, whole) for name, whole in zip(self.fields, self._any, strict=True))

    def header(self, words: Sequence[Word], place: LinePlace) -> tuple[int, ...]:
        """FIELD VALUE …, each a single value; fields that are not named are 0."""
        named = {word.text: value for word, value in zip(words[::2], words[1::2], strict=False)}
        values = []
        for name, (low, high), whole in zip(self.fields, self.ranges(words, place), self._any, strict=True):
            if name not in named and (low, high) == whole:
                low = high = 0
            if low != high:
                place.fail(f"{name} of a packet is one value", named[name])
            values.append(low)
        return tuple(values)

    def event(self, words: Sequence[Word], place: LinePlace) -> Event:
        """NUMBER TIME PRIORITY ACTION FIELD VALUE …, as `show_event` writes it."""
        number, at = (int(word.text) for word in words[:2])
        priority, action = self.priority(words[2:3], place), self.action(words[3:4], place)
        return Event(number, at, priority, action, self.header(words[4:], place))

    # Writing.

    def show_filter(self, shown: Filter) -> str:
        """What `filter` reads; fields that are any are left out."""
        fields = (
            f" {name} {field.text(chosen)}"
            for (name, field), chosen, whole in zip(self.fields.items(), shown.ranges, self._any, strict=True)
            if chosen != whole
        )
        return f"{shown.priority} {shown.action.name.lower()}{''.join(fields)}"

    def show_header(self, header: Sequence[int]) -> str:
        return " ".join(
            f"{name} {field.show(value)}"
            for (name, field), value in zip(self.fields.items(), header, strict=True)
        )

    def show_event(self, event: Event) -> str:
        head = f"{event.number} {event.time} {event.priority} {event.action.name.lower()}"
        return f"{head} {self.show_header(event.header)}"


def read_filters(text: str, syntax: Syntax, source: str) -> list[Filter]:
    """The filters of a file, one a line; ParseError names every mistake."""
    filters: dict[int, Filter] = {}
    lines: dict[int, int] = {}
    errors: list[ParseError] = []
    for number, line in enumerate(text.split("\n"), start=1):
        words, place = words_of(line), LinePlace(line, source, number)
        if not words:
            continue
        try:
            each = syntax.filter(words, place)
            if each.priority in filters:
                place.fail(f"line {lines[each.priority]} has priority {each.priority} already", words[0])
        except ParseError as error:
            errors.append(error)
        else:
            filters[each.priority], lines[each.priority] = each, number
    if errors:
        raise ParseError.of_all(errors)
    return list(filters.values())


# -- values; each raises ValueError with the reason ----


def _number(text: str, most: int, what: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= most):
        raise ValueError(f"{text!r} is no {what} from 0 to {most}")
    return int(text)


def _address(text: str, family: int) -> int:
    try:
        address: IPv4Address | IPv6Address = ip_address(text)
    except ValueError:
        raise ValueError(f"{text!r} is no IPv{family} address") from None
    if address.version != family or (isinstance(address, IPv6Address) and address.scope_id):
        raise ValueError(f"{text!r} is no IPv{family} address")
    return int(address)


def _prefix(text: str, width: int) -> Range:
    """ADDRESS/LENGTH of an address field; bits behind the prefix are cleared."""
    if width < 32:
        raise ValueError(f"{text!r}: only addresses have prefixes; write LOW-HIGH")
    address, _, length = text.partition("/")
    _address(address, 4 if width == 32 else 6)
    if not (length.isascii() and length.isdecimal() and int(length) <= width):
        raise ValueError(f"{length!r} is no prefix length from 0 to {width}")
    network: IPv4Network | IPv6Network = ip_network(text, strict=False)
    return int(network.network_address), int(network.broadcast_address)


def _dotted(value: int, width: int) -> str:
    return str(IPv4Address(value) if width == 32 else IPv6Address(value))


def _protocol(text: str) -> int:
    if text in PROTOCOLS:
        return PROTOCOLS[text]
    try:
        return _number(text, 255, "protocol")
    except ValueError as error:
        raise ValueError(f"{error}, nor one of {', '.join(PROTOCOLS)}") from None


def _phase(text: str) -> int:
    if text in _PHASES:
        return _PHASES[text]
    if text.isascii() and text.isdecimal() and len(text) < 3 and int(text) < 1 << WIDTH:
        return int(text)
    raise ValueError(f"{text!r} is no phase of a connection: {', '.join(_PHASES)}")
