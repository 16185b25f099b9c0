"""Rules that match no packet of a kernel: they ask for a state that no such packet has, a name that no
interface has, or the ICMP of the other family.

Proofs do not use this (connection_states.py), so `lint` tells it as a note: a rule set without these rules is
not proved equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .connection_states import LOOPBACK, why_no_state, why_not_of_kind
from .fields import ICMP, ICMPV6, STATES, Family, Field, interface_name
from .intervals import Values
from .program import Table
from .required import required

# Behind a rule with one of these targets, packets of table raw have other states.
_GIVE_STATES = ("CT", "NOTRACK")
_NO_NAME = ":/ "  # no interface has one of these in its name


@dataclass(frozen=True, slots=True)
class Unmatched:
    table: str
    chain: str
    line: int
    why: str


def unmatched(table: Table, family: Family) -> Iterator[Unmatched]:
    """The rules of *table* that match no packet."""
    gives_states = any(
        rule.target is not None and rule.target.name in _GIVE_STATES
        for chain in table.chains
        for rule in chain.rules
    )
    for chain in table.chains:
        for rule in chain.rules:
            asked = required(rule)
            why = _why_no_name(asked) or _why_no_protocol(asked, family)
            if not why and table.name != "raw":
                why = _why_no_state(asked, table.name, family)
            elif not why and chain.name == "PREROUTING" and not gives_states:
                why = _why_not_raw(asked)
            if why:
                yield Unmatched(table.name, chain.name, rule.line, why)


def _why_no_name(asked: Mapping[Field, Values]) -> str:
    for field in (Field.IIF, Field.OIF):
        pairs = asked[field].pairs if field in asked else ()
        if len(pairs) != 1:
            continue
        low, high = (interface_name(each) for each in pairs[0])
        wrong = [char for char in _NO_NAME if char in low]
        if wrong and high.startswith(low):
            alias = "; packets of an alias have the name of its interface" if ":" in wrong else ""
            return f"no interface has {wrong[0]!r} in its name ({low}){alias}"
    return ""


def _why_no_protocol(asked: Mapping[Field, Values], family: Family) -> str:
    if asked.get(Field.PROTO) != Values.only(ICMP if family is Family.IPV6 else ICMPV6):
        return ""
    if family is Family.IPV6:
        return "no host sends ICMP by IPv6, whose own is -p ipv6-icmp"
    return "no host sends ICMPv6 by IPv4, whose own is -p icmp"


def _states(asked: Mapping[Field, Values]) -> list[str]:
    """The states that the rule matches; none if it matches all or does not ask."""
    if Field.STATE not in asked:
        return []
    return [name for number, name in enumerate(STATES) if number in asked[Field.STATE]]


def _why_no_state(asked: Mapping[Field, Values], table: str, family: Family) -> str:
    states = _states(asked)
    whys = [why_no_state(table, False, state) for state in states]
    if states and all(whys):
        return whys[0]
    kinds = list(_kinds(asked)) if states else []
    whys = [why_not_of_kind(family, kind, state) for kind in kinds for state in states]
    return whys[0] if whys and all(whys) else ""


def _why_not_raw(asked: Mapping[Field, Values]) -> str:
    states = _states(asked)
    comes_by_wire = Field.IIF in asked and LOOPBACK not in asked[Field.IIF]
    whys = [why_no_state("raw", False, state) for state in states]
    return whys[0] if comes_by_wire and whys and all(whys) else ""


def _kinds(asked: Mapping[Field, Values]) -> Iterator[Mapping[Field, int | None]]:
    """The kinds of packets of one protocol that the rule matches, by type of ICMP or flags of tcp."""
    protocols = asked.get(Field.PROTO)
    if protocols is None or protocols.count != 1:
        return
    protocol = protocols.pairs[0][0]
    if Field.FLAGS in asked:
        for low, high in asked[Field.FLAGS].pairs:
            yield from ({Field.PROTO: protocol, Field.FLAGS: value} for value in range(low, high + 1))
    elif Field.ICMP in asked:
        pairs = asked[Field.ICMP].pairs
        types = {kind for low, high in pairs for kind in range(low >> 8, (high >> 8) + 1)}
        yield from ({Field.PROTO: protocol, Field.ICMP: kind << 8} for kind in sorted(types))
