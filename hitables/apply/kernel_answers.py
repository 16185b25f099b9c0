"""What a packet's header does not say, as the kernel would answer: ipsets, types of addresses, fresh limits.

The packets that lockout.py traces are few, so each question runs `ipset test`.
"""

from __future__ import annotations

import ipaddress
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace

from ..ir.fields import Family, Field
from ..ir.packet import Outcome, Packet
from ..ir.packet_text import PROTOCOLS
from ..ir.rule import Match
from ..ir.sure_answers import is_inverted, sure_answer

_TYPE = re.compile(r"^Type: (\S+)$", re.MULTILINE)
# By match with a memory: whether it holds for the first packet that asks it, by the option that it has.
_FRESH: dict[str, dict[str, bool]] = {
    "limit": {"--limit": True},
    "quota": {"--quota": True},
    "hashlimit": {"--hashlimit-upto": True, "--hashlimit": True, "--hashlimit-above": False},
    "connlimit": {"--connlimit-upto": True, "--connlimit-above": False},
    "recent": {"--rcheck": False, "--update": False, "--remove": False},
}
# The types of addresses that a session is known to have, or not to have.
_TYPES = frozenset({"UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST"})
_PROTOCOL_NAMES = {number: name for name, number in reversed(PROTOCOLS.items())}


def answered(packet: Packet, family: Family, local: str = "") -> Packet:
    """*packet* with the kernel's answers; other questions keep theirs, and unknown sets stay unknown.

    local  which address is one of this host: "source", "destination", or "" where that is not known
    """
    given: Callable[[Match, int], bool | None] = packet.fact

    def fact(match: Match, epoch: int) -> bool | None:
        known = given(match, epoch)
        if known is not None:
            return known
        if match.name == "set":
            return is_member(match, packet, family)
        return is_of_type(match, local) if match.name in ("addrtype", "pkttype") else None

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
    for option, holds in _FRESH.get(match.name, {}).items():
        if option in match.words:
            return holds != is_inverted(match, option)
    return True if match.name == "limit" else None  # its rate may be left out


def is_of_type(match: Match, local: str) -> bool | None:
    """Whether the addresses of a session are of the types that *match* names; None: that is not known.

    The *local* address is of type LOCAL, the other one UNICAST, and the packet was sent to one host.
    """
    if match.name == "pkttype":
        types = {"--pkt-type": {"UNICAST", "HOST"}}
    elif local:
        own, other = ("--src-type", "--dst-type") if local == "source" else ("--dst-type", "--src-type")
        types = {own: {"LOCAL"}, other: {"UNICAST"}}
    else:
        return None
    answers = []
    for option, own_types in types.items():
        if option in match.words:
            asked = set(match.words[match.words.index(option) + 1].upper().split(","))
            if match.name == "addrtype" and not asked <= _TYPES:
                return None
            answers.append(bool(asked & own_types) != is_inverted(match, option))
    # The type by an interface is another question.
    return None if any(word.startswith("--limit-") for word in match.words) else all(answers)


def is_member(match: Match, packet: Packet, family: Family) -> bool | None:
    """Whether the packet is in the set that *match* names; None if that cannot be found out."""
    words = match.words
    if "--match-set" not in words[:-2]:
        return None
    at = words.index("--match-set")
    name, directions = words[at + 1], words[at + 2].split(",")
    element = _element(name, directions, packet, family)
    if element is None:
        return None
    tested = subprocess.run(["ipset", "test", name, element], capture_output=True, text=True, check=False)
    if "is in set" not in tested.stderr and "is NOT in set" not in tested.stderr:
        return None
    return (tested.returncode == 0) != is_inverted(match, "--match-set")


def _element(name: str, directions: list[str], packet: Packet, family: Family) -> str | None:
    """The element that is looked up: addresses, and ports with protocol, by the dimensions of the set."""
    try:
        listed = subprocess.run(["ipset", "list", "-t", name], capture_output=True, text=True, check=False)
    except OSError:
        return None
    kind = _TYPE.search(listed.stdout)
    if kind is None or listed.returncode:
        return None
    parts = []
    for dimension, direction in zip(kind[1].partition(":")[2].split(","), directions, strict=False):
        is_source = direction == "src"
        if dimension in ("ip", "net"):
            value = packet.values.get(Field.SRC if is_source else Field.DST)
            of = ipaddress.IPv4Address if family is Family.IPV4 else ipaddress.IPv6Address
            parts.append("" if value is None else str(of(value)))
        elif dimension == "port":
            port = packet.values.get(Field.SPORT if is_source else Field.DPORT)
            protocol = _PROTOCOL_NAMES.get(packet.values.get(Field.PROTO, 0))
            parts.append("" if port is None or protocol is None else f"{protocol}:{port}")
        else:
            return None
    return ",".join(parts) if all(parts) and parts else None
