"""The contents of a kernel: the bytes of each rule as the kernel returns them, whichever tool wrote it.

Rules with equal bytes are equal; rules that behave equally may have different bytes.  The bytes omit
counters and handles, which change by themselves, and comments, which a tool may store in either of two
places.  The kernel itself zeroes the private part of an extension's data.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..ir.fields import Family

# The tables of iptables; it ignores `ip` and `ip6` tables of other names.
TABLES = ("raw", "mangle", "nat", "filter", "security")

ChainId = tuple[str, str]  # table, chain


def _ipv6_words(*masks: int) -> tuple[slice, ...]:
    """Of masks that begin at these bytes: the last three of their four words, which only IPv6 needs."""
    return tuple(slice(at + 4, at + 16) for at in masks)


_CONNTRACK = _ipv6_words(16, 48, 80, 112)
# Bytes of an extension's data that it does not use in IPv4, by its name and revision.  iptables fills them
# or not, depending on how the rule states the mask, if it does.  (A list of `recent` has the mask of the rule
# that names it first, and an IPv6 rule that names it, too, does use these bytes: docs/live.md.)
_UNUSED = {
    (b"recent", 1): _ipv6_words(212),
    (b"connlimit", 1): _ipv6_words(0),
    (b"conntrack", 1): _CONNTRACK,
    (b"conntrack", 2): _CONNTRACK,
    (b"conntrack", 3): _CONNTRACK,
    (b"ipvs", 0): _ipv6_words(16),
    (b"policy", 0): _ipv6_words(*(76 * element + mask for element in range(4) for mask in (16, 48))),
    (b"HMARK", 0): _ipv6_words(0, 16),
}


def _any_code_of_type_255(info: bytes) -> bytes:
    """Of the match icmp (type, two codes): type 255 holds for all packets, whatever the codes."""
    return b"\xff\0\xff" + info[3:] if info[:1] == b"\xff" else info


def _without_bit(at: int, bit: int) -> Callable[[bytes], bytes]:
    """Take *bit* out of byte *at*: the kernel compares the numbers whether it is set or not."""
    return lambda info: info[:at] + bytes([info[at] & ~bit]) + info[at + 1 :] if len(info) > at else info


def _untracked(info: bytes) -> bytes:
    """Of the target CT: with the bit of --notrack the kernel does not use the direction of a zone."""
    flags = int.from_bytes(info[:2], sys.byteorder)
    return (flags & ~0xC).to_bytes(2, sys.byteorder) + info[2:] if flags & 1 else info


# Data that the kernel treats alike, by name and revision: a function that makes them equal.
_ALIKE: dict[tuple[bytes, int], Callable[[bytes], bytes]] = {
    (b"icmp", 0): _any_code_of_type_255,
    (b"frag", 0): _without_bit(12, 0x01),
    (b"rt", 0): _without_bit(16, 0x02),
    **dict.fromkeys(((b"CT", revision) for revision in range(3)), _untracked),
}


def used(name: bytes, revision: int, info: bytes, family: Family) -> bytes:
    """The data of an extension, with zeros where the kernel does not use it."""
    if (name, revision) in _ALIKE:
        info = _ALIKE[name, revision](info)
    unused = _UNUSED.get((name, revision), ()) if family is Family.IPV4 else ()
    for part in unused:
        if len(info) >= part.stop:
            info = info[: part.start] + bytes(part.stop - part.start) + info[part.stop :]
    return info


@dataclass(frozen=True, slots=True)
class ChainContents:
    """One chain.

    head     of a base chain: its policy and, in nft, its hook, priority and type
    rules    the bytes of each rule, in order
    handles  of the rules in nft; empty in legacy
    """

    head: bytes
    rules: tuple[bytes, ...]
    handles: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """The tables of one family in one backend by name, and their chains in order."""

    tables: Sequence[str]
    chains: Mapping[ChainId, ChainContents]
