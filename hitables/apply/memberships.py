"""What a packet's header does not say, as the kernel would answer it now: membership of ipsets, fresh limits.

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

_TYPE = re.compile(r"^Type: (\S+)$", re.MULTILINE)
# Matches that hold for the first packets, unless they ask for more than a rate.
_LIMITS = frozenset({"limit", "hashlimit"})
_PROTOCOL_NAMES = {number: name for name, number in reversed(PROTOCOLS.items())}


def answered(packet: Packet, family: Family) -> Packet:
    """*packet* with the kernel's answers; other questions keep theirs, and unknown sets stay unknown."""
    given: Callable[[Match, int], bool | None] = packet.fact

    def fact(match: Match, epoch: int) -> bool | None:
        known = given(match, epoch)
        return is_member(match, packet, family) if known is None and match.name == "set" else known

    def outcome(match: Match, ordinal: int) -> Outcome:
        if match.name == "set":
            return Outcome.YES if is_member(match, packet, family) else Outcome.NO
        if match.name in _LIMITS:
            return Outcome.NO if "--hashlimit-above" in match.words else Outcome.YES
        return packet.outcome(match, ordinal)

    return replace(packet, fact=fact, outcome=outcome)


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
    inverted = at > 0 and words[at - 1] == "!"
    return (tested.returncode == 0) != inverted


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
