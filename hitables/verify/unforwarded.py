"""Rules of nat that lead new connections to where table filter lets none of them in.

-t nat -A PREROUTING -i eth0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.5:80

needs a rule of chain FORWARD that lets the packets pass, with the address and the port that they have behind
the translation.  Whether 10.0.0.5 is another host no rule says, so a rule is named only if chain INPUT lets
none of them pass either.

Each chain is asked once, for the packets of all such rules; those of each are then looked for in the regions
that pass.

Packets of this host that come in by lo are not asked for: table nat has seen their connections in OUTPUT, and
the kernel asks it once for each.

Invariant: exact, as `reach` is: if some packet that the rule translates passes, or may, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hitables.ir.connection_states import LOOPBACK
from hitables.ir.fields import STATES, Family, Field, top
from hitables.ir.hooks import Box
from hitables.ir.intervals import Values
from hitables.ir.nat_targets import Destination, destination
from hitables.ir.program import Program, Table
from hitables.ir.required import required
from hitables.ir.rule import Rule

from .exact import Tell
from .question import Question
from .reach import reach

MOST_RULES, MOST_REGIONS = 1000, 2000  # that are looked at: of more rules, the first; of more regions, none
_NEW, _TRANSLATED = (Values.only(STATES.index(state)) for state in ("NEW", "NEW+DNAT"))
# Fields that a packet has in table filter as in PREROUTING of nat.
_STAYS = (Field.SRC, Field.PROTO, Field.SPORT, Field.DPORT, Field.ICMP, Field.IIF)


@dataclass(frozen=True, slots=True)
class Unforwarded:
    """A rule of table nat, and the chains of table filter that let no packet pass that it translates."""

    line: int
    chain: str
    rule: Rule
    closed: tuple[str, ...]


def unforwarded(program: Program, question: Question, tell: Tell) -> Iterator[Unforwarded]:
    """Such rules of the chains of *question*, by line; none where that is not decided."""
    tables = {table.name: table for table in program}
    if not {"nat", "filter"} <= tables.keys() or (question.tables and "nat" not in question.tables):
        return
    found = [
        (chain, rule, to)
        for chain, rule in _translating(tables["nat"])
        if not question.chains or chain in question.chains
        if rule.target is not None and (to := destination(rule.target)) is not None
    ][:MOST_RULES]
    behind = [_behind(rule, to, program.family) for _, rule, to in found]
    asked = {
        "FORWARD": [
            box for boxes, (_, _, to) in zip(behind, found, strict=True) if not to.is_own for box in boxes
        ],
        "INPUT": [box for boxes in behind for box in boxes],
    }
    passing = {chain: _passing(program, chain, boxes, question, tell) for chain, boxes in asked.items()}
    for boxes, (chain, rule, to) in zip(behind, found, strict=True):
        closed = ("INPUT",) if to.is_own else ("FORWARD", "INPUT")
        if boxes and not any(
            _meet(box, region) for box in boxes for each in closed for region in passing[each]
        ):
            yield Unforwarded(rule.line, chain, rule, closed)


def _translating(nat: Table) -> Iterator[tuple[str, Rule]]:
    """The rules that packets meet which come in from a network, each with its chain."""
    reached = ["PREROUTING"] if "PREROUTING" in nat else []
    for name in reached:  # which grows
        for rule in nat[name].rules:
            yield name, rule
            if rule.enters and rule.enters in nat and rule.enters not in reached:
                reached.append(rule.enters)


def _behind(rule: Rule, to: Destination, family: Family) -> list[Box]:
    """What the first packets of connections have behind the target: none, if it meets none."""
    tested = required(rule)
    came = {field: tested[field] for field in _STAYS if field in tested}
    not_of_this_host = Values.only(LOOPBACK).complement(top(Field.IIF, family))
    came[Field.IIF] = came.get(Field.IIF, not_of_this_host).intersect(not_of_this_host)
    if not came[Field.IIF]:
        return []
    translated = {**came, Field.STATE: _TRANSLATED}
    if to.ports is not None:
        translated[Field.DPORT] = to.ports
    addresses = None if to.is_own else to.addresses or tested.get(Field.DST)
    if addresses is not None:
        translated[Field.DST] = addresses
    # Packets that were for this address and port before: the kernel does not say DNAT of them.
    unchanged = {**came, Field.STATE: _NEW}
    if Field.DST in tested:
        unchanged[Field.DST] = tested[Field.DST]
    for field, values in ((Field.DPORT, to.ports), (Field.DST, to.addresses)):
        if values is not None:
            unchanged[field] = values.intersect(unchanged.get(field, values))
    return [translated, unchanged] if all(unchanged.values()) else [translated]


def _passing(
    program: Program, chain: str, boxes: Sequence[Box], question: Question, tell: Tell
) -> Sequence[Box]:
    """The regions of *boxes* that pass *chain* of table filter, or may; if that is not known, all packets."""
    everything: Sequence[Box] = ({},)
    if not boxes or chain not in program.table("filter"):
        return everything
    asked = replace(question, tables=frozenset({"filter"}), chains=frozenset({chain}))
    reached = reach(program, _hull(boxes), asked, tell, most=MOST_REGIONS)
    return [dict(each.box) for each in reached.outcomes] if reached.complete else everything


def _hull(boxes: Sequence[Box]) -> Box:
    """A box that holds all *boxes*."""
    shared = set.intersection(*(set(box) for box in boxes))
    return {field: Values.of(*(pair for box in boxes for pair in box[field].pairs)) for field in shared}


def _meet(one: Box, other: Box) -> bool:
    return all(one[field].intersect(other[field]) for field in one.keys() & other.keys())
