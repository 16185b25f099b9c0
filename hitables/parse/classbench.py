"""ClassBench filter sets -> rules of five fields, and those as iptables-save text.

A line reads `@SRC/LEN DST/LEN LOW : HIGH LOW : HIGH PROTO/MASK`, in its longer form with
`FLAGS/MASK` behind it; blanks or tabs separate the columns.  The first rule that matches wins.

Lines have few shapes.  We replace every word of the text (address, number, value/mask) by a NUL character,
parse each distinct shape once with lark, and fill the words into the parse; so 100,000 lines take half a
second instead of a minute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ..errors import ParseError, Unsupported
from ..ir.fields import PORT_PROTOCOLS
from ..ir.program import BUILT_IN
from .lines import quote

if TYPE_CHECKING:
    from lark import Lark

Interval = tuple[int, int]
ANY_ADDRESS: Interval = (0, 0xFFFFFFFF)
ANY_PORT: Interval = (0, 65535)


class FilterRule(NamedTuple):
    """One line.  Addresses and ports from low to high, both included; *proto* None means any.

    *flags* is ClassBench's column of that name as (value, mask), None if the line has none or the mask is
    0.  Traces have no flags, so a comparison with them must ignore the column.
    """

    src: Interval
    dst: Interval
    sport: Interval
    dport: Interval
    proto: int | None
    flags: tuple[int, int] | None
    line: int


@dataclass(frozen=True, slots=True)
class ClassbenchFilter:
    """The rules of one set, best first; *source* names the file."""

    rules: tuple[FilterRule, ...]
    source: str = "-"

    def __len__(self) -> int:
        return len(self.rules)

    def __iter__(self) -> Iterator[FilterRule]:
        return iter(self.rules)


def parse(text: str, source: str = "-") -> ClassbenchFilter:
    """Read a filter set; ParseError names the line and column of the mistake."""
    if "\0" in text:
        raise ParseError("binary data, no ClassBench filter", source=source)
    rules = []
    shapes = _WORD.sub("\0", text).split("\n")
    for number, (shape, line) in enumerate(zip(shapes, text.split("\n"), strict=True), start=1):
        if not shape.strip():
            continue
        try:
            rules.append(_reader(shape)(_WORD.findall(line), number))
        except ValueError:
            _explain(line, number, source)
    if not rules:
        raise ParseError("an empty filter set", source=source, hint=_EXPECTED)
    return ClassbenchFilter(tuple(rules), source)


def to_text(filters: ClassbenchFilter, chain: str = "FORWARD", action: str = "ACCEPT") -> str:
    """The set as iptables-save text: one rule per filter rule, in *chain* of the filter table.

    Wildcards are omitted, and so is the flags column: five fields, as in all publications on these sets.
    iptables cannot express ports of a protocol without ports, or of any protocol, nor protocol 0, which it
    takes for any: Unsupported names the line.
    """
    built_in = BUILT_IN["filter"]
    lines = ["*filter", *(f":{name} ACCEPT [0:0]" for name in built_in)]
    if chain not in built_in:
        lines.append(f":{chain} - [0:0]")
    ends = f"-j {action}"
    for rule in filters.rules:
        words = [f"-A {quote(chain)}"]
        if rule.src != ANY_ADDRESS:
            words.append(f"-s {_prefix_text(rule.src)}")
        if rule.dst != ANY_ADDRESS:
            words.append(f"-d {_prefix_text(rule.dst)}")
        if rule.proto == 0:
            raise Unsupported(
                f"{filters.source}:{rule.line}: protocol 0 (0x00/0xFF): iptables cannot express that, "
                f"because -p 0 is any protocol; write 0x00/0x00 for any protocol, or leave the line out"
            )
        if rule.proto is not None:
            words.append(f"-p {PORT_MATCH.get(rule.proto, rule.proto)}")
        if rule.sport != ANY_PORT or rule.dport != ANY_PORT:
            if rule.proto not in PORT_PROTOCOLS:
                protocol = "any protocol" if rule.proto is None else f"protocol {rule.proto}, which has none"
                raise Unsupported(
                    f"{filters.source}:{rule.line}: ports of {protocol}: iptables cannot express that; "
                    f"give the rule tcp (0x06/0xFF), udp (0x11/0xFF), or the ports 0 : 65535"
                )
            words += _port_words(rule)
        words.append(ends)
        lines.append(" ".join(words))
    return "\n".join((*lines, "COMMIT", ""))


def _port_words(rule: FilterRule) -> Iterator[str]:
    """The tests of the ports: for udplite, which has no match of its own, two of -m multiport."""
    own = PORT_MATCH.get(rule.proto or 0)
    if own is not None:
        yield f"-m {own}"
    for side, ports in (("--sport", rule.sport), ("--dport", rule.dport)):
        if ports != ANY_PORT:
            option = side if own is not None else f"-m multiport {side}s"
            yield f"{option} {_range_text(ports)}"


def to_filter_text(filters: ClassbenchFilter) -> str:
    """The set as ClassBench writes it; a rule with flags has a column for them."""
    lines = []
    for rule in filters.rules:
        columns = [f"@{_prefix_text(rule.src)}", _prefix_text(rule.dst)]
        columns += [f"{low} : {high}" for low, high in (rule.sport, rule.dport)]
        columns.append("0x00/0x00" if rule.proto is None else f"0x{rule.proto:02x}/0xFF")
        if rule.flags:
            columns.append(f"0x{rule.flags[0]:04x}/0x{rule.flags[1]:04x}")
        lines.append("\t".join(columns) + "\n")
    return "".join(lines)


# Protocols with a match of their own for ports, which has their name.
PORT_MATCH = {6: "tcp", 17: "udp", 33: "dccp", 132: "sctp"}

_WORD = re.compile(r"[\w./]+")


# Words recur: a hit costs a tenth of reading the word.
_remembered = lru_cache(maxsize=1 << 16)


# -- values of words; each raises ValueError with the reason ----------------------------------------


_BYTES = {str(byte): byte for byte in range(256)}
_FREE = {str(length): (1 << 32 - length) - 1 for length in range(33)}  # the bits outside the prefix


@_remembered
def _prefix(word: str) -> Interval:
    """An address with its prefix length; bits behind the prefix are cleared."""
    address, _, length = word.partition("/")
    try:
        a, b, c, d = map(_BYTES.__getitem__, address.split("."))
    except (KeyError, ValueError):
        raise ValueError(f"{address!r} is no IPv4 address") from None
    value = a << 24 | b << 16 | c << 8 | d
    free = _FREE.get(length)
    if free is None:
        raise ValueError(f"{length!r} is no prefix length from 0 to 32")
    return value & ~free, value | free


def _port(word: str) -> int:
    if not (word.isascii() and word.isdecimal() and len(word) <= 5 and int(word) <= 65535):
        raise ValueError(f"{word!r} is no port from 0 to 65535")
    return int(word)


@_remembered
def _masked(word: str) -> tuple[int, int]:
    """VALUE/MASK, both hexadecimal with 0x."""
    parts = re.fullmatch(r"0[xX]([0-9a-fA-F]{1,8})/0[xX]([0-9a-fA-F]{1,8})", word)
    if parts is None:
        raise ValueError(f"{word!r} is no 0xVALUE/0xMASK")
    return int(parts[1], 16), int(parts[2], 16)


@_remembered
def _protocol(word: str) -> int | None:
    value, mask = _masked(word)
    if mask not in (0, 0xFF) or value > 0xFF:
        raise ValueError(f"protocol {word}: the mask must be 0xFF (this protocol) or 0x00 (any)")
    return value if mask else None


@_remembered
def _flags(word: str) -> tuple[int, int] | None:
    value, mask = _masked(word)
    return (value, mask) if mask else None


def _extra(word: str) -> None:
    if _masked(word)[1]:
        raise ValueError(f"extra field {word}: only wildcards (mask 0) have a meaning here")


@_remembered
def _range(low_word: str, high_word: str) -> Interval:
    low, high = _port(low_word), _port(high_word)
    if low > high:
        raise ValueError("reversed")
    return low, high


@_remembered
def _prefix_text(interval: Interval) -> str:
    low, high = interval
    dotted = ".".join(str(low >> shift & 255) for shift in (24, 16, 8, 0))
    return f"{dotted}/{32 - (high - low).bit_length()}"


def _range_text(interval: Interval) -> str:
    low, high = interval
    return str(low) if low == high else f"{low}:{high}"


# -- shapes ----------------------------------------------------------------------------------------


def _short(words: list[str], line: int) -> FilterRule:
    src, dst, sport_low, sport_high, dport_low, dport_high, protocol = words
    return FilterRule(
        _prefix(src),
        _prefix(dst),
        _range(sport_low, sport_high),
        _range(dport_low, dport_high),
        _protocol(protocol),
        None,
        line,
    )


def _long(words: list[str], line: int) -> FilterRule:
    src, dst, sport_low, sport_high, dport_low, dport_high, protocol, flags, *extra = words
    for word in extra:
        _extra(word)
    return FilterRule(
        _prefix(src),
        _prefix(dst),
        _range(sport_low, sport_high),
        _range(dport_low, dport_high),
        _protocol(protocol),
        _flags(flags),
        line,
    )


class _Misfit(ValueError):
    """A shape that no line may have; *at* is the position of its first mistake."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


@_remembered
def _reader(shape: str) -> Callable[[list[str], int], FilterRule]:
    """The function from the words of a line of this shape to its rule."""
    from lark.exceptions import UnexpectedInput, UnexpectedToken

    try:
        tree = _grammar().parse(shape)
    except UnexpectedInput as error:
        ended = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        raise _Misfit(len(shape) if ended else error.pos_in_stream or 0) from error
    return _long if any(tree.find_data("flags")) else _short


@cache
def _grammar() -> Lark:
    from lark import Lark

    text = (files("hitables.syntax") / "classbench.lark").read_text()
    return Lark(text, start="rule", parser="lalr")


# -- errors ----------------------------------------------------------------------------------------

_EXPECTED = "a rule reads @SRC/LEN DST/LEN LOW : HIGH LOW : HIGH 0xPROTO/0xMASK [0xFLAGS/0xMASK]"
_READERS: tuple[Callable[[str], object], ...] = (
    _prefix, _prefix, _port, _port, _port, _port, _protocol, _flags,
)  # fmt: skip


def _explain(line: str, number: int, source: str) -> NoReturn:
    """Raise the ParseError that names the first mistake of *line*."""
    words = list(_WORD.finditer(line))

    def fail(reason: str, start: int, end: int, hint: str = "") -> NoReturn:
        raise ParseError(
            reason, source=source, line=number, column=start + 1, text=line, length=end - start, hint=hint
        ) from None

    shape = _WORD.sub("\0", line)
    try:
        _reader(shape)
    except _Misfit as misfit:
        # The same position in the line: as many words and as many other characters precede it.
        before = shape[: misfit.at].count("\0")
        start = misfit.at + sum(len(word[0]) - 1 for word in words[:before])
        if start >= len(line.rstrip()):
            fail(f"the line ends after {len(words)} values", len(line), len(line), _EXPECTED)
        end = words[before].end() if shape[misfit.at] == "\0" else start + 1
        fail(f"{line[start:end]!r} does not belong here", start, end, _EXPECTED)
    for index, word in enumerate(words):
        try:
            (_READERS[index] if index < len(_READERS) else _extra)(word[0])
        except ValueError as error:
            fail(str(error), word.start(), word.end())
    for low, high in ((words[2], words[3]), (words[4], words[5])):
        if int(low[0]) > int(high[0]):
            reason = f"the port range {low[0]} : {high[0]} is reversed"
            fail(reason, low.start(), high.end(), f"did you mean {high[0]} : {low[0]}?")
    raise AssertionError(f"no fault found in line {number}: {line!r}")
