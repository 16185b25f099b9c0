"""The chains of a table without the rules that surely do nothing to a packet.

Idea: a walk reads every rule up to the one that decides.  Of a long chain, the rules whose tests of header
fields may hold for the packet are found first, by the bounds of these tests as arrays; the others are left
out.

Invariant: a rule that is left out does not match the packet, asks no memory and drops nothing, so a walk
through these chains has the verdict and the effects of one through the table.  Its steps lack those rules,
and number the others anew.

Cost: the bounds of a long chain, once, linear in its rules; for each packet one pass over them by numpy.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hitables.ir.fields import Field
from hitables.ir.packet import Packet
from hitables.ir.program import Chain, Table
from hitables.ir.rule import Role, Rule

from .match_box import TableWrites, written_by

LONG = 128  # rules; a shorter chain is read whole

# Lowest and highest value by rule, as the next floats outside: of 128 bits a float keeps 53.
Bounds = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


class LongChains:
    """The chains of *table*, of which packets read parts (`of`)."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.written = written_by(table)
        rules = (rule for chain in table.chains for rule in chain.rules)
        self.most_needed = max((match.needs for rule in rules for match in rule.matches), default=0)
        self._bounds: dict[tuple[str, bool], dict[Field, Bounds]] = {}

    def of(self, packet: Packet) -> Table | RulesForPacket:
        """The chains as *packet* may read them; all rules for one that any -p may drop."""
        return self.table if packet.cut_short else RulesForPacket(self, packet)

    def rules(self, chain: Chain, packet: Packet) -> Iterator[Rule]:
        """The rules of a long chain that may do something to the packet."""
        may_drop = packet.is_later_fragment or packet.bad_offset or packet.l4_bytes < self.most_needed
        key = chain.name, may_drop
        if key not in self._bounds:
            self._bounds[key] = _bounds(chain, self.written, may_drop)
        near = np.ones(len(chain.rules), np.bool_)
        for field, (lows, highs) in self._bounds[key].items():
            if field in packet.values:
                value = float(packet.values[field])
                near &= (lows <= value) & (value <= highs)
        return (chain.rules[at] for at in np.flatnonzero(near).tolist())


class RulesForPacket:
    """The chains as one packet reads them, by name."""

    def __init__(self, chains: LongChains, packet: Packet) -> None:
        self.chains, self.packet = chains, packet

    def __getitem__(self, name: str) -> Chain:
        chain = self.chains.table[name]
        if len(chain.rules) < LONG:
            return chain
        return chain.with_rules(tuple(self.chains.rules(chain, self.packet)))


def _bounds(chain: Chain, written: TableWrites, may_drop: bool) -> dict[Field, Bounds]:
    """By field that some rule of the chain restricts: the bounds of each rule.

    written   fields that the packet may have lost when it reads the rule
    may_drop  of packets that matches may drop: the tests behind the first such match do not count
    """
    found: dict[Field, tuple[list[int], list[float], list[float]]] = {}
    for at, rule in enumerate(chain.rules):
        for match in rule.matches:
            if match.role not in (Role.SPACE, Role.CONSTANT) or (may_drop and (match.needs or match.option)):
                break
            if match.either:
                continue
            for test in match.tests:
                if test.field in written.fields or not test.values:
                    continue
                ats, lows, highs = found.setdefault(test.field, ([], [], []))
                low, high = test.values.hull()
                ats.append(at)
                lows.append(float(low))
                highs.append(float(high))
    bounds: dict[Field, Bounds] = {}
    for field, (ats, lows, highs) in found.items():
        own = bounds[field] = np.full(len(chain.rules), -np.inf), np.full(len(chain.rules), np.inf)
        np.maximum.at(own[0], ats, np.nextafter(lows, -np.inf))
        np.minimum.at(own[1], ats, np.nextafter(highs, np.inf))
    return bounds
