"""The contents of a kernel: the bytes of each rule as the kernel returns them, whichever tool wrote it.

Rules with equal bytes are equal; rules that behave equally may have different bytes.  The bytes omit
counters and handles, which change by themselves, and comments, which a tool may store in either of two
places.  The kernel itself zeroes the private part of an extension's data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir.fields import Family

# The tables of iptables; it ignores `ip` and `ip6` tables of other names.
TABLES = ("raw", "mangle", "nat", "filter", "security")

ChainId = tuple[str, str]  # table, chain

# Bytes of an extension's data that it does not use in IPv4, by its name and revision: the part of a mask
# that only IPv6 needs, which iptables fills or not, depending on whether the rule states a mask.
_UNUSED = {(b"recent", 1): slice(216, 228), (b"connlimit", 1): slice(4, 16)}


def used(name: bytes, revision: int, info: bytes, family: Family) -> bytes:
    """The data of an extension, with zeros where the kernel does not use it."""
    unused = _UNUSED.get((name, revision)) if family is Family.IPV4 else None
    if unused is None or len(info) < unused.stop:
        return info
    return info[: unused.start] + bytes(unused.stop - unused.start) + info[unused.stop :]


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
