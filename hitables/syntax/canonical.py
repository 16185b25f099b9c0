"""One spelling for each meaning: the keys of matches and targets.

`key` turns the options of an extension, as the user wrote them, into a text that is the same for two
spellings when iptables 1.8.9 makes the same of them for the kernel, and that differs whenever the kernel
might do something else.  Each extension has a `Form` in `FORMS`; where a form cannot read a value it keeps
the words as they are, which tells apart too much and never too little.  An extension without a form keeps
all its words.

What the forms know was read in the sources of iptables 1.8.9 and of the kernel, and is held against both by
benchmarks.saves: the legacy kernel's own bytes for every spelling, and what iptables-save prints.
"""

from __future__ import annotations

import calendar
import functools
import grp
import ipaddress
import math
import pwd
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..ir.fields import Family
from . import values as spelt


class Said(NamedTuple):
    """An option as used: its name, whether a ! stood before it, its values."""

    option: str
    inverted: bool
    values: tuple[str, ...]


Options = dict[str, tuple[bool, str]]  # of each option: inverted or not, its value in canonical words
Write = Callable[[tuple[str, ...], Family], str]  # values to canonical words; ValueError: not understood
ABSENT = ""  # what a writer says of a value that means the same as leaving the option out
NOTHING = " "  # the value of an option that takes none


@dataclass(frozen=True, slots=True)
class Form:
    """How the options of one extension are written canonically.

    values    a writer for each option whose values have several spellings; the others stay as they are
    defaults  what an option that is left out means
    whole     what depends on several options: changes them, or raises ValueError
    alone     does everything by itself, from the options in their order
    signs     whether a ! means anything
    """

    values: Mapping[str, Write] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    whole: Callable[[Options, Family], None] | None = None
    alone: Callable[[Sequence[Said], Family], str] | None = None
    signs: bool = True


def key(name: str, said: Sequence[Said], defaults: Mapping[str, str], family: Family) -> str:
    """What the extension *name* with these options does, in words: equal keys, equal meaning.

    defaults  of options that are left out, as the table of options has them
    """
    said = _in_force(name, said)
    form = FORMS.get(name, _EMPTY)
    name = _SAME_AS.get(name, name)
    try:
        if form.alone is not None:
            return f"{name} {form.alone(said, family)}".rstrip()
        options: Options = {}
        for use in said:
            found = use.inverted and form.signs, _value(use, form, family)
            if found != (False, ABSENT) and options.setdefault(use.option, found) != found:
                raise ValueError(f"{use.option} stands twice")
        for option, usual in {**defaults, **form.defaults}.items():
            options.setdefault(option, (False, usual or NOTHING))
        if form.whole is not None:
            form.whole(options, family)
    except (ValueError, OverflowError, KeyError):  # KeyError: an option is missing
        return f"{name} {raw(said)}".rstrip()
    written = sorted(
        f"{'! ' if inverted else ''}{option} {value}".rstrip()
        for option, (inverted, value) in options.items()
    )
    return " ".join([name, *written])


def _in_force(name: str, said: Sequence[Said]) -> Sequence[Said]:
    """The options that count where a later one takes back an earlier one."""
    if name == "recent":  # the last of the two says which address is meant
        sides = [use.option for use in said if use.option in ("--rsource", "--rdest")]
        return [use for use in said if use.option not in sides[:-1] or use.option == sides[-1]]
    if name == "ECN":  # it clears what was said before
        places = [place for place, use in enumerate(said) if use.option == "--ecn-tcp-remove"]
        return said[places[-1] :] if places else said
    return said


def _value(use: Said, form: Form, family: Family) -> str:
    write = form.values.get(use.option)
    if write is not None:
        return write(use.values, family)
    return " ".join(quoted(word) for word in use.values) or NOTHING


def plain(name: str, said: Sequence[Said]) -> str:
    """The options in words, whatever their order: for what is compared otherwise."""
    return " ".join([name, *sorted(raw([use]) for use in said)])


def raw(said: Sequence[Said]) -> str:
    """The options as they were written, in their order."""
    words: list[str] = []
    for use in said:
        words += [*(["!"] if use.inverted else []), use.option, *(quoted(word) for word in use.values)]
    return " ".join(words)


# Words that cannot be taken for an option, for two words, or for a quoted one.
_PLAIN = re.compile(r"[^\s\"'\\!-][^\s\"'\\]*")


def quoted(word: str) -> str:
    """*word*, in quotes if it could be mistaken for something else."""
    if _PLAIN.fullmatch(word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def address_mask(option: str, inverted: bool, word: str, family: Family) -> str:
    """The key of a -s or -d whose mask is no prefix."""
    host, _, mask = word.partition("/")
    look = spelt.address(mask, family)
    shown = f"{_shown(spelt.address(host, family) & look, family)}/{_shown(look, family)}"
    return f"{'! ' if inverted else ''}{option} {shown}"


# ---- writers: numbers ----


def _number(bits: int, shown: str = "d") -> Write:
    """An integer of so many bits, in any base."""
    return lambda words, family: f"{spelt.number(words[0], 0, (1 << bits) - 1):{shown}}"


def _low_bits(bits: int) -> Write:
    """An integer of 32 bits, of which iptables keeps so many."""
    return lambda words, family: str(spelt.number(words[0], 0, 0xFFFFFFFF) & ((1 << bits) - 1))


def _or_none(bits: int) -> Write:
    """An integer of so many bits, of which 0 means that nothing is asked."""
    write = _number(bits)
    return lambda words, family: ABSENT if write(words, family) == "0" else write(words, family)


def _span(bits: int, *, open_ended: bool = False, full: bool = False) -> Write:
    """N, LOW:HIGH, either end may be left out; N is N:N, or N: when *open_ended*; *full*: all is as none."""
    top = (1 << bits) - 1

    def write(words: tuple[str, ...], family: Family) -> str:
        low, colon, high = words[0].partition(":")
        first = spelt.number(low, 0, top) if low else 0
        last = spelt.number(high, 0, top) if high else top
        if not colon:
            last = top if open_ended else first
        if full and (first, last) == (0, top):
            return ABSENT
        return f"{first}" if first == last else f"{first}:{last}"

    return write


def _ports(read: Callable[[str], int], *, full: bool = False) -> Write:
    """As `_span` of ports, which may have names."""

    def write(words: tuple[str, ...], family: Family) -> str:
        low, colon, high = words[0].partition(":")
        first = read(low) if low else 0
        last = (read(high) if high else 65535) if colon else first
        if full and (first, last) == (0, 65535):
            return ABSENT
        return f"{first}" if first == last else f"{first}:{last}"

    return write


def _nothing(words: tuple[str, ...], family: Family) -> str:
    """A value that the kernel never looks at."""
    _n32(words, family)
    return ABSENT


def _usual(words: tuple[str, ...], family: Family) -> str:
    """What is done anyway, unless a ! stands before it."""
    return ABSENT


def _port(words: tuple[str, ...], family: Family) -> str:
    """A port, of whose number iptables keeps the lowest 16 bits."""
    if words[0].isdigit():
        return str(_decimal(words[0], 0xFFFFFFFF) & 0xFFFF)
    return str(spelt.decimal_port(words[0]))


def _masked(word: str, full: int = 0xFFFFFFFF) -> tuple[int, int]:
    """VALUE or VALUE/MASK."""
    value, slash, mask = word.partition("/")
    return spelt.number(value, 0, full), spelt.number(mask, 0, full) if slash else full


def _mark(words: tuple[str, ...], family: Family) -> str:
    value, mask = _masked(words[0])
    return f"{value:#x}" if mask == 0xFFFFFFFF else f"{value:#x}/{mask:#x}"


def _mark_and_mask(words: tuple[str, ...], family: Family) -> str:
    value, mask = _masked(words[0])
    return f"{value:#x}/{mask:#x}"


@functools.cache
def _names_of(path: str) -> Mapping[str, int]:
    """Lines NUMBER NAME of a file of names; empty where there is none."""
    try:
        lines = Path(path).read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return {}
    found: dict[str, int] = {}
    for line in lines:
        words = line.split()
        if len(words) == 2 and not words[0].startswith("#"):
            try:
                found.setdefault(words[1], spelt.number(words[0], 0, 0xFFFFFFFF))
            except ValueError:
                continue
    return found


def _named(path: str) -> Write:
    """VALUE, VALUE/MASK, or a name of the file *path*."""

    def write(words: tuple[str, ...], family: Family) -> str:
        name = _names_of(path).get(words[0])
        return _mark(words, family) if name is None else f"{name:#x}"

    return write


def _label(words: tuple[str, ...], family: Family) -> str:
    name = _names_of("/etc/xtables/connlabel.conf").get(words[0])
    return _number(16)(words, family) if name is None else str(name)


def _protocol(words: tuple[str, ...], family: Family) -> str:
    return str(spelt.protocol(words[0]))


# ---- writers: names ----


def _beginning(names: Iterable[str], word: str) -> str:
    """The first of *names* that begins with *word*, whatever the case of the letters."""
    for name in names:
        if word and name.lower().startswith(word.lower()):
            return name
    raise ValueError(f"unknown name {word!r}")


def _list(names: Sequence[str], *, whole: bool = False, no_more: str = "") -> Write:
    """A list of *names*, in any order, doubled or not; begun ones too unless *whole*; *no_more* adds nothing."""

    def write(words: tuple[str, ...], family: Family) -> str:
        found = set()
        for word in words[0].split(","):
            exact = [name for name in names if name.lower() == word.lower()]
            if whole and not exact:
                raise ValueError(f"unknown name {word!r}")
            found.add(exact[0] if whole else _beginning(names, word))
        listed = [name for name in names if name in found and name != no_more]
        return ",".join(listed) or no_more

    return write


def _one_of(names: Mapping[str, str]) -> Write:
    """One of *names*, whatever the case of the letters, in its canonical form."""

    def write(words: tuple[str, ...], family: Family) -> str:
        if words[0].lower() not in names:
            raise ValueError(f"unknown name {words[0]!r}")
        return names[words[0].lower()]

    return write


_ADDRESS_TYPES = (
    "UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE",
    "PROHIBIT", "THROW", "NAT", "XRESOLVE",
)  # fmt: skip
_CT_STATES = ("INVALID", "NEW", "ESTABLISHED", "RELATED", "UNTRACKED", "SNAT", "DNAT")
_CT_STATUS = ("NONE", "EXPECTED", "SEEN_REPLY", "ASSURED", "CONFIRMED")
_CT_EVENTS = (
    "new", "related", "destroy", "reply", "assured", "protoinfo", "helper", "mark", "natseqinfo", "secmark",
)  # fmt: skip
_DCCP_TYPES = (
    "REQUEST", "RESPONSE", "DATA", "ACK", "DATAACK", "CLOSEREQ", "CLOSE", "RESET", "SYNC", "SYNCACK", "INVALID",
)  # fmt: skip
_DSCP_CLASSES = {
    "CS0": 0, "CS1": 8, "CS2": 16, "CS3": 24, "CS4": 32, "CS5": 40, "CS6": 48, "CS7": 56, "BE": 0,
    "AF11": 10, "AF12": 12, "AF13": 14, "AF21": 18, "AF22": 20, "AF23": 22, "AF31": 26, "AF32": 28,
    "AF33": 30, "AF41": 34, "AF42": 36, "AF43": 38, "EF": 46,
}  # fmt: skip
_LEVELS = {
    "alert": 1, "crit": 2, "debug": 7, "emerg": 0, "error": 3, "info": 6, "notice": 5, "panic": 0, "warning": 4,
}  # fmt: skip
_MH_TYPES = (
    ("binding-refresh-request", 0), ("brr", 0), ("home-test-init", 1), ("hoti", 1), ("careof-test-init", 2),
    ("coti", 2), ("home-test", 3), ("hot", 3), ("careof-test", 4), ("cot", 4), ("binding-update", 5), ("bu", 5),
    ("binding-acknowledgement", 6), ("ba", 6), ("binding-error", 7), ("be", 7),
)  # fmt: skip
_HEADERS = {
    "hop": 0, "dst": 60, "route": 43, "frag": 44, "auth": 51, "esp": 50, "none": 59, "prot": 255,
    "hop-by-hop": 0, "ipv6-opts": 60, "ipv6-route": 43, "ipv6-frag": 44, "ah": 51, "ipv6-nonxt": 59,
    "protocol": 255,
}  # fmt: skip
# In the order in which iptables tries them; each name with its short one.
_REJECTS = {
    Family.IPV4: (
        ("icmp-net-unreachable", "net-unreach"), ("icmp-host-unreachable", "host-unreach"),
        ("icmp-proto-unreachable", "proto-unreach"), ("icmp-port-unreachable", "port-unreach"),
        ("icmp-net-prohibited", "net-prohib"), ("icmp-host-prohibited", "host-prohib"),
        ("tcp-reset", "tcp-rst"), ("icmp-admin-prohibited", "admin-prohib"),
    ),
    Family.IPV6: (
        ("icmp6-no-route", "no-route"), ("icmp6-adm-prohibited", "adm-prohibited"),
        ("icmp6-addr-unreachable", "addr-unreach"), ("icmp6-port-unreachable", "port-unreach"),
        ("tcp-reset", "tcp-reset"), ("icmp6-policy-fail", "policy-fail"),
        ("icmp6-reject-route", "reject-route"),
    ),
}  # fmt: skip
_PACKET_TYPES = {
    "unicast": "unicast", "host": "unicast", "broadcast": "broadcast", "bcast": "broadcast",
    "multicast": "multicast", "mcast": "multicast", "otherhost": "otherhost",
}  # fmt: skip
_TCP_OPTIONS = {"wscale": 3, "mss": 2, "sack-permitted": 4, "sack": 5, "timestamp": 8, "md5": 19}
_TOS = {
    "minimize-delay": 16, "maximize-throughput": 8, "maximize-reliability": 4, "minimize-cost": 2,
    "normal-service": 0,
}  # fmt: skip


def _dscp(words: tuple[str, ...], family: Family) -> str:
    return f"{spelt.number(words[0], 0, 63):#04x}"


def _dscp_class(words: tuple[str, ...], family: Family) -> str:
    for name, number in _DSCP_CLASSES.items():
        if words[0].lower().startswith(name.lower()):
            return f"{number:#04x}"
    raise ValueError(f"unknown class {words[0]!r}")


def _level(words: tuple[str, ...], family: Family) -> str:
    return str(_LEVELS[words[0]] if words[0] in _LEVELS else spelt.number(words[0], 0, 7))


def _mh_type(word: str) -> int:
    begun = [(name, number) for name, number in _MH_TYPES if word and name.startswith(word.lower())]
    exact = [number for name, number in begun if len(name) == len(word)]
    return exact[-1] if exact else begun[0][1] if begun else spelt.number(word, 0, 255)


def _mh_types(words: tuple[str, ...], family: Family) -> str:
    low, colon, high = words[0].partition(":")
    first = _mh_type(low) if low or not colon else 0
    last = (_mh_type(high) if high else 255) if colon else first
    if (first, last) == (0, 255):
        return ABSENT
    return f"{first}" if first == last else f"{first}:{last}"


def _headers(words: tuple[str, ...], family: Family) -> str:
    numbers = set()
    for word in words[0].split(","):
        number = _HEADERS.get(word)
        if number is None and word in ("0", "43", "44", "50", "51", "59", "60", "255"):
            number = int(word)
        if number is None:
            raise ValueError(f"unknown header {word!r}")
        numbers.add(number)
    return ",".join(map(str, sorted(numbers)))


def _reject(words: tuple[str, ...], family: Family) -> str:
    for name, short in _REJECTS[family]:
        if words[0] and any(each.startswith(words[0].lower()) for each in (name, short)):
            return name
    raise ValueError(f"unknown type {words[0]!r}")


def _tos(full: int) -> Write:
    """VALUE, VALUE/MASK or a name, whose mask is *full*."""

    def write(words: tuple[str, ...], family: Family) -> str:
        if words[0].lower() in _TOS:
            value, mask = _TOS[words[0].lower()], full
        else:
            value, mask = _masked(words[0], 255)
        return f"{value:#04x}/{mask:#04x}"

    return write


def _tcp_options(words: tuple[str, ...], family: Family) -> str:
    read = (_TCP_OPTIONS[w] if w in _TCP_OPTIONS else spelt.number(w, 2, 255) for w in words[0].split(","))
    return ",".join(map(str, sorted(read)))


def _id(names: Callable[[str], int]) -> Write:
    """A user or group: a name of the system first, then N, LOW-HIGH or LOW:HIGH."""

    def write(words: tuple[str, ...], family: Family) -> str:
        try:
            return str(names(words[0]))
        except KeyError:
            low, dash, high = words[0].replace(":", "-", 1).partition("-")
            first = spelt.number(low, 0, 0xFFFFFFFE)
            last = spelt.number(high, 0, 0xFFFFFFFE) if dash else first
            return f"{first}" if first == last else f"{first}-{last}"

    return write


def _upper(*names: str) -> Write:
    return _one_of({name.lower(): name for name in names})


# ---- writers: addresses ----


def _shown(value: int, family: Family) -> str:
    kind = ipaddress.IPv4Address if family is Family.IPV4 else ipaddress.IPv6Address
    return str(kind(value))


def _width(family: Family) -> int:
    return 32 if family is Family.IPV4 else 128


def _host(word: str, family: Family) -> str:
    return _shown(int(ipaddress.ip_address(word)), family) if _is(word, family) else _fail(word)


def _is(word: str, family: Family) -> bool:
    """Whether *word* is an address of the family, in full."""
    try:
        return ipaddress.ip_address(word).version == int(family)
    except ValueError:
        return False


def _fail(word: str) -> str:
    raise ValueError(f"not an address: {word!r}")


def _address(words: tuple[str, ...], family: Family) -> str:
    return _host(words[0], family)


def _addresses(words: tuple[str, ...], family: Family) -> str:
    return ",".join(_host(word, family) for word in words[0].split(","))


def _length(word: str, family: Family) -> int | None:
    """A prefix length, or a mask that is one; None for another mask, which iptables takes for all bits."""
    width = _width(family)
    try:
        return spelt.number(word, 0, width)
    except ValueError:
        pass
    try:
        packed = socket.inet_pton(socket.AF_INET6, word) if width == 128 else socket.inet_aton(word)
    except OSError:
        raise ValueError(f"not a mask: {word!r}") from None
    mask = int.from_bytes(packed, "big")
    length = mask.bit_count()
    return length if mask == ((1 << length) - 1) << (width - length) else None


def _prefix_length(words: tuple[str, ...], family: Family) -> str:
    length = _length(words[0], family)
    if length is None:
        raise ValueError(f"not a prefix: {words[0]!r}")
    return str(length)


def _prefix_mask(words: tuple[str, ...], family: Family) -> str:
    """As `_prefix_length`, where iptables makes a mask of it."""
    length = _length(words[0], family)
    return str(_width(family) if length is None else length)


def _network(words: tuple[str, ...], family: Family) -> str:
    """ADDRESS, ADDRESS/LENGTH or ADDRESS/MASK; bits beside the mask are never looked at."""
    host, slash, mask = words[0].partition("/")
    if not _is(host, family):
        _fail(host)
    free = _width(family) - (int(_prefix_mask((mask,), family)) if slash else _width(family))
    return f"{_shown(int(ipaddress.ip_address(host)) >> free << free, family)}/{_width(family) - free}"


def _nat_ports(word: str) -> str:
    """PORT, LOW-HIGH or LOW-HIGH/BASE."""
    low, dash, rest = word.partition("-")
    first = spelt.port(low)
    if not dash:
        return str(first)
    high, slash, base = rest.partition("/")
    last = spelt.number(high, first, 65535)
    return (f"{first}" if first == last and not slash else f"{first}-{last}") + (
        f"/{spelt.port(base)}" if slash else ""
    )


def _to_ports(words: tuple[str, ...], family: Family) -> str:
    return _nat_ports(words[0])


_TO = re.compile(r"(?:\[([^]]*)\]|([^:\[\]]*))(?::([^:]*))?")


def _to(words: tuple[str, ...], family: Family) -> str:
    """FIRST-LAST:PORTS of SNAT and DNAT; any part may be missing."""
    if family is Family.IPV6 and "[" not in words[0] and words[0].count(":") > 1:
        hosts, ports = words[0], None
    else:
        found = _TO.fullmatch(words[0])
        if found is None or (found[1] is not None and family is Family.IPV4):
            raise ValueError(f"not a range: {words[0]!r}")
        hosts, ports = found[1] if found[1] is not None else found[2], found[3]
    first, dash, last = hosts.partition("-")
    shown = ""
    if hosts or ports is None:
        low = _host(first, family)
        high = _host(last, family) if dash else low
        shown = low if low == high else f"{low}-{high}"
    shown = f"[{shown}]" if family is Family.IPV6 and shown else shown
    return shown if ports is None else f"{shown}:{_nat_ports(ports)}"


# ---- writers: others ----


def _decimal(word: str, high: int) -> int:
    if not re.fullmatch("[0-9]{1,20}", word) or int(word) > high:
        raise ValueError(f"not a number: {word!r}")
    return int(word)


_INSTRUCTION = (0xFFFF, 0xFF, 0xFF, 0xFFFFFFFF)


def _bytecode(words: tuple[str, ...], family: Family) -> str:
    count, *instructions = words[0].rstrip(",").split(",")
    read = []
    for instruction in instructions:
        numbers = [_decimal(each, 0xFFFFFFFF) for each in instruction.split()]
        if len(numbers) != 4 or len(instruction.split()) != 4:
            raise ValueError(f"not an instruction: {instruction!r}")
        # The code has 16 bits, the two jumps have 8: iptables cuts off the others.
        read.append(" ".join(str(n & mask) for n, mask in zip(numbers, _INSTRUCTION, strict=True)))
    if not count.isdigit() or int(count) != len(read):
        raise ValueError("another number of instructions")
    return quoted(",".join([str(len(read)), *read]))


def _header_options(words: tuple[str, ...], family: Family) -> str:
    read = []
    for word in words[0].split(","):
        kind, colon, length = word.partition(":")
        first = spelt.number(kind, 0, 0xFFFFFFFF) & 0xFF
        last = spelt.number(length, 0, 0xFFFFFFFF) & 0xFF if colon else 255
        read.append(f"{first}" if last == 255 else f"{first}:{last}")
    return ",".join(read)


def _class(words: tuple[str, ...], family: Family) -> str:
    major, minor = words[0].split(":")
    if not all(re.fullmatch(r"(0[xX])?[0-9a-fA-F]{1,16}", each) for each in (major, minor)):
        raise ValueError(f"not a class: {words[0]!r}")
    return f"{int(major, 16) & 0xFFFF:04x}:{int(minor, 16) & 0xFFFF:04x}"


def _zone(words: tuple[str, ...], family: Family) -> str:
    return "mark" if words[0].lower() == "mark" else str(spelt.number(words[0], 0, 65535))


def _directions(words: tuple[str, ...], family: Family) -> str:
    """SET DIRECTIONS, of which the first letters count."""
    found = []
    for word in words[1].split(","):
        if word[:3] not in ("src", "dst"):
            raise ValueError(f"not a direction: {word!r}")
        found.append(word[:3])
    return f"{quoted(words[0])} {','.join(found)}"


def _cut(size: int) -> Write:
    """A text of which the kernel keeps so many bytes."""

    def write(words: tuple[str, ...], family: Family) -> str:
        kept = words[0].encode("utf-8", "surrogateescape")[:size]
        return quoted(kept.decode("utf-8", "surrogateescape"))

    return write


def _probability(words: tuple[str, ...], family: Family) -> str:
    """The kernel holds 31 bits of it."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]+", words[0]):
        share = float(int(words[0], 16))
    elif re.fullmatch(r"(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", words[0]):
        share = float(words[0])
    else:
        raise ValueError(f"not a probability: {words[0]!r}")
    if share > 1:
        raise ValueError("a probability above 1")
    return f"{math.floor(0x80000000 * share + 0.5) / 0x80000000:.11f}"


def _tcp_flags(words: tuple[str, ...], family: Family) -> str:
    bits = []
    for word in words:
        wanted = 0
        for flag in word.split(","):
            if flag.upper() not in spelt.FLAG_BITS:
                raise ValueError(f"unknown flag {flag!r}")
            wanted |= spelt.FLAG_BITS[flag.upper()]
        bits.append(wanted)
    return f"{bits[0]:#04x} {bits[1]:#04x}"


_SYN: Write = lambda words, family: "0x17 0x02"  # noqa: E731


def _u32(words: tuple[str, ...], family: Family) -> str:
    """Tests, as iptables-save prints them."""
    at, text = 0, words[0]
    space, number = re.compile(r"\s*"), re.compile(r"0[xX][0-9a-fA-F]+|[0-9]+")

    def skip() -> None:
        nonlocal at
        found = space.match(text, at)
        assert found is not None, "none is some white space, too"
        at = found.end()

    def read() -> str:
        nonlocal at
        skip()
        found = number.match(text, at)
        if found is None:
            raise ValueError(f"no number at character {at} of {text!r}")
        at = found.end()
        return f"{spelt.number(found[0], 0, 0xFFFFFFFF):#x}"

    def take(*signs: str) -> str:
        nonlocal at
        skip()
        for sign in signs:
            if text.startswith(sign, at):
                at += len(sign)
                return sign
        return ""

    tests = []
    while True:
        test = read()
        while sign := take("&", "<<", ">>", "@"):
            test += sign + read()
        if not take("="):
            raise ValueError(f"no = at character {at} of {text!r}")
        ranges = []
        while True:
            low = read()
            high = read() if take(":") else low
            ranges.append(low if low == high else f"{low}:{high}")
            if not take(","):
                break
        tests.append(f"{test}={','.join(ranges)}")
        if not take("&&"):
            break
    if at != len(text):
        raise ValueError(f"unexpected {text[at:]!r}")
    return "&&".join(tests)


_SCTP_CHUNKS = {
    "DATA": "IUBE", "INIT": "", "INIT_ACK": "", "SACK": "", "HEARTBEAT": "", "HEARTBEAT_ACK": "", "ABORT": "T",
    "SHUTDOWN": "", "SHUTDOWN_ACK": "", "ERROR": "", "COOKIE_ECHO": "", "COOKIE_ACK": "", "ECN_ECNE": "",
    "ECN_CWR": "", "SHUTDOWN_COMPLETE": "T", "I_DATA": "IUBE", "RE_CONFIG": "", "PAD": "", "ASCONF": "",
    "ASCONF_ACK": "", "FORWARD_TSN": "", "I_FORWARD_TSN": "",
}  # fmt: skip


def _chunks(words: tuple[str, ...], family: Family) -> str:
    """all, any or only; then chunk types, each with flags that must be set (upper case) or not."""
    how, what = words[0].lower(), words[1]
    if how not in ("all", "any", "only"):
        raise ValueError(f"not all, any or only: {how!r}")
    if what.upper() in ("ALL", "NONE"):
        return f"{how} {what.upper()}"
    flags: dict[str, dict[str, bool]] = {}
    for word in what.split(","):
        name, _, letters = word.partition(":")
        if name.upper() not in _SCTP_CHUNKS:
            raise ValueError(f"unknown chunk {name!r}")
        wanted = flags.setdefault(name.upper(), {})
        for letter in letters:
            if letter.upper() not in _SCTP_CHUNKS[name.upper()]:
                raise ValueError(f"unknown flag {letter!r}")
            wanted[letter.upper()] = wanted.get(letter.upper(), False) or letter.isupper()
    written = []
    for name in sorted(flags):
        letters = "".join(f if on else f.lower() for f, on in sorted(flags[name].items()))
        written.append(f"{name}:{letters}" if letters else name)
    return f"{how} {','.join(written)}"


_BITS_PER_SECOND = {
    "bit": 1.0, "kibit": 1024.0, "kbit": 1000.0, "mibit": 1024.0**2, "mbit": 1e6, "gibit": 1024.0**3,
    "gbit": 1e9, "tibit": 1024.0**4, "tbit": 1e12, "bps": 8.0, "kibps": 8 * 1024.0, "kbps": 8e3,
    "mibps": 8 * 1024.0**2, "mbps": 8e6, "gibps": 8 * 1024.0**3, "gbps": 8e9, "tibps": 8 * 1024.0**4,
    "tbps": 8e12, "": 1.0,
}  # fmt: skip
_DECIMAL = re.compile(r"([0-9]+(?:\.[0-9]*)?)([A-Za-z]*)")


def _bytes_per_second(words: tuple[str, ...], family: Family) -> str:
    if not words:
        return NOTHING
    found = _DECIMAL.fullmatch(words[0])
    if found is None or found[2].lower() not in _BITS_PER_SECOND:
        raise ValueError(f"not a rate: {words[0]!r}")
    rate = int(float(found[1]) * _BITS_PER_SECOND[found[2].lower()] / 8)
    if rate > 0xFFFFFFFF:
        raise ValueError(f"too high a rate: {words[0]!r}")
    return f"{rate}"


def _packets_per_second(words: tuple[str, ...], family: Family) -> str:
    return _number(32)(words, family) if words else NOTHING


# ---- several options at once ----


def _addresses_of_recent(options: Options, family: Family) -> None:
    options.setdefault("--mask", (False, _shown((1 << _width(family)) - 1, family)))
    if "--rdest" in options:  # --rsource may have come from the defaults
        options.pop("--rsource", None)


def _limit(options: Options, family: Family) -> None:
    options["--limit"] = False, _rate(options["--limit"][1], 10_000)


_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


def _cost(text: str, scale: int) -> tuple[int, int]:
    """What N/UNIT costs per packet, of *scale* credits in a second, and the seconds of the unit."""
    count, slash, unit = text.partition("/")
    named = [seconds for name, seconds in _UNITS.items() if name.startswith(unit.lower())] if unit else []
    digits = re.match("[0-9]{1,9}(?![0-9])", count)  # what stands behind them is not read
    if digits is None or int(digits[0]) == 0 or (slash and not named):
        raise ValueError(f"not a rate: {text!r}")
    seconds = named[0] if slash else 1
    cost = scale * seconds // int(digits[0])
    if cost == 0:
        raise ValueError(f"too fast: {text!r}")
    return cost, seconds


def _rate(text: str, scale: int) -> str:
    """N/UNIT in the shortest unit that gives the same cost."""
    return _rate_of(_cost(text, scale)[0], scale)


def _rate_of(cost: int, scale: int) -> str:
    for unit, seconds in _UNITS.items():
        count = scale * seconds // cost
        if count and scale * seconds // count == cost:
            return f"{count}/{unit[:3] if seconds < 3600 else unit}"
    return f"cost {cost}"


def _connlimit(options: Options, family: Family) -> None:
    for option, other in (
        ("--connlimit-above", "--connlimit-upto"),
        ("--connlimit-upto", "--connlimit-above"),
    ):
        if options.get(option, (False, ""))[0]:
            options[other] = False, options.pop(option)[1]
            break
    options.setdefault("--connlimit-mask", (False, str(_width(family))))
    if "--connlimit-daddr" not in options:
        options["--connlimit-saddr"] = False, NOTHING


def _hashlimit(options: Options, family: Family) -> None:
    """The kernel's figures: see hashlimit_mt_check of iptables 1.8.9."""
    _renamed(options, "--hashlimit", "--hashlimit-upto")
    option = "--hashlimit-upto" if "--hashlimit-upto" in options else "--hashlimit-above"
    inverted, text = options.pop(option)
    above = (option == "--hashlimit-above") != inverted
    options["--hashlimit-above" if above else "--hashlimit-upto"] = False, text
    name = "--hashlimit-above" if above else "--hashlimit-upto"
    burst = options.pop("--hashlimit-burst", (False, ""))[1]
    expire = options.pop("--hashlimit-htable-expire", (False, ""))[1]
    matching, interval = (
        "--hashlimit-rate-match" in options,
        options.pop("--hashlimit-rate-interval", (False, "0"))[1],
    )
    if interval != "0" and not matching:
        raise ValueError("an interval without rate matching")
    at = text.find("b/s")
    if at > 0:
        digits = re.match("[0-9]{1,10}(?![0-9])", text)
        size = int(digits[0] if digits else 0) * {"k": 1024, "m": 1024**2}.get(text[at - 1], 1)
        cost = 0xFFFFFFFF // ((size >> 4) + 1)
        each = (0xFFFFFFFF // cost - 1) << 4 if cost else 0
        if each <= 0 or not size:
            raise ValueError(f"too slow or too fast: {text!r}")
        count = _burst(burst) if burst else 0
        options[name] = False, f"{each}b/s"
        options["--hashlimit-burst"] = False, str(-(-count // each))
        options["--hashlimit-htable-expire"] = False, expire or ("60000" if burst else "15000")
        if matching:
            options["--hashlimit-rate-interval"] = False, interval if interval != "0" else "1"
        return
    cost, seconds = _cost(text, 1_000_000)
    options["--hashlimit-burst"] = False, str(_burst(burst)) if burst else "5"
    options["--hashlimit-htable-expire"] = False, expire or str(1000 * seconds)
    if matching:
        cost //= seconds
        options["--hashlimit-rate-interval"] = False, interval if interval != "0" else str(seconds)
    options[name] = False, _rate_of(cost, 1_000_000)


def _burst(text: str) -> int:
    found = re.fullmatch(r"(.*?)([km]?)b?", text)
    assert found is not None, "any text is of that form"
    return spelt.number(found[1], 1, 1 << 40) * {"": 1, "k": 1024, "m": 1024**2}[found[2]]


def _hashlimit_full(options: Options, family: Family) -> None:
    for option in ("--hashlimit-srcmask", "--hashlimit-dstmask"):
        options.setdefault(option, (False, str(_width(family))))
    _hashlimit(options, family)


def _dscp_match(options: Options, family: Family) -> None:
    _renamed(options, "--dscp-class", "--dscp")


def _dscp_target(options: Options, family: Family) -> None:
    _renamed(options, "--set-dscp-class", "--set-dscp")


def _renamed(options: Options, old: str, new: str) -> None:
    if old in options:
        if new in options:
            raise ValueError(f"{old} and {new}")
        options[new] = options.pop(old)


def _connbytes(options: Options, family: Family) -> None:
    inverted, text = options["--connbytes"]
    if inverted and ":" not in text:  # not between N and N is written as between N and N
        options["--connbytes"] = False, text


def _tcpmss(options: Options, family: Family) -> None:
    """The latter of two counts; the greatest size stands for clamping."""
    if {"--set-mss", "--clamp-mss-to-pmtu"} <= set(options):
        del options[next(iter(options))]
    if options.get("--set-mss") == (False, "65535"):
        del options["--set-mss"]
        options["--clamp-mss-to-pmtu"] = False, NOTHING


def _ct(options: Options, family: Family) -> None:
    """Of several zones the last counts, or the one by mark; both directions are any; 0 is what all have."""
    if "--notrack" in options:  # the kernel looks at nothing else then
        options.clear()
        options["--notrack"] = False, NOTHING
    zones = {option: options.pop(option)[1] for option in list(options) if option.startswith("--zone")}
    if not zones:
        return
    directions = set(zones) - {"--zone"}
    zone = "mark" if "mark" in zones.values() else list(zones.values())[-1]
    if zone != "0":
        options[min(directions) if len(directions) == 1 else "--zone"] = False, zone


def _cluster(options: Options, family: Family) -> None:
    if "--cluster-local-node" in options:
        inverted, node = options.pop("--cluster-local-node")
        if "--cluster-local-nodemask" in options or not 1 <= int(node) <= 32:
            raise ValueError("a node that is none")
        options["--cluster-local-nodemask"] = inverted, f"{1 << (int(node) - 1):#x}"


def _rateest(options: Options, family: Family) -> None:
    for old, new in (
        ("--rateest", "--rateest1"),
        ("--rateest-bps", "--rateest-bps2"),
        ("--rateest-pps", "--rateest-pps2"),
    ):
        _renamed(options, old, new)
    modes = [option for option in options if option in ("--rateest-lt", "--rateest-gt", "--rateest-eq")]
    if len(modes) > 1:  # the last counts, and a ! of any
        inverted = any(options.pop(mode)[0] for mode in modes)
        options[modes[-1]] = inverted, NOTHING


def _string(options: Options, family: Family) -> None:
    _renamed(options, "--hex-string", "--string")


def _text(words: tuple[str, ...], family: Family) -> str:
    return _pattern(words[0].encode("utf-8", "surrogateescape"))


def _hex_text(words: tuple[str, ...], family: Family) -> str:
    """Text with bytes in hexadecimal between |; a backslash makes the next character a plain one."""
    given, out, at = words[0].encode("utf-8", "surrogateescape"), bytearray(), 0
    if not given or not given.isascii():
        raise ValueError("no pattern")
    hexadecimal = False
    while at < len(given):
        plain = False
        if given[at : at + 1] == b"\\":
            if hexadecimal:
                raise ValueError("a literal in hexadecimal data")
            plain = True
        elif given[at : at + 1] == b"|":
            hexadecimal = not hexadecimal
            while hexadecimal and given[at + 1 : at + 2] == b" ":
                at += 1
            at += 1
            if at >= len(given):
                break
            # A second | at once, or a backslash behind one, is read as what it stands for in C: not here.
            if given[at : at + 1] in (b"|", b"\\"):
                raise ValueError("two signs in a row")
        if plain:
            if at + 1 >= len(given):
                raise ValueError("a literal at the end")
            out += given[at + 1 : at + 2]
            at += 2
        elif hexadecimal:
            digits = given[at : at + 2].decode()
            if not re.fullmatch("[0-9a-fA-F]{2}", digits) or at + 2 >= len(given):
                raise ValueError(f"not hexadecimal: {digits!r}")
            out.append(int(digits, 16))
            at += 3 if given[at + 2 : at + 3] == b" " else 2
        else:
            out += given[at : at + 1]
            at += 1
    return _pattern(bytes(out))


def _pattern(pattern: bytes) -> str:
    if not 0 < len(pattern) <= 128:
        raise ValueError("a pattern of no or too many bytes")
    if all(32 <= byte < 127 for byte in pattern):
        return '"' + pattern.decode().replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"|{pattern.hex()}|"


_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _weekdays(words: tuple[str, ...], family: Family) -> str:
    days = set()
    for word in words[0].split(","):
        day = word[:3]  # iptables reads three characters of each, and compares two of a name
        named = {at for at, name in enumerate(_WEEKDAYS, 1) if name[:2] == day[:2]}
        days |= named or {spelt.number(day, 1, 999) % 32}
    days -= set(range(8, 32))  # bits of a byte
    if not days or 0 in days:
        raise ValueError(f"no day of a week: {words[0]!r}")
    return ",".join(map(str, sorted(days)))


def _monthdays(words: tuple[str, ...], family: Family) -> str:
    # iptables reads two characters of each.
    return ",".join(map(str, sorted({spelt.number(word[:2], 1, 31) for word in words[0].split(",")})))


def _daytime(words: tuple[str, ...], family: Family) -> str:
    found = re.fullmatch(r"(\d{0,2}):(\d{0,2})(?::(\d{0,2}))?", words[0])
    hour, minute, second = (int(text or 0) for text in found.groups()) if found else (24, 0, 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"not a time: {words[0]!r}")
    return f"{hour:02}:{minute:02}:{second:02}"


_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:T(\d{0,2})(?::(\d{0,2})(?::(\d{0,2}))?)?)?)?)?")
_LAST_DATE = 0x7FFFFFFF


def _date(words: tuple[str, ...], family: Family) -> str:
    """Seconds since 1970."""
    found = _DATE.fullmatch(words[0])
    if found is None:
        raise ValueError(f"not a date: {words[0]!r}")
    year, month, day, hour, minute, second = (
        int(text) if text else default
        for text, default in zip(found.groups(), (0, 1, 1, 0, 0, 0), strict=True)
    )
    if not (
        1970 <= year <= 2038
        and 1 <= month <= 12
        and 1 <= day <= 31
        and hour < 24
        and minute < 60
        and second < 60
    ):
        raise ValueError(f"not a date: {words[0]!r}")
    seconds = calendar.timegm((year, month, day, hour, minute, second))
    if seconds > _LAST_DATE:
        raise ValueError(f"too late a date: {words[0]!r}")
    return str(seconds)


def _time(options: Options, family: Family) -> None:
    for option, all_days in (("--weekdays", range(1, 8)), ("--monthdays", range(1, 32))):
        if option not in options:
            continue
        inverted, text = options.pop(option)
        days = set(map(int, text.split(",")))
        wanted = sorted(set(all_days) - days if inverted else days)
        if wanted != list(all_days):
            options[option] = False, ",".join(map(str, wanted)) or "none"
    for option, nothing in (
        ("--timestart", "00:00:00"), ("--timestop", "23:59:59"),
        ("--datestart", "0"), ("--datestop", str(_LAST_DATE)),
    ):  # fmt: skip
        if options.get(option) == (False, nothing):
            del options[option]
    options.pop("--utc", None)
    _renamed(options, "--localtz", "--kerneltz")


def _tcp(options: Options, family: Family) -> None:
    _renamed(options, "--syn", "--tcp-flags")


_POLICY_VALUES: Mapping[str, Write] = {
    "--reqid": _number(32), "--spi": _number(32, "#x"), "--proto": _protocol,
    "--tunnel-src": _network, "--tunnel-dst": _network,
}  # fmt: skip


def _policy(said: Sequence[Said], family: Family) -> str:
    """What holds for all, then the elements in their order; inside of one, any order will do."""
    common: list[str] = []
    elements: list[list[str]] = [[]]
    policy = False
    for use in said:
        if use.option == "--next":
            elements.append([])
            continue
        write = _POLICY_VALUES.get(use.option)
        value = write(use.values, family) if write else " ".join(map(quoted, use.values))
        text = f"{'! ' if use.inverted else ''}{use.option} {value}".rstrip()
        policy = policy or use.option == "--pol"
        into = common if use.option in ("--dir", "--pol", "--strict") else elements[-1]
        if any(other.split()[-2:][:1] == [use.option] for other in into):
            raise ValueError(f"{use.option} stands twice")
        into.append(text)
    common += [] if policy else ["--pol ipsec"]
    return " ".join(
        [*sorted(common), " --next ".join(" ".join(sorted(element)) for element in elements)]
    ).rstrip()


# Value and mask as --set-xmark has them.
_SET_MARKS: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "--set-xmark": lambda value, mask: (value, mask),
    "--set-mark": lambda value, mask: (value, value | mask),
    "--and-mark": lambda value, mask: (0, ~value & 0xFFFFFFFF),
    "--or-mark": lambda value, mask: (value, value),
    "--xor-mark": lambda value, mask: (value, 0),
}


def _mark_target(options: Options, family: Family) -> None:
    """--set-mark, --and-mark, --or-mark, --xor-mark as the --set-xmark that they are."""
    (option,) = set(_SET_MARKS) & set(options)
    value, mask = _SET_MARKS[option](*_masked(options.pop(option)[1]))
    options["--set-xmark"] = False, f"{value:#x}/{mask:#x}"


def _connmark_target(options: Options, family: Family) -> None:
    """As MARK; a mask that stands behind replaces that of the value, one before it is not looked at."""
    order = list(options)
    masks = [option for option in order if option in ("--mask", "--nfmask", "--ctmask")]
    if "--mask" in masks and len(masks) > 1:
        raise ValueError("two masks")
    if setting := set(_SET_MARKS) & set(options):
        place = order.index(next(iter(setting)))
        given = {option: options.pop(option)[1] for option in masks}
        _mark_target(options, family)
        for option, text in given.items():
            if option != "--nfmask" and order.index(option) > place:
                value = options["--set-xmark"][1].partition("/")[0]
                options["--set-xmark"] = False, f"{value}/{text}"
    elif "--mask" in options:
        options["--nfmask"] = options["--ctmask"] = options.pop("--mask")
    else:
        options.setdefault("--nfmask", (False, "0xffffffff"))
        options.setdefault("--ctmask", (False, "0xffffffff"))
    if {"--left-shift-mark", "--right-shift-mark"} <= set(options):
        raise ValueError("two shifts")
    if options.get("--left-shift-mark", (False, ""))[1] == "0":
        del options["--left-shift-mark"]


def _set_tos(options: Options, family: Family) -> None:
    made: dict[str, Callable[[int], tuple[int, int]]] = {
        "--and-tos": lambda value: (0, ~value & 0xFF),
        "--or-tos": lambda value: (value, value),
        "--xor-tos": lambda value: (value, 0),
    }
    for option, change in made.items():
        if option in options:
            if "--set-tos" in options:
                raise ValueError("two ways to set it")
            value, mask = change(int(options.pop(option)[1]))
            options["--set-tos"] = False, f"{value:#04x}/{mask:#04x}"


def _hmark(options: Options, family: Family) -> None:
    if "--hmark-tuple" not in options:
        return
    masks = {
        "ct": ("--hmark-tuple", "ct"), "src": ("--hmark-src-prefix", str(_width(family))),
        "dst": ("--hmark-dst-prefix", str(_width(family))), "sport": ("--hmark-sport-mask", "0xffff"),
        "dport": ("--hmark-dport-mask", "0xffff"), "proto": ("--hmark-proto-mask", "0xffff"),
        "spi": ("--hmark-spi-mask", "0xffffffff"),
    }  # fmt: skip
    for word in options.pop("--hmark-tuple")[1].split(","):
        option, value = masks[_beginning(masks, word)]
        if options.setdefault(option, (False, value)) != (False, value):
            raise ValueError(f"{option} and --hmark-tuple")


def _nfqueue(options: Options, family: Family) -> None:
    if "--queue-balance" in options:
        options.pop("--queue-num", None)


_MICROSECONDS = {
    "": 1.0, "s": 1e6, "sec": 1e6, "secs": 1e6, "ms": 1e3, "msec": 1e3, "msecs": 1e3, "us": 1.0, "usec": 1.0,
    "usecs": 1.0,
}  # fmt: skip


def _estimator(options: Options, family: Family) -> None:
    """Interval and time constant as powers of 2, which is what the kernel gets of them."""
    interval, constant = (
        _time_units(options.pop(f"--rateest-{name}")[1]) for name in ("interval", "ewmalog")
    )
    step = next((step for step in range(6) if interval <= (1 << step) * 250_000), None)
    if step is None:
        raise ValueError("too long an interval")
    power = 1
    while power < 32 and interval / -math.log(1.0 - 1.0 / (1 << power)) <= constant:
        power += 1
    power -= 1
    if not 0 < power < 31:
        raise ValueError("a time constant out of range")
    options["--rateest-interval"] = False, f"{250 << step}ms"
    options["--rateest-ewmalog"] = False, f"{(250 << step) << power}ms"


def _time_units(text: str) -> int:
    found = _DECIMAL.fullmatch(text)
    if found is None or found[2].lower() not in _MICROSECONDS:
        raise ValueError(f"not a time: {text!r}")
    return int(float(found[1]) * _MICROSECONDS[found[2].lower()])


def _tproxy(options: Options, family: Family) -> None:
    options.setdefault("--on-ip", (False, _shown(0, family)))


def _reject_default(options: Options, family: Family) -> None:
    usual = "icmp-port-unreachable" if family is Family.IPV4 else "icmp6-port-unreachable"
    options.setdefault("--reject-with", (False, usual))


def _notrack(said: Sequence[Said], family: Family) -> str:
    if said:
        raise ValueError("NOTRACK has no options")
    return "--notrack"


# ---- the table ----

_EMPTY = Form()
# Names for the same: iptables-save prints the second.
_SAME_AS = {"NOTRACK": "CT"}

_n8, _n16, _n32, _n64 = (_number(bits) for bits in (8, 16, 32, 64))
_x16, _x32 = _number(16, "#x"), _number(32, "#x")
_CT_PORTS = {
    f"--ct{which}port": _ports(spelt.decimal_port) for which in ("origsrc", "origdst", "replsrc", "repldst")
}
_CT_HOSTS = {f"--ct{which}": _network for which in ("origsrc", "origdst", "replsrc", "repldst")}
_OWN_PORTS = {name: _ports(spelt.decimal_port, full=True) for name in ("--sport", "--dport")}
_TCP_PORTS = {name: _ports(spelt.port, full=True) for name in ("--sport", "--dport")}
_TTL = {f"--{kind}-{how}": _n8 for kind in ("ttl", "hl") for how in ("eq", "lt", "gt", "set", "inc", "dec")}
_PREFIXES = Form({"--src-pfx": _network, "--dst-pfx": _network})

FORMS: Mapping[str, Form] = {
    # matches
    "ah": Form({"--ahspi": _span(32, full=True), "--ahlen": _or_none(32)}),
    "addrtype": Form({"--src-type": _list(_ADDRESS_TYPES), "--dst-type": _list(_ADDRESS_TYPES)}),
    "bpf": Form({"--bytecode": _bytecode}),
    "cgroup": Form({"--cgroup": _n32}),
    "cluster": Form(
        {"--cluster-total-nodes": _n32, "--cluster-local-node": _n32, "--cluster-local-nodemask": _x32,
         "--cluster-hash-seed": _x32}, whole=_cluster),
    "connbytes": Form({"--connbytes": _span(64, open_ended=True)}, whole=_connbytes),
    "connlabel": Form({"--label": _label}),
    "connlimit": Form(
        {"--connlimit-upto": _n32, "--connlimit-above": _n32, "--connlimit-mask": _prefix_mask}, whole=_connlimit),
    "connmark": Form({"--mark": _mark}),
    "conntrack": Form(
        {"--ctstate": _list(_CT_STATES), "--ctproto": _protocol, "--ctstatus": _list(_CT_STATUS, no_more="NONE"),
         "--ctexpire": _span(32), "--ctdir": _upper("ORIGINAL", "REPLY"), **_CT_HOSTS, **_CT_PORTS}),
    "cpu": Form({"--cpu": _n32}),
    "dccp": Form({**_OWN_PORTS, "--dccp-types": _list(_DCCP_TYPES, whole=True), "--dccp-option": _n8}),
    "devgroup": Form({"--src-group": _named("/etc/iproute2/group"), "--dst-group": _named("/etc/iproute2/group")}),
    "dscp": Form({"--dscp": _dscp, "--dscp-class": _dscp_class}, whole=_dscp_match),
    "dst": Form({"--dst-len": _n32, "--dst-opts": _header_options}),
    "ecn": Form({"--ecn-ip-ect": _n8}),
    "esp": Form({"--espspi": _span(32, full=True)}),
    "frag": Form({"--fragid": _span(32, full=True), "--fraglen": _n32}),
    "hashlimit": Form(
        {"--hashlimit-mode": _list(("srcip", "srcport", "dstip", "dstport"), whole=True),
         "--hashlimit-srcmask": _prefix_length, "--hashlimit-dstmask": _prefix_length,
         "--hashlimit-htable-size": _n32, "--hashlimit-htable-max": _n32, "--hashlimit-htable-expire": _n32,
         "--hashlimit-htable-gcinterval": _n32, "--hashlimit-rate-interval": _n32},
        {"--hashlimit-htable-size": "0", "--hashlimit-htable-max": "0", "--hashlimit-htable-gcinterval": "1000"},
        whole=_hashlimit_full),
    "hbh": Form({"--hbh-len": _n32, "--hbh-opts": _header_options}),
    "hl": Form(_TTL),
    "ipcomp": Form({"--ipcompspi": _span(32)}, {"--ipcompspi": "0"}),
    "ipv6header": Form({"--header": _headers}),
    "length": Form({"--length": _span(16)}),
    "limit": Form({"--limit-burst": _n32}, whole=_limit),
    "mark": Form({"--mark": _mark}),
    "mh": Form({"--mh-type": _mh_types}),
    "osf": Form({"--ttl": _n32, "--log": _n32}),
    "owner": Form(
        {"--uid-owner": _id(lambda name: pwd.getpwnam(name).pw_uid),
         "--gid-owner": _id(lambda name: grp.getgrnam(name).gr_gid)}),
    "pkttype": Form({"--pkt-type": _one_of(_PACKET_TYPES)}),
    "policy": Form(alone=_policy),
    "quota": Form({"--quota": _n64}),
    "rateest": Form(
        {**{f"--rateest-bps{which}": _bytes_per_second for which in ("", "1", "2")},
         **{f"--rateest-pps{which}": _packets_per_second for which in ("", "1", "2")}}, whole=_rateest),
    "realm": Form({"--realm": _named("/etc/iproute2/rt_realms")}),
    "recent": Form({"--seconds": _n32, "--hitcount": _n32, "--mask": _address}, {"--hitcount": "0"},
                   whole=_addresses_of_recent),
    "rt": Form({"--rt-type": _n32, "--rt-segsleft": _span(32, full=True), "--rt-len": _n32, "--rt-0-addrs": _addresses}),
    "sctp": Form({**_TCP_PORTS, "--chunk-types": _chunks}),
    "set": Form(
        {"--match-set": _directions, "--update-counters": _usual, "--update-subcounters": _usual,
         **{f"--{what}-{how}": _n64 for what in ("packets", "bytes") for how in ("eq", "lt", "gt")}}),
    "srh": Form(
        {"--srh-next-hdr": _n8, "--srh-tag": _n16,
         **{f"--srh-{what}-{how}": _n8 for what in ("hdr-len", "segs-left", "last-entry") for how in ("eq", "lt", "gt")},
         **{f"--srh-{what}": _network for what in ("psid", "nsid", "lsid")}}),
    "statistic": Form({"--probability": _probability, "--every": _n32, "--packet": _n32}),
    "string": Form(
        {"--string": _text, "--hex-string": _hex_text, "--from": _n16, "--to": _n16},
        {"--from": "0", "--to": "65535"}, whole=_string),
    "tcp": Form({**_TCP_PORTS, "--tcp-flags": _tcp_flags, "--syn": _SYN, "--tcp-option": _n8}, whole=_tcp),
    "tcpmss": Form({"--mss": _span(16)}),
    "time": Form(
        {"--weekdays": _weekdays, "--monthdays": _monthdays, "--timestart": _daytime, "--timestop": _daytime,
         "--datestart": _date, "--datestop": _date}, whole=_time),
    "tos": Form({"--tos": _tos(0x3F)}),
    "ttl": Form(_TTL),
    "u32": Form({"--u32": _u32}),
    "udp": Form(_OWN_PORTS),
    # targets
    "AUDIT": Form({"--type": _one_of({name: name for name in ("accept", "drop", "reject")})}),
    "CLASSIFY": Form({"--set-class": _class}),
    "CONNMARK": Form(
        {"--set-mark": _mark_and_mask, "--set-xmark": _mark_and_mask, "--and-mark": _x32, "--or-mark": _x32,
         "--xor-mark": _x32, "--mask": _x32, "--nfmask": _x32, "--ctmask": _x32, "--left-shift-mark": _n8,
         "--right-shift-mark": _n8}, whole=_connmark_target),
    "CT": Form(
        {"--zone": _zone, "--zone-orig": _zone, "--zone-reply": _zone,
         "--ctevents": _list(_CT_EVENTS, whole=True), "--expevents": _list(("new",), whole=True)}, whole=_ct),
    "DNAT": Form({"--to-destination": _to}),
    "DNPT": _PREFIXES,
    "DSCP": Form({"--set-dscp": _dscp, "--set-dscp-class": _dscp_class}, whole=_dscp_target),
    "ECN": Form({"--ecn-tcp-cwr": _n8, "--ecn-tcp-ece": _n8, "--ecn-ip-ect": _n8}),
    "HL": Form(_TTL),
    "HMARK": Form(
        {"--hmark-mod": _n32, "--hmark-offset": _x32, "--hmark-rnd": _x32, "--hmark-src-prefix": _prefix_mask,
         "--hmark-dst-prefix": _prefix_mask, "--hmark-sport-mask": _x16, "--hmark-dport-mask": _x16,
         "--hmark-sport": _x16, "--hmark-dport": _x16, "--hmark-spi-mask": _x32, "--hmark-spi": _x32,
         "--hmark-proto-mask": _x16}, whole=_hmark),
    "IDLETIMER": Form({"--timeout": _n32}),
    "LOG": Form({"--log-level": _level, "--log-prefix": _cut(29)}),
    "MARK": Form(
        {"--set-mark": _mark_and_mask, "--set-xmark": _mark_and_mask, "--and-mark": _x32, "--or-mark": _x32,
         "--xor-mark": _x32}, whole=_mark_target),
    "MASQUERADE": Form({"--to-ports": _to_ports}),
    "NETMAP": Form({"--to": _network}),
    "NFLOG": Form(
        {"--nflog-group": _n16, "--nflog-range": _nothing, "--nflog-size": _n32, "--nflog-threshold": _n16},
        {"--nflog-threshold": "0"}),
    "NFQUEUE": Form({"--queue-num": _n16, "--queue-balance": _span(16)}, whole=_nfqueue),
    "NOTRACK": Form(alone=_notrack),
    "RATEEST": Form(whole=_estimator),
    "REDIRECT": Form({"--to-ports": _to_ports}),
    "REJECT": Form({"--reject-with": _reject}, whole=_reject_default),
    "SET": Form({"--add-set": _directions, "--del-set": _directions, "--map-set": _directions, "--timeout": _n32},
                signs=False),
    "SNAT": Form({"--to-source": _to}),
    "SNPT": _PREFIXES,
    "SYNPROXY": Form({"--wscale": _low_bits(8), "--mss": _low_bits(16)}),
    "TCPMSS": Form({"--set-mss": _n16}, whole=_tcpmss),
    "TCPOPTSTRIP": Form({"--strip-options": _tcp_options}),
    "TEE": Form({"--gateway": _address}),
    "TOS": Form({"--set-tos": _tos(0x3F), "--and-tos": _n8, "--or-tos": _n8, "--xor-tos": _n8}, whole=_set_tos),
    "TPROXY": Form(
        {"--on-port": _port, "--on-ip": _address, "--tproxy-mark": _mark_and_mask}, {"--tproxy-mark": "0x0/0x0"},
        whole=_tproxy),
    "TTL": Form(_TTL),
}  # fmt: skip
