"""Packets of ICMP without which a host or a router works badly, and of which a rule set lets none pass.

-P INPUT DROP
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT

of IPv6 lets no neighbour solicitation in, which has no connection: the hosts of its network do not find it.
Many rule sets stop these packets of some interface or sender on purpose, so a chain is named only if it lets
none of them pass but those of lo and of its addresses, which come from no network.  A chain that lets nothing
else pass either is closed on purpose.

Invariant: exact, as `reach` is: if some packet of the kind passes, or may, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hitables.ir.connection_states import ICMP_OF, LOOPBACK, why_not_of_kind
from hitables.ir.fields import STATES, Family, Field, top
from hitables.ir.intervals import Values
from hitables.ir.program import Program

from .exact import Tell
from .question import Question
from .reach import reach

# By chain: the interface that tells packets of lo from others.
_INTERFACE = {"INPUT": Field.IIF, "FORWARD": Field.IIF, "OUTPUT": Field.OIF}
# The kernel lets no packet from or to these addresses come in by, or leave by, another interface than lo.
_OF_LOOPBACK = {
    Family.IPV4: Values.interval(127 << 24, (128 << 24) - 1),
    Family.IPV6: Values.only(1),
}


@dataclass(frozen=True, slots=True)
class Needed:
    """Packets of ICMP of one type, or one type and *code*, that come to *chains* of table filter.

    without  what goes wrong where none passes
    """

    family: Family
    chains: tuple[str, ...]
    name: str
    type: int
    code: int | None
    without: str

    def box(self) -> dict[Field, Values]:
        """These packets, in the states that such packets may have."""
        low, high = (self.code, self.code) if self.code is not None else (0, 255)
        one = {Field.PROTO: ICMP_OF[self.family], Field.ICMP: self.type << 8 | low}
        states = [at for at, state in enumerate(STATES) if not why_not_of_kind(self.family, one, state)]
        return {
            Field.PROTO: Values.only(one[Field.PROTO]),
            Field.ICMP: Values.interval(self.type << 8 | low, self.type << 8 | high),
            Field.STATE: Values.only(*states),
        }


_IS_NOT_FOUND = "other hosts and routers of its networks do not find this host"
_FINDS_NONE = "this host does not find the others of its networks, nor its router"
_SMALLER = "connections over a path with a smaller MTU hang when they send much"
NEEDED = (
    Needed(Family.IPV6, ("INPUT",), "neighbour solicitation", 135, None, _IS_NOT_FOUND),
    Needed(Family.IPV6, ("INPUT",), "neighbour advertisement", 136, None, _FINDS_NONE),
    Needed(Family.IPV6, ("OUTPUT",), "neighbour solicitation", 135, None, _FINDS_NONE),
    Needed(Family.IPV6, ("OUTPUT",), "neighbour advertisement", 136, None, _IS_NOT_FOUND),
    Needed(Family.IPV6, ("INPUT", "FORWARD"), "packet-too-big", 2, None, _SMALLER),
    Needed(Family.IPV4, ("INPUT", "FORWARD"), "fragmentation-needed", 3, 4, _SMALLER),
)


@dataclass(frozen=True, slots=True)
class Stopped:
    """No packet of *needed* passes this chain of table filter."""

    chain: str
    needed: Needed


def stopped(program: Program, question: Question, tell: Tell) -> Iterator[Stopped]:
    """The needed packets of which chains of *question* let none pass; none where that is not decided."""
    table = next((table for table in program if table.name == "filter"), None)
    if table is None or (question.tables and table.name not in question.tables):
        return
    for chain, field in _INTERFACE.items():
        if chain not in table or (question.chains and chain not in question.chains):
            continue
        asked = replace(question, tables=frozenset({table.name}), chains=frozenset({chain}))
        others = _not_of_loopback(program.family, field)
        for needed in NEEDED:
            if needed.family is not program.family or chain not in needed.chains:
                continue
            if not _passes(program, {**needed.box(), **others}, asked, tell):
                if not _passes(program, others, asked, tell):
                    break
                yield Stopped(chain, needed)


def _not_of_loopback(family: Family, interface: Field) -> dict[Field, Values]:
    """The packets of other interfaces and addresses than those of loopback."""
    own = {interface: Values.only(LOOPBACK), Field.SRC: _OF_LOOPBACK[family], Field.DST: _OF_LOOPBACK[family]}
    return {field: values.complement(top(field, family)) for field, values in own.items()}


def _passes(program: Program, box: Mapping[Field, Values], question: Question, tell: Tell) -> bool:
    """Whether some packet of *box* passes, or may; also if that is not decided."""
    reached = reach(program, box, question, tell, most=1)
    return bool(reached.outcomes) or not reached.complete
