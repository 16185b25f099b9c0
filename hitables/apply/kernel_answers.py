"""What a packet's header does not say, as the kernel would answer: ipsets, types of addresses, fresh limits.

The packets that lockout.py traces are few, so each question runs `ipset test` or `ip route`.
"""

from __future__ import annotations

import ipaddress
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from ..ir.address_mask import address_mask
from ..ir.fields import Family, Field, interface_name
from ..ir.packet import Outcome, Packet
from ..ir.packet_text import PROTOCOLS
from ..ir.rule import Match, word_behind
from ..ir.sure_answers import is_inverted, sure_answer
from ..kernel.ipset_text import members_of
from ..syntax.values import number
from .known_connection import KnownConnection

_TYPE = re.compile(r"^Type: (\S+)$", re.MULTILINE)
_FAMILY = re.compile(r"^Header: family (\S+)", re.MULTILINE)
# By match with a memory: whether it holds for the first packet that asks it, by the option that it has.
_FRESH: dict[str, dict[str, bool]] = {
    "limit": {"--limit": True},
    "hashlimit": {"--hashlimit-upto": True, "--hashlimit": True, "--hashlimit-above": False},
    "recent": {"--rcheck": False, "--update": False, "--remove": False},
}
LARGEST_PACKET = 1500  # bytes: a larger quota lets a first packet pass
_CONNECTIONS = ("--connlimit-upto", "--connlimit-above")
_OF_COUNTERS = ("--packets-", "--bytes-")
# The types that an address is known to have, or not to have.
_TYPES = frozenset({"UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST"})
_BY_FORM = frozenset({"UNICAST", "MULTICAST"})
_SIDES = {"--src-type": Field.SRC, "--dst-type": Field.DST}
_PROTOCOL_NAMES = {number: name for name, number in reversed(PROTOCOLS.items())}


def answered(
    packet: Packet, family: Family, local: Field | None = None, connection: KnownConnection | None = None
) -> Packet:
    """*packet* with the kernel's answers; other questions keep theirs, and unknown sets stay unknown.

    local       SRC or DST: which address is one of this host; None: that is not known
    connection  of the packet; None: that is not known
    """
    given: Callable[[Match, int], bool | None] = packet.fact

    @cache
    def types(side: Field) -> frozenset[str] | None:
        return types_at(side, packet, family, local)

    def fact(match: Match, epoch: int) -> bool | None:
        known = given(match, epoch)
        if known is not None:
            return known
        if match.name == "set":
            return is_member(match, packet, family)
        if match.name == "conntrack":
            if connection is None or epoch:  # a rule may have changed it
                return None
            return connection.holds(match, packet)
        asked = address_mask(match)
        if asked is not None:
            return asked.holds(packet.values[asked.field])
        if match.name == "pkttype":
            return is_sent_to_one(match)
        return is_of_type(match, types, family) if match.name == "addrtype" else None

    def outcome(match: Match, ordinal: int) -> Outcome:
        if match.name == "set":
            return Outcome.YES if is_member(match, packet, family) else Outcome.NO
        fresh = of_fresh_memory(match)
        return packet.outcome(match, ordinal) if fresh is None else Outcome.YES if fresh else Outcome.NO

    return replace(packet, fact=fact, outcome=outcome)


def of_fresh_memory(match: Match) -> bool | None:
    """Whether a match with a memory holds for the first packet that asks it; None: it is of another kind."""
    sure = sure_answer(match)
    if sure is not None:
        return sure
    for option, holds in (_FRESH.get(match.name) or _by_bound(match)).items():
        if option in match.words:
            return holds != is_inverted(match, option)
    return True if match.name == "limit" else None  # its rate may be left out


def _by_bound(match: Match) -> dict[str, bool]:
    """As in _FRESH, of matches for which the number that they have decides."""
    words = match.words
    if match.name == "quota":
        return {"--quota": True} if _number_behind("--quota", words, "0") >= LARGEST_PACKET else {}
    if match.name == "connlimit":
        most = {option: _number_behind(option, words, "1") for option in _CONNECTIONS}
        return {
            "--connlimit-upto": most["--connlimit-upto"] > 0,
            "--connlimit-above": not most["--connlimit-above"],
        }
    return {}


def _number_behind(option: str, words: tuple[str, ...], default: str) -> int:
    """The number behind an option, which iptables reads in any base (`0x10`)."""
    return number(word_behind(option, words, default), 0, 2**64 - 1)


def is_sent_to_one(match: Match) -> bool | None:
    """Whether a pkttype holds for a packet that was sent to one host; None: it has no type."""
    asked = word_behind("--pkt-type", match.words).upper()
    if not asked:
        return None
    return (asked in ("UNICAST", "HOST")) != is_inverted(match, "--pkt-type")


def is_of_type(match: Match, types: Callable[[Field], frozenset[str] | None], family: Family) -> bool | None:
    """Whether addresses of these *types* are of those that *match* names; None: that is not known."""
    if any(word.startswith("--limit-") for word in match.words):
        return None  # the type by an interface is another question
    answers = []
    for option, side in _SIDES.items():
        if option in match.words:
            asked = frozenset(word_behind(option, match.words).upper().split(","))
            known = types(side)
            if known is None or not asked <= _TYPES:
                return None
            answers.append(_is_one_of(known, asked, family) != is_inverted(match, option))
    return all(answers)


def _is_one_of(types: frozenset[str], asked: frozenset[str], family: Family) -> bool:
    """Whether an address of these *types* is of those asked for (xt_addrtype.c).

    In IPv6 each type by the form of the address must hold, and of the others one.
    """
    if family is Family.IPV4:
        return bool(asked & types)
    by_form = asked & _BY_FORM
    return by_form <= types and (by_form == asked or bool((asked - by_form) & types))


def types_at(side: Field, packet: Packet, family: Family, local: Field | None) -> frozenset[str] | None:
    """The types of one address of the packet, as the kernel has them; None: unknown.

    Where the kernel cannot be asked, the *local* address is taken for one of this host, and the other one for
    one of another host.  A local address that the kernel does not know, as before an interface is up, is of
    unknown type.
    """
    address = packet.values.get(side)
    types = None if address is None else _types_of(address, family)
    if types is None and local is not None:
        return _with_unicast("LOCAL" if side is local else "UNICAST", family)
    return None if side is local and types == frozenset({"UNICAST"}) else types


def _types_of(address: int, family: Family) -> frozenset[str] | None:
    """The types of an address by its form and by table local; None: the table cannot be read."""
    if family is Family.IPV6:
        if address >> 120 == 0xFF:
            return frozenset({"MULTICAST"})
        if not address:
            return frozenset()
        shown = str(ipaddress.IPv6Address(address))
    else:
        if address in (0, 0xFFFFFFFF):
            return frozenset({"BROADCAST"})
        if address >> 28 == 0xE:
            return frozenset({"MULTICAST"})
        shown = str(ipaddress.IPv4Address(address))
    command = ["ip", f"-{int(family)}", "-details", "-oneline", "route", "show"]
    try:
        listed = subprocess.run(
            [*command, "table", "local", "match", shown], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    if listed.returncode:
        return None
    routes = [line.split() for line in listed.stdout.splitlines()]  # TYPE PREFIX ...
    longest = max(routes, key=lambda words: _length(words[1], family), default=["unicast"])
    return _with_unicast(longest[0].upper(), family)


def _length(prefix: str, family: Family) -> int:
    """The length of a prefix of `ip route`, which leaves that of a single address out."""
    if prefix == "default":
        return 0
    return int(prefix.partition("/")[2] or (32 if family is Family.IPV4 else 128))


def _with_unicast(kind: str, family: Family) -> frozenset[str]:
    """The types of an address that the routes give *kind*: in IPv6 it is UNICAST by its form, too."""
    return frozenset({kind, "UNICAST"}) if family is Family.IPV6 else frozenset({kind})


def is_member(match: Match, packet: Packet, family: Family) -> bool | None:
    """Whether the packet is in the set that *match* names; None if that cannot be found out."""
    words = match.words
    if "--match-set" not in words[:-2] or "--return-nomatch" in words:
        return None
    at = words.index("--match-set")
    is_in = _is_in(words[at + 1], words[at + 2].split(","), packet, family)
    if is_in is None or (is_in and any(word.startswith(_OF_COUNTERS) for word in words)):
        return None
    return is_in != is_inverted(match, "--match-set")


def _is_in(name: str, directions: Sequence[str], packet: Packet, family: Family) -> bool | None:
    """Whether the packet is in a set, or in a member of a list:set (ip_set_test); None: unknown."""
    described = _described(name)
    if described is None:
        return None
    dimensions, of_family = described
    if len(directions) < len(dimensions) or of_family not in (None, family):
        return False  # the kernel looks nothing up
    if dimensions == ["set"]:
        answers = {_is_in(member, directions, packet, family) for member in _members(name)}
        return True if True in answers else None if None in answers else False
    element = _element(dimensions, directions, packet, family)
    if element is None:
        return None
    tested = _ipset("test", name, element)
    if tested is None or ("is in set" not in tested.stderr and "is NOT in set" not in tested.stderr):
        return None
    return tested.returncode == 0


def sets_behind(name: str) -> frozenset[str]:
    """The set *name*, and its members if these are sets."""
    described = _described(name)
    return frozenset((name, *(_members(name) if described is not None and described[0] == ["set"] else ())))


def _members(name: str) -> list[str]:
    """The sets in a list:set."""
    saved = _ipset("save", name)
    return [] if saved is None else members_of(name, saved.stdout)


def _described(name: str) -> tuple[list[str], Family | None] | None:
    """What an element of the set has, as "ip" and "port", and its family; None if there is no such set.

    Without a family are sets of ports, of hardware addresses, and of sets.
    """
    listed = _ipset("list", "-t", name)
    kind = None if listed is None or listed.returncode else _TYPE.search(listed.stdout)
    if listed is None or kind is None:
        return None
    family = _FAMILY.search(listed.stdout)
    dimensions = kind[1].partition(":")[2].split(",")
    if family is not None:
        return dimensions, Family.IPV6 if family[1] == "inet6" else Family.IPV4
    return dimensions, Family.IPV4 if kind[1].startswith("bitmap:ip") else None


def _ipset(*words: str) -> subprocess.CompletedProcess[str] | None:
    """What ipset answers; None if it cannot be called."""
    try:
        return subprocess.run(
            ["ipset", *words],
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )
    except OSError:
        return None


def _element(
    dimensions: Sequence[str], directions: Sequence[str], packet: Packet, family: Family
) -> str | None:
    """The element that is looked up; None if a part of it is unknown, or is of another kind than
    addresses, ports with protocol, and interfaces.
    """
    parts = []
    for dimension, direction in zip(dimensions, directions, strict=False):
        is_source = direction == "src"
        if dimension in ("ip", "net"):
            value = packet.values.get(Field.SRC if is_source else Field.DST)
            of = ipaddress.IPv4Address if family is Family.IPV4 else ipaddress.IPv6Address
            parts.append("" if value is None else str(of(value)))
        elif dimension == "port":
            port = packet.values.get(Field.SPORT if is_source else Field.DPORT)
            protocol = _PROTOCOL_NAMES.get(packet.values.get(Field.PROTO, 0))
            parts.append("" if port is None or protocol is None else f"{protocol}:{port}")
        elif dimension == "iface":
            parts.append(interface_name(packet.values.get(Field.IIF if is_source else Field.OIF, 0)))
        else:
            return None
    return ",".join(parts) if all(parts) and parts else None
