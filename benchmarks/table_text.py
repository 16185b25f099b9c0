"""Parts of a drawn table in iptables-save text: addresses, counters, declarations of chains."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hitables.ir.program import BUILT_IN


def dotted(address: int) -> str:
    """An IPv4 address in words."""
    return ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0))


def declared(table: str, rng: Random, user: Sequence[str] = (), counters: bool = False) -> str:
    """The declarations of a table's chains."""
    lines = []
    for name in BUILT_IN[table]:
        policy = rng.choice(["ACCEPT", "DROP"]) if table == "filter" else "ACCEPT"
        lines.append(f":{name} {policy} [{count(rng, counters)}]\n")
    return "".join((*lines, *(f":{name} - [0:0]\n" for name in user)))


def count(rng: Random, counters: bool) -> str:
    """Packets and bytes of a rule or chain; zeros without *counters*."""
    return f"{rng.randrange(10**6)}:{rng.randrange(10**9)}" if counters else "0:0"
