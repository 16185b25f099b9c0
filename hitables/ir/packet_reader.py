"""Packets read from the text of packet_text.py, typed by a person or printed by `show_packet`."""

from __future__ import annotations

import difflib
import ipaddress
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ..errors import ParseError
from .answers import ANY, Answers
from .connection_states import LOOPBACK, first_state, state_without_connection
from .fact import NAMED_NUMBERS
from .fields import (
    ICMP,
    ICMPV6,
    INTERFACES,
    PORT_PROTOCOLS,
    SCTP,
    STATES,
    TCP,
    UDP,
    Family,
    Field,
    Fragment,
    interface_number,
    top,
)
from .headers import FIELD_BYTES, inconsistency
from .packet import Outcome, Packet
from .packet_formats import ICMP_NUMBERS, refuse_other_formats
from .packet_text import FLAGS, FRAGMENTS, PROTOCOLS

T = TypeVar("T")

ANSWERS = {"no": Outcome.NO, "yes": Outcome.YES, "dropped": Outcome.DROPPED}
# By protocol: the one that services are listed for.
_SERVED_BY = {TCP: ("tcp",), UDP: ("udp",), SCTP: ("sctp",)}
RAW = (Field.SPORT, Field.DPORT, Field.FLAGS)


@dataclass(frozen=True, slots=True)
class Spelled:
    """A packet read from text, with the table and chain that it enters; *packet* has the *answers*.

    left_out  the words that were not given, of those with a default
    """

    table: str
    chain: str
    packet: Packet
    answers: Answers
    left_out: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Word:
    """NAME=VALUE, its column and length, and the text that it is part of."""

    name: str
    value: str
    column: int
    length: int
    text: str

    def wrong(self, reason: str, hint: str = "") -> ParseError:
        return ParseError(
            reason, source="packet", line=1, column=self.column, text=self.text, length=self.length, hint=hint
        )


def read_packet(text: str, family: Family, table: str = "filter") -> Spelled:
    """Read a packet from text; ParseError lists the words that are wrong, and those that are missing.

    chain, src, dst and proto are required, and the fields of a packet of that protocol.  These words have
    defaults: table (*table*), in and out (none), mac (none), state (of a packet
    of no connection that the kernel has seen: NEW of one that may begin one, in raw INVALID), frag (none),
    bytes of layer 4 (64), flags (SYN for a NEW packet and a first one, else ACK).
    """
    refuse_other_formats(text)
    mistakes: list[ParseError] = []
    words = _words(text, mistakes)
    known: dict[str, _Word] = {}
    answers = Answers()
    for word in words:
        try:
            if word.name in _ANSWER_READERS:
                _ANSWER_READERS[word.name](word, family, answers)
            elif word.name not in NAMES:
                raise word.wrong(f"unknown word {word.name}=", _nearest(word.name, NAMES))
            elif word.name in known:
                raise word.wrong(f"{word.name}= is given twice")
            else:
                known[word.name] = word
        except ParseError as error:
            mistakes.append(error)
    named, chain = known.get("table"), known.get("chain")
    table = named.value if named else table
    reader = _Reader(known, family, text, mistakes)
    fields = reader.fields(table)
    if chain is None:
        mistakes.append(_missing("chain", "say which chain the packet enters, as in chain=FORWARD", text))
    if mistakes or chain is None:
        raise ParseError.of_all(mistakes)
    left_out = frozenset(NAMES) - frozenset(known)
    return Spelled(table, chain.value, answers.given_by(fields()), answers, left_out)


def _words(text: str, mistakes: list[ParseError]) -> list[_Word]:
    words, at = [], 0
    pattern = re.compile(r'\s*(?:([^\s=]*)=("(?:[^"\\]|\\.)*"|[^\s"]*)(?=\s|$)|(\S+))')
    while text[at:].strip():
        token = pattern.match(text, at)
        assert token is not None, "the pattern does not match some word"
        if token.group(3) is not None:
            word = _Word("", "", token.start(3) + 1, len(token.group(3)), text)
            quote = '"' in token.group(3)
            mistakes.append(word.wrong("a quote that is not closed" if quote else "a word is missing its ="))
            at = token.end()
            continue
        name, value = token.group(1), token.group(2)
        if value.startswith('"'):
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        words.append(_Word(name, value, token.start(1) + 1, token.end() - token.start(1), text))
        at = token.end()
    return words


def _nearest(word: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def _missing(name: str, hint: str, text: str) -> ParseError:
    return ParseError(
        f"{name}= is missing", source="packet", line=1, column=len(text) + 1, text=text, hint=hint
    )


class _Reader:
    """Makes a packet of its *words*; what is wrong with them is added to *mistakes*."""

    def __init__(
        self, words: dict[str, _Word], family: Family, text: str, mistakes: list[ParseError]
    ) -> None:
        self.words, self.family, self.text, self.mistakes = words, family, text, mistakes

    def value(self, name: str, read: Callable[[_Word], T], default: T) -> T:
        word = self.words.get(name)
        try:
            return default if word is None else read(word)
        except ParseError as error:
            self.mistakes.append(error)
            return default

    def get(self, name: str, which: Field, default: int | None = None) -> int | None:
        return self.value(name, lambda word: _read(word, word.value, which, self.family), default)

    def choice(self, name: str, meanings: Mapping[str, T], default: T) -> T:
        return self.value(name, lambda word: _choose(word, word.value, meanings), default)

    def fields(self, table: str) -> Callable[[], Packet]:
        """Read the words of a packet of *table*; the function makes the packet, if there were no mistakes."""
        offset_one = self.choice("offset", {"1": True}, False)
        frag = self.choice("frag", FRAGMENTS, Fragment.LATER if offset_one else Fragment.WHOLE)
        cut_short = self.choice("headers", {"cut": True, "whole": False}, False)
        size = self.size()
        values = {Field.FRAG: int(frag)}
        iif = self.get("in", Field.IIF, 0)
        state = self.get("state", Field.STATE)
        fields = {
            Field.IIF: iif, Field.OIF: self.get("out", Field.OIF, 0),
            Field.SRC: self.get("src", Field.SRC), Field.DST: self.get("dst", Field.DST),
            Field.PROTO: self.get("proto", Field.PROTO), Field.MAC: self.get("mac", Field.MAC),
            Field.SPORT: None, Field.DPORT: None,
            Field.FLAGS: self.get("flags", Field.FLAGS), Field.ICMP: self.get("icmp", Field.ICMP),
            Field.STATE: 0,
            Field.PHYSIN: self.get("physin", Field.PHYSIN), Field.PHYSOUT: self.get("physout", Field.PHYSOUT),
        }  # fmt: skip
        later = frag is Fragment.LATER
        proto = fields[Field.PROTO]
        for name, which in (("sport", Field.SPORT), ("dport", Field.DPORT)):
            fields[which] = self.port(name, which, proto)
        self.require(fields, cut_short, later, size)
        if proto == TCP and not later and size >= FIELD_BYTES[Field.FLAGS] and fields[Field.FLAGS] is None:
            is_first = state is None or state == STATES.index("NEW")
            fields[Field.FLAGS] = FLAGS["SYN"] if is_first else FLAGS["ACK"]
        if state is None:
            of_kind = "NEW" if later else state_without_connection(self.family, fields)
            state = STATES.index(first_state(table, iif == LOOPBACK, of_kind))
        fields[Field.STATE] = state
        raw = {which: value for which in RAW if later and (value := fields.pop(which)) is not None}
        values |= {which: value for which, value in fields.items() if value is not None}
        packet = Packet(
            self.family,
            values,
            raw,
            size,
            self.choice("doff", {"bad": True, "good": False}, False),
            offset_one,
            cut_short,
        )
        return lambda: self.checked(packet)

    def checked(self, packet: Packet) -> Packet:
        wrong = inconsistency(packet)
        if wrong is not None:
            raise ParseError(f"there is no such packet: {wrong}", source="packet", line=1, text=self.text)
        return packet

    def port(self, name: str, which: Field, proto: int | None) -> int | None:
        """A number, or the name of a service, as in dport=ssh."""

        def read(word: _Word) -> int:
            if re.fullmatch(r"[0-9]+", word.value):
                return _read(word, word.value, which, self.family)
            try:
                return socket.getservbyname(word.value, *_SERVED_BY.get(proto or 0, ()))
            except OSError:
                raise word.wrong(
                    f"{word.value!r} is no port, and no service of this host",
                    f"a number from 0 to {top(which, self.family)}, or a name of /etc/services",
                ) from None

        return self.value(name, read, None)

    def size(self) -> int:
        return self.value("bytes", lambda word: _number(word, word.value, 65535), 64)

    def require(self, fields: dict[Field, int | None], cut_short: bool, later: bool, size: int) -> None:
        needed = {"src": "an address", "dst": "an address"}
        proto = fields[Field.PROTO]
        if not cut_short:
            needed["proto"] = "as in proto=tcp"
        if not cut_short and (proto in PORT_PROTOCOLS or later):
            why = "a later fragment's bytes, read as ports" if later else "that protocol has ports"
            needed |= {
                name: why
                for name, which in (("sport", Field.SPORT), ("dport", Field.DPORT))
                if size >= FIELD_BYTES[which]
            }
        if later and not cut_short and size >= FIELD_BYTES[Field.FLAGS]:
            needed["flags"] = "a later fragment's bytes, read as tcp flags"
        icmp = ICMP if self.family is Family.IPV4 else ICMPV6
        if proto == icmp and not later and size >= FIELD_BYTES[Field.ICMP]:
            needed["icmp"] = "type and code, as in icmp=8/0"
        for name, hint in needed.items():
            if name not in self.words:
                self.mistakes.append(_missing(name, hint, self.text))


def _read(word: _Word, text: str, which: Field, family: Family) -> int:
    """The value of a field from its text."""
    if which in (Field.SRC, Field.DST):
        kind = ipaddress.IPv4Address if family is Family.IPV4 else ipaddress.IPv6Address
        try:
            return int(kind(text))
        except ValueError as error:
            hint = _hint_at_network(text, which) or str(error)
            raise word.wrong(f"{text!r} is not an IPv{int(family)} address", hint) from None
    if which is Field.PROTO:
        return PROTOCOLS.get(text.lower()) or _number(word, text, 255, tuple(PROTOCOLS))
    if which is Field.FRAG:
        return int(_choose(word, text, FRAGMENTS))
    if which is Field.ICMP:
        kind_text, slash, code = text.partition("/")
        if not slash:
            raise word.wrong(f"{text!r} is no type with a code", _hint_at_icmp(text, family))
        return _number(word, kind_text, 255) << 8 | _number(word, code, 255)
    if which is Field.FLAGS:
        names = [] if text.lower() == "none" else text.upper().split(",")
        return sum({_choose(word, name, FLAGS) for name in names})
    if which is Field.MAC:
        if not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", text):
            raise word.wrong(f"{text!r} is not a mac address", "six bytes, as in 02:00:00:00:00:01")
        return int(text.replace(":", ""), 16)
    if which is Field.STATE:
        return _choose(word, text.upper(), {name: number for number, name in enumerate(STATES)})
    if which in INTERFACES:
        if re.fullmatch(r"0x[0-9a-f]{32}", text):
            return int(text, 16)
        if len(text.encode("utf-8", "surrogateescape")) > 15:
            raise word.wrong(f"{text!r} is not an interface name", "15 characters at most")
        return interface_number(text)
    return _number(word, text, top(which, family))


def _hint_at_network(text: str, which: Field) -> str:
    """A hint at a network or a range in place of an address; "" for another text."""
    if not re.fullmatch(r"[0-9a-fA-F.:]+[/-][0-9a-fA-F.:]+", text):
        return ""
    option = "--from" if which is Field.SRC else "--to"
    return f"a packet has one address; hitables reach {option} {text} answers for all of them"


def _hint_at_icmp(text: str, family: Family) -> str:
    """A hint at a type without its code, or a name."""
    numbers = ICMP_NUMBERS.get(text.lower(), ("", ""))[family is Family.IPV6]
    if re.fullmatch(r"[0-9]{1,3}", text) and int(text) < 256:
        numbers = f"{text}/0"
    return f"write icmp={numbers}" if numbers else "two numbers, as in icmp=8/0"


def _number(word: _Word, text: str, most: int, names: tuple[str, ...] = ()) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > most:
        hint = f"a number from 0 to {most}"
        near = difflib.get_close_matches(text, names, 1)
        raise word.wrong(f"{text!r} is out of range", f"{hint}; did you mean {near[0]}?" if near else hint)
    return int(text)


def _choose(word: _Word, text: str, meanings: Mapping[str, T]) -> T:
    if text not in meanings:
        raise word.wrong(f"{text!r} is not known here", _nearest(text, tuple(meanings)))
    return meanings[text]


def _split_answer(word: _Word) -> tuple[str, str, int | None]:
    """KEY=ANSWER or KEY=ANSWER/NUMBER."""
    key, equals, answer = word.value.rpartition("=")
    answer, counted, number = answer.partition("/")
    if not equals or not key:
        raise word.wrong(f"{word.value!r} gives no answer", f'as in {word.name}="mark --mark 0x1=yes"')
    return key, answer, _number(word, number, 10**9) if counted else None


def _read_fact(word: _Word, family: Family, answers: Answers) -> None:
    key, answer, epoch = _split_answer(word)
    answers.facts[key, epoch or 0] = _choose(word, answer, {"yes": True, "no": False})


def _read_number(word: _Word, family: Family, answers: Answers) -> None:
    attribute, value, epoch = _split_answer(word)
    names = NAMED_NUMBERS.get(attribute, ())
    if value in names:
        answers.numbers[attribute, epoch or 0] = names.index(value)
        return
    if not re.fullmatch(r"0x[0-9a-f]{1,9}|[0-9]{1,10}", value):
        hint = _nearest(value, names) if names else 'as in number="mark=0x1"'
        raise word.wrong(f"{value!r} is no number", hint)
    answers.numbers[attribute, epoch or 0] = int(value, 0)


def _read_outcome(word: _Word, family: Family, answers: Answers) -> None:
    key, answer, ordinal = _split_answer(word)
    answers.outcomes[key, ANY if ordinal is None else ordinal] = _choose(word, answer, ANSWERS)


def _read_rewrite(word: _Word, family: Family, answers: Answers) -> None:
    name, _, rest = word.value.partition("=")
    which = _choose(word, name, {each.name.lower(): each for each in Field})
    value, counted, epoch = rest.rpartition("@")
    if not counted:
        raise word.wrong(
            f"{word.value!r} does not say after how many writes", "as in rewrite=state=UNTRACKED@1"
        )
    answers.rewrites[which, _number(word, epoch, 10**9)] = _read(word, value, which, family)


_ANSWER_READERS: dict[str, Callable[[_Word, Family, Answers], None]] = {
    "fact": _read_fact,
    "number": _read_number,
    "outcome": _read_outcome,
    "rewrite": _read_rewrite,
}
ANSWER_WORDS = tuple(_ANSWER_READERS)
NAMES = (
    "table", "chain", "in", "out", "physin", "physout", "src", "dst", "proto", "sport", "dport", "flags",
    "icmp", "mac", "state", "frag", "offset", "doff", "headers", "bytes", *ANSWER_WORDS,
)  # fmt: skip
