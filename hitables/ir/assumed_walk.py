"""A packet's walk where its words leave conditions open: each is assumed not to hold, and what follows holds.

Of a match and its complement (`-m set ! --match-set S src`) one holds for each packet: where one is assumed
not to hold, the other does.  So do those for which the assumptions leave no other value of a number.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .intervals import Values
from .packet import Backend, Packet
from .program import Table
from .rule import Match
from .semantics import Chains, Walk, run
from .synproxy import taking
from .tracked_walk import run_tracked


@dataclass(frozen=True, slots=True)
class AssumedWalk:
    """*implied*: keys of matches that hold because others (`Walk.open`) are assumed not to."""

    walk: Walk
    implied: tuple[str, ...]


def run_assuming(table: Table, chain: str, packet: Packet, backend: Backend) -> AssumedWalk:
    """Send *packet* into *chain* of *table*, with all that is certain of it."""
    assumptions = _Assumptions()
    walk = run_tracked(taking(table, packet), chain, packet, backend, assumptions.run)
    return AssumedWalk(walk, tuple(assumptions.implied))


@dataclass(slots=True)
class _Assumptions:
    """Those of the last walk."""

    implied: dict[str, None] = field(default_factory=dict)

    def run(self, table: Chains, chain: str, packet: Packet, backend: Backend) -> Walk:
        """`semantics.run` with consistent assumptions."""
        self.implied = {}
        left: dict[tuple[str, int, int], Values] = {}  # by attribute, mask and epoch: values not ruled out

        def fact(match: Match, epoch: int) -> bool | None:
            given, asked = packet.fact(match, epoch), match.fact
            if given is not None:
                return given
            place = asked.attribute, asked.mask, epoch
            values = left.get(place, Values.interval(0, asked.mask))
            if asked.values.covers(values):
                self.implied[match.key] = None
                return True
            left[place] = values.intersect(asked.negation.values)
            return None

        return run(table, chain, replace(packet, fact=fact), backend)
