"""Packets as text: "chain=FORWARD in=eth0 src=10.0.0.1 dst=10.0.0.2 proto=tcp sport=1 dport=22".

Invariant: `packet_reader.read_packet` reads the text of `show_packet` as the same packet, with the same
answers.  docs/semantics.md lists the words.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from .answers import ANY, Answers
from .fact import NAMED_NUMBERS
from .fields import (
    DCCP,
    ICMP,
    ICMPV6,
    INTERFACES,
    SCTP,
    STATES,
    TCP,
    UDP,
    UDPLITE,
    Family,
    Field,
    Fragment,
    interface_name,
    interface_number,
)
from .intervals import Values
from .packet import Packet

PROTOCOLS = {
    "tcp": TCP, "udp": UDP, "icmp": ICMP, "icmpv6": ICMPV6, "ipv6-icmp": ICMPV6, "sctp": SCTP, "dccp": DCCP,
    "udplite": UDPLITE, "igmp": 2, "gre": 47, "esp": 50, "ah": 51, "ospf": 89, "vrrp": 112,
}  # fmt: skip
FLAGS = {"FIN": 1, "SYN": 2, "RST": 4, "PSH": 8, "ACK": 16, "URG": 32}
FRAGMENTS = {"none": Fragment.WHOLE, "first": Fragment.FIRST, "later": Fragment.LATER}
_INTERFACES = dict(zip(("in", "out", "physin", "physout"), INTERFACES, strict=True))  # by word
_IN_HEX = frozenset({"mark", "connmark", "tos", "realm"})  # numbers that rules write so


def show_packet(packet: Packet, table: str = "", chain: str = "", answers: Answers | None = None) -> str:
    """*packet* as one line of text, with *table*, *chain* and *answers* if there are any."""
    values, family = packet.values, packet.family
    words = [f"table={_quoted(table)}"] if table else []
    words += [f"chain={_quoted(chain)}"] if chain else []
    for name, which in _INTERFACES.items():
        if values.get(which):
            words.append(f"{name}={_quoted(_show(which, values[which], family))}")
    shown = ("mac", Field.MAC), ("src", Field.SRC), ("dst", Field.DST), ("proto", Field.PROTO)
    words += [f"{name}={_show(which, values[which], family)}" for name, which in shown if which in values]
    for name, which in (("sport", Field.SPORT), ("dport", Field.DPORT), ("flags", Field.FLAGS)):
        value = packet.raw.get(which) if packet.is_later_fragment else values.get(which)
        if value is not None:
            words.append(f"{name}={_show(which, value, family)}")
    if Field.ICMP in values:
        words.append(f"icmp={_show(Field.ICMP, values[Field.ICMP], family)}")
    if values.get(Field.FRAG, 0) != Fragment.WHOLE:
        words.append(f"frag={_show(Field.FRAG, values[Field.FRAG], family)}")
    words += ["offset=1"] if packet.offset_one else []
    words += ["doff=bad"] if packet.bad_offset else []
    words += ["headers=cut"] if packet.cut_short else []
    words += [f"bytes={packet.l4_bytes}"] if packet.l4_bytes != 64 else []
    words.append(f"state={_show(Field.STATE, values.get(Field.STATE, 0), family)}")
    if answers is not None:
        words += _show_answers(answers, family)
    return " ".join(words)


def _show_answers(answers: Answers, family: Family) -> list[str]:
    words = []
    for (key, epoch), fact in answers.facts.items():
        words.append("fact=" + _quoted(f"{key}={'yes' if fact else 'no'}" + (f"/{epoch}" if epoch else "")))
    for (attribute, epoch), number in answers.numbers.items():
        words.append("number=" + _quoted(_numbered(attribute, number) + (f"/{epoch}" if epoch else "")))
    for (key, ordinal), outcome in answers.outcomes.items():
        when = "" if ordinal == ANY else f"/{ordinal}"
        words.append("outcome=" + _quoted(f"{key}={outcome.name.lower()}{when}"))
    for (which, epoch), value in answers.rewrites.items():
        shown = _show(which, value, family)
        words.append("rewrite=" + _quoted(f"{which.name.lower()}={shown}@{epoch}"))
    return words


def show_numbers(numbers: Mapping[str, int]) -> list[str]:
    """The words that give attributes their numbers, by name."""
    return ["number=" + _quoted(_numbered(attribute, number)) for attribute, number in numbers.items()]


def _numbered(attribute: str, number: int) -> str:
    names = NAMED_NUMBERS.get(attribute, ())
    if number < len(names):
        return f"{attribute}={names[number]}"
    return f"{attribute}={number:#x}" if attribute in _IN_HEX else f"{attribute}={number}"


def _show(which: Field, value: int, family: Family) -> str:
    """The value of a field as text, not quoted."""
    if which in (Field.SRC, Field.DST):
        return str((ipaddress.IPv4Address if family is Family.IPV4 else ipaddress.IPv6Address)(value))
    if which is Field.PROTO:
        return next((name for name, number in PROTOCOLS.items() if number == value), str(value))
    if which is Field.FRAG:
        return next(name for name, number in FRAGMENTS.items() if number == value)
    if which is Field.ICMP:
        return f"{value >> 8}/{value & 255}"
    if which is Field.FLAGS:
        return ",".join(name for name, bit in FLAGS.items() if value & bit) or "none"
    if which is Field.MAC:
        return value.to_bytes(6, "big").hex(":")
    if which is Field.STATE:
        return STATES[value]
    if which in INTERFACES:
        name = interface_name(value)
        fits = len(name.encode("utf-8", "surrogateescape")) < 16 and name.isprintable() and name.isascii()
        return name if fits and interface_number(name) == value else f"0x{value:032x}"
    return str(value)


def show_values(which: Field, values: Values, family: Family) -> str:
    """Values of a field as a condition: its name, and single values and ranges as `show_packet` has them."""
    if which is Field.STATE:
        parts = [STATES[value] for low, high in values.pairs for value in range(low, high + 1)]
    else:
        ends = ((_show(which, end, family) for end in dict.fromkeys(pair)) for pair in values.pairs)
        parts = ["-".join(each) for each in ends]
    return f"{which.name.lower()} {','.join(parts)}"


def _quoted(text: str) -> str:
    if re.fullmatch(r"[^\s\"\\]+", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
