"""What a kernel holds, as the kernel itself gives it: the bytes of each rule, whichever tool wrote it.

Two rules that decide alike may differ here; two that are equal here are one rule.  Left out is what
changes by itself (counters, handles) and what a tool may put into either of two places (comments); set
to zero by the kernel is what an extension keeps for itself behind the part that tools read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir.fields import Family

# The tables of iptables; `ip` and `ip6` tables of other names are none of its business.
TABLES = ("raw", "mangle", "nat", "filter", "security")

ChainId = tuple[str, str]  # table, chain

# Bytes that an extension is given and does not use in IPv4, by its name and revision: there is room for an
# IPv6 mask, which iptables fills or leaves empty, according to whether a mask was asked for in words.
_UNUSED = {(b"recent", 1): slice(216, 228), (b"connlimit", 1): slice(4, 16)}


def used(name: bytes, revision: int, info: bytes, family: Family) -> bytes:
    """What an extension is given, with zeros where the kernel does not use it."""
    unused = _UNUSED.get((name, revision)) if family is Family.IPV4 else None
    if unused is None or len(info) < unused.stop:
        return info
    return info[: unused.start] + bytes(unused.stop - unused.start) + info[unused.stop :]


@dataclass(frozen=True, slots=True)
class ChainContents:
    """One chain.

    head     what the chain itself says: of a base chain the policy, and in nft hook, priority and type
    rules    the bytes of each rule, in order
    handles  by which nft names each rule; empty in legacy
    """

    head: bytes
    rules: tuple[bytes, ...]
    handles: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """The tables of one family in one backend by name, and their chains in order."""

    tables: Sequence[str]
    chains: Mapping[ChainId, ChainContents]
