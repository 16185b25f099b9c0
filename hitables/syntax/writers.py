"""Writers of option values: the values of an option to canonical words (`canonical.Write`).

Two spellings of one value have the same words.  A writer that cannot read a value raises ValueError, and
then the key keeps the words as written.  The rows of `extensions/` use these writers; a writer that only one
module of `extensions/` needs is in that module.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ..ir.fields import Family
from . import values as spelt
from .canonical import ABSENT, Options, Write, quoted


def number(bits: int, shown: str = "d") -> Write:
    """An integer of *bits* bits, in any base."""
    return lambda words, family: f"{spelt.number(words[0], 0, (1 << bits) - 1):{shown}}"


def low_bits(bits: int) -> Write:
    """An integer of 32 bits, of which iptables keeps the lowest *bits*."""
    return lambda words, family: str(spelt.number(words[0], 0, 0xFFFFFFFF) & ((1 << bits) - 1))


def zero_is_absent(bits: int) -> Write:
    """An integer of *bits* bits; 0 means the same as no option."""
    write = number(bits)
    return lambda words, family: ABSENT if write(words, family) == "0" else write(words, family)


def span(bits: int, *, open_ended: bool = False, full: bool = False) -> Write:
    """N or LOW:HIGH, where either end may be left out.

    open_ended  N means N:, not N:N
    full        the range of all values means the same as no option
    """
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


def ports(read: Callable[[str], int], *, full: bool = False) -> Write:
    """As `span` of ports, which may have names."""

    def write(words: tuple[str, ...], family: Family) -> str:
        low, colon, high = words[0].partition(":")
        first = read(low) if low else 0
        last = (read(high) if high else 65535) if colon else first
        if full and (first, last) == (0, 65535):
            return ABSENT
        return f"{first}" if first == last else f"{first}:{last}"

    return write


def value_and_mask(word: str, full: int = 0xFFFFFFFF) -> tuple[int, int]:
    """VALUE or VALUE/MASK."""
    value, slash, mask = word.partition("/")
    return spelt.number(value, 0, full), spelt.number(mask, 0, full) if slash else full


def mark(words: tuple[str, ...], family: Family) -> str:
    value, mask = value_and_mask(words[0])
    return f"{value:#x}" if mask == 0xFFFFFFFF else f"{value:#x}/{mask:#x}"


def mark_and_mask(words: tuple[str, ...], family: Family) -> str:
    value, mask = value_and_mask(words[0])
    return f"{value:#x}/{mask:#x}"


@functools.cache
def numbers_in_file(path: str) -> Mapping[str, int]:
    """Lines NUMBER NAME of a file of names; empty where there is none."""
    try:
        lines = Path(path).read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return {}
    numbers: dict[str, int] = {}
    for line in lines:
        words = line.split()
        if len(words) == 2 and not words[0].startswith("#"):
            try:
                numbers.setdefault(words[1], spelt.number(words[0], 0, 0xFFFFFFFF))
            except ValueError:
                continue
    return numbers


def named_mark(path: str) -> Write:
    """VALUE, VALUE/MASK, or a name of the file *path*."""

    def write(words: tuple[str, ...], family: Family) -> str:
        name = numbers_in_file(path).get(words[0])
        return mark(words, family) if name is None else f"{name:#x}"

    return write


def protocol(words: tuple[str, ...], family: Family) -> str:
    return str(spelt.protocol(words[0]))


def begun_name(names: Iterable[str], word: str) -> str:
    """The first of *names* that begins with *word*; upper and lower case are equal."""
    for name in names:
        if word and name.lower().startswith(word.lower()):
            return name
    raise ValueError(f"unknown name {word!r}")


def names_of(names: Sequence[str], *, whole: bool = False, no_more: str = "") -> Write:
    """A list of *names*, in any order, with repetitions.

    whole    refuse abbreviated names
    no_more  the name that adds nothing to the others
    """

    def write(words: tuple[str, ...], family: Family) -> str:
        chosen = set()
        for word in words[0].split(","):
            exact = [name for name in names if name.lower() == word.lower()]
            if whole and not exact:
                raise ValueError(f"unknown name {word!r}")
            chosen.add(exact[0] if whole else begun_name(names, word))
        listed = [name for name in names if name in chosen and name != no_more]
        return ",".join(listed) or no_more

    return write


def one_of(names: Mapping[str, str]) -> Write:
    """One of *names*, in upper or lower case, in its canonical form."""

    def write(words: tuple[str, ...], family: Family) -> str:
        if words[0].lower() not in names:
            raise ValueError(f"unknown name {words[0]!r}")
        return names[words[0].lower()]

    return write


DSCP_CLASSES = {
    "CS0": 0, "CS1": 8, "CS2": 16, "CS3": 24, "CS4": 32, "CS5": 40, "CS6": 48, "CS7": 56, "BE": 0,
    "AF11": 10, "AF12": 12, "AF13": 14, "AF21": 18, "AF22": 20, "AF23": 22, "AF31": 26, "AF32": 28,
    "AF33": 30, "AF41": 34, "AF42": 36, "AF43": 38, "EF": 46,
}  # fmt: skip


TOS_NAMES = {
    "minimize-delay": 16, "maximize-throughput": 8, "maximize-reliability": 4, "minimize-cost": 2,
    "normal-service": 0,
}  # fmt: skip


def dscp(words: tuple[str, ...], family: Family) -> str:
    return f"{spelt.number(words[0], 0, 63):#04x}"


def dscp_class(words: tuple[str, ...], family: Family) -> str:
    for name, number in DSCP_CLASSES.items():
        if words[0].lower().startswith(name.lower()):
            return f"{number:#04x}"
    raise ValueError(f"unknown class {words[0]!r}")


def tos_byte(full: int) -> Write:
    """VALUE, VALUE/MASK or a name, whose mask is *full*."""

    def write(words: tuple[str, ...], family: Family) -> str:
        if words[0].lower() in TOS_NAMES:
            value, mask = TOS_NAMES[words[0].lower()], full
        else:
            value, mask = value_and_mask(words[0], 255)
        return f"{value:#04x}/{mask:#04x}"

    return write


def upper_case(*names: str) -> Write:
    return one_of({name.lower(): name for name in names})


def address_text(value: int, family: Family) -> str:
    kind = ipaddress.IPv4Address if family is Family.IPV4 else ipaddress.IPv6Address
    return str(kind(value))


def address_bits(family: Family) -> int:
    return 32 if family is Family.IPV4 else 128


def host(word: str, family: Family) -> str:
    return (
        address_text(int(ipaddress.ip_address(word)), family)
        if is_address(word, family)
        else not_an_address(word)
    )


def is_address(word: str, family: Family) -> bool:
    """Whether *word* is an address of the family, in full."""
    try:
        return ipaddress.ip_address(word).version == int(family)
    except ValueError:
        return False


def not_an_address(word: str) -> str:
    raise ValueError(f"not an address: {word!r}")


def address(words: tuple[str, ...], family: Family) -> str:
    return host(words[0], family)


def addresses(words: tuple[str, ...], family: Family) -> str:
    return ",".join(host(word, family) for word in words[0].split(","))


def prefix_or_mask(word: str, family: Family) -> int | None:
    """A prefix length, or a mask that is one; None for another mask."""
    width = address_bits(family)
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


def prefix_length(words: tuple[str, ...], family: Family) -> str:
    length = prefix_or_mask(words[0], family)
    if length is None:
        raise ValueError(f"not a prefix: {words[0]!r}")
    return str(length)


def prefix_mask(words: tuple[str, ...], family: Family) -> str:
    """As `prefix_length`, where iptables makes a mask of it: all bits of one with gaps."""
    length = prefix_or_mask(words[0], family)
    return str(address_bits(family) if length is None else length)


def network(words: tuple[str, ...], family: Family) -> str:
    """ADDRESS, ADDRESS/LENGTH or ADDRESS/MASK; bits beside the mask are never looked at.

    A mask with gaps, and a number above the most bits, is a text of its own: iptables before 1.8.11 loads
    either as all bits, and a later one loads the mask, and the number as if it were one.
    """
    host, slash, mask = words[0].partition("/")
    if not is_address(host, family):
        not_an_address(host)
    length = prefix_or_mask(mask, family) if slash else address_bits(family)
    if length is None:
        return f"{address_text(int(ipaddress.ip_address(host)), family)}/{mask}"
    free = address_bits(family) - length
    return f"{address_text(int(ipaddress.ip_address(host)) >> free << free, family)}/{address_bits(family) - free}"


def nat_ports(word: str) -> str:
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


def to_ports(words: tuple[str, ...], family: Family) -> str:
    return nat_ports(words[0])


def decimal(word: str, high: int) -> int:
    if not re.fullmatch("[0-9]{1,20}", word) or int(word) > high:
        raise ValueError(f"not a number: {word!r}")
    return int(word)


def set_directions(words: tuple[str, ...], family: Family) -> str:
    """SET DIRECTIONS, of which the first letters count."""
    directions = []
    for word in words[1].split(","):
        if word[:3] not in ("src", "dst"):
            raise ValueError(f"not a direction: {word!r}")
        directions.append(word[:3])
    return f"{quoted(words[0])} {','.join(directions)}"


def first_bytes(size: int) -> Write:
    """A text of which the kernel keeps the first *size* bytes."""

    def write(words: tuple[str, ...], family: Family) -> str:
        kept = words[0].encode("utf-8", "surrogateescape")[:size]
        return quoted(kept.decode("utf-8", "surrogateescape"))

    return write


DECIMAL = re.compile(r"([0-9]+(?:\.[0-9]*)?)([A-Za-z]*)")


def renamed(options: Options, old: str, new: str) -> None:
    if old in options:
        if new in options:
            raise ValueError(f"{old} and {new}")
        options[new] = options.pop(old)


u8, u16, u32, u64 = (number(bits) for bits in (8, 16, 32, 64))


hex16, hex32 = number(16, "#x"), number(32, "#x")


TTL_VALUES = {
    f"--{kind}-{how}": u8 for kind in ("ttl", "hl") for how in ("eq", "lt", "gt", "set", "inc", "dec")
}


def address_mask(option: str, inverted: bool, word: str, family: Family) -> str:
    """The key of a -s or -d whose mask is no prefix."""
    host, _, mask = word.partition("/")
    look = spelt.address(mask, family)
    shown = f"{address_text(spelt.address(host, family) & look, family)}/{address_text(look, family)}"
    return f"{'! ' if inverted else ''}{option} {shown}"
