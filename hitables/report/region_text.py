"""Regions of headers as an administrator would describe them: "tcp to 10.1.0.0/16 port 22"."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from ..ir.fields import (
    ICMP,
    ICMPV6,
    INTERFACES,
    STATES,
    TCP,
    Family,
    Field,
    Fragment,
    interface_name,
    top,
)
from ..ir.intervals import Values
from ..ir.packet_text import FLAGS, PROTOCOLS

MAX_PARTS = 4  # of one set that are named; the others are counted
_FRAGMENTS = (
    (Fragment.WHOLE, "not fragmented"),
    (Fragment.FIRST, "first fragments"),
    (Fragment.LATER, "later fragments"),
)
# By word before a condition: what it does where it is true, and where it is not.
_VERBS = {"where": ("holds", "does not hold"), "when": ("matches", "does not match")}
_NAMES = {number: name for name, number in reversed(PROTOCOLS.items())}


def describe(box: Mapping[Field, Values], family: Family) -> str:
    """The packets whose fields lie in *box*; a field that is missing from it is not constrained."""
    words = [_protocol(box)]
    for preposition, address, port in (("from", Field.SRC, Field.SPORT), ("to", Field.DST, Field.DPORT)):
        if address in box or port in box:
            words.append(preposition)
        if address in box:
            words.append(addresses(box[address], family))
        if port in box:
            words.append(f"port {_few(box[port], 65535, str)}")
    icmp = ICMP if family is Family.IPV4 else ICMPV6
    if Field.ICMP in box and (Field.PROTO not in box or icmp in box[Field.PROTO]):
        types = f"type {_icmp(box[Field.ICMP])}"
        is_alone = Field.PROTO in box and box[Field.PROTO].count == 1
        words.append(types if is_alone else f"({_NAMES[icmp]} of {types})")
    if Field.FLAGS in box and (Field.PROTO not in box or TCP in box[Field.PROTO]):
        words.append(f"with flags {_flags(box[Field.FLAGS])}")
    kinds = [name for value, name in _FRAGMENTS if Field.FRAG not in box or value in box[Field.FRAG]]
    if len(kinds) < len(_FRAGMENTS):
        words.append(f"({', '.join(kinds)})")
    for name, interface in zip(("in", "out", "in by port", "out by port"), INTERFACES, strict=True):
        if interface in box:
            words.append(f"{name} {_interfaces(box[interface], family)}")
    if Field.MAC in box:
        words.append(f"mac {_macs(box[Field.MAC], family)}")
    if Field.STATE in box:
        words.append(f"state {_states(box[Field.STATE])}")
    return " ".join(words)


# "where" for a fact, "when" for an answer of a memory; its key in words; whether it is true.
Condition = tuple[str, str, bool]


def conditions(facts: Iterable[tuple[str, bool]], asked: Iterable[tuple[str, bool]]) -> list[Condition]:
    """The conditions under which a box is treated so."""
    return [
        *(("where", f'"{key}"', holds) for key, holds in facts),
        *(("when", f'"{key}"', held) for key, held in asked),
    ]


def describe_conditions(given: Iterable[Condition]) -> str:
    """Conditions in words, each after a comma; those of a kind that are not true as one."""
    together: dict[tuple[str, str | None], list[str]] = {}
    for word, key, is_true in given:
        together.setdefault((word, key if is_true else None), []).append(key)
    words = ""
    for (word, true_key), keys in together.items():
        yes, no = _VERBS[word]
        if true_key is None and len(keys) > 1:
            words += f", {word} none of {', '.join(keys)} {yes}"
        else:
            words += "".join(f", {word} {each} {no if true_key is None else yes}" for each in keys)
    return words


def _macs(values: Values, family: Family) -> str:
    rest = values.complement(top(Field.MAC, family))
    but = len(rest.pairs) < len(values.pairs)
    parts = [
        "-".join(dict.fromkeys(end.to_bytes(6, "big").hex(":") for end in pair))
        for pair in (rest if but else values).pairs
    ]
    return ("all but " if but else "") + _listed(parts, len(parts)) if parts else "any"


def _protocol(box: Mapping[Field, Values]) -> str:
    values = box.get(Field.PROTO)
    if values is None:
        return "any protocol"
    if not values:
        return "no readable protocol"
    return _few(values, 255, lambda number: _NAMES.get(number, f"protocol {number}"))


def _few(values: Values, highest: int, show: Callable[[int], str]) -> str:
    """Numbers and ranges, or "all but" the others if that is shorter; a long list ends in a count."""
    rest = values.complement(highest)
    but = bool(rest) and (len(rest.pairs) < len(values.pairs) or len(values.pairs) > rest.count == 1)
    listed = rest if but else values
    parts = [show(low) if low == high else f"{show(low)}-{show(high)}" for low, high in listed.pairs]
    return ("all but " if but else "") + _listed(parts, len(parts))


def _listed(parts: list[str], count: int) -> str:
    if count <= MAX_PARTS:
        return ", ".join(parts)
    return ", ".join(parts[: MAX_PARTS - 1]) + f" and {count - MAX_PARTS + 1} more"


# The regions of a difference share a few sets of addresses and interfaces, which may be long.
_remembered = functools.lru_cache(maxsize=4096)


@_remembered
def addresses(values: Values, family: Family) -> str:
    """Networks if they are few, else ranges; "all but" the others if that is shorter."""
    everything = Values(((0, top(Field.SRC, family)),))
    if values == everything:
        return "any"
    rest = values.complement(top(Field.SRC, family))
    networks, others = (sum(1 for _ in _networks(each, family)) for each in (values, rest))
    if min(networks, others) > MAX_PARTS and len(values.pairs) <= MAX_PARTS:
        return _listed([_range_text(*pair, family) for pair in values.pairs], len(values.pairs))
    named = islice(_networks(rest if others < networks else values, family), MAX_PARTS)
    parts = [_network_text(address, free, family) for address, free in named]
    return ("all but " if others < networks else "") + _listed(parts, min(networks, others))


_NAME_BYTES = 16  # of an interface
_MOST_WITHOUT = 8


def _address(value: int, family: Family) -> str:
    return str((ipaddress.IPv4Address if family is Family.IPV4 else ipaddress.IPv6Address)(value))


def _networks(values: Values, family: Family) -> Iterator[tuple[int, int]]:
    """The fewest networks that make up the values: the first address, and the number of free bits."""
    width = top(Field.SRC, family).bit_length()
    for low, high in values.pairs:
        while low <= high:
            aligned = (low & -low).bit_length() - 1 if low else width
            free = min(aligned, (high - low + 1).bit_length() - 1)
            yield low, free
            low += 1 << free


def _network_text(address: int, free: int, family: Family) -> str:
    width = top(Field.SRC, family).bit_length()
    return _address(address, family) + (f"/{width - free}" if free else "")


def _range_text(low: int, high: int, family: Family) -> str:
    return _address(low, family) if low == high else f"{_address(low, family)}-{_address(high, family)}"


def _icmp(values: Values) -> str:
    parts = []
    for low, high in values.pairs:
        if low >> 8 == high >> 8:
            codes = "" if (low & 255, high & 255) == (0, 255) else f"/{low & 255}"
            codes += "" if low == high or not codes else f"-{high & 255}"
            parts.append(f"{low >> 8}{codes}")
        else:
            parts.append(f"{low >> 8}-{high >> 8}")
    return _listed(parts, len(parts))


def _flags(values: Values) -> str:
    sets = [value for low, high in values.pairs for value in range(low, high + 1)]
    always = [name for name, bit in FLAGS.items() if all(value & bit for value in sets)]
    never = [name for name, bit in FLAGS.items() if not any(value & bit for value in sets)]
    if len(sets) == 1 << (len(FLAGS) - len(always) - len(never)):
        return " ".join([*always, *(f"no-{name}" for name in never)])
    parts = [",".join(name for name, bit in FLAGS.items() if value & bit) or "none" for value in sets]
    return _listed(parts, len(parts))


@_remembered
def _interfaces(values: Values, family: Family) -> str:
    rest = values.complement(top(Field.IIF, family)).intersect(Values(((1, top(Field.IIF, family)),)))
    if not rest:
        return "any"
    but = bool(rest) and len(rest.pairs) < len(values.pairs)
    parts = list(_interface_parts(rest if but else values))
    return ("all but " if but else "") + _listed(parts, len(parts))


def _interface_parts(values: Values) -> Iterator[str]:
    """Names, and beginnings of names with +; where some of these are left out, what is left out."""
    done = -1
    for low, high in values.pairs:
        while high > done:
            low = max(low, done + 1)
            name, done = _interface(low, high), high
            if not name:
                left = Values(((low, high), *(pair for pair in values.pairs if pair[0] > high)))
                name, done = _beginning(left) or (f"{_printable(low)}…{_printable(high)}", high)
            yield name


def _interface(low: int, high: int) -> str:
    """The name of these interfaces, or their beginning with +; "" for others."""
    if high == 0:
        return "none"
    stem = interface_name(low)
    if not stem.isprintable():
        return ""
    free = _NAME_BYTES - len(stem.encode("utf-8", "surrogateescape"))
    return stem if low == high else f"{stem}+" if high == low | (1 << 8 * free) - 1 else ""


def _beginning(values: Values) -> tuple[str, int] | None:
    """The shortest beginning of names that has the first value and lacks few, named ones; where it ends."""
    low = values.pairs[0][0]
    for length in range(1, _NAME_BYTES + 1):
        free = 8 * (_NAME_BYTES - length)
        first = low >> free << free
        last = first | (1 << free) - 1
        name = _interface(first, last)
        holes = values.complement(last).intersect(Values(((first, last),)))
        without = [_interface(*hole) for hole in holes.pairs]
        if name and all(without) and len(without) <= _MOST_WITHOUT:
            return name + (f" without {', '.join(without)}" if without else ""), last
    return None


def _printable(number: int) -> str:
    return "".join(each if each.isprintable() else "?" for each in interface_name(number))


def _states(values: Values) -> str:
    """The names of the states: NEW if all kinds of NEW are among them, else the kinds."""
    names = [STATES[value] for low, high in values.pairs for value in range(low, high + 1)]
    out: list[str] = []
    for plain in dict.fromkeys(name.split("+")[0] for name in names):
        kinds = [name for name in STATES if name.split("+")[0] == plain]
        present = [name for name in names if name.split("+")[0] == plain]
        out += [plain] if present == kinds else present
    return ", ".join(out)
