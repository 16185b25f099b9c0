"""What a kernel holds, as the kernel itself gives it: the bytes of each rule, whichever tool wrote it.

Two rules that decide alike may differ here; two that are equal here are one rule.  Left out is what
changes by itself (counters, handles) and what a tool may put into either of two places (comments); set
to zero by the kernel is what an extension keeps for itself behind the part that tools read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The tables of iptables; `ip` and `ip6` tables of other names are none of its business.
TABLES = ("raw", "mangle", "nat", "filter", "security")

Place = tuple[str, str]  # table, chain


@dataclass(frozen=True, slots=True)
class HeldChain:
    """One chain.

    head     what the chain itself says: of a base chain the policy, and in nft hook, priority and type
    rules    the bytes of each rule, in order
    handles  by which nft names each rule; empty in legacy
    """

    head: bytes
    rules: tuple[bytes, ...]
    handles: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """The tables of one family in one backend, by name: their flags, and their chains in order."""

    tables: Mapping[str, int]
    chains: Mapping[Place, HeldChain]
