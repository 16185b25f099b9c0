"""The packets and the rules of two families that are compared (both_families.py).

Rules that only log or count make no difference to the verdict, and are left out.  Packets that one family
alone has, or of which the families tell nothing, are dropped by rules in front of both programs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from .both_families import TWINS, TYPE_MASK, TYPE_OPTIONS
from .fact import ADDRESS_TYPES, PACKET_TYPES
from .fields import ICMP, ICMPV6, Family, Field, Fragment, top
from .headers import HEADER_BYTES
from .intervals import Values
from .program import Chain, Program
from .rule import Ends, Kind, Match, Rule
from .unreal import asking, drop, drop_broken

# Extension headers of IPv6, as protocols: they are none there, or the backends disagree about them.
_EXTENSION_HEADERS = (0, 43, 44, 51, 59, 60, 135, 139, 140)
_OF_INPUT = tuple(ADDRESS_TYPES.index(name) for name in ("LOCAL", "MULTICAST"))
NOT_COMPARED = "not compared: "  # how the keys of facts begin that no rule set asks


def as_compared(programs: tuple[Program, Program], chains: Collection[str]) -> tuple[Program, Program]:
    """Both programs without rules that only log or count; they drop the packets that are not compared.

    Those are fragments, packets with broken headers, packets of ICMP whose type has no twin, packets with
    extension headers, and broadcasts.  The rules that drop them are in front of the built-in chains and of
    *chains*.
    """
    of_types = {
        match.number.attribute: match
        for program in programs
        for rule in program.rules()
        for match in rule.matches
        if match.number is not None and match.name in ("addrtype", "pkttype")
    }
    everywhere = tuple(_guards(of_types))
    at_input = (*everywhere, *_guards_of_input(of_types))

    def compared(chain: Chain) -> Chain:
        rules = tuple(rule for rule in chain.rules if not _is_silent(rule))
        if chain.policy is None and chain.name not in chains:
            return chain.with_rules(rules)
        return chain.with_rules((*(at_input if chain.name == "INPUT" else everywhere), *rules))

    one, other = (
        replace(
            program,
            tables=tuple(
                replace(table, chains=tuple(compared(chain) for chain in table.chains)) for table in program
            ),
        )
        for program in programs
    )
    return one, other


def _is_silent(rule: Rule) -> bool:
    target = rule.target
    return target is None or (target.kind is Kind.VERDICT and target.ends is Ends.NEVER and not target.writes)


def _guards(of_types: Mapping[str, Match]) -> Iterator[Rule]:
    twins = Values.only(*(kind << 8 | code for kind, code in TWINS))
    no_twin = twins.complement(top(Field.ICMP, Family.IPV4))
    yield drop(asking({Field.FRAG: Values.only(Fragment.FIRST, Fragment.LATER)}))
    yield drop(asking({Field.PROTO: Values.only(ICMP), Field.ICMP: no_twin}))
    # ICMP in a packet of IPv6 is ICMPv6 here.
    yield drop(asking({Field.PROTO: Values.only(ICMPV6, *_EXTENSION_HEADERS)}))
    yield from map(drop_broken, HEADER_BYTES)
    for attribute, match in of_types.items():
        types = ADDRESS_TYPES if match.name == "addrtype" else tuple(map(str.upper, PACKET_TYPES))
        yield drop(_of_type(match, attribute, Values.only(types.index("BROADCAST"))))


def _guards_of_input(of_types: Mapping[str, Match]) -> Iterator[Rule]:
    """A packet that comes to INPUT is for an address of this host, or for several hosts."""
    for attribute, match in of_types.items():
        if attribute.startswith(TYPE_OPTIONS["--dst-type"]):
            yield drop(_of_type(match, attribute, Values.only(*_OF_INPUT).complement(TYPE_MASK)))


def _of_type(match: Match, attribute: str, types: Values) -> Match:
    """A match of the same number as *match*, for other values."""
    assert match.number is not None
    key = f"{NOT_COMPARED}{attribute} {types.pairs}"
    return match._replace(key=key, number=match.number._replace(values=types), negates="")
